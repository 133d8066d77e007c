"""What agents call: discovery and reports, which come late, twice and out of order."""

from __future__ import annotations

import pytest

from sexton.control.context import Call
from sexton.control.ops import agentcalls
from sexton.wire.errors import ClusterNotFoundException, InvalidParameterException


@pytest.fixture
async def task(world):
    await world.define()
    await world.join()
    return await world.run_one()


async def test_discovery_points_here(world):
    arn = await world.join()

    answer = await world.do("DiscoverPollEndpoint", containerInstance=arn, cluster="default", zoneId="")

    assert answer == {
        "endpoint": "http://127.0.0.1:7070/acs/",
        "telemetryEndpoint": "http://127.0.0.1:7070/tcs/",
        "serviceConnectEndpoint": "http://127.0.0.1:7070/sc/",
    }
    with pytest.raises(InvalidParameterException):
        await world.do("DiscoverPollEndpoint", containerInstance="f" * 32)


async def test_a_report_that_says_nothing_new_writes_nothing(world, task):
    report = {"task": task, "status": "RUNNING", "containers": [{"containerName": "main", "status": "RUNNING"}]}
    await world.do("SubmitTaskStateChange", **report)
    revision = world.records.revision

    answer = await world.do("SubmitTaskStateChange", **report)

    assert answer["acknowledgment"]
    assert world.records.revision == revision


async def test_stopped_is_final(world, task):
    await world.ended(task, 3)
    await world.report(task, "RUNNING", containers=[{"containerName": "main", "status": "RUNNING", "exitCode": 0}])

    shown = await world.task(task)
    assert (shown["lastStatus"], shown["containers"][0]["exitCode"]) == ("STOPPED", 3)


async def test_a_container_may_be_reported_by_itself(world, task):
    await world.do(
        "SubmitContainerStateChange",
        task=task,
        containerName="main",
        runtimeId="r1",
        status="RUNNING",
        networkBindings=[{"bindIP": "0.0.0.0", "containerPort": 80, "hostPort": 32768, "protocol": "tcp"}],
    )

    container = (await world.task(task))["containers"][0]
    assert (container["lastStatus"], container["runtimeId"]) == ("RUNNING", "r1")
    assert container["networkBindings"][0]["hostPort"] == 32768


async def test_reports_about_nothing_known(world):
    with pytest.raises(InvalidParameterException, match=r"The referenced task was not found\."):
        await world.report("f" * 32, "STOPPED")
    with pytest.raises(ClusterNotFoundException):
        await world.do("SubmitTaskStateChange", cluster="nowhere", task="f" * 32, status="STOPPED")
    assert (await world.do("SubmitAttachmentStateChanges", attachments=[]))["acknowledgment"]


async def test_tags_of_whatever_has_tags(world, task):
    tags = [{"key": "a", "value": "b"}]
    cluster = (await world.do("CreateCluster", clusterName="blue", tags=tags))["cluster"]["clusterArn"]
    instance = await world.join(tags=tags)

    for arn, expected in ((cluster, tags), (instance, tags), (task, [])):
        assert (await world.do("ListTagsForResource", resourceArn=arn))["tags"] == expected
    for arn in ("", "nonsense", "arn:aws:ecs:us-east-1:1:task/x", "arn:aws:ecs:us-east-1:1:service/a/b", task + "x"):
        with pytest.raises(InvalidParameterException):
            await world.do("ListTagsForResource", resourceArn=arn)


async def test_health_is_kept_only_from_the_agent_that_runs_the_task(world):
    await world.define(container={"healthCheck": {"command": ["CMD-SHELL", "true"]}})
    needed = ("ecs.capability.container-health-check", "com.amazonaws.ecs.capability.docker-remote-api.1.24")
    answer = await world.do(
        "RegisterContainerInstance",
        attributes=[{"name": name} for name in needed],
        totalResources=[{"name": name, "type": "INTEGER", "integerValue": 1000} for name in ("CPU", "MEMORY")],
    )
    instance = answer["containerInstance"]["containerInstanceArn"]
    await world.connect(instance)
    arn = await world.run_one()

    async def say(word, who):
        call = Call("us-east-1", "", 9.0)
        await agentcalls.keep_health(world.context, call, "default", who, arn, {"main": word})
        shown = await world.task(arn)
        return shown["healthStatus"], shown["containers"][0]["healthStatus"]

    assert await say("HEALTHY", instance + "x") == ("UNKNOWN", "UNKNOWN")
    assert await say("HEALTHY", instance) == ("HEALTHY", "HEALTHY")
    revision = world.records.revision
    assert await say("HEALTHY", instance) == ("HEALTHY", "HEALTHY")
    assert world.records.revision == revision
    assert await say("UNHEALTHY", instance) == ("UNHEALTHY", "UNHEALTHY")
