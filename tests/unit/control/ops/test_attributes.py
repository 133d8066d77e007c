"""Custom attributes: put, seen by placement and by clients, deleted; the others can only be seen."""

from __future__ import annotations

import asyncio

import pytest

from sexton.wire.errors import (
    AttributeLimitExceededException,
    ClusterNotFoundException,
    InvalidParameterException,
    TargetNotFoundException,
)
from unit.control.world import world_over


def attribute(target, name="stack", value="production", **fields):
    return {"name": name, "value": value, "targetId": target} | fields


async def listed(world, **fields):
    answer = await world.do("ListAttributes", targetType="container-instance", **fields)
    return [(one["targetId"], one["name"], one.get("value")) for one in answer["attributes"]]


async def test_put_replace_list_delete(world):
    first, second = sorted([await world.join(), await world.join()])
    short = second.rpartition("/")[2]
    put = await world.do(
        "PutAttributes",
        attributes=[attribute(first), attribute(short, value="dev", targetType="container-instance")],
    )

    assert put["attributes"] == [
        {"name": "stack", "value": "production", "targetId": first},
        {"name": "stack", "value": "dev", "targetId": second},
    ]
    assert await listed(world, attributeName="stack") == [(first, "stack", "production"), (second, "stack", "dev")]
    await world.do("PutAttributes", attributes=[attribute(first, value="dev")])
    assert await listed(world, attributeName="stack", attributeValue="dev") == [
        (first, "stack", "dev"),
        (second, "stack", "dev"),
    ]
    assert {"name": "stack", "value": "dev"} in (await world.instance(first))["attributes"]

    gone = {"attributes": [{"name": "stack", "targetId": first}]}
    assert (await world.do("DeleteAttributes", **gone))["attributes"] == [
        {"name": "stack", "value": "dev", "targetId": first}
    ]
    assert (await world.do("DeleteAttributes", **gone))["attributes"] == []
    assert await listed(world, attributeName="stack") == [(second, "stack", "dev")]


async def test_all_attributes_are_listed_page_by_page(world):
    instance = await world.join()
    await world.do("PutAttributes", attributes=[attribute(instance, f"n{number}") for number in range(5)])

    everything = await listed(world)
    pages, token = [], None
    while token is not None or not pages:
        more = {"nextToken": token} if token else {}
        answer = await world.do("ListAttributes", targetType="container-instance", maxResults=2, **more)
        pages.append([(one["targetId"], one["name"], one.get("value")) for one in answer["attributes"]])
        token = answer.get("nextToken")

    assert [len(page) for page in pages] == [2, 2, 2, 1]
    assert [one for page in pages for one in page] == everything
    assert {name for _, name, _ in everything} > {"n0", "ecs.availability-zone"}
    with pytest.raises(InvalidParameterException, match="attribute name"):
        await listed(world, attributeValue="x")


async def test_an_instance_has_at_most_ten_custom_ones_and_a_request_is_all_or_nothing(world):
    first, second = await world.join(), await world.join()
    await world.do("PutAttributes", attributes=[attribute(first, f"n{number}") for number in range(10)])
    await world.do("PutAttributes", attributes=[attribute(first, "n3", "changed")])

    with pytest.raises(AttributeLimitExceededException):
        await world.do("PutAttributes", attributes=[attribute(second), attribute(first)])

    assert await listed(world, attributeName="stack") == []
    with pytest.raises(InvalidParameterException, match="between 1 and 10"):
        await world.do("PutAttributes", attributes=[attribute(second, f"n{number}") for number in range(11)])


@pytest.mark.parametrize(
    "change, said",
    [
        ({"name": "ecs.os-type"}, "reserved"),
        ({"name": "com.amazonaws.ecs.capability.x"}, "reserved"),
        ({"name": "sp ace"}, "Invalid attribute name"),
        ({"name": "x" * 129}, "Invalid attribute name"),
        ({"value": " padded"}, "Invalid value"),
        ({"value": "padded "}, "Invalid value"),
        ({"value": ""}, "Invalid value"),
        ({"targetId": None}, "needs a targetId"),
        ({"targetId": "f" * 32}, "targetType is required"),
        ({"targetType": "task"}, "enum value set"),
    ],
)
async def test_what_is_refused(world, change, said):
    instance = await world.join()
    for operation in ("PutAttributes", "DeleteAttributes"):
        with pytest.raises(InvalidParameterException, match=said):
            await world.do(operation, attributes=[attribute(instance) | change])


async def test_targets_that_are_not_there(world):
    instance = await world.join()
    await world.do("CreateCluster", clusterName="blue")
    for operation in ("PutAttributes", "DeleteAttributes"):
        with pytest.raises(TargetNotFoundException):
            await world.do(operation, attributes=[attribute(instance[:-1] + "x")])
        with pytest.raises(InvalidParameterException, match="Your cluster is blue"):
            await world.do(operation, cluster="blue", attributes=[attribute(instance)])
        with pytest.raises(ClusterNotFoundException):
            await world.do(operation, cluster="nowhere", attributes=[attribute(instance)])


async def test_attributes_put_at_the_same_time_are_all_kept(world):
    instance = await world.join()
    async with world_over(world.store) as other:
        puts = [
            (world, other)[number % 2].do("PutAttributes", attributes=[attribute(instance, f"n{number}")])
            for number in range(10)
        ]
        await asyncio.gather(*puts)

    assert len([name for _, name, _ in await listed(world) if name.startswith("n")]) == 10
