"""Two control planes over one etcd: keys of roles are both planes' keys, and one of the two keeps the logs."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import boto3
import msgspec
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from etcd import PrivateEtcd
from fleet_agent import FleetAgent
from node import Role, free_port, until
from rolelab import ROLE, statement, write_roles
from sexton.cloud.credentials import Credentials
from sexton.wire import acs, acs_task, ecs

ROLES = {"app": [statement("ecs:ListClusters")], "log": [statement("logs:*")]}
ABILITIES = ("capability.task-iam-role", "capability.logging-driver.awslogs", "capability.docker-remote-api.1.25")
LOG = {"awslogs-group": "/app", "awslogs-region": "us-east-1", "awslogs-stream-prefix": "p"}

pytestmark = pytest.mark.timeout(90)


class Plane:
    """One control plane of several."""

    def __init__(self, number: int, root: Path, store: str, port: int, keeper: int) -> None:
        self.port = port
        self.endpoint = f"http://127.0.0.1:{port}"
        self._data = root / f"control-{number}"
        environment = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ} | {
            "HOME": str(root),
            "SEXTON_ROLES": str(root / "roles.toml"),
            "SEXTON_LOGS_ENDPOINT": f"http://127.0.0.1:{keeper}",
        }
        words = ("--data-dir", str(self._data), "--listen", f"127.0.0.1:{port}", "--store", store)
        self.role = Role("control", root / f"control-{number}.log", words, environment)

    @property
    def key(self) -> Credentials:
        found = json.loads((self._data / "keys.json").read_text())["keys"][0]
        return Credentials(found["access_key_id"], found["secret_access_key"])

    async def start(self) -> None:
        self.role.start()

        def answers() -> bool:
            assert self.role.running, self.role.log[-2000:]
            try:
                self.client("ecs").list_clusters()
            except Exception:  # it is starting: no key yet, or no port
                return False
            return True

        await asyncio.to_thread(until, answers, "the control plane answers")

    def client(self, service: str, key: Credentials | None = None) -> Any:
        own = key or self.key
        return boto3.client(
            service,
            region_name="us-east-1",
            endpoint_url=self.endpoint,
            aws_access_key_id=own.access_key_id,
            aws_secret_access_key=own.secret_access_key,
            aws_session_token=own.session_token,
            config=Config(retries={"max_attempts": 0}),
        )


class Agent(FleetAgent):
    """It keeps every payload, with the control plane that sent it."""

    sent: list[tuple[str, acs_task.Task]]

    async def _insist(self, client: Any, operation: str, request: Any) -> Any:
        if operation == "RegisterContainerInstance":
            more = [ecs.Attribute(name=f"com.amazonaws.ecs.{one}") for one in ABILITIES]
            more.append(ecs.Attribute(name="ecs.capability.execution-role-awslogs"))
            request = msgspec.structs.replace(request, attributes=(*request.attributes, *more))
        return await super()._insist(client, operation, request)

    async def _take(self, client: Any, socket: Any, message: object) -> None:
        if isinstance(message, acs.PayloadMessage):
            self.sent += [(self.connected_to, one) for one in message.tasks or ()]
        await super()._take(client, socket, message)

    def keys_from(self, plane: Plane) -> acs_task.IAMRoleCredentials | None:
        """The task role's keys in the newest payload from one of the planes."""
        found = [task.role_credentials for by, task in self.sent if by.startswith(plane.endpoint)]
        return found[-1] if found else None


@pytest.fixture
async def planes(tmp_path: Path) -> AsyncIterator[tuple[Plane, Plane]]:
    """The first one keeps the logs."""
    write_roles(tmp_path / "roles.toml", ROLES)
    async with AsyncExitStack() as stack:
        etcd = stack.enter_context(PrivateEtcd(tmp_path / "etcd"))
        ports = [free_port(), free_port()]
        made = [Plane(number, tmp_path, f"{etcd.url}/roles", port, ports[0]) for number, port in enumerate(ports)]
        for one in made:
            stack.callback(one.role.kill)
            await one.start()
        yield made[0], made[1]


def credentials(keys: acs_task.IAMRoleCredentials) -> Credentials:
    return Credentials(keys.access_key_id or "", keys.secret_access_key or "", keys.session_token)


def may_what_its_role_may(plane: Plane, keys: acs_task.IAMRoleCredentials) -> bool:
    who = plane.client("sts", credentials(keys)).get_caller_identity()["Arn"]
    clusters = plane.client("ecs", credentials(keys)).list_clusters()["clusterArns"]
    with pytest.raises(ClientError, match="AccessDeniedException"):
        plane.client("ecs", credentials(keys)).list_task_definitions()
    return ":assumed-role/app/" in who and len(clusters) == 1


async def test_keys_of_roles_are_honoured_and_renewed_by_either(planes: tuple[Plane, Plane]) -> None:
    first, second = planes
    agent = Agent("host", [first.endpoint, second.endpoint], first.key, lifetime=0.0, kept="app")
    agent.sent = []
    running = asyncio.ensure_future(agent.run())
    try:
        ask = first.client("ecs")
        container = {
            "name": "main",
            "image": "busybox",
            "memory": 64,
            "logConfiguration": {"logDriver": "awslogs", "options": LOG},
        }
        ask.register_task_definition(
            family="app",
            networkMode="none",
            containerDefinitions=[container],
            taskRoleArn=ROLE + "app",
            executionRoleArn=ROLE + "log",
        )
        await asyncio.to_thread(until, lambda: agent.connected_to.startswith(first.endpoint), "it is connected")
        assert (await asyncio.to_thread(ask.run_task, taskDefinition="app"))["failures"] == []
        await asyncio.to_thread(until, lambda: agent.keys_from(first), "keys come with the task")
        old = agent.keys_from(first)
        assert old is not None
        for plane in planes:
            assert await asyncio.to_thread(may_what_its_role_may, plane, old)

        first.role.kill()
        await asyncio.to_thread(until, lambda: agent.keys_from(second), "keys come from the other one")
        new = agent.keys_from(second)
        assert new is not None
        assert new.credentials_id == old.credentials_id, "the task asks its endpoint with what it was told"
        assert new.access_key_id != old.access_key_id
        for keys in (old, new):
            assert await asyncio.to_thread(may_what_its_role_may, second, keys)
        await first.start()
        assert await asyncio.to_thread(may_what_its_role_may, first, new)

        # Whichever sent the task, its lines go to the one that keeps them.
        places = {
            json.loads(task.containers[0].docker_config.host_config)["LogConfig"]["Config"]["awslogs-endpoint"]
            for _, task in agent.sent
        }
        assert places == {first.endpoint}
        assert {by.rstrip("/").removesuffix("/acs") for by, _ in agent.sent} == {first.endpoint, second.endpoint}
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_one_of_them_keeps_logs_and_the_other_says_which(planes: tuple[Plane, Plane]) -> None:
    first, second = planes

    def use() -> None:
        logs = first.client("logs")
        logs.create_log_group(logGroupName="/app")
        logs.create_log_stream(logGroupName="/app", logStreamName="s")
        with pytest.raises(ClientError, match=f"keeps no logs.*; ask {first.endpoint}[.]") as refused:
            second.client("logs").describe_log_groups()
        assert refused.value.response["Error"]["Code"] == "UnsupportedOperationException"

    await asyncio.to_thread(use)
