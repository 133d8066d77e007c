"""A host in a network of its own, with an engine, an agent that serves its tasks' endpoint, and tasks that ask it."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from engine import PrivateEngine
from images import build_busybox
from inside import Inside, OwnNetwork, staying_in
from node import Node, until

PORT = 51679
INTROSPECTION = 51678


class Asker(NamedTuple):
    """One container, where it is and what it was told."""

    id: str
    task: str
    variables: dict[str, str]
    inside: Inside
    address: str
    pid: int

    @property
    def name(self) -> str:
        """By which its endpoint knows it."""
        return self.variables["ECS_CONTAINER_METADATA_URI_V4"].rpartition("/")[2]


class EndpointHost:
    """See the module. What is started from this thread while it is open is in its network as well."""

    def __init__(self, root: Path, network: OwnNetwork, engine: PrivateEngine, image: str, **environment: str) -> None:
        self.network = network
        self.engine = engine
        self.image = image
        self.node = Node(
            root / "node",
            engine.url,
            environment={
                "SEXTON_TASK_ENDPOINT_PORT": str(PORT),
                "SEXTON_INTROSPECTION": f"127.0.0.1:{INTROSPECTION}",
                "ECS_ENABLE_CONTAINER_METADATA": "true",
                "ECS_ENGINE_TASK_CLEANUP_WAIT_DURATION": "1s",
                "ECS_INSTANCE_ATTRIBUTES": '{"ecs.availability-zone":"rack-7"}',
            }
            | environment,
        )

    @property
    def gateway(self) -> str:
        """The host's address on the engine's bridge."""
        listed = json.loads(self.network.ip(f"-n {self.network.host} -json addr show dev {self.engine.name}"))
        return next(one["local"] for one in listed[0]["addr_info"] if one["family"] == "inet")

    def run(self, mode: str = "bridge", *names: str, **fields: Any) -> list[Asker]:
        """Start a task of containers that wait, and give them once they run."""
        ecs = self.node.ecs()
        base = {"image": self.image, "memory": 16, "command": ["sleep", "1000"], "stopTimeout": 2}
        definition = ecs.register_task_definition(
            family=f"asks-{mode}",
            networkMode=mode,
            containerDefinitions=[base | {"name": name} | fields for name in names or ("app",)],
        )["taskDefinition"]["taskDefinitionArn"]
        arn = ecs.run_task(taskDefinition=definition, tags=[{"key": "team", "value": "a"}])["tasks"][0]["taskArn"]

        def running() -> dict[str, Any] | None:
            (task,) = ecs.describe_tasks(tasks=[arn])["tasks"]
            return task if task["lastStatus"] == "RUNNING" else None

        task = until(running, f"{arn} runs")
        return [self.asker(one["runtimeId"], arn) for one in sorted(task["containers"], key=lambda c: c["name"])]

    def asker(self, container: str, arn: str) -> Asker:
        shown = json.loads(self.engine.call("GET", f"/containers/{container}/json"))
        variables = dict(one.split("=", 1) for one in shown["Config"]["Env"])
        networks = shown["NetworkSettings"]["Networks"].values()
        address = next((one["IPAddress"] for one in networks if one["IPAddress"]), "")
        pid = shown["State"]["Pid"]
        return Asker(container, arn, variables, Inside(pid), address, pid)

    def execute(self, one: Asker, *command: str) -> str:
        return self.engine.cli("exec", one.id, *command)

    def tables(self) -> list[str]:
        """The packet filter's tables of this host."""
        listed = subprocess.run(["nft", "list", "tables"], capture_output=True, text=True, check=True).stdout
        return [line.split()[-1] for line in listed.splitlines()]


@contextlib.contextmanager
def endpoint_host(root: Path, **environment: str) -> Iterator[EndpointHost]:
    """Everything, up and running."""
    network = OwnNetwork()
    try:
        with staying_in(network.path()), PrivateEngine(root / "engine") as engine:
            host = EndpointHost(root, network, engine, build_busybox(engine.url), **environment)
            with host.node:
                yield host
    finally:
        network.close()
