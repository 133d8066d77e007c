"""Removing task definitions: only inactive ones, only when nothing uses them, and no number is ever given again."""

from __future__ import annotations

import asyncio

import pytest

from sexton.control import retention
from sexton.control.ops import taskdef_removal
from sexton.kit.supervise import Nursery
from sexton.wire.errors import ClientException, InvalidParameterException
from unit.control.world import open_world, world_over


async def gone(world, definition):
    """Deregister and delete a revision."""
    await world.do("DeregisterTaskDefinition", taskDefinition=definition)
    answer = await world.do("DeleteTaskDefinitions", taskDefinitions=[definition])
    assert answer["failures"] == []
    return answer["taskDefinitions"][0]


async def sweep(world):
    return await taskdef_removal.sweep(world.context, world.now + taskdef_removal.GRACE_SECONDS)


async def test_a_revision_that_nothing_uses_goes_with_the_next_sweep(world):
    arn = await world.define()

    shown = await gone(world, "web:1")

    assert (shown["taskDefinitionArn"], shown["status"]) == (arn, "DELETE_IN_PROGRESS")
    assert shown["deleteRequestedAt"] == world.now
    listed = await world.do("ListTaskDefinitions", status="DELETE_IN_PROGRESS")
    assert listed["taskDefinitionArns"] == [arn]
    assert (await world.do("ListTaskDefinitionFamilies", status="ALL"))["families"] == ["web"]
    assert await taskdef_removal.sweep(world.context, world.now + 1) == 0
    assert await sweep(world) == 1
    with pytest.raises(ClientException, match="Unable to describe"):
        await world.do("DescribeTaskDefinition", taskDefinition="web:1")
    assert (await world.do("ListTaskDefinitionFamilies", status="ALL"))["families"] == []


async def test_it_waits_for_the_last_task(world):
    await world.define()
    await world.join()
    task = await world.run_one()
    again = await gone(world, "web:1")

    assert await sweep(world) == 0
    assert (await world.do("DeleteTaskDefinitions", taskDefinitions=["web:1"]))["taskDefinitions"] == [again]
    with pytest.raises(ClientException):
        await world.run("web:1")
    await world.ended(task)
    assert await sweep(world) == 1
    assert (await world.task(task))["taskDefinitionArn"] == again["taskDefinitionArn"]


async def test_numbers_are_never_given_again_not_even_after_a_restart(tmp_path):
    async with open_world(tmp_path) as world:
        for _ in range(2):
            await world.define()
        for revision in ("web:2", "web:1"):
            await gone(world, revision)
            assert await sweep(world) == 1
        async with world_over(world.store) as other:
            assert (await other.define()).endswith("web:3")
        await gone(world, "web:3")
        assert await sweep(world) == 1
    async with open_world(tmp_path) as world:
        assert (await world.define()).endswith("web:4")


async def test_each_is_judged_by_itself(world):
    first = await world.define()
    await world.define()
    await world.do("DeregisterTaskDefinition", taskDefinition="web:1")

    answer = await world.do("DeleteTaskDefinitions", taskDefinitions=[first, "web:1", "web:2", "web:9", "web", "a b:1"])

    assert [one["taskDefinitionArn"] for one in answer["taskDefinitions"]] == [first, first]
    assert [one["reason"].partition(".")[0] for one in answer["failures"]] == [
        "The specified task definition is still in ACTIVE status",
        "The specified task definition does not exist",
        "The specified task definition identifier is invalid",
        "The specified task definition identifier is invalid",
    ]
    for count in (0, 11):
        with pytest.raises(InvalidParameterException, match="between 1 and 10"):
            await world.do("DeleteTaskDefinitions", taskDefinitions=["web:1"] * count)


async def test_retention_does_the_sweeping(world, monkeypatch):
    await world.define()
    await gone(world, "web:1")
    monkeypatch.setattr(retention, "ROUND_SECONDS", 0.0)
    context = world.context._replace(clock=lambda: world.now + taskdef_removal.GRACE_SECONDS)
    nursery = Nursery("sweeping")
    nursery.start("retention", retention.run(context))
    try:
        async with asyncio.timeout(10):
            while len(world.records.definitions):
                await asyncio.sleep(0.001)
    finally:
        await nursery.close()
