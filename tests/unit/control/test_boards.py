"""Boards that are kept up to date say the same of every host as a look at all records would, whatever happened."""

from __future__ import annotations

import random

import pytest

from sexton.core.capacity import PROVIDER_ATTRIBUTE
from unit.control.world import World

REGION = "us-east-1"


def kept(world: World, provider: str = "") -> dict[str, object]:
    return {host.arn: host for host in world.context.scheduler.board(REGION, "default", provider)}


def afresh(world: World) -> dict[str, object]:
    return {host.arn: host for host in world.context.scheduler.hosts(REGION, "default")}


async def name_provider(world: World, arn: str, value: str) -> None:
    await world.do("PutAttributes", attributes=[{"name": PROVIDER_ATTRIBUTE, "value": value, "targetId": arn}])


@pytest.mark.parametrize("seed", range(6))
async def test_a_board_follows_whatever_happens(world, seed):
    draw = random.Random(seed)
    await world.define(container={"memory": 10, "cpu": 10})
    hosts = [await world.join() for _ in range(3)]
    tasks: list[str] = []
    kept(world)  # made before anything happens, so that it has to follow
    kept(world, "edge")
    for _ in range(60):
        match draw.randrange(7):
            case 0 | 1:
                answer = await world.run(count=draw.randint(1, 4))
                tasks += [one["taskArn"] for one in answer["tasks"]]
            case 2 if tasks:
                await world.report(draw.choice(tasks), "RUNNING")
            case 3 if tasks:
                await world.ended(tasks.pop(draw.randrange(len(tasks))))
            case 4:
                await world.connect(draw.choice(hosts), connected=draw.random() < 0.7)
            case 5:
                await name_provider(world, draw.choice(hosts), draw.choice(["edge", "other"]))
            case 6 if len(hosts) < 6:
                hosts.append(await world.join())
            case 6:
                gone = hosts.pop()
                await world.do("DeregisterContainerInstance", containerInstance=gone, force=True)
        if draw.random() < 0.4:
            assert kept(world) == afresh(world)

    assert kept(world) == afresh(world)
    edge = {arn for arn in afresh(world) if provider_of(world, arn) == "edge"}
    assert kept(world, "edge").keys() == edge


def provider_of(world: World, arn: str) -> str:
    entry = world.records.instances.get(REGION, "default", arn.rpartition("/")[2])
    return next((one.value for one in entry.value.instance.attributes or () if one.name == PROVIDER_ATTRIBUTE), "")


async def test_hosts_of_tasks_that_were_not_written_are_free_again(world):
    """The board took the task's place before its record failed."""
    await world.define(container={"memory": 600, "cpu": 10})
    await world.join()

    async def refused(compares, writes):
        raise OSError("the disk is gone")

    whole, world.store.txn = world.store.txn, refused
    with pytest.raises(OSError):
        await world.run()
    world.store.txn = whole

    assert kept(world) == afresh(world)
    assert await world.run_one()
