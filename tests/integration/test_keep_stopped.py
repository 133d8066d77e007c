"""A stopped task is shown for as long as the settings say, by a control plane that runs, and then no more."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import aiohttp
import pytest

from fleet_agent import FleetAgent, Key
from plane import REGION, open_plane
from sexton.cloud.client import EcsClient
from sexton.control import retention
from sexton.wire import ecs

KEPT = 1.0
PATIENCE = 15.0


async def test_a_stopped_task_is_searchable_for_the_time_that_is_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(retention, "ROUND_SECONDS", 0.05)
    async with (
        open_plane(tmp_path, keep_stopped=KEPT) as plane,
        aiohttp.ClientSession() as http,
        asyncio.timeout(PATIENCE),
    ):
        endpoint = f"http://{plane.host}"
        client = EcsClient(endpoint, REGION, Key(plane.key), http)
        agent = asyncio.ensure_future(FleetAgent("one", [endpoint], plane.key, lifetime=0.05).run())
        container = ecs.ContainerDefinition(name="main", image="none", memory=16)
        await client.call(
            "RegisterTaskDefinition",
            ecs.RegisterTaskDefinitionRequest(family="short", container_definitions=(container,)),
        )
        task = await run_one(client)

        last, stopped_at = "", 0.0
        while (seen := await look(client, task)) is not None:
            last, stopped_at = seen.last_status or "", seen.stopped_at or 0.0
            await asyncio.sleep(0.01)
        gone = time.time()
        agent.cancel()
        await asyncio.gather(agent, return_exceptions=True)

    assert last == "STOPPED"
    assert gone - stopped_at >= KEPT


async def run_one(client: EcsClient) -> str:
    """Run a task as soon as there is a host for it."""
    while True:
        instances = await client.call("ListContainerInstances", ecs.ListContainerInstancesRequest())
        if instances.container_instance_arns:
            answer = await client.call("RunTask", ecs.RunTaskRequest(task_definition="short"))
            if answer.tasks:
                return str(answer.tasks[0].task_arn)
        await asyncio.sleep(0.01)


async def look(client: EcsClient, task: str) -> ecs.Task | None:
    answer = await client.call("DescribeTasks", ecs.DescribeTasksRequest(tasks=(task,)))
    return answer.tasks[0] if answer.tasks else None
