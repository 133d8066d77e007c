"""The stream of events of a control plane that is killed again and again while tasks come and go."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
from pathlib import Path

import aiohttp
import pytest

from event_follower import Follower
from fleet_agent import FleetAgent, Key
from node import Role, free_port
from sexton.cloud.client import EcsClient, Unreachable
from sexton.cloud.credentials import Credentials
from sexton.wire import ecs
from sexton.wire.errors import EcsError

KILLS = 30 if os.environ.get("SEXTON_SOAK") else 4
PATIENCE = 60.0


@pytest.mark.timeout(180)
@pytest.mark.slow
async def test_kill_9_loses_no_event_and_tells_none_twice(tmp_path: Path) -> None:
    port = free_port()
    host = f"127.0.0.1:{port}"
    environment = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    control = Role(
        "control",
        tmp_path / "control.log",
        ["--data-dir", str(tmp_path / "data"), "--listen", host],
        environment | {"HOME": str(tmp_path), "SEXTON_EVENTS_KEPT": "1000000"},
    )
    control.start()
    working: list[asyncio.Task[None]] = []
    try:
        async with asyncio.timeout(PATIENCE), aiohttp.ClientSession() as http:
            while not await answers(http, host):
                await asyncio.sleep(0.05)
            found = json.loads((tmp_path / "data/keys.json").read_text())["keys"][0]
            key = Credentials(found["access_key_id"], found["secret_access_key"])
            client = EcsClient(f"http://{host}", "us-east-1", Key(key), http)
            container = ecs.ContainerDefinition(name="main", image="busybox", memory=8)
            await client.call(
                "RegisterTaskDefinition",
                ecs.RegisterTaskDefinitionRequest(
                    family="short", network_mode="none", container_definitions=(container,)
                ),
            )
            agent = FleetAgent("one", [f"http://{host}"], key, lifetime=0.05)
            follower = Follower([host], key)
            accepted: list[str] = []
            load = [asyncio.ensure_future(run(client, accepted)) for _ in range(3)]
            working += [asyncio.ensure_future(agent.run()), asyncio.ensure_future(follower.run()), *load]
            for _ in range(KILLS):
                wanted = len(accepted) + 20
                while len(accepted) < wanted:
                    await asyncio.sleep(random.uniform(0, 0.05))
                control.kill()
                control.start()
            for task in load:
                task.cancel()
            finals: dict[str, int] = {}
            while len(finals) < len(accepted):
                await asyncio.sleep(0.1)
                finals = await ended(client, accepted)
            while any(len(follower.versions.get(arn, ())) < version for arn, version in finals.items()):
                await asyncio.sleep(0.05)
    finally:
        for task in working:
            task.cancel()
        await asyncio.gather(*working, return_exceptions=True)
        control.kill()
    assert follower.breaks >= KILLS
    follower.check(finals)


async def answers(http: aiohttp.ClientSession, host: str) -> bool:
    try:
        async with http.get(f"http://{host}/health") as answer:
            return answer.status == 200
    except aiohttp.ClientError:
        return False


async def run(client: EcsClient, accepted: list[str]) -> None:
    while True:
        with contextlib.suppress(Unreachable, EcsError):
            answer = await client.call("RunTask", ecs.RunTaskRequest(task_definition="short"), ecs.RunTaskResponse)
            accepted += [one.task_arn or "" for one in answer.tasks or ()]
        await asyncio.sleep(0.01)


async def ended(client: EcsClient, accepted: list[str]) -> dict[str, int]:
    """Versions of those that have stopped."""
    found: dict[str, int] = {}
    for start in range(0, len(accepted), 100):
        request = ecs.DescribeTasksRequest(tasks=tuple(accepted[start : start + 100]))
        with contextlib.suppress(Unreachable, EcsError):
            answer = await client.call("DescribeTasks", request, ecs.DescribeTasksResponse)
            assert not answer.failures
            found |= {one.task_arn: one.version for one in answer.tasks if one.last_status == "STOPPED"}
    return found
