"""Hosts made of network namespaces: agents that each have an engine and a network of their own, on one machine.

    lab namespace:  control plane on 10.99.0.1, a bridge, whatever plays the outside world
        |-- host 1:  10.99.0.2, its engine and its agent
        `-- host 2:  10.99.0.3, the same

``Lab`` makes them, ``close()`` removes everything. The machine's own network is never touched: a test talks to the
control plane through a listener on loopback whose connections go on inside the lab, so boto3, the AWS CLI and Terraform
work unchanged. ``inside`` runs a block of a test in any of the namespaces.
"""

from __future__ import annotations

import contextlib
import ctypes
import http.client
import json
import os
import random
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config

from engine import EngineFailed, PrivateEngine, engine_call
from images import build_busybox
from node import CGROUPS, INSTANCE_LABEL, REGION, Role, until
from started import Started

SANDBOX_LABEL = "dev.sexton.sandbox"
CONTROL_ADDRESS = "10.99.0.1"
CONTROL_ADDRESS6 = "fd99::1"
CONTROL_PORT = 7070
_NEWNET = 0x40000000

_libc = ctypes.CDLL(None, use_errno=True)


@contextlib.contextmanager
def inside(path: str) -> Iterator[None]:
    """Be in a network namespace for a block, with this thread alone. Sockets made in it stay there."""
    with open("/proc/thread-self/ns/net") as before, open(path) as there:
        _enter(there.fileno())
        try:
            yield
        finally:
            _enter(before.fileno())


def _enter(handle: int) -> None:
    if _libc.setns(handle, _NEWNET):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def run(*command: str, within: Sequence[str] = ()) -> str:
    done = subprocess.run([*within, *command], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr.strip()}"
    return done.stdout


class Namespace:
    """One network namespace with loopback up; a context of its own for commands through ``within``."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.path = f"/run/netns/{name}"
        # Not "ip netns exec": that would hide the cgroup mounts behind a fresh /sys.
        self.within = ("nsenter", f"--net={self.path}")
        run("ip", "netns", "add", name)
        run("ip", "link", "set", "lo", "up", within=self.within)

    def run(self, *command: str) -> str:
        return run(*command, within=self.within)

    def close(self) -> None:
        subprocess.run(["ip", "netns", "delete", self.name], capture_output=True)


class Host:
    """One host: its namespace, its engine, its agent."""

    def __init__(self, lab: Lab, number: int, environment: dict[str, str]) -> None:
        self.lab = lab
        self.number = number
        self.address = f"10.99.0.{number + 1}"
        self.address6 = f"fd99::{number + 1}"
        self.namespace = Namespace(f"{lab.name}h{number}")
        uplink = f"{lab.name}p{number}"
        lab.namespace.run("ip", "link", "add", uplink, "type", "veth", "peer", "eth0", "netns", self.namespace.name)
        lab.namespace.run("ip", "link", "set", uplink, "master", "lab", "up")
        for command in (
            f"link set eth0 up|addr add {self.address}/24 dev eth0|-6 addr add {self.address6}/64 dev eth0 nodad|"
            f"route add default via {CONTROL_ADDRESS}|-6 route add default via {CONTROL_ADDRESS6}"
        ).split("|"):
            self.namespace.run("ip", *command.split())
        self.root = lab.root / f"host{number}"
        self.engine = PrivateEngine(self.root / "engine", live_restore=True, within=self.namespace.within)
        self._environment = environment
        self._role: Role | None = None
        self.instance = ""

    @property
    def agent(self) -> Role:
        assert self._role is not None
        return self._role

    def start(self) -> None:
        """Start what does not run, and wait until the agent is connected."""
        self.engine.start()
        if self._role is None:
            build_busybox(self.engine.url)
            self._role = Role(
                "agent",
                self.root / "agent.log",
                (
                    *("--data-dir", f"{self.root}/agent", "--backend", self.lab.inner_endpoint),
                    *("--docker-host", self.engine.url),
                ),
                self.lab.environment
                | {"ECS_IMAGE_PULL_BEHAVIOR": "prefer-cached", "SEXTON_INTROSPECTION": "off"}
                | self.lab.credentials()
                | self._environment,
                within=self.namespace.within,
            )
        self.start_agent()

    def start_agent(self) -> None:
        if not self.agent.running:
            self.agent.start()
        until(self.connected, f"host {self.number} is connected:\n{self.agent.log[-2000:]}")

    def ask(self, path: str) -> Any:
        """What the agent answers on its own socket."""
        return json.loads(engine_call(f"unix://{self.root}/agent/agent.sock", "GET", path))

    def connected(self) -> bool:
        assert self.agent.running, self.agent.log[-3000:]
        with contextlib.suppress(OSError, http.client.HTTPException, EngineFailed, ValueError):
            health = self.ask("/health")
            self.instance = health["containerInstanceArn"]
            return bool(health.get("connectedSince"))
        return False

    def containers(self, label: str = INSTANCE_LABEL) -> list[dict[str, Any]]:
        """Containers in any state that carry a label: tasks' own, or with ``SANDBOX_LABEL`` what holds namespaces."""
        rows = json.loads(self.engine.call("GET", "/containers/json?all=1"))
        return [row for row in rows if label in row["Labels"]]

    def exec(self, container: str, *command: str, check: bool = True) -> str:
        """What a command inside a container printed."""
        done = subprocess.run(
            ["docker", "--host", self.engine.url, "exec", container, *command],
            capture_output=True,
            text=True,
            timeout=30,
            env={"PATH": os.environ["PATH"], "DOCKER_CONFIG": f"{self.root}/cli"},
        )
        assert not check or done.returncode == 0, f"{command}: {done.stdout} {done.stderr}"
        return done.stdout

    def container_of(self, task_arn: str, name: str = "") -> str:
        """The engine's id of a task's container."""
        for row in self.containers():
            labels = row["Labels"]
            if labels.get("com.amazonaws.ecs.task-arn") == task_arn and name in (
                "",
                labels.get("com.amazonaws.ecs.container-name"),
            ):
                return str(row["Id"])
        raise AssertionError(f"no container of {task_arn} on host {self.number}")

    def task_namespace(self, task_arn: str) -> str:
        """The path of the network namespace of a running task."""
        row = json.loads(self.engine.call("GET", f"/containers/{self.container_of(task_arn)}/json"))
        return f"/proc/{row['State']['Pid']}/ns/net"

    def routers(self) -> list[str]:
        """Names of the network namespaces that this host's agent has made and that are there."""
        if not self.instance:
            return []
        from sexton.core.wiring import tag_of

        prefix = f"sexton-{tag_of(self.instance)}-"
        return sorted(path.name for path in Path("/run/netns").glob(f"{prefix}*"))

    def close(self) -> None:
        if self._role is not None:
            self._role.kill()
        self.engine.close()
        for name in self.routers():
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)
        self.namespace.close()


class Lab(Started):
    """A control plane and so many hosts; a context manager."""

    def __init__(
        self, root: Path, hosts: int = 2, environment: dict[str, str] | None = None, control: Sequence[str] = ()
    ) -> None:
        self.root = root
        root.mkdir(parents=True, exist_ok=True)
        self.name = f"sl{random.randrange(0xFFFFFF):06x}"
        self._had_parents = set(CGROUPS.glob("*/ecs")) | set(CGROUPS.glob("ecs"))
        self.inner_endpoint = f"http://{CONTROL_ADDRESS}:{CONTROL_PORT}"
        self.environment = {"PATH": os.environ["PATH"], "AWS_EC2_METADATA_DISABLED": "true", "HOME": str(root)} | {
            name: os.environ[name] for name in ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE") if name in os.environ
        }
        self.namespace = Namespace(self.name)
        self.hosts: list[Host] = []
        self._door: Door | None = None
        self._control_options = tuple(control)
        try:
            for command in (
                f"link add lab type bridge|link set lab up|addr add {CONTROL_ADDRESS}/24 dev lab|"
                f"-6 addr add {CONTROL_ADDRESS6}/64 dev lab nodad"
            ).split("|"):
                self.namespace.run("ip", *command.split())
            self.hosts += [Host(self, number, environment or {}) for number in range(1, hosts + 1)]
        except BaseException:
            self.close()
            raise
        self.control = Role(
            "control",
            root / "control.log",
            (
                *("--data-dir", f"{root}/control", "--listen", f"{CONTROL_ADDRESS}:{CONTROL_PORT}"),
                *("--insecure-plaintext", *self._control_options),
            ),
            self.environment | (environment or {}),
            within=self.namespace.within,
        )

    def start(self) -> None:
        if self._door is None:
            self._door = Door(self.namespace.path, CONTROL_ADDRESS, CONTROL_PORT)
        self.start_control()
        for host in self.hosts:
            host.start()

    def start_control(self) -> None:
        if not self.control.running:
            self.control.start()
        until(self._answers, f"the control plane answers:\n{self.control.log[-2000:]}")

    @property
    def endpoint(self) -> str:
        """Where clients on this machine reach the control plane."""
        assert self._door is not None
        return f"http://127.0.0.1:{self._door.port}"

    def _answers(self) -> bool:
        assert self.control.running and self._door, self.control.log[-3000:]
        with contextlib.suppress(OSError, http.client.HTTPException):
            connection = http.client.HTTPConnection("127.0.0.1", self._door.port, timeout=2.0)
            with contextlib.closing(connection):
                connection.request("GET", "/health")
                return connection.getresponse().status == 200
        return False

    def credentials(self) -> dict[str, str]:
        key = json.loads((self.root / "control/keys.json").read_text())["keys"][0]
        return {
            "AWS_ACCESS_KEY_ID": key["access_key_id"],
            "AWS_SECRET_ACCESS_KEY": key["secret_access_key"],
            "AWS_DEFAULT_REGION": REGION,
        }

    def client(self, service: str = "ecs") -> Any:
        """A stock client of the control plane: ecs, ec2 or sts."""
        key = self.credentials()
        return boto3.client(
            service,
            endpoint_url=self.endpoint,
            region_name=REGION,
            aws_access_key_id=key["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=key["AWS_SECRET_ACCESS_KEY"],
            config=Config(retries={"total_max_attempts": 1}, connect_timeout=5, read_timeout=30),
        )

    def close(self) -> None:
        """End and remove everything; can be repeated."""
        for host in self.hosts:
            host.close()
        if hasattr(self, "control"):
            self.control.kill()
        if self._door is not None:
            self._door.close()
        self.namespace.close()
        for parent in {*CGROUPS.glob("*/ecs"), *CGROUPS.glob("ecs")}:
            for path in parent.iterdir():
                if any(path.name in host.agent.log for host in self.hosts if host._role is not None):
                    with contextlib.suppress(OSError):
                        path.rmdir()
            if parent not in self._had_parents:
                with contextlib.suppress(OSError):  # somebody else's by now
                    parent.rmdir()


class Door:
    """A port on this machine's loopback whose connections go on inside a namespace."""

    def __init__(self, path: str, address: str, port: int) -> None:
        self._path, self._target = path, (address, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._open: set[socket.socket] = set()
        self._thread = threading.Thread(target=self._serve, name="door", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                outer, _ = self._listener.accept()
                try:
                    with inside(self._path):
                        inner = socket.create_connection(self._target, timeout=5.0)
                except OSError:
                    outer.close()
                    continue
                inner.settimeout(None)
                self._open |= {outer, inner}
                for here, there in ((outer, inner), (inner, outer)):
                    threading.Thread(target=self._pass, args=(here, there), daemon=True).start()

    def _pass(self, here: socket.socket, there: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := here.recv(65536):
                there.sendall(data)
        for one in (here, there):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        here.close()
        self._open.discard(here)

    def close(self) -> None:
        for one in (self._listener, *self._open):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        self._thread.join(5.0)


def each(hosts: Sequence[Host], act: Callable[[Host], None]) -> None:
    """Something for every host, all at once."""
    threads = [threading.Thread(target=act, args=(host,)) for host in hosts]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
