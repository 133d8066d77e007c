"""Capacity providers: made, changed, shown, deleted, and tasks that are started through them."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from sexton.control import providers, retention
from sexton.control.records import TaskRecord
from sexton.wire import ecs
from sexton.wire.errors import (
    ClientException,
    ClusterNotFoundException,
    InvalidParameterException,
    UnsupportedFeatureException,
)
from unit.control.ops.capacity_of import GROUP, make, member, put, share
from unit.control.ops.meanwhile import before_next_write
from unit.control.world import world_over

HERE = "arn:aws:ecs:us-east-1:123456789012:capacity-provider/"
SCALING = {
    "status": "DISABLED",
    "targetCapacity": 100,
    "minimumScalingStepSize": 1,
    "maximumScalingStepSize": 10000,
    "instanceWarmupPeriod": 300,
}


async def describe(world, *names, **fields):
    answer = await world.do(
        "DescribeCapacityProviders", **({"capacityProviders": list(names)} if names else {}), **fields
    )
    return answer["capacityProviders"]


async def test_a_provider_is_kept_with_what_was_said_and_the_defaults_of_the_rest(world):
    made = await make(world, managedScaling={"status": "ENABLED", "targetCapacity": 80})

    assert made == {
        "capacityProviderArn": f"{HERE}edge",
        "name": "edge",
        "status": "ACTIVE",
        "autoScalingGroupProvider": GROUP
        | {
            "managedScaling": SCALING | {"status": "ENABLED", "targetCapacity": 80},
            "managedTerminationProtection": "DISABLED",
            "managedDraining": "ENABLED",
        },
        "updateStatus": "CREATE_COMPLETE",
        "tags": [],
        "type": "EC2_AUTOSCALING",
    }
    assert await describe(world, "edge") == await describe(world, f"{HERE}edge") == [made]


async def test_an_update_changes_what_it_says(world):
    await make(world)
    for _ in range(2):
        changed = await world.do(
            "UpdateCapacityProvider",
            name="edge",
            autoScalingGroupProvider={
                "managedScaling": {"status": "ENABLED"},
                "managedTerminationProtection": "ENABLED",
            },
        )
    group = changed["capacityProvider"]["autoScalingGroupProvider"]

    assert group["managedScaling"] == SCALING | {"status": "ENABLED"}
    assert (group["managedTerminationProtection"], group["managedDraining"]) == ("ENABLED", "ENABLED")
    assert changed["capacityProvider"]["updateStatus"] == "UPDATE_COMPLETE"
    with pytest.raises(InvalidParameterException, match="managed scaling must be enabled"):
        await world.do(
            "UpdateCapacityProvider",
            name="edge",
            autoScalingGroupProvider={"managedScaling": {"status": "DISABLED"}},
        )


async def test_a_deleted_one_is_inactive_for_a_while_and_its_name_is_free(world):
    await make(world)
    gone = await world.do("DeleteCapacityProvider", capacityProvider=f"{HERE}edge")

    assert (gone["capacityProvider"]["status"], gone["capacityProvider"]["updateStatus"]) == (
        "INACTIVE",
        "DELETE_COMPLETE",
    )
    assert await world.do("DeleteCapacityProvider", capacityProvider="edge") == gone
    assert [one["status"] for one in await describe(world, "edge")] == ["INACTIVE"]
    assert [one["name"] for one in await describe(world)] == ["FARGATE", "FARGATE_SPOT"]
    with pytest.raises(ClientException, match="does not exist"):
        await world.do("UpdateCapacityProvider", name="edge", autoScalingGroupProvider={})
    with pytest.raises(InvalidParameterException, match="was not found"):
        await put(world, ["edge"])

    await retention.sweep(world.context, world.now + retention.KEEP_STOPPED_SECONDS)
    assert (await world.do("DescribeCapacityProviders", capacityProviders=["edge"]))["failures"] == [
        {"arn": f"{HERE}edge", "reason": "MISSING"}
    ]
    assert (await make(world))["status"] == "ACTIVE"
    await retention.sweep(world.context, world.now + retention.KEEP_STOPPED_SECONDS)
    assert len(await describe(world, "edge")) == 1


async def test_one_that_a_cluster_has_stays_and_says_why(world):
    await make(world)
    await put(world, ["edge"])

    kept = (await world.do("DeleteCapacityProvider", capacityProvider="edge"))["capacityProvider"]

    assert (kept["status"], kept["updateStatus"]) == ("ACTIVE", "DELETE_FAILED")
    assert "associated with cluster: default." in kept["updateStatusReason"]
    assert await describe(world, "edge") == [kept]
    await put(world, [])
    gone = (await world.do("DeleteCapacityProvider", capacityProvider="edge"))["capacityProvider"]
    assert gone["status"] == "INACTIVE"
    assert "updateStatusReason" not in gone


async def test_a_provider_is_not_deleted_under_a_cluster_that_takes_it_just_then(world):
    await make(world)
    before_next_write(world, lambda: put(world, ["edge"]))

    kept = (await world.do("DeleteCapacityProvider", capacityProvider="edge"))["capacityProvider"]

    assert (kept["status"], kept["updateStatus"]) == ("ACTIVE", "DELETE_FAILED")
    assert await describe(world, "edge") == [kept]


@pytest.mark.parametrize("operation", ["PutClusterCapacityProviders", "CreateCluster"])
async def test_nor_taken_by_a_cluster_when_it_is_deleted_just_then(world, operation):
    await make(world)
    before_next_write(world, lambda: world.do("DeleteCapacityProvider", capacityProvider="edge"))

    with pytest.raises(InvalidParameterException, match="was not found"):
        if operation == "CreateCluster":
            await world.do(operation, clusterName="blue", capacityProviders=["edge"])
        else:
            await put(world, ["edge"])


async def test_of_a_taking_and_a_deletion_at_the_same_time_one_fails(world):
    async with world_over(world.store) as other:
        for turn in range(20):
            name = f"p{turn}"
            await make(world, name)
            one, another = (world, other) if turn % 2 else (other, world)
            async with asyncio.timeout(10):
                while other.records.providers.get("us-east-1", name) is None:
                    await asyncio.sleep(0.001)
            taken, deleted = await asyncio.gather(
                put(one, [name]),
                another.do("DeleteCapacityProvider", capacityProvider=name),
                return_exceptions=True,
            )
            status = deleted["capacityProvider"]["status"]
            assert isinstance(taken, InvalidParameterException) == (status == "INACTIVE"), (taken, deleted)


async def test_the_built_in_ones_are_there_and_cannot_be_changed(world):
    assert await describe(world, "FARGATE_SPOT") == [
        {
            "capacityProviderArn": f"{HERE}FARGATE_SPOT",
            "name": "FARGATE_SPOT",
            "status": "ACTIVE",
            "tags": [],
            "type": "FARGATE_SPOT",
        }
    ]
    with pytest.raises(InvalidParameterException, match="reserved"):
        await world.do("DeleteCapacityProvider", capacityProvider="FARGATE")
    with pytest.raises(InvalidParameterException, match="reserved"):
        await world.do("UpdateCapacityProvider", name="FARGATE", autoScalingGroupProvider={})


async def test_listing_by_page_by_cluster_and_with_tags(world):
    for number in range(12):
        await make(world, f"p{number:02}")
    first = await world.do("DescribeCapacityProviders")
    rest = await world.do("DescribeCapacityProviders", nextToken=first["nextToken"])

    assert [len(one["capacityProviders"]) for one in (first, rest)] == [10, 4]
    assert "nextToken" not in rest
    await put(world, ["p03", "FARGATE"])
    assert [one["name"] for one in await describe(world, cluster="default")] == ["FARGATE", "p03"]
    assert await describe(world, "p04", cluster="default") == []
    with pytest.raises(ClusterNotFoundException):
        await describe(world, cluster="nowhere")
    with pytest.raises(InvalidParameterException, match="more than 100"):
        await describe(world, *["p03"] * 101)


@pytest.mark.parametrize("name", ["", "aws-x", "ECSx", "Fargate", "sp ace", "x" * 256, "a/b"])
async def test_a_name_that_cannot_be_one(world, name):
    with pytest.raises(InvalidParameterException, match="name is invalid"):
        await make(world, name)


async def test_what_else_is_refused(world):
    await make(world)
    with pytest.raises(ClientException, match="already exists"):
        await make(world)
    with pytest.raises(InvalidParameterException, match="step size"):
        await make(world, "x", managedScaling={"minimumScalingStepSize": 5, "maximumScalingStepSize": 4})
    with pytest.raises(InvalidParameterException, match="managed scaling must be enabled"):
        await make(world, "x", managedTerminationProtection="ENABLED")
    with pytest.raises(InvalidParameterException, match="autoScalingGroupProvider"):
        await world.do("CreateCapacityProvider", name="x")
    with pytest.raises(UnsupportedFeatureException, match="managed instances"):
        await world.do("CreateCapacityProvider", name="x", cluster="default", autoScalingGroupProvider=GROUP)
    managed = {
        "infrastructureRoleArn": "arn:aws:iam::123456789012:role/x",
        "instanceLaunchTemplate": {
            "ec2InstanceProfileArn": "arn:aws:iam::123456789012:instance-profile/x",
            "networkConfiguration": {"subnets": ["s"]},
        },
    }
    with pytest.raises(UnsupportedFeatureException, match="managedInstancesProvider"):
        await world.do("CreateCapacityProvider", name="x", cluster="default", managedInstancesProvider=managed)
    for name in ("nowhere", "a b"):
        with pytest.raises(ClientException, match="does not exist"):
            await world.do("DeleteCapacityProvider", capacityProvider=name)


# Tasks through providers.


async def test_tasks_go_to_the_hosts_of_their_provider_in_the_parts_of_the_strategy(world):
    await world.define(container={"memory": 10, "cpu": 10})
    for name in ("edge", "core"):
        await make(world, name)
    hosts = {"edge": await member(world, "edge"), "core": await member(world, "core")}
    await world.join()
    await put(world, ["edge", "core"])

    answer = await world.run(count=8, capacityProviderStrategy=[share("edge", 1, base=2), share("core", 2)])

    went = [(one["capacityProviderName"], one["containerInstanceArn"]) for one in answer["tasks"]]
    assert sorted(went) == sorted([("edge", hosts["edge"])] * 4 + [("core", hosts["core"])] * 4)
    assert {one["launchType"] for one in answer["tasks"]} == {"EC2"}
    assert (await world.instance(hosts["edge"]))["capacityProviderName"] == "edge"


async def test_the_clusters_default_strategy_holds_for_whoever_says_nothing(world):
    await world.define()
    await make(world)
    host = await member(world, "edge")
    await world.join()
    await put(world, ["edge"], [share("edge")])

    told = (await world.run())["tasks"][0]
    plain = (await world.run(launchType="EC2"))["tasks"][0]

    assert (told["capacityProviderName"], told["containerInstanceArn"]) == ("edge", host)
    assert "capacityProviderName" not in plain


async def test_fargate_is_only_for_definitions_made_for_it(world):
    await world.define()
    await world.join()
    await put(world, ["FARGATE"])

    with pytest.raises(InvalidParameterException, match="does not support launch_type FARGATE"):
        await world.run(capacityProviderStrategy=[share("FARGATE")])


async def test_fargate_is_every_host(world):
    """Below RunTask, which has no network mode yet that such a definition could have."""
    hosts = {await world.join(), await member(world, "edge")}
    strategy = [share("FARGATE", 1), share("FARGATE_SPOT", 3)]
    cluster = (await put(world, ["FARGATE", "FARGATE_SPOT"], strategy))["cluster"]
    definition = ecs.TaskDefinition(compatibilities=("EC2", "FARGATE"))

    portions = providers.portions(msgspec.convert(cluster, ecs.Cluster), definition, None, None, 8)

    def pick(provider, many):
        board = [host.arn for host in world.context.scheduler.board("us-east-1", "default", provider)]
        return [board[number % len(board)] for number in range(many - 1)], ()

    placed, _ = providers.place(world.context, "us-east-1", "default", portions, pick)

    assert {host for host, _ in placed} == hosts
    assert [provider for _, provider in placed] == ["FARGATE"] * 2 + ["FARGATE_SPOT"] * 5
    record = TaskRecord(region="us-east-1", cluster="default", id="t", task=ecs.Task())
    started = providers.through(record, "FARGATE_SPOT").task
    assert (started.capacity_provider_name, started.launch_type) == ("FARGATE_SPOT", "FARGATE")


async def test_more_than_fit_says_why_per_host(world):
    await world.define(container={"memory": 400})
    await make(world)
    host = await member(world, "edge")
    await world.join()
    await put(world, ["edge"])

    answer = await world.run(count=3, capacityProviderStrategy=[share("edge")])

    assert len(answer["tasks"]) == 2
    assert [(one["arn"], one["reason"]) for one in answer["failures"]] == [(host, "RESOURCE:MEMORY")]


async def test_strategies_that_cannot_be_used(world):
    await world.define()
    await make(world)
    await world.join()
    await put(world, ["edge", "FARGATE"])
    for strategy, said in (
        ([share("elsewhere")], "not associated with the cluster"),
        ([share("edge", 0, base=1)], "no capacity providers with a weight"),
        ([share("edge"), share("FARGATE")], "mix"),
        ([share("edge")], "No Container Instances were found in your capacity provider"),
    ):
        with pytest.raises(InvalidParameterException, match=said):
            await world.run(capacityProviderStrategy=strategy)
    with pytest.raises(InvalidParameterException, match="both a launch type and capacity provider"):
        await world.run(capacityProviderStrategy=[share("edge")], launchType="EC2")
    await put(world, ["edge"], [share("edge", 0)])
    with pytest.raises(InvalidParameterException, match="the default capacity provider strategy"):
        await world.run()
