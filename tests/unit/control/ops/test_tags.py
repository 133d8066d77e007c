"""Tags of every kind of resource, by ARN: set, removed, listed, and what a task gets at its birth."""

from __future__ import annotations

import asyncio

import pytest

from sexton.wire.errors import (
    ClusterNotFoundException,
    InvalidParameterException,
    LimitExceededException,
    ResourceNotFoundException,
)
from unit.control.world import world_over

HERE = "arn:aws:ecs:us-east-1:123456789012:"


@pytest.fixture
async def resources(world):
    """One ARN of each kind."""
    definition = await world.define()
    instance = await world.join()
    made = await world.do(
        "CreateCapacityProvider", name="edge", autoScalingGroupProvider={"autoScalingGroupArn": "group"}
    )
    return {
        "cluster": f"{HERE}cluster/default",
        "definition": definition,
        "instance": instance,
        "task": await world.run_one(),
        "provider": made["capacityProvider"]["capacityProviderArn"],
    }


async def listed(world, arn):
    return {one["key"]: one["value"] for one in (await world.do("ListTagsForResource", resourceArn=arn))["tags"]}


async def test_every_kind_can_be_tagged_and_untagged(world, resources):
    for arn in resources.values():
        await world.do("TagResource", resourceArn=arn, tags=[{"key": "a", "value": "1"}, {"key": "b"}])
        await world.do("TagResource", resourceArn=arn, tags=[{"key": "a", "value": "2"}])
        assert await listed(world, arn) == {"a": "2", "b": ""}

        for _ in range(2):
            await world.do("UntagResource", resourceArn=arn, tagKeys=["a", "never there"])
        assert await listed(world, arn) == {"b": ""}


async def test_describe_shows_what_was_tagged(world, resources):
    for arn in resources.values():
        await world.do("TagResource", resourceArn=arn, tags=[{"key": "a", "value": "1"}])
    asked = {"include": ["TAGS"]}
    answers = [
        (await world.do("DescribeClusters", **asked))["clusters"][0],
        (await world.do("DescribeTasks", tasks=[resources["task"]], **asked))["tasks"][0],
        (await world.do("DescribeTaskDefinition", taskDefinition="web", **asked)),
        (await world.do("DescribeContainerInstances", containerInstances=[resources["instance"]], **asked))[
            "containerInstances"
        ][0],
        (await world.do("DescribeCapacityProviders", capacityProviders=["edge"], **asked))["capacityProviders"][0],
    ]

    assert [one["tags"] for one in answers] == [[{"key": "a", "value": "1"}]] * 5


async def test_a_resource_has_at_most_fifty(world, resources):
    arn = resources["task"]
    await world.do("TagResource", resourceArn=arn, tags=[{"key": f"k{number}"} for number in range(50)])
    await world.do("TagResource", resourceArn=arn, tags=[{"key": "k7", "value": "changed"}])

    with pytest.raises(LimitExceededException):
        await world.do("TagResource", resourceArn=arn, tags=[{"key": "one more"}])
    assert len(await listed(world, arn)) == 50


@pytest.mark.parametrize(
    "tags", [[{"key": "aws:x"}], [{"key": "x", "value": "Aws:y"}], [{"key": "x"}, {"key": "x"}], [{"value": "x"}]]
)
async def test_what_no_resource_may_be_tagged_with(world, resources, tags):
    await world.do("TagResource", resourceArn=resources["task"], tags=[])
    for request in (
        world.do("TagResource", resourceArn=resources["task"], tags=tags),
        world.do("CreateCluster", clusterName="blue", tags=tags),
        world.do("CreateCapacityProvider", name="p", autoScalingGroupProvider={"autoScalingGroupArn": "g"}, tags=tags),
        world.define("other", tags=tags),
        world.run(tags=tags),
        world.do("RegisterContainerInstance", tags=tags),
    ):
        with pytest.raises(InvalidParameterException):
            await request


@pytest.mark.parametrize("kind", ["task", "container-instance"])
async def test_short_arns_are_refused_as_ecs_does(world, kind):
    arn = f"{HERE}{kind}/{'f' * 32}"
    for operation, more in (("TagResource", {"tags": []}), ("UntagResource", {"tagKeys": []})):
        with pytest.raises(InvalidParameterException, match="Long arn format"):
            await world.do(operation, resourceArn=arn, **more)


async def test_what_is_not_there(world):
    gone = "f" * 32
    members = (f"task/default/{gone}", f"container-instance/x/{gone}")
    for resource in (*members, "task-definition/a:1", "capacity-provider/x"):
        with pytest.raises(ResourceNotFoundException):
            await world.do("TagResource", resourceArn=HERE + resource, tags=[])
        with pytest.raises(InvalidParameterException, match="not found"):
            await world.do("ListTagsForResource", resourceArn=HERE + resource)
    with pytest.raises(ClusterNotFoundException):
        await world.do("TagResource", resourceArn=f"{HERE}cluster/nowhere", tags=[])
    await world.do("CreateCluster", clusterName="blue")
    await world.do("DeleteCluster", cluster="blue")
    with pytest.raises(InvalidParameterException, match="inactive"):
        await world.do("TagResource", resourceArn=f"{HERE}cluster/blue", tags=[])


@pytest.mark.parametrize(
    "arn",
    [
        "",
        "cluster/default",
        "arn:aws:ecs:eu-west-1:123456789012:cluster/default",
        "arn:aws:ecs:us-east-1:999999999999:cluster/default",
        "arn:aws:iam::123456789012:user/x",
        f"{HERE}cluster",
        f"{HERE}cluster/",
        f"{HERE}container/default/x/y",
        f"{HERE}task-definition/web",
    ],
)
async def test_what_is_no_arn_of_here(world, arn):
    with pytest.raises(InvalidParameterException):
        await world.do("TagResource", resourceArn=arn, tags=[])


async def test_tags_set_at_the_same_time_are_all_kept(world, resources):
    async with world_over(world.store) as other:
        await asyncio.gather(
            *(
                (world, other)[number % 2].do(
                    "TagResource", resourceArn=resources["cluster"], tags=[{"key": f"k{number}"}]
                )
                for number in range(20)
            )
        )

    assert len(await listed(world, resources["cluster"])) == 20


async def test_what_a_task_is_tagged_with_at_its_birth(world):
    await world.define(tags=[{"key": "team", "value": "a"}, {"key": "cost", "value": "1"}])
    await world.join()
    own = [{"key": "cost", "value": "2"}]

    plain = await world.run_one(tags=own)
    full = await world.run_one(tags=own, propagateTags="TASK_DEFINITION", enableECSManagedTags=True)

    assert await listed(world, plain) == {"cost": "2"}
    assert await listed(world, full) == {"team": "a", "cost": "2", "aws:ecs:clusterName": "default"}
    with pytest.raises(InvalidParameterException, match="reserved"):
        await world.do("UntagResource", resourceArn=full, tagKeys=["aws:ecs:clusterName"])
    with pytest.raises(InvalidParameterException, match="SERVICE"):
        await world.run(propagateTags="SERVICE")
