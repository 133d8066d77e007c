"""Task protection: for tasks of services, for a while, and gone by itself."""

from __future__ import annotations

import msgspec
import pytest

from sexton.control.ops import protection
from sexton.wire.errors import ClusterNotFoundException, InvalidParameterException


@pytest.fixture
async def task(world):
    """A task of a service."""
    await world.define()
    await world.join()
    arn = await world.run_one()
    where = ("us-east-1", "default", arn.rpartition("/")[2])
    record = world.records.tasks.get(*where).value
    record = msgspec.structs.replace(record, task=msgspec.structs.replace(record.task, group="service:web"))
    await world.records.commit([], [world.records.put(world.records.tasks, record, *where)])
    return arn


async def get(world, *tasks):
    return await world.do("GetTaskProtection", cluster="default", tasks=list(tasks))


async def update(world, *tasks, enabled=True, **fields):
    return await world.do(
        "UpdateTaskProtection", cluster="default", tasks=list(tasks), protectionEnabled=enabled, **fields
    )


def is_protected(world, arn):
    record = world.records.tasks.get("us-east-1", "default", arn.rpartition("/")[2]).value
    return protection.protected(record, world.now)


async def test_protection_lasts_two_hours_unless_said_otherwise(world, task):
    assert (await get(world, task))["protectedTasks"] == [{"taskArn": task, "protectionEnabled": False}]

    answer = await update(world, task)

    shown = {"taskArn": task, "protectionEnabled": True, "expirationDate": world.now + 7200}
    assert answer == {"protectedTasks": [shown], "failures": []}
    assert await get(world, task) == answer
    world.now += 7199
    assert is_protected(world, task)
    world.now += 1
    assert not is_protected(world, task)
    assert (await get(world, task))["protectedTasks"] == [{"taskArn": task, "protectionEnabled": False}]


async def test_it_can_be_extended_and_taken_back(world, task):
    await update(world, task, expiresInMinutes=2880)
    answer = await update(world, task, expiresInMinutes=1)
    assert answer["protectedTasks"][0]["expirationDate"] == world.now + 60

    answer = await update(world, task, enabled=False)

    assert answer["protectedTasks"] == [{"taskArn": task, "protectionEnabled": False}]
    assert not is_protected(world, task)


async def test_other_tasks_are_failures(world, task):
    alone = await world.run_one()
    gone = task[:-32] + "f" * 32

    for answer in (await get(world, task, alone, "f" * 32), await update(world, task, alone, "f" * 32)):
        assert [one["taskArn"] for one in answer["protectedTasks"]] == [task]
        assert [(one["arn"], one["reason"]) for one in answer["failures"]] == [
            (alone, "TASK_NOT_VALID"),
            (gone, "MISSING"),
        ]
    await world.ended(task)
    assert (await update(world, task))["failures"][0]["reason"] == "TASK_NOT_VALID"


async def test_a_person_still_stops_a_protected_task_and_agents_still_report(world, task):
    await update(world, task)
    await world.report(task, "RUNNING")
    assert is_protected(world, task)

    await world.do("StopTask", task=task)

    assert (await world.task(task))["desiredStatus"] == "STOPPED"


async def test_what_is_refused(world, task):
    for minutes in (0, 2881, -1):
        with pytest.raises(InvalidParameterException, match="between 1 and 2880"):
            await update(world, task, expiresInMinutes=minutes)
    with pytest.raises(InvalidParameterException, match="more than 10"):
        await update(world, *[task] * 11)
    with pytest.raises(InvalidParameterException, match="more than 100"):
        await get(world, *[task] * 101)
    with pytest.raises(InvalidParameterException, match="cannot be empty"):
        await get(world)
    with pytest.raises(ClusterNotFoundException):
        await world.do("GetTaskProtection", cluster="nowhere", tasks=[task])
