"""Container instances: registered by agents, seen and changed by clients, gone without a trace."""

from __future__ import annotations

import asyncio

import pytest

from sexton.control.ops import instances
from sexton.wire.errors import (
    ClientException,
    ClusterContainsContainerInstancesException,
    ClusterNotFoundException,
    InvalidParameterException,
)
from unit.control.world import Gate


async def test_every_attribute_comes_back_and_a_zone_is_added(world):
    sent = [{"name": "ecs.os-type", "value": "linux"}, {"name": "plain"}, {"name": "mine", "value": "x"}]

    answer = await world.do("RegisterContainerInstance", attributes=sent, instanceIdentityDocument="")

    assert answer["containerInstance"]["attributes"] == [
        *sent,
        {"name": "ecs.availability-zone", "value": "us-east-1a"},
    ]
    assert answer["containerInstance"]["status"] == "ACTIVE"
    assert answer["containerInstance"]["agentConnected"] is False


async def test_registering_again_keeps_the_instance_and_its_custom_attributes(world):
    arn = await world.join()
    first = await world.do(
        "RegisterContainerInstance", containerInstanceArn=arn, attributes=[{"name": "rack", "value": "7"}]
    )

    again = await world.do("RegisterContainerInstance", containerInstanceArn=arn, attributes=[{"name": "ecs.new"}])

    names = [one["name"] for one in again["containerInstance"]["attributes"]]
    assert again["containerInstance"]["containerInstanceArn"] == arn
    assert names == ["ecs.new", "rack", "ecs.availability-zone"]
    assert again["containerInstance"]["version"] == first["containerInstance"]["version"] + 1
    with pytest.raises(ClientException, match="not registered"):
        await world.do("RegisterContainerInstance", containerInstanceArn=arn[:-1] + "x")
    with pytest.raises(ClusterNotFoundException):
        await world.do("RegisterContainerInstance", cluster="nowhere")


async def test_a_registration_sent_twice_makes_one_instance(world):
    arns = await asyncio.gather(*(world.join(clientToken="one-uuid", connected=False) for _ in range(5)))
    other = await world.join(clientToken="another", connected=False)

    listed = (await world.do("ListContainerInstances"))["containerInstanceArns"]
    assert len(set(arns)) == 1
    assert sorted(listed) == sorted({*arns, other})


async def test_remaining_resources_follow_the_tasks(world):
    await world.define(
        networkMode="bridge",
        container={
            "portMappings": [
                {"containerPort": 80, "hostPort": 8080},
                {"containerPort": 53, "hostPort": 53, "protocol": "udp"},
            ]
        },
    )
    arn = await world.join()
    task = await world.run_one()

    def remaining(shown):
        return {one["name"]: one.get("integerValue", one.get("stringSetValue")) for one in shown["remainingResources"]}

    used = await world.instance(arn)
    await world.ended(task)
    free = await world.instance(arn)

    assert remaining(used) == {"CPU": 900, "MEMORY": 900, "PORTS": ["22", "8080"], "PORTS_UDP": ["53"]}
    assert remaining(free) == {"CPU": 1000, "MEMORY": 1000, "PORTS": ["22"], "PORTS_UDP": []}
    assert (used["pendingTasksCount"], free["pendingTasksCount"]) == (1, 0)


async def test_deregistering(world):
    await world.define()
    arn = await world.join()
    task = await world.run_one()
    with pytest.raises(InvalidParameterException, match="running tasks"):
        await world.do("DeregisterContainerInstance", containerInstance=arn)

    gone = await world.do("DeregisterContainerInstance", containerInstance=arn, force=True)

    assert gone["containerInstance"]["status"] == "INACTIVE"
    assert gone["containerInstance"]["agentConnected"] is False
    shown = await world.task(task)
    assert (shown["lastStatus"], shown["stopCode"]) == ("STOPPED", "UserInitiated")
    assert "deregistered" in shown["stoppedReason"]
    assert (await world.do("ListContainerInstances"))["containerInstanceArns"] == []
    with pytest.raises(InvalidParameterException, match=r"The referenced container instance was not found\."):
        await world.do("DeregisterContainerInstance", containerInstance=arn)


async def test_tasks_left_behind_by_a_death_in_mid_deregistration_are_ended_later(world):
    await world.define()
    arn = await world.join()
    tasks = [await world.run_one() for _ in range(3)]
    key = ("us-east-1", "default", arn.rpartition("/")[2])
    await world.records.commit([], [world.records.delete(world.records.instances, *key)])

    assert await instances.abandon(world.context, world.now) == 3
    assert {(await world.task(task))["lastStatus"] for task in tasks} == {"STOPPED"}
    assert await instances.abandon(world.context, world.now) == 0


async def test_an_instance_that_came_first_keeps_the_cluster(world):
    gate = Gate(world.store, "clusters/")
    deleting = asyncio.ensure_future(world.do("DeleteCluster", cluster="default"))
    await gate.reached.wait()
    await world.join()
    gate.opened.set()

    with pytest.raises(ClusterContainsContainerInstancesException):
        await deleting
    assert (await world.do("DescribeClusters"))["clusters"][0]["status"] == "ACTIVE"


async def test_a_cluster_that_was_deleted_first_takes_no_instance(world):
    gate = Gate(world.store, "instances/")
    joining = asyncio.ensure_future(world.join(connected=False))
    await gate.reached.wait()
    await world.do("DeleteCluster", cluster="default")
    gate.opened.set()

    with pytest.raises(ClusterNotFoundException):
        await joining
    assert len(world.records.instances) == 0


async def test_describe_list_and_drain(world):
    first, second = sorted([await world.join(tags=[{"key": "a", "value": "b"}]), await world.join()])

    answer = await world.do("UpdateContainerInstancesState", containerInstances=[first, "f" * 32], status="DRAINING")

    assert [one["status"] for one in answer["containerInstances"]] == ["DRAINING"]
    assert [one["reason"] for one in answer["failures"]] == ["MISSING"]
    assert (await world.do("ListContainerInstances", status="DRAINING"))["containerInstanceArns"] == [first]
    page = await world.do("ListContainerInstances", maxResults=1)
    rest = await world.do("ListContainerInstances", nextToken=page["nextToken"])
    assert page["containerInstanceArns"] + rest["containerInstanceArns"] == [first, second]
    described = await world.do("DescribeContainerInstances", containerInstances=["f" * 32])
    assert described["failures"][0]["reason"] == "MISSING"
    for operation in ("DescribeContainerInstances", "UpdateContainerInstancesState"):
        with pytest.raises(InvalidParameterException):
            await world.do(operation, containerInstances=[], **({"status": "ACTIVE"} if "Update" in operation else {}))
    with pytest.raises(InvalidParameterException, match="10"):
        await world.do("UpdateContainerInstancesState", containerInstances=[first] * 11, status="ACTIVE")
    with pytest.raises(InvalidParameterException, match="ACTIVE or DRAINING"):
        await world.do("UpdateContainerInstancesState", containerInstances=[first], status="REGISTERING")


@pytest.mark.parametrize("document", ["", "{", "[]", '{"instanceId": 5}', '{"instanceId": "i-1"}', "[" * 5000])
async def test_an_identity_document_of_any_kind_is_taken(world, document):
    answer = await world.do("RegisterContainerInstance", instanceIdentityDocument=document)

    assert answer["containerInstance"]["ec2InstanceId"] == ("i-1" if "i-1" in document else "")


async def test_a_filter_is_an_expression_of_the_query_language(world):
    await world.define()
    one = await world.join()
    await world.do("PutAttributes", attributes=[{"name": "rack", "value": "7", "targetId": one}])
    other = await world.join()
    await world.do("StartTask", taskDefinition="web", containerInstances=[other], group="jobs")

    async def listed(expression: str) -> list[str]:
        return (await world.do("ListContainerInstances", filter=expression))["containerInstanceArns"]

    assert await listed("attribute:rack == 7") == [one]
    assert await listed("not(attribute:rack exists)") == [other]
    assert await listed("task:group == jobs and runningTasksCount == 0") == [other]
    with pytest.raises(InvalidParameterException, match="Invalid filter"):
        await world.do("ListContainerInstances", filter="attribute:")
