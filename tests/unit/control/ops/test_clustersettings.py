"""What of a cluster can be changed, and what describing one includes."""

from __future__ import annotations

import asyncio

import pytest

from sexton.wire.errors import ClusterNotFoundException, InvalidParameterException, ResourceInUseException
from unit.control.ops.capacity_of import make, member, put, share
from unit.control.ops.meanwhile import before_next_write
from unit.control.world import world_over

EXECUTE = {"executeCommandConfiguration": {"logging": "OVERRIDE", "logConfiguration": {"s3BucketName": "b"}}}
INSIGHTS = "containerInsights"


async def described(world, *include, cluster="default"):
    answer = await world.do("DescribeClusters", clusters=[cluster], include=list(include))
    return answer["clusters"][0]


async def test_an_update_changes_what_it_says(world):
    await world.do("UpdateCluster", cluster="default", configuration=EXECUTE)
    settings = [{"name": INSIGHTS, "value": "enhanced"}]
    answer = await world.do(
        "UpdateCluster", cluster="default", settings=settings, serviceConnectDefaults={"namespace": "n"}
    )

    for cluster in (answer["cluster"], await described(world, "SETTINGS", "CONFIGURATIONS")):
        assert cluster["settings"] == settings
        assert cluster["configuration"] == EXECUTE
        assert cluster["serviceConnectDefaults"] == {"namespace": "n"}
    answer = await world.do("UpdateCluster", cluster="default", serviceConnectDefaults={"namespace": ""})
    assert "serviceConnectDefaults" not in answer["cluster"]


async def test_settings_alone(world):
    for value in ("enabled", "disabled"):
        settings = [{"name": INSIGHTS, "value": value}]
        answer = await world.do("UpdateClusterSettings", cluster="default", settings=settings)
        assert answer["cluster"]["settings"] == settings


@pytest.mark.parametrize(
    "operation, fields, said",
    [
        ("UpdateClusterSettings", {"settings": []}, "cannot be empty"),
        ("UpdateClusterSettings", {"settings": [{"name": INSIGHTS, "value": "on"}]}, "enhanced, enabled, disabled"),
        ("UpdateClusterSettings", {"settings": [{"name": INSIGHTS}]}, "enhanced, enabled, disabled"),
        ("UpdateClusterSettings", {"settings": [{"value": "enabled"}]}, "needs a name"),
        ("UpdateCluster", {"settings": [{"name": INSIGHTS, "value": "on"}]}, "enhanced, enabled, disabled"),
        (
            "UpdateCluster",
            {"configuration": {"executeCommandConfiguration": {"logging": "OVERRIDE"}}},
            "must be provided",
        ),
        (
            "UpdateCluster",
            {"configuration": {"executeCommandConfiguration": {"logConfiguration": {}}}},
            "only when logging is OVERRIDE",
        ),
    ],
)
async def test_what_is_refused(world, operation, fields, said):
    with pytest.raises(InvalidParameterException, match=said):
        await world.do(operation, cluster="default", **fields)
    with pytest.raises(ClusterNotFoundException):
        await world.do("UpdateCluster", cluster="nowhere")


async def test_a_new_cluster_is_held_to_the_same_rules(world):
    await make(world)
    for fields, said in (
        ({"settings": [{"name": INSIGHTS, "value": "on"}]}, "enhanced"),
        ({"configuration": {"executeCommandConfiguration": {"logging": "OVERRIDE"}}}, "must be provided"),
        ({"capacityProviders": ["nowhere"]}, "was not found"),
        ({"defaultCapacityProviderStrategy": [share("edge")]}, "not associated"),
    ):
        with pytest.raises(InvalidParameterException, match=said):
            await world.do("CreateCluster", clusterName="blue", **fields)

    answer = await world.do(
        "CreateCluster",
        clusterName="blue",
        capacityProviders=["edge"],
        defaultCapacityProviderStrategy=[{"capacityProvider": "edge", "weight": 1}],
    )

    assert answer["cluster"]["capacityProviders"] == ["edge"]
    assert answer["cluster"]["defaultCapacityProviderStrategy"] == [share("edge", 1, 0)]


async def test_providers_of_a_cluster(world):
    await make(world)
    arn = "arn:aws:ecs:us-east-1:123456789012:capacity-provider/edge"
    answer = await put(world, [arn, "edge"], [share("edge", 5)])

    assert answer["cluster"]["capacityProviders"] == ["edge"]
    assert answer["cluster"]["defaultCapacityProviderStrategy"] == [share("edge", 5)]
    assert answer["cluster"]["attachmentsStatus"] == "UPDATE_COMPLETE"
    assert (await described(world, "ATTACHMENTS"))["attachments"] == []
    for names, strategy, said in (
        (["nowhere"], [], "was not found"),
        (["not a name"], [], "was not found"),
        (["edge"], [share("FARGATE")], "not associated with the cluster"),
        (["edge", "FARGATE"], [share("FARGATE"), share("edge")], "mix"),
    ):
        with pytest.raises(InvalidParameterException, match=said):
            await put(world, names, strategy)
    assert (await put(world, []))["cluster"]["capacityProviders"] == []
    for number in range(20):
        await make(world, f"p{number}")
    with pytest.raises(InvalidParameterException, match="maximum number"):
        await put(world, ["edge", *(f"p{number}" for number in range(20))])


async def test_a_provider_is_not_taken_from_under_a_task(world):
    await world.define()
    await make(world)
    await member(world, "edge")
    await put(world, ["edge", "FARGATE"], [share("edge")])
    task = await world.run_one()

    written = world.store.revision
    with pytest.raises(ResourceInUseException, match="in use and cannot be removed"):
        await put(world, ["FARGATE"])
    assert world.store.revision == written, "nobody saw the cluster without it meanwhile"
    await put(world, ["edge"])
    await world.ended(task)
    assert (await put(world, ["FARGATE"]))["cluster"]["capacityProviders"] == ["FARGATE"]


@pytest.fixture
async def default_provider(world):
    """Tasks of the default cluster go through a provider with one host."""
    await world.define(container={"memory": 6, "cpu": 0})
    await make(world)
    await member(world, "edge")
    await put(world, ["edge"], [share("edge")])


@pytest.mark.usefixtures("default_provider")
async def test_nor_from_under_one_that_is_placed_just_then(world):
    before_next_write(world, lambda: world.run())

    with pytest.raises(ResourceInUseException):
        await put(world, [])

    assert (await described(world))["capacityProviders"] == ["edge"]


@pytest.mark.usefixtures("default_provider")
async def test_a_task_is_not_started_through_a_provider_that_is_taken_away_just_then(world):
    before_next_write(world, lambda: put(world, []))

    (task,) = (await world.run())["tasks"]

    assert "capacityProviderName" not in task


@pytest.mark.usefixtures("default_provider")
async def test_a_start_and_a_removal_at_the_same_time_agree(world):
    async with world_over(world.store) as other:
        async with asyncio.timeout(10):
            while not other.records.instances.group("us-east-1/default"):
                await asyncio.sleep(0.001)
        for turn in range(20):
            await put(world, ["edge"], [share("edge")])
            one, another = (world, other) if turn % 2 else (other, world)
            ran, taken = await asyncio.gather(one.run(), put(another, []), return_exceptions=True)
            left = world.records.clusters.get("us-east-1", "default").value.cluster.capacity_providers
            # A start that read the cluster while a removal was about to be taken back finds no provider.
            through = ran["tasks"][0].get("capacityProviderName") == "edge"
            assert through <= isinstance(taken, ResourceInUseException) == (left == ("edge",)), (ran, taken)
            await world.ended(ran["tasks"][0]["taskArn"])


async def test_statistics_by_launch_type(world):
    await world.define()
    await world.join()
    first, _ = [await world.run_one() for _ in range(2)]
    await world.run_one(launchType="EXTERNAL")
    await world.report(first, "RUNNING")
    await world.ended(await world.run_one())

    assert (await described(world))["statistics"] == []
    counts = {one["name"]: one["value"] for one in (await described(world, "STATISTICS"))["statistics"]}
    assert {name: value for name, value in counts.items() if value != "0"} == {
        "runningEC2TasksCount": "1",
        "pendingEC2TasksCount": "1",
        "pendingExternalTasksCount": "1",
    }
    assert {"runningFargateTasksCount", "activeEC2ServiceCount", "drainingFargateServiceCount"} <= counts.keys()


async def test_only_what_is_asked_for_is_included(world):
    await world.do("UpdateCluster", cluster="default", configuration=EXECUTE)
    plain = await described(world)

    assert "configuration" not in plain
    assert (plain["settings"], plain["tags"]) == ([], [])
    assert "attachments" not in await described(world, "ATTACHMENTS"), "there are no providers"
