"""Fargate's launch type: its rules hold, its tasks are shown as it would, and the cluster's own hosts run them."""

from __future__ import annotations

import hashlib

import pytest

from sexton.control import providers
from sexton.control.ec2 import defaults
from sexton.wire import ecs
from sexton.wire.errors import InvalidParameterException, PlatformUnknownException
from unit.control.ec2.forms import ec2
from unit.control.ops.capacity_of import put, share
from unit.control.serviceworld import Services
from unit.control.world import ACCOUNT, REGION

SUBNET = f"subnet-{hashlib.sha256(f'{ACCOUNT}/{REGION}/subnet'.encode()).hexdigest()[:17]}"  # the default one
NETWORK = {"networkConfiguration": {"awsvpcConfiguration": {"subnets": [SUBNET], "assignPublicIp": "ENABLED"}}}
OFFERS = ("ecs.capability.task-eni", "sexton.capability.network", "ecs.capability.task-cpu-mem-limit")
SIZED = {"networkMode": "awsvpc", "requiresCompatibilities": ["FARGATE"], "cpu": "256", "memory": "512"}


@pytest.fixture
async def services(world):
    await world.define("small", container={"cpu": 0, "memory": 512}, **SIZED)
    await world.define("web")
    await defaults.ensure(world.context, REGION)
    await world.join()
    return Services(world)


async def create(world, **fields):
    wanted = {"serviceName": "s", "taskDefinition": "small", "desiredCount": 1} | NETWORK | fields
    return (await world.do("CreateService", **wanted))["service"]


async def test_a_service_says_its_platform(services, world):
    made = await create(world, launchType="FARGATE")
    assert (made["launchType"], made["platformVersion"], made["platformFamily"]) == ("FARGATE", "LATEST", "Linux")
    (deployment,) = made["deployments"]
    assert (deployment["platformVersion"], deployment["platformFamily"]) == ("1.4.0", "Linux")

    await services.decide()
    events = (await services.service("s"))["events"]
    assert "unable to place a task because no container instance met all of its requirements" in events[0]["message"]

    after = await services.update("s", platformVersion="1.3.0")
    assert (after["platformVersion"], len(after["deployments"])) == ("1.3.0", 2)
    again = await services.update("s", platformVersion="1.3.0")
    assert again["deployments"][0]["id"] == after["deployments"][0]["id"]


async def test_a_strategy_of_fargate_says_its_platform(services, world):
    await put(world, ["FARGATE", "FARGATE_SPOT"])
    made = await create(world, capacityProviderStrategy=[share("FARGATE_SPOT")])
    assert (made.get("launchType"), made["platformVersion"]) == (None, "LATEST")


@pytest.mark.parametrize(
    ("fields", "error", "says"),
    [
        ({"taskDefinition": "web"}, InvalidParameterException, "does not support launch_type FARGATE"),
        ({"platformVersion": "9.9"}, PlatformUnknownException, "does not exist"),
        ({"launchType": "EC2", "platformVersion": "LATEST"}, InvalidParameterException, "must be null"),
        ({"networkConfiguration": None}, InvalidParameterException, "Network Configuration must be provided"),
    ],
)
async def test_what_fargate_does_not_allow(services, world, fields, error, says):
    for operation in ("CreateService", "RunTask"):
        wanted = {"taskDefinition": "small", "launchType": "FARGATE"} | NETWORK | fields
        if operation == "CreateService":
            wanted |= {"serviceName": "s", "desiredCount": 1}
        with pytest.raises(error, match=says):
            await world.do(operation, **{name: value for name, value in wanted.items() if value is not None})


async def test_nobody_chooses_where_fargate_runs(services, world):
    for field, value in (
        ("placementConstraints", [{"type": "distinctInstance"}]),
        ("placementStrategy", [{"type": "random"}]),
    ):
        with pytest.raises(InvalidParameterException, match="not supported with FARGATE"):
            await world.run("small", launchType="FARGATE", **NETWORK, **{field: value})


async def test_a_task_runs_on_a_host_that_makes_interfaces(services, world):
    able = await world.join(offers=OFFERS)
    task = (await world.run("small", launchType="FARGATE", **NETWORK))["tasks"][0]

    assert (task["containerInstanceArn"], task["launchType"], task["platformVersion"]) == (able, "FARGATE", "1.4.0")
    assert task["attachments"][0]["type"] == "ElasticNetworkInterface"


async def test_a_service_starts_its_tasks_with_interfaces(services, world):
    await world.join(offers=OFFERS)
    await create(world, launchType="FARGATE", networkConfiguration=NETWORK["networkConfiguration"])
    await services.decide()

    (arn,) = (await world.do("ListTasks", serviceName="s"))["taskArns"]
    details = {pair["name"]: pair["value"] for pair in (await world.task(arn))["attachments"][0]["details"]}
    assert details["subnetId"] == SUBNET
    assert world.context.network.of_task(arn)[0].ipv4 == details["privateIPv4Address"]


async def test_a_service_whose_subnet_is_gone_says_so(services, world):
    await world.join(offers=OFFERS)
    await create(world, launchType="FARGATE", networkConfiguration=NETWORK["networkConfiguration"])
    await ec2(world, "DeleteSubnet", SubnetId=SUBNET)
    await services.decide()

    events = (await services.service("s"))["events"]
    assert f"Error retrieving subnet information for [{SUBNET}]" in events[0]["message"]


def test_a_task_is_shown_as_fargate_shows_it():
    plain = ecs.Task(ephemeral_storage=ecs.EphemeralStorage(size_in_gib=30))

    shown = providers.on_fargate(plain, "LATEST")

    assert (shown.launch_type, shown.platform_version, shown.platform_family) == ("FARGATE", "1.4.0", "Linux")
    assert shown.fargate_ephemeral_storage == ecs.TaskEphemeralStorage(size_in_gib=30)
    assert providers.on_fargate(ecs.Task(), None).ephemeral_storage == ecs.EphemeralStorage(size_in_gib=20)
