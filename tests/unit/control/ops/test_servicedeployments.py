"""Service deployments and revisions: listed, described, stopped, and forgotten in time."""

from __future__ import annotations

import pytest

from sexton.control import serviceretention
from sexton.wire.errors import ConflictException, ServiceDeploymentNotFoundException, ServiceNotFoundException
from unit.control.serviceworld import Services


@pytest.fixture
async def services(world):
    await world.define()
    await world.join(cpu=4000, memory=4000)
    made = Services(world)
    await made.create()
    await made.settle()
    return made


async def listed(world, **fields):
    return (await world.do("ListServiceDeployments", service="web", **fields))["serviceDeployments"]


async def described(world, arn):
    answer = await world.do("DescribeServiceDeployments", serviceDeploymentArns=[arn])
    assert answer["failures"] == []
    return answer["serviceDeployments"][0]


async def test_every_update_that_deploys_leaves_a_record(services, world):
    second = await world.define()
    await services.update(desiredCount=3)
    await services.update(taskDefinition=second)
    during = await listed(world)
    await services.settle()
    newest, oldest = await listed(world)
    full = await described(world, newest["serviceDeploymentArn"])
    target = full["targetServiceRevision"]["arn"]
    revisions = await world.do("DescribeServiceRevisions", serviceRevisionArns=[target, target + "9"])

    assert [one["status"] for one in during] == ["IN_PROGRESS", "SUCCESSFUL"]
    assert [newest["status"], oldest["status"]] == ["SUCCESSFUL", "SUCCESSFUL"]
    assert (await services.service())["currentServiceDeployment"] == newest["serviceDeploymentArn"]
    assert full["targetServiceRevision"]["runningTaskCount"] == 3
    assert [one["arn"] for one in full["sourceServiceRevisions"]] == [oldest["targetServiceRevisionArn"]]
    assert [one["taskDefinition"] for one in revisions["serviceRevisions"]] == [second]
    assert revisions["serviceRevisions"][0]["containerImages"] == [{"containerName": "main", "image": "busybox"}]
    assert [one["reason"] for one in revisions["failures"]] == ["MISSING"]


async def test_the_list_is_filtered_and_comes_in_pages(services, world):
    for _ in range(3):
        world.now += 10
        await services.update(forceNewDeployment=True)
    everything = await listed(world)
    answer = await world.do("ListServiceDeployments", service="web", maxResults=3)
    rest = await world.do("ListServiceDeployments", service="web", nextToken=answer["nextToken"])

    assert answer["serviceDeployments"] + rest["serviceDeployments"] == everything
    assert [one["createdAt"] for one in everything] == sorted((one["createdAt"] for one in everything), reverse=True)
    assert len(await listed(world, status=["STOPPED"])) == 2
    assert len(await listed(world, createdAt={"after": world.now - 5})) == 1


async def test_a_stopped_one_goes_back_to_what_served_before(services, world):
    before = await services.service()
    await services.update(taskDefinition=await world.define())
    arn = (await listed(world))[0]["serviceDeploymentArn"]
    await world.do("StopServiceDeployment", serviceDeploymentArn=arn)
    await services.settle()

    assert (await described(world, arn))["status"] == "ROLLBACK_SUCCESSFUL"
    assert (await services.service())["taskDefinition"] == before["taskDefinition"]
    with pytest.raises(ConflictException):
        await world.do("StopServiceDeployment", serviceDeploymentArn=arn)


async def test_an_aborted_one_starts_nothing_more(services, world):
    await services.update(taskDefinition=await world.define())
    arn = (await listed(world))[0]["serviceDeploymentArn"]
    await world.do("StopServiceDeployment", serviceDeploymentArn=arn, stopType="ABORT")
    await services.settle()

    assert (await described(world, arn))["status"] == "STOPPED"
    assert (await services.service())["deployments"][0]["rolloutState"] == "FAILED"


async def test_what_is_not_there_is_missing(services, world):
    arn = "arn:aws:ecs:us-east-1:123456789012:service-deployment/default/web/none"
    missing = await world.do("DescribeServiceDeployments", serviceDeploymentArns=[arn])

    assert missing["failures"] == [{"arn": arn, "reason": "MISSING"}]
    with pytest.raises(ServiceDeploymentNotFoundException):
        await world.do("StopServiceDeployment", serviceDeploymentArn=arn)
    with pytest.raises(ServiceNotFoundException):
        await world.do("ListServiceDeployments", service="none")


async def test_old_ones_are_forgotten_and_with_a_deleted_service_all_of_it(services, world):
    await services.update(taskDefinition=await world.define())
    await services.settle()
    world.now += serviceretention.KEEP_DEPLOYMENTS_SECONDS
    await serviceretention.sweep(world.context, world.now)
    kept = await listed(world), len(world.records.service_revisions)
    await services.update(desiredCount=0)
    await services.settle()
    await world.do("DeleteService", service="web")
    await services.settle()
    early = await serviceretention.sweep(world.context, world.now)
    world.now += serviceretention.KEEP_DELETED_SECONDS
    late = await serviceretention.sweep(world.context, world.now)

    assert ([one["status"] for one in kept[0]], kept[1]) == (["SUCCESSFUL"], 2)
    assert (early, late) == (0, 1)
    assert not world.records.services
    assert not world.records.service_deployments
    assert not world.records.service_revisions
