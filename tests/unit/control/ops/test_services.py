"""Operations on services: what they answer, what they refuse, and what they do not do twice."""

from __future__ import annotations

import pytest

from sexton.wire.errors import (
    ClientException,
    ClusterNotFoundException,
    InvalidParameterException,
    ServiceNotActiveException,
    ServiceNotFoundException,
    UnsupportedFeatureException,
)
from unit.control.ops.capacity_of import make, member, put, share
from unit.control.serviceworld import Services

BALANCER = {"targetGroupArn": "arn:tg", "containerName": "main", "containerPort": 80}


@pytest.fixture
async def services(world):
    await world.define()
    await world.join(cpu=4000, memory=4000)
    return Services(world)


async def create(world, name="web", **fields):
    wanted = {"serviceName": name, "taskDefinition": "web", "desiredCount": 1} | fields
    return (await world.do("CreateService", **wanted))["service"]


async def test_a_service_is_shown_with_the_defaults_of_what_was_not_said(services, world):
    made = await create(world, desiredCount=2)
    (deployment,) = made["deployments"]

    assert made["serviceArn"] == "arn:aws:ecs:us-east-1:123456789012:service/default/web"
    assert made["clusterArn"] == "arn:aws:ecs:us-east-1:123456789012:cluster/default"
    assert (made["status"], made["launchType"], made["schedulingStrategy"]) == ("ACTIVE", "EC2", "REPLICA")
    configuration = made["deploymentConfiguration"]
    assert (configuration["minimumHealthyPercent"], configuration["maximumPercent"]) == (100, 200)
    assert configuration["deploymentCircuitBreaker"] == {"enable": False, "rollback": False}
    assert made["deploymentController"] == {"type": "ECS"}
    assert (made["enableECSManagedTags"], made["propagateTags"]) == (False, "NONE")
    assert made["availabilityZoneRebalancing"] == "ENABLED"
    assert (made["loadBalancers"], made["serviceRegistries"], made["events"]) == ([], [], [])
    assert deployment["id"].startswith("ecs-svc/")
    assert (deployment["status"], deployment["rolloutState"], deployment["desiredCount"]) == (
        "PRIMARY",
        "IN_PROGRESS",
        2,
    )


async def test_a_daemon_service_has_bounds_of_its_own(services, world):
    made = await world.do("CreateService", serviceName="d", taskDefinition="web", schedulingStrategy="DAEMON")
    configuration = made["service"]["deploymentConfiguration"]

    assert (configuration["minimumHealthyPercent"], configuration["maximumPercent"]) == (0, 100)
    with pytest.raises(InvalidParameterException, match="does not support a desired count"):
        await create(world, "other", schedulingStrategy="DAEMON")


async def test_the_same_request_does_nothing_again_and_another_is_refused(services, world):
    made = await create(world, clientToken="once")
    again = await create(world, clientToken="once")

    assert again["deployments"] == made["deployments"]
    with pytest.raises(InvalidParameterException, match="Creation of service was not idempotent"):
        await create(world, clientToken="once", desiredCount=2)
    await services.decide()
    await world.do("DeleteService", service="web", force=True)
    with pytest.raises(InvalidParameterException, match="still Draining"):
        await create(world)


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"loadBalancers": [BALANCER]}, "loadBalancers"),
        ({"serviceRegistries": [{"registryArn": "arn:sd"}]}, "serviceRegistries"),
        ({"serviceConnectConfiguration": {"enabled": True}}, "serviceConnectConfiguration"),
        ({"volumeConfigurations": [{"name": "v"}]}, "volumeConfigurations"),
        ({"enableExecuteCommand": True}, "enableExecuteCommand"),
        ({"deploymentController": {"type": "CODE_DEPLOY"}}, "CODE_DEPLOY"),
        ({"deploymentConfiguration": {"strategy": "BLUE_GREEN"}}, "BLUE_GREEN"),
        ({"deploymentConfiguration": {"bakeTimeInMinutes": 5}}, "bakeTimeInMinutes"),
    ],
)
async def test_what_is_not_done_is_refused_by_name(services, world, fields, name):
    with pytest.raises(UnsupportedFeatureException, match=name):
        await create(world, **fields)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"serviceName": "a b"}, "Service name is invalid"),
        ({"desiredCount": -1}, "Desired count"),
        ({"deploymentConfiguration": {"maximumPercent": 100}}, "cannot be 100"),
        ({"deploymentConfiguration": {"maximumPercent": 50, "minimumHealthyPercent": 10}}, "at least 100"),
        ({"placementConstraints": [{"type": "memberOf", "expression": "attribute:"}]}, "placementConstraints"),
        ({"healthCheckGracePeriodSeconds": -1}, "must not be negative"),
        ({"launchType": "EC2", "capacityProviderStrategy": [share("edge")]}, "both a launch type"),
        ({"tags": [{"key": "aws:x", "value": "y"}]}, "cannot begin with aws:"),
    ],
)
async def test_what_cannot_be_is_refused(services, world, fields, says):
    with pytest.raises(InvalidParameterException, match=says):
        await create(world, **fields)


async def test_what_is_not_there_has_its_own_error(services, world):
    with pytest.raises(ClientException, match="TaskDefinition not found"):
        await create(world, taskDefinition="none")
    with pytest.raises(ClusterNotFoundException):
        await create(world, cluster="none")
    for operation in ("UpdateService", "DeleteService"):
        with pytest.raises(ServiceNotFoundException, match="Service not found"):
            await world.do(operation, service="none")
    with pytest.raises(ServiceNotFoundException):
        await world.do("ListTasks", serviceName="none")
    missing = (await world.do("DescribeServices", services=["none"]))["failures"]
    assert missing == [{"arn": "arn:aws:ecs:us-east-1:123456789012:service/default/none", "reason": "MISSING"}]


async def test_a_service_in_use_is_deleted_only_by_force(services, world):
    await create(world)
    with pytest.raises(InvalidParameterException, match="scaled above 0"):
        await world.do("DeleteService", service="web")
    await world.do("DeleteService", service="web", force=True)
    with pytest.raises(ServiceNotActiveException):
        await world.do("UpdateService", service="web", desiredCount=3)
    await services.settle()
    with pytest.raises(ServiceNotFoundException):
        await world.do("DeleteService", service="web")


async def test_an_update_changes_what_it_says_and_deploys_only_what_must(services, world):
    made = await create(world, placementStrategy=[{"type": "spread", "field": "instanceId"}])
    same = await services.update(
        desiredCount=4,
        healthCheckGracePeriodSeconds=9,
        deploymentConfiguration={"minimumHealthyPercent": 25},
        placementStrategy=[],
        propagateTags="SERVICE",
    )
    forced = await services.update(forceNewDeployment=True)

    assert [one["id"] for one in same["deployments"]] == [one["id"] for one in made["deployments"]]
    assert (same["desiredCount"], same["healthCheckGracePeriodSeconds"], same["placementStrategy"]) == (4, 9, [])
    configuration = same["deploymentConfiguration"]
    assert (configuration["minimumHealthyPercent"], configuration["maximumPercent"]) == (25, 200)
    assert same["propagateTags"] == "SERVICE"
    assert len(forced["deployments"]) == 2
    assert forced["deployments"][0]["status"] == "PRIMARY"


async def test_services_are_listed_by_kind_and_in_pages(services, world):
    for name in ("a", "b", "c"):
        await create(world, name)
    await world.do("CreateService", serviceName="d", taskDefinition="web", schedulingStrategy="DAEMON")
    first = await world.do("ListServices", maxResults=3)
    second = await world.do("ListServices", maxResults=3, nextToken=first["nextToken"])
    daemons = await world.do("ListServices", schedulingStrategy="DAEMON")

    found = [arn.rpartition("/")[2] for arn in first["serviceArns"] + second["serviceArns"]]
    assert found == ["a", "b", "c", "d"]
    assert [arn.rpartition("/")[2] for arn in daemons["serviceArns"]] == ["d"]


async def test_a_cluster_counts_its_services(services, world):
    await create(world, "a")
    await create(world, "b")
    cluster = (await world.do("DescribeClusters", include=["STATISTICS"]))["clusters"][0]
    counts = {one["name"]: one["value"] for one in cluster["statistics"]}

    assert (cluster["activeServicesCount"], counts["activeEC2ServiceCount"]) == (2, "2")


async def test_tags_are_shown_when_asked_for_changed_and_passed_on(services, world):
    made = await services.create(count=1, tags=[{"key": "team", "value": "a"}], propagateTags="SERVICE")
    await world.do("TagResource", resourceArn=made["serviceArn"], tags=[{"key": "cost", "value": "b"}])
    plain, tagged = await services.service(), await services.service(include=["TAGS"])
    (task,) = await services.tasks()

    assert "tags" not in plain
    assert tagged["tags"] == [{"key": "team", "value": "a"}, {"key": "cost", "value": "b"}]
    assert task["tags"] == [{"key": "team", "value": "a"}]


async def test_tasks_go_through_the_providers_of_the_strategy(services, world):
    for name in ("edge", "core"):
        await make(world, name)
        await member(world, name)
    await put(world, ["edge", "core"])
    made = await services.create(count=4, capacityProviderStrategy=[share("edge", 3), share("core", 1)])
    through = sorted(one["capacityProviderName"] for one in await services.tasks())

    assert "launchType" not in made
    assert through == ["core", "edge", "edge", "edge"]


async def test_constraints_of_a_service_hold(services, world):
    for _ in range(2):
        await world.join(cpu=4000, memory=4000)
    await services.create(count=4, placementConstraints=[{"type": "distinctInstance"}])
    hosts = [one["containerInstanceArn"] for one in await services.tasks()]

    assert len(hosts) == len(set(hosts)) == 3


async def test_a_definition_of_a_service_is_not_removed_under_it(services, world):
    await services.create(count=1)
    await services.settle()
    await world.do("DeregisterTaskDefinition", taskDefinition="web:1")
    for task in await services.tasks():
        await world.do("StopTask", task=task["taskArn"])
    await services.settle()

    assert (await services.service())["runningCount"] == 1
