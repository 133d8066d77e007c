"""Task definitions: numbers that are never used twice, and what is shown of them."""

from __future__ import annotations

import asyncio

import pytest

from sexton.wire.errors import ClientException, InvalidParameterException
from unit.control.world import open_world, world_over


def revision(arn: str) -> int:
    return int(arn.rpartition(":")[2])


async def test_registrations_that_arrive_together_get_consecutive_numbers(world):
    arns = await asyncio.gather(*(world.define() for _ in range(20)))

    assert sorted(map(revision, arns)) == list(range(1, 21))


async def test_registrations_do_not_wait_for_each_others_write(world):
    """One commit serves all that arrive together; a number that had to be taken twice would cost another."""
    written = []
    txn = world.store.txn

    def counted(compares, writes):
        written.append(writes)
        return txn(compares, writes)

    world.store.txn = counted
    await asyncio.gather(*(world.define() for _ in range(20)))

    assert len(written) == 20


async def test_two_control_planes_over_one_store_never_use_a_number_twice(world):
    async with world_over(world.store) as other:
        arns = await asyncio.gather(*(one.define() for one in (world, other) * 10))

        assert sorted(map(revision, arns)) == list(range(1, 21))


async def test_numbers_go_on_after_a_restart(tmp_path):
    async with open_world(tmp_path) as world:
        await world.define()
        await world.do("DeregisterTaskDefinition", taskDefinition=await world.define())
    async with open_world(tmp_path) as world:
        assert revision(await world.define()) == 3


async def test_a_family_alone_means_its_newest_active_revision(world):
    for _ in range(3):
        await world.define()
    await world.do("DeregisterTaskDefinition", taskDefinition="web:3")

    async def newest():
        answer = await world.do("DescribeTaskDefinition", taskDefinition="web")
        return answer["taskDefinition"]["revision"]

    assert await newest() == 2
    await world.do("DeregisterTaskDefinition", taskDefinition="web:1")
    assert await newest() == 2
    await world.do("DeregisterTaskDefinition", taskDefinition="web:2")
    with pytest.raises(ClientException, match=r"Unable to describe task definition\."):
        await newest()
    with pytest.raises(ClientException, match=r"TaskDefinition not found\."):
        await world.run("web")
    with pytest.raises(ClientException, match="TaskDefinition is inactive"):
        await world.run("web:2")
    described = await world.do("DescribeTaskDefinition", taskDefinition="web:2")
    assert described["taskDefinition"]["status"] == "INACTIVE"


async def test_finding_the_newest_does_not_walk_the_family(world):
    """Thousands of inactive revisions must not make RunTask slow: the answer comes from an index."""
    await world.define()
    for _ in range(30):
        await world.do("DeregisterTaskDefinition", taskDefinition=await world.define())
    looked = []
    table = world.records.definitions
    get, table.get = table.get, lambda *key: looked.append(key) or get(*key)

    await world.do("DescribeTaskDefinition", taskDefinition="web")

    assert looked == [("us-east-1", "web", "0000000001")]


async def test_what_is_wrong_with_a_definition_is_said(world):
    with pytest.raises(ClientException, match="memory"):
        await world.define(container={"memory": None})
    with pytest.raises(ClientException, match="cpu"):
        await world.define(cpu="9" * 5000)
    with pytest.raises(InvalidParameterException):
        await world.do("DeregisterTaskDefinition", taskDefinition="web")
    with pytest.raises(ClientException, match="does not exist"):
        await world.do("DeregisterTaskDefinition", taskDefinition="web:7")


async def test_tags_are_kept_beside_the_definition(world):
    arn = await world.define(tags=[{"key": "a", "value": "b"}])

    assert "tags" not in await world.do("DescribeTaskDefinition", taskDefinition=arn)
    assert (await world.do("DescribeTaskDefinition", taskDefinition=arn, include=["TAGS"]))["tags"] == [
        {"key": "a", "value": "b"}
    ]
    assert (await world.do("ListTagsForResource", resourceArn=arn))["tags"] == [{"key": "a", "value": "b"}]


async def test_listing_both_ways_and_by_family(world):
    for family in ("api", "web", "web", "web-old"):
        await world.define(family)
    await world.do("DeregisterTaskDefinition", taskDefinition="web-old:1")

    async def pages(**fields):
        token, found = {}, []
        while True:
            answer = await world.do("ListTaskDefinitions", maxResults=2, **fields, **token)
            found.append([arn.rpartition("/")[2] for arn in answer["taskDefinitionArns"]])
            if "nextToken" not in answer:
                return found
            token = {"nextToken": answer["nextToken"]}

    assert await pages() == [["api:1", "web:1"], ["web:2"]]
    assert await pages(sort="DESC") == [["web:2", "web:1"], ["api:1"]]
    assert await pages(familyPrefix="web") == [["web:1", "web:2"]]
    assert await pages(status="INACTIVE") == [["web-old:1"]]
    with pytest.raises(InvalidParameterException, match=r"Invalid token\."):
        await pages(sort="DESC", nextToken="zz")


async def test_families_by_status(world):
    for family in ("api", "web", "web-old"):
        await world.define(family)
    await world.do("DeregisterTaskDefinition", taskDefinition="web-old:1")

    async def families(**fields):
        return (await world.do("ListTaskDefinitionFamilies", **fields))["families"]

    assert await families() == ["api", "web"]
    assert await families(status="INACTIVE") == ["web-old"]
    assert await families(status="ALL", familyPrefix="web") == ["web", "web-old"]
