"""One host's Sexton as its users run it: real processes on free loopback ports, killed and restarted at will.

``Node`` runs either ``up`` or, with ``split``, ``control`` and ``agent`` apart. Each role's output is appended to a
file of its own over all its lives. ``close()`` ends the processes and removes what they made on the host: containers
by their container instance's label, cgroups by the tasks their logs name, and nothing of anybody else.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import boto3
from botocore.config import Config

from engine import EngineFailed, engine_call
from sexton.core import endpointrules
from started import Started

INSTANCE_LABEL = "dev.sexton.container-instance"
REGION = "us-east-1"
CGROUPS = Path("/sys/fs/cgroup")
QUIET = {"SEXTON_INTROSPECTION": "off", "SEXTON_TASK_ENDPOINT_PORT": "off"}
"""An agent that takes no fixed port of the machine and leaves its packet filter alone."""

READY_SECONDS = 30.0
"""A role is up within a second; a loaded machine takes longer."""

END_SECONDS = 60.0
"""An agent that leaves nothing gives its tasks 45 seconds."""

_TASK = re.compile(r"task/[^/ ]+/([0-9a-f]{32})")


class NodeFailed(AssertionError):
    """A role did not do what every test needs of it."""


def until(true: Callable[[], Any], what: str, seconds: float = READY_SECONDS) -> Any:
    """Poll until something holds, and return it."""
    deadline = time.monotonic() + seconds
    while not (found := true()):
        if time.monotonic() > deadline:
            raise NodeFailed(f"not within {seconds:g} s: {what}")
        time.sleep(0.02)
    return found


def errors_of(log: str) -> list[str]:
    """Its errors, without what the caretaker finds wrong with the host that the tests run on."""
    return [line for line in log.splitlines() if "level=error" in line and "logger=care.app" not in line]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Role:
    """One long-running command, in as many lives as a test gives it."""

    def __init__(
        self, name: str, log: Path, command: Iterable[str], environment: dict[str, str], within: Iterable[str] = ()
    ) -> None:
        self.name = name
        self.log_file = log
        self._command = [*within, sys.executable, "-m", "sexton", name, *command]
        self.environment = environment
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def log(self) -> str:
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""

    def start(self) -> None:
        with self.log_file.open("ab") as log:
            # A session of its own: Ctrl-C in the terminal ends the tests, which then end this in order.
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=self.environment,
            )

    def kill(self) -> None:
        """SIGKILL, and wait until the kernel has let go of everything it held."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def terminate(self, seconds: float = END_SECONDS) -> int:
        """SIGTERM; the exit code."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return self.wait(seconds)

    def wait(self, seconds: float = END_SECONDS) -> int:
        """The exit code of a process that ends by itself."""
        assert self._process is not None
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise NodeFailed(f"{self.name} does not end within {seconds:g} s:\n{self.log[-3000:]}") from None


class Node(Started):
    """A control plane and an agent on this host, in one directory; a context manager."""

    def __init__(
        self,
        root: Path,
        engine_url: str,
        *,
        split: bool = False,
        leave_nothing: bool = False,
        host: str = "127.0.0.1",
        environment: dict[str, str] | None = None,
    ) -> None:
        self.root = root
        self.engine_url = engine_url
        self.port = free_port()
        self.host = host
        self.endpoint = f"http://{host}:{self.port}"
        self._split = split
        self._more = {**QUIET, "ECS_IMAGE_PULL_BEHAVIOR": "prefer-cached"} | (environment or {})
        self._made: list[Role] = []
        self._instances: set[str] = set()
        self._had_parents = set(CGROUPS.glob("*/ecs")) | set(CGROUPS.glob("ecs"))
        listen = ("--listen", f"{host}:{self.port}", *(["--insecure-plaintext"] if host != "127.0.0.1" else []))
        on_engine = ("--docker-host", engine_url, *(["--leave-nothing"] if leave_nothing else []))
        root.mkdir(parents=True, exist_ok=True)
        if split:
            self.control = self.role("control", "--data-dir", f"{root}/control", *listen)
            self.agent = self.role("agent", "--data-dir", f"{root}/agent", "--backend", self.endpoint, *on_engine)
        else:
            self.control = self.agent = self.role("up", "--data-dir", f"{root}/control", *listen, *on_engine)

    def role(self, name: str, *command: str, label: str = "") -> Role:
        """One more command in this node's environment, which holds no credentials."""
        environment = {"PATH": os.environ["PATH"], "AWS_EC2_METADATA_DISABLED": "true", "HOME": str(self.root)}
        for passed_on in ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE"):
            if passed_on in os.environ:
                environment[passed_on] = os.environ[passed_on]
        self._made.append(Role(name, self.root / f"{label or name}.log", command, environment | self._more))
        return self._made[-1]

    @property
    def roles(self) -> tuple[Role, ...]:
        return (self.control, self.agent) if self._split else (self.control,)

    def start(self) -> None:
        """Start what does not run, and wait until it is healthy."""
        self.start_control()
        self.start_agent()

    def start_control(self) -> None:
        if not self.control.running:
            self.control.start()
        self._until(self.control, self.control_answers, "the control plane answers")

    def start_agent(self) -> None:
        if not self.agent.running:
            self.agent.environment.update(self.credentials())
            self.agent.start()
        self._until(self.agent, self.agent_is_connected, "the agent is connected")

    def _until(self, role: Role, true: Callable[[], Any], what: str) -> None:
        def look() -> Any:
            if not role.running:
                raise NodeFailed(f"{role.name} ended with {role.wait()}:\n{role.log[-3000:]}")
            return true()

        try:
            until(look, what)
        except NodeFailed as error:
            raise NodeFailed(f"{error}\n{role.log[-3000:]}") from None

    def kill(self) -> None:
        """SIGKILL to every role at once."""
        for role in self.roles:
            role.kill()

    def restart(self) -> None:
        """Kill and start again at once, without waiting until anything is healthy."""
        self.kill()
        for role in self.roles:
            role.start()

    def terminate(self, seconds: float = END_SECONDS) -> list[int]:
        """SIGTERM to every role, the agent first; their exit codes."""
        return [role.terminate(seconds) for role in reversed(self.roles) if role.running]

    def credentials(self) -> dict[str, str]:
        """What an AWS client needs in its environment; made by the control plane at its first start."""
        key = json.loads((self.root / "control/keys.json").read_text())["keys"][0]
        return {
            "AWS_ACCESS_KEY_ID": key["access_key_id"],
            "AWS_SECRET_ACCESS_KEY": key["secret_access_key"],
            "AWS_DEFAULT_REGION": REGION,
        }

    def ecs(self, **config: Any) -> Any:
        """A stock client of the control plane."""
        return self.client("ecs", **config)

    def client(self, service: str, **config: Any) -> Any:
        """The same of another of its services."""
        key = self.credentials()
        return boto3.client(
            service,
            endpoint_url=self.endpoint,
            region_name=REGION,
            aws_access_key_id=key["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=key["AWS_SECRET_ACCESS_KEY"],
            config=Config(
                **({"retries": {"total_max_attempts": 1}, "connect_timeout": 5, "read_timeout": 30} | config)
            ),
        )

    def control_answers(self) -> bool:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=2.0)
        with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException):
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        return False

    def agent_health(self) -> dict[str, Any]:
        """What the agent says of itself on its socket; empty while it does not listen."""
        path = f"{self.root}/{'agent' if self._split else 'control'}/agent.sock"
        with contextlib.suppress(OSError, http.client.HTTPException, EngineFailed, ValueError):
            health: dict[str, Any] = json.loads(engine_call(f"unix://{path}", "GET", "/health"))
            self._instances.add(health["containerInstanceArn"])
            return health
        return {}

    def agent_is_connected(self) -> bool:
        return bool(self.agent_health().get("connectedSince"))

    def containers(self) -> list[dict[str, Any]]:
        """This node's containers, in any state."""
        if not self._instances:
            self.agent_health()
        found: list[dict[str, Any]] = []
        for instance in self._instances:
            filters = json.dumps({"label": [f"{INSTANCE_LABEL}={instance}"]})
            path = f"/containers/json?all=1&filters={quote(filters)}"
            found += json.loads(engine_call(self.engine_url, "GET", path))
        return found

    def task_ids(self) -> set[str]:
        """Every task this node's logs ever named."""
        return {found for role in self._made for found in _TASK.findall(role.log)}

    def cgroups(self) -> list[Path]:
        """Directories of this node's tasks, in every hierarchy."""
        mine = self.task_ids()
        return [path for path in [*CGROUPS.glob("*/ecs/*"), *CGROUPS.glob("ecs/*")] if path.name in mine]

    def relay(self) -> int:
        """The process of the log relay, which outlives its agent; 0 while there is none."""
        for file in self.root.glob("*/logspool/relay.json"):
            pid = int(json.loads(file.read_text())["pid"])
            with contextlib.suppress(OSError):
                if b"sexton.agent.logs.relay" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    return pid
        return 0

    def end_relay(self) -> None:
        if pid := self.relay():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def close(self) -> None:
        """End everything and remove what was left; can be repeated."""
        self.agent_health()
        for role in reversed(self._made):
            role.kill()
        if self._more["SEXTON_TASK_ENDPOINT_PORT"] != "off":
            for place in ("agent", "control"):
                table = endpointrules.table_name(str((self.root / place).resolve()))
                subprocess.run(["nft", "-f", "-"], input=endpointrules.removal(table).encode(), capture_output=True)
        self.end_relay()
        with contextlib.suppress(OSError, http.client.HTTPException, EngineFailed):
            for row in self.containers():
                with contextlib.suppress(EngineFailed):  # gone meanwhile
                    engine_call(self.engine_url, "DELETE", f"/containers/{row['Id']}?force=1&v=1")
        for path in self.cgroups():
            remove_tree(path)
        for parent in {*CGROUPS.glob("*/ecs"), *CGROUPS.glob("ecs")} - self._had_parents:
            with contextlib.suppress(OSError):  # somebody else's by now
                parent.rmdir()


def remove_tree(place: Path) -> None:
    """Remove cgroups, deepest first; the engine may be about to remove some of them itself."""
    for path in [*sorted(_below(place), key=lambda one: -len(one.parts)), place]:
        with contextlib.suppress(FileNotFoundError):
            path.rmdir()


def _below(place: Path) -> Iterator[Path]:
    with contextlib.suppress(FileNotFoundError):
        yield from (path for path in place.rglob("*") if path.is_dir())
