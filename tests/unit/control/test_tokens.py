"""A RunTask that is sent again starts nothing again, whatever died in between."""

from __future__ import annotations

import asyncio

import pytest

from sexton.control import retention, tokens
from sexton.store.contract import StoreError
from sexton.wire.errors import ConflictException, InvalidParameterException
from unit.control.world import open_world, world_over


@pytest.fixture
async def world(world):
    await world.define()
    await world.join(cpu=10**6, memory=10**6)
    return world


async def all_tasks(world):
    return (await world.do("ListTasks"))["taskArns"]


def arns(answer):
    return [task["taskArn"] for task in answer["tasks"]]


async def test_the_same_request_gets_the_same_tasks_as_they_are_now(world):
    first = await world.run(count=2, clientToken="t")
    await world.report(arns(first)[0], "RUNNING")

    again = await world.run(count=2, clientToken="t")

    assert arns(again) == arns(first)
    assert again["tasks"][0]["lastStatus"] == "RUNNING"
    assert len(await all_tasks(world)) == 2


async def test_other_parameters_are_a_conflict_that_names_the_tasks(world):
    first = await world.run(clientToken="t")

    with pytest.raises(ConflictException) as refused:
        await world.run(count=2, clientToken="t")

    assert refused.value.members == {"resourceIds": arns(first)}
    assert len(await all_tasks(world)) == 1


async def test_repetitions_that_arrive_together_start_one(world):
    async with world_over(world.store) as other:
        answers = await asyncio.gather(*(one.run(clientToken="t") for one in (world, other) * 8))

    assert len({tuple(arns(one)) for one in answers}) == 1
    assert len(await all_tasks(world)) == 1


async def test_a_repetition_after_the_process_died(tmp_path):
    async with open_world(tmp_path / "w") as world:
        await world.define()
        await world.join()
        first = await world.run(clientToken="t")
    async with open_world(tmp_path / "w") as world:
        assert arns(await world.run(clientToken="t")) == arns(first)
        assert await all_tasks(world) == arns(first)


async def test_a_write_that_failed_started_nothing_and_can_be_repeated(world):
    txn, world.store.txn = world.store.txn, failing
    with pytest.raises(StoreError):
        await world.run(clientToken="t")
    world.store.txn = txn

    assert len(arns(await world.run(clientToken="t"))) == 1
    assert (await world.instance(await only_instance(world)))["remainingResources"][1]["integerValue"] == 10**6 - 100


async def failing(*_):
    raise StoreError("cannot write: the disk is full")


async def only_instance(world):
    return (await world.do("ListContainerInstances"))["containerInstanceArns"][0]


async def test_a_request_that_placed_nothing_may_be_tried_again(world):
    await world.define("big", container={"memory": 2 * 10**6})
    assert (await world.run("big", clientToken="t"))["tasks"] == []
    await world.join(cpu=10**6, memory=3 * 10**6)

    assert len(arns(await world.run("big", clientToken="t"))) == 1


async def test_failures_of_the_first_answer_are_told_again(world):
    await world.define("big", container={"memory": 6 * 10**5})
    first = await world.run("big", count=2, clientToken="t")

    assert len(first["tasks"]) == len(first["failures"]) == 1
    assert await world.run("big", count=2, clientToken="t") == first


async def test_a_token_stands_for_one_cluster(world):
    await world.do("CreateCluster", clusterName="blue")
    await world.join(cluster="blue")

    one, other = await world.run(clientToken="t"), await world.run(cluster="blue", clientToken="t")

    assert arns(one) != arns(other)


async def test_a_token_is_good_for_a_day_or_as_long_as_its_tasks_are_known(world):
    short, long = await world.run(clientToken="short"), await world.run(clientToken="long")
    await world.ended(arns(short)[0])
    world.now += retention.KEEP_STOPPED_SECONDS + 1
    await retention.sweep(world.context, world.now)

    assert [key.rpartition("/")[2] for key, _ in world.records.tokens.items()] == ["long"]
    assert arns(await world.run(clientToken="short")) != arns(short)
    assert arns(await world.run(clientToken="long")) == arns(long)
    world.now += tokens.KEEP_SECONDS
    assert arns(await world.run(clientToken="long")) != arns(long)
    await retention.sweep(world.context, world.now + tokens.KEEP_SECONDS)
    assert len(world.records.tokens) == 0


@pytest.mark.parametrize("token", ["", "x" * 65, "with space", "ü"])
async def test_what_is_no_token_is_refused(world, token):
    with pytest.raises(InvalidParameterException, match="clientToken"):
        await world.run(clientToken=token)
