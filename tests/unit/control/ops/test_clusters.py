"""Clusters as clients create, see and delete them."""

from __future__ import annotations

import pytest

from sexton.wire.errors import (
    ClusterContainsContainerInstancesException,
    ClusterContainsTasksException,
    ClusterNotFoundException,
    InvalidParameterException,
)


async def test_creating_what_exists_answers_with_it(world):
    first = await world.do("CreateCluster", clusterName="blue", tags=[{"key": "a", "value": "b"}])
    again = await world.do("CreateCluster", clusterName="blue")

    assert first == again
    assert first["cluster"]["clusterArn"] == "arn:aws:ecs:us-east-1:123456789012:cluster/blue"
    assert first["cluster"]["status"] == "ACTIVE"


async def test_a_deleted_cluster_is_shown_as_inactive_but_not_listed_and_can_come_back(world):
    await world.do("CreateCluster", clusterName="blue")

    gone = await world.do("DeleteCluster", cluster="blue")

    assert gone["cluster"]["status"] == "INACTIVE"
    assert (await world.do("DescribeClusters", clusters=["blue"]))["clusters"][0]["status"] == "INACTIVE"
    assert [arn.rpartition("/")[2] for arn in (await world.do("ListClusters"))["clusterArns"]] == ["default"]
    with pytest.raises(ClusterNotFoundException, match=r"Cluster not found\."):
        await world.do("DeleteCluster", cluster="blue")
    with pytest.raises(ClusterNotFoundException):
        await world.run(cluster="blue")
    assert (await world.do("CreateCluster", clusterName="blue"))["cluster"]["status"] == "ACTIVE"


async def test_a_cluster_that_is_in_use_is_not_deleted(world):
    await world.define()
    instance = await world.join()
    task = await world.run_one()

    with pytest.raises(ClusterContainsContainerInstancesException):
        await world.do("DeleteCluster", cluster="default")

    await world.do("DeregisterContainerInstance", containerInstance=instance, force=True)
    assert (await world.task(task))["lastStatus"] == "STOPPED"
    assert (await world.do("DeleteCluster", cluster="default"))["cluster"]["status"] == "INACTIVE"


async def test_tasks_alone_keep_a_cluster(world):
    """A task whose instance's record is gone, but which has not been ended yet, is still a task."""
    await world.define()
    instance = await world.join()
    await world.run_one()
    key = ("us-east-1", "default", instance.rpartition("/")[2])
    await world.records.commit([], [world.records.delete(world.records.instances, *key)])

    with pytest.raises(ClusterContainsTasksException):
        await world.do("DeleteCluster", cluster="default")


async def test_counts_follow_the_tasks(world):
    await world.define()
    await world.join()
    first, _ = [await world.run_one() for _ in range(2)]
    await world.report(first, "RUNNING")

    cluster = (await world.do("DescribeClusters"))["clusters"][0]

    counts = [cluster[f"{word}Count"] for word in ("registeredContainerInstances", "runningTasks", "pendingTasks")]
    assert counts == [1, 1, 1]


async def test_unknown_clusters_are_failures_not_errors(world):
    answer = await world.do("DescribeClusters", clusters=["default", "nowhere", "arn:aws:ecs:us-east-1:1:cluster/x"])

    assert [one["clusterName"] for one in answer["clusters"]] == ["default"]
    assert answer["failures"] == [
        {"arn": "arn:aws:ecs:us-east-1:123456789012:cluster/nowhere", "reason": "MISSING"},
        {"arn": "arn:aws:ecs:us-east-1:1:cluster/x", "reason": "MISSING"},
    ]


async def test_tags_and_settings_are_shown_when_asked_for(world):
    await world.do("CreateCluster", clusterName="blue", tags=[{"key": "a", "value": "b"}])

    plain = (await world.do("DescribeClusters", clusters=["blue"]))["clusters"][0]
    full = (await world.do("DescribeClusters", clusters=["blue"], include=["TAGS", "SETTINGS"]))["clusters"][0]

    assert (plain["tags"], plain["settings"]) == ([], [])
    assert full["tags"] == [{"key": "a", "value": "b"}]
    assert full["settings"] == [{"name": "containerInsights", "value": "disabled"}]


async def test_a_name_that_cannot_be_one_is_refused(world):
    with pytest.raises(InvalidParameterException):
        await world.do("CreateCluster", clusterName="no spaces")
    with pytest.raises(InvalidParameterException, match="more than 100"):
        await world.do("DescribeClusters", clusters=["default"] * 101)


async def test_listing_goes_page_by_page_and_clusters_that_come_meanwhile_do_not_shift_it(world):
    for name in ("a", "b", "c"):
        await world.do("CreateCluster", clusterName=name)

    first = await world.do("ListClusters", maxResults=2)
    await world.do("CreateCluster", clusterName="aa")
    second = await world.do("ListClusters", maxResults=2, nextToken=first["nextToken"])

    pages = [[arn.rpartition("/")[2] for arn in one["clusterArns"]] for one in (first, second)]
    assert pages == [["a", "b"], ["c", "default"]]
    assert "nextToken" not in second
    for token in ("not hex", "ff", "6", "é"):
        with pytest.raises(InvalidParameterException, match=r"Invalid token\."):
            await world.do("ListClusters", nextToken=token)
