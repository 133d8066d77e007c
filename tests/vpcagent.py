"""One agent with networks of its own for its tasks: in a network namespace, with an engine, told by a scripted plane.

    with VpcAgent(directory) as host:
        host.networks(host.interface(1), groups=...)
        host.run(1, command)

A task's number is also the last byte of its address. Nothing of the machine's own network is used.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import subprocess
import time
from pathlib import Path
from typing import Any

import msgspec

from engine import EngineFailed, PrivateEngine
from images import IMAGE, build_busybox
from nethosts import SANDBOX_LABEL, Namespace, inside
from node import CGROUPS, INSTANCE_LABEL, NodeFailed, Role, until
from scripted_plane import ACCOUNT, CLUSTER, REGION, ScriptedPlane
from sexton.core import wiring
from sexton.wire.network import PROTOCOL, Group, Interface, Rule, SextonNetworkMessage, Subnet
from started import Started

Json = dict[str, Any]
SUBNET = Subnet(
    id="subnet-1",
    vpc="vpc-1",
    cidr="10.77.0.0/16",
    gateway="10.77.0.1",
    vni=77,
    ipv6_cidr="fd77::/64",
    ipv6_gateway="fd77::1",
)
OPEN = Group(
    id="sg-open",
    vpc="vpc-1",
    ingress=(Rule(id="in4", protocol="-1", cidr="0.0.0.0/0"), Rule(id="in6", protocol="-1", cidr="::/0")),
    egress=(Rule(id="out4", protocol="-1", cidr="0.0.0.0/0"), Rule(id="out6", protocol="-1", cidr="::/0")),
)
CLOSED = Group(id="sg-closed", vpc="vpc-1", egress=(Rule(id="out4", protocol="-1", cidr="0.0.0.0/0"),))


class VpcAgent(Started):
    """A context manager."""

    def __init__(
        self,
        root: Path,
        *,
        address: str = "10.98.0.2",
        beside: VpcAgent | None = None,
        environment: dict[str, str] | None = None,
    ) -> None:
        self.root = root
        root.mkdir(parents=True, exist_ok=True)
        self.instance = f"arn:aws:ecs:{REGION}:{ACCOUNT}:container-instance/default/{secrets.token_hex(16)}"
        self.tag = wiring.tag_of(self.instance)
        self.task_key = secrets.token_hex(4)  # tasks of this host are told from others' by it
        self.namespace = Namespace(f"sv{secrets.token_hex(4)}")
        self.address = address
        # The far end of its cable is in the host beside it, or nowhere.
        far = ("far", "netns", beside.namespace.name) if beside else ("out",)
        self.namespace.run("ip", "link", "add", "eth0", "type", "veth", "peer", *far)
        if beside:
            beside.namespace.run("ip", "addr", "add", f"{beside.address}/32", "dev", "far")
            beside.namespace.run("ip", "link", "set", "far", "up")
            # Not a device of its default route: whoever has several says where else tasks' answers may come in.
            with inside(beside.namespace.path):
                Path("/proc/sys/net/ipv4/conf/far/forwarding").write_text("1")
            beside.namespace.run("ip", "route", "add", f"{address}/32", "dev", "far", "src", beside.address)
        else:
            self.namespace.run("ip", "link", "set", "out", "up")
        self.namespace.run("ip", "link", "set", "eth0", "up")
        self.namespace.run("ip", "addr", "add", f"{address}/24", "dev", "eth0")
        self.namespace.run("ip", "route", "add", "default", "via", "10.98.0.1")
        self.engine = PrivateEngine(root / "engine", live_restore=True, within=self.namespace.within)
        self.plane = ScriptedPlane(self.instance, self.namespace.path)
        self._environment = environment or {}
        self.agent: Role
        self._revision = 0
        self.interfaces: tuple[Interface, ...] = ()
        self.groups: tuple[Group, ...] = (OPEN, CLOSED)
        self.subnets: tuple[Subnet, ...] = (SUBNET,)

    def start(self) -> None:
        self.engine.start()
        build_busybox(self.engine.url)
        self.plane.__enter__()
        environment = {
            "PATH": os.environ["PATH"],
            "AWS_EC2_METADATA_DISABLED": "true",
            "HOME": str(self.root),
            "ECS_IMAGE_PULL_BEHAVIOR": "prefer-cached",
            "SEXTON_INTROSPECTION": "off",
            "ECS_ENGINE_TASK_CLEANUP_WAIT_DURATION": "1m",
        }
        environment |= {
            name: os.environ[name] for name in ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE") if name in os.environ
        }
        self.agent = Role(
            "agent",
            self.root / "agent.log",
            ("--data-dir", f"{self.root}/agent", "--backend", self.plane.url, "--docker-host", self.engine.url),
            environment | self.plane.environment | self._environment,
            within=self.namespace.within,
        )
        self.start_agent()

    def start_agent(self) -> None:
        connections = len(self.plane.connections)
        self.agent.start()
        until(lambda: len(self.plane.connections) > connections, f"the agent connects:\n{self.agent.log[-3000:]}")

    # What the control plane says.

    def interface(self, number: int, *, groups: tuple[str, ...] = ("sg-open",), ipv6: bool = False) -> Interface:
        """The interface of task ``number``."""
        return Interface(
            id=f"eni-{self.task_key}{number:09x}",
            subnet="subnet-1",
            mac=f"0a:77:00:00:{number >> 8:02x}:{number & 255:02x}",
            ipv4=f"10.77.{number >> 8}.{number & 255}",
            ipv6=f"fd77::{number:x}" if ipv6 else "",
            groups=groups,
            task_arn=self.arn(number),
        )

    def networks(self, *interfaces: Interface, wait: bool = True) -> str:
        """Say what this host's networks are; returns once the agent says that they are in force."""
        self.interfaces = interfaces
        self._revision += 1
        message_id = f"networks-{self._revision}-{secrets.token_hex(2)}"
        state = SextonNetworkMessage(
            message_id=message_id,
            cluster_arn=CLUSTER,
            container_instance_arn=self.instance,
            revision=self._revision,
            subnets=self.subnets,
            groups=self.groups,
            interfaces=interfaces,
        )
        # Every later connection hears of it too, as a control plane does it.
        self.plane.greeting = (json.dumps({"type": "SextonNetworkMessage", "message": msgspec.to_builtins(state)}),)
        self.plane.raw(*self.plane.greeting)
        if wait:
            until(lambda: self.plane.acknowledged(message_id), f"networks are in force:\n{self.agent.log[-3000:]}")
        return message_id

    def arn(self, number: int) -> str:
        return f"arn:aws:ecs:{REGION}:{ACCOUNT}:task/default/{self.task_key}{number:024x}"

    def task(self, number: int, *commands: str, mode: str = "awsvpc", **more: Any) -> Json:
        """A payload's task with one container per command; without a command it sleeps."""
        one = self.interface(number)
        given: Json = {
            "ec2Id": one.id,
            "macAddress": one.mac,
            "attachmentArn": f"arn:aws:ecs:{REGION}:{ACCOUNT}:attachment/{number}",
            "interfaceAssociationProtocol": PROTOCOL,
            "ipv4Addresses": [{"privateAddress": one.ipv4, "primary": True}],
            "privateDnsName": f"ip-10-77-{number >> 8}-{number & 255}.ec2.internal",
            "subnetGatewayIpv4Address": "10.77.0.1/16",
        }
        return (
            {
                "arn": self.arn(number),
                "family": "net",
                "version": "1",
                "taskClusterArn": CLUSTER,
                "desiredStatus": "RUNNING",
                "networkMode": mode,
                "containers": [
                    {
                        "name": f"main{index or ''}",
                        "image": IMAGE,
                        "essential": True,
                        "command": ["sh", "-c", f"trap 'exit 0' TERM; {command}"],
                        "cpu": 0,
                        "memory": 64,
                        "stopTimeout": 2,
                    }
                    for index, command in enumerate(commands or ("sleep 3600 & wait",))
                ],
            }
            | ({"elasticNetworkInterfaces": [given]} if mode == "awsvpc" else {})
            | more
        )

    def run(self, *numbers: int, seconds: float = 60.0) -> None:
        """Run tasks that sleep, with their interfaces, and wait until they run."""
        self.networks(*self.interfaces, *(self.interface(one) for one in numbers))
        self.plane.payload(*(self.task(one) for one in numbers))
        self.until_told("RUNNING", *numbers, seconds=seconds)

    def stop(self, *numbers: int) -> None:
        self.plane.payload(*(self.task(one) | {"desiredStatus": "STOPPED"} for one in numbers))

    def until_told(self, status: str, *numbers: int, seconds: float = 60.0) -> None:
        def missing() -> list[int]:
            return [one for one in numbers if status not in self.plane.told(self.arn(one))]

        try:
            until(lambda: not missing(), f"these tasks are {status}", seconds)
        except NodeFailed as error:
            raise NodeFailed(f"{error}: {missing()}\n{self.agent.log[-4000:]}") from None

    def reason(self, number: int) -> str:
        """Why a task ended, as it was reported."""
        told = [one.body for one in self.plane.reports if one.body.get("task") == self.arn(number)]
        return next((one.get("reason", "") for one in told if one.get("status") == "STOPPED"), "")

    # What there is.

    def containers(self, label: str = INSTANCE_LABEL) -> list[Json]:
        rows = json.loads(self.engine.call("GET", "/containers/json?all=1"))
        return [row for row in rows if row["Labels"].get(label) == self.instance]

    def sandboxes(self) -> list[str]:
        """Names of this agent's sandboxes."""
        return sorted(row["Names"][0].lstrip("/") for row in self.containers(SANDBOX_LABEL))

    def container_of(self, number: int, name: str = "main") -> str:
        for row in self.containers():
            labels = row["Labels"]
            whose = (labels.get("com.amazonaws.ecs.task-arn"), labels.get("com.amazonaws.ecs.container-name"))
            if whose == (self.arn(number), name):
                return str(row["Id"])
        raise AssertionError(f"task {number} has no container {name}")

    def space_of(self, number: int, name: str = "main") -> str:
        """The network namespace of a running task, as one of its containers has it."""
        row = json.loads(self.engine.call("GET", f"/containers/{self.container_of(number, name)}/json"))
        return f"/proc/{row['State']['Pid']}/ns/net"

    def in_task(self, number: int, *command: str, check: bool = True) -> str:
        """What one of the machine's programs prints in a task's network."""
        done = subprocess.run(
            ["nsenter", f"--net={self.space_of(number)}", *command], capture_output=True, text=True, timeout=30
        )
        assert not check or done.returncode == 0, f"{command}: {done.stdout} {done.stderr}"
        return done.stdout

    def exec(self, number: int, *command: str) -> str:
        """What a command inside a task's container prints."""
        return self.engine.cli("exec", self.container_of(number), *command)

    def routers(self) -> list[str]:
        return sorted(one.name for one in Path("/run/netns").glob(f"sexton-{self.tag}-*"))

    def devices(self) -> set[str]:
        """Tasks' devices in the routers."""
        found: set[str] = set()
        for name in self.routers():
            with inside(f"/run/netns/{name}"):
                rows = json.loads(subprocess.run(["ip", "-json", "link"], capture_output=True, check=True).stdout)
            found |= {row["ifname"] for row in rows if row["ifname"].startswith("e") and len(row["ifname"]) > 4}
        return found

    def leftovers(self) -> Json:
        """Whatever of this agent's is there besides its own process: nothing, when there is no task."""
        routes = json.loads(self.namespace.run("ip", "-json", "route"))
        links = json.loads(self.namespace.run("ip", "-json", "link"))
        found = {
            "containers": [row["Names"] for row in self.containers()],
            "sandboxes": [one for one in self.sandboxes() if "-task-" in one],
            "routers": self.routers(),
            "routes": [row["dst"] for row in routes if row.get("protocol") == "83"],
            "links": [row["ifname"] for row in links if row["ifname"].startswith(wiring.uplink_prefix(self.tag))],
            "rules": [line for line in self.namespace.run("nft", "list", "tables").splitlines() if self.tag in line],
            "cgroups": [str(path) for path in self.cgroups() if self.task_key in path.name],
        }
        return {what: rest for what, rest in found.items() if rest}

    def cgroups(self) -> list[Path]:
        return [
            path
            for path in [*CGROUPS.glob("*/ecs/*"), *CGROUPS.glob("ecs/*")]
            if path.name.startswith((self.task_key, f"sandbox{self.tag}"))
        ]

    def close(self) -> None:
        if hasattr(self, "agent"):
            self.agent.kill()
        with contextlib.suppress(EngineFailed, OSError):
            for label in (INSTANCE_LABEL, SANDBOX_LABEL):
                for row in self.containers(label):
                    with contextlib.suppress(EngineFailed):
                        self.engine.call("DELETE", f"/containers/{row['Id']}?force=1&v=1")
        if self.plane.port:
            self.plane.__exit__()
        self.engine.close()
        for name in self.routers():
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)
        self.namespace.close()
        for path in self.cgroups():
            _remove_cgroup(path)


def _remove_cgroup(path: Path) -> None:
    deadline = time.monotonic() + 5
    while path.exists() and time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            for inner in sorted(path.rglob("*"), key=lambda one: -len(one.parts)):
                if inner.is_dir():
                    inner.rmdir()
            path.rmdir()
