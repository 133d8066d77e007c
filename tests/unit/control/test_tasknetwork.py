"""awsvpc tasks: each has an interface from the moment it is accepted until the moment it ends, and nobody else has."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from sexton.control import tasknetwork
from sexton.wire.errors import InvalidParameterException
from unit.control.ec2.forms import ec2, pool
from unit.control.shared_store import Server, View
from unit.control.world import ACCOUNT, REGION, open_world, world_over

OFFERS = (
    "ecs.capability.task-eni",
    "sexton.capability.network=1",
    "sexton.network.address=192.0.2.1",
    "ecs.capability.task-cpu-mem-limit",
)
LOCATION = f"arn:aws:ecs:{REGION}:{ACCOUNT}:"


@pytest.fixture
async def world(tmp_path):
    async with open_world(tmp_path) as world:
        yield world


def network(*subnets, groups=(), **fields):
    return {"awsvpcConfiguration": {"subnets": list(subnets), "securityGroups": list(groups), **fields}}


async def interfaces(world, **fields):
    return (await ec2(world, "DescribeNetworkInterfaces", **fields))["networkInterfaceSet"]


async def ready(world, **pool_of):
    """A host that can, a definition, and a subnet."""
    await world.define(networkMode="awsvpc")
    vpc, subnet = await pool(world, **pool_of)
    return await world.join(offers=OFFERS), vpc, subnet


async def group_of(world, vpc, name="web"):
    return (await ec2(world, "CreateSecurityGroup", GroupName=name, GroupDescription="d", VpcId=vpc))["groupId"]


async def test_a_task_has_its_interface_from_the_start(world):
    host, vpc, subnet = await ready(world, ipv6=True)
    group = await group_of(world, vpc)

    task = (await world.run(networkConfiguration=network(subnet, groups=[group])))["tasks"][0]

    (one,) = await interfaces(world)
    (attachment,) = task["attachments"]
    details = {pair["name"]: pair["value"] for pair in attachment["details"]}
    assert (attachment["type"], attachment["status"]) == ("ElasticNetworkInterface", "ATTACHING")
    assert details == {
        "subnetId": subnet,
        "networkInterfaceId": one["networkInterfaceId"],
        "macAddress": one["macAddress"],
        "privateDnsName": one["privateDnsName"],
        "privateIPv4Address": one["privateIpAddress"],
        "ipv6Address": one["ipv6AddressesSet"][0]["ipv6Address"],
    }
    assert task["containers"][0]["networkInterfaces"] == [
        {
            "attachmentId": attachment["id"],
            "privateIpv4Address": one["privateIpAddress"],
            "ipv6Address": details["ipv6Address"],
        }
    ]
    assert [each["groupId"] for each in one["groupSet"]] == [group]
    assert (one["description"], one["status"]) == (f"{LOCATION}attachment/{attachment['id']}", "in-use")
    assert task["containerInstanceArn"] == host


async def test_without_groups_it_is_in_the_default_one(world):
    _, vpc, subnet = await ready(world)
    await world.run_one(networkConfiguration=network(subnet))

    (one,) = await interfaces(world)
    groups = (await ec2(world, "DescribeSecurityGroups"))["securityGroupInfo"]
    default = next(each["groupId"] for each in groups if each["vpcId"] == vpc and each["groupName"] == "default")
    assert [each["groupId"] for each in one["groupSet"]] == [default]


async def test_the_first_task_needs_no_preparation(world):
    await world.define(networkMode="awsvpc")
    await world.join(offers=OFFERS)
    subnet = (await ec2(world, "DescribeSubnets"))["subnetSet"][0]["subnetId"]

    await world.run_one(networkConfiguration=network(subnet))

    assert (await interfaces(world))[0]["privateIpAddress"].startswith("10.213.")


async def test_its_attachment_is_confirmed_and_goes_with_it(world):
    _, _, subnet = await ready(world)
    task = await world.run_one(networkConfiguration=network(subnet))
    attachment = (await world.task(task))["attachments"][0]["id"]

    confirmed = [{"attachmentArn": f"{LOCATION}attachment/{attachment}", "status": "ATTACHED"}]
    await world.do("SubmitTaskStateChange", task=task, attachments=confirmed)
    assert (await world.task(task))["attachments"][0]["status"] == "ATTACHED"

    await world.ended(task)
    assert (await world.task(task))["attachments"][0]["status"] == "DELETED"
    assert await interfaces(world) == []


async def test_a_task_that_runs_is_attached(world):
    _, _, subnet = await ready(world)
    task = await world.run_one(networkConfiguration=network(subnet))
    await world.report(task, "RUNNING")

    shown = await world.task(task)
    assert (shown["attachments"][0]["status"], shown["connectivity"]) == ("ATTACHED", "CONNECTED")


async def test_a_task_whose_host_is_gone_keeps_no_address(world):
    host, _, subnet = await ready(world)
    await world.run_one(networkConfiguration=network(subnet))
    await world.do("DeregisterContainerInstance", containerInstance=host, force=True)

    assert await interfaces(world) == []


async def test_addresses_run_out_before_hosts_do(world):
    host, _, subnet = await ready(world, cidr="10.0.1.0/28")
    await world.define(networkMode="awsvpc", container={"cpu": 1, "memory": 6})
    first = await world.run(networkConfiguration=network(subnet), count=10)
    second = await world.run(networkConfiguration=network(subnet), count=10)

    assert (len(first["tasks"]), len(second["tasks"])) == (10, 1)
    (failure,) = second["failures"]
    assert (failure["arn"], failure["reason"]) == (host, "RESOURCE:ENI")
    assert subnet in failure["detail"] and "no free addresses" in failure["detail"]
    assert len(await interfaces(world)) == 11
    refused = await world.do(
        "StartTask", taskDefinition="web", containerInstances=[host], networkConfiguration=network(subnet)
    )
    assert (refused["tasks"], refused["failures"][0]["reason"]) == ([], "RESOURCE:ENI")


async def test_a_full_subnet_leaves_the_others(world):
    _, vpc, small = await ready(world, cidr="10.0.1.0/28")
    await world.define(networkMode="awsvpc", container={"cpu": 1, "memory": 6})
    large = (await ec2(world, "CreateSubnet", VpcId=vpc, CidrBlock="10.0.2.0/24"))["subnet"]["subnetId"]
    for _ in range(3):
        assert (await world.run(networkConfiguration=network(small, large), count=10))["failures"] == []

    assert {one["subnetId"] for one in await interfaces(world)} >= {large}


async def test_only_a_host_that_makes_interfaces_takes_it(world):
    """Amazon's agent waits for an interface that nobody would plug in here."""
    await world.define(networkMode="awsvpc")
    _, subnet = await pool(world)
    host = await world.join(offers=("ecs.capability.task-eni",))

    answer = await world.run(networkConfiguration=network(subnet))

    assert answer["tasks"] == []
    assert answer["failures"] == [{"arn": host, "reason": "ATTRIBUTE", "detail": "it lacks sexton.capability.network"}]
    assert await interfaces(world) == []


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (None, "Network Configuration must be provided when networkMode 'awsvpc' is specified."),
        ({"awsvpcConfiguration": {"subnets": []}}, "subnets can not be empty."),
        (network(*(f"subnet-{n}" for n in range(17))), "subnets can have at most 16 items."),
        (network("SUBNET", groups=[f"sg-{n}" for n in range(6)]), "securityGroups can have at most 5 items."),
        (network("subnet-0f"), r"Error retrieving subnet information for \[subnet-0f\].*InvalidSubnetID.NotFound"),
        (network("SUBNET", groups=["sg-0f"]), r"Error retrieving security group information for \[sg-0f\]"),
        (network("SUBNET", groups=["ELSEWHERE"]), "does not belong to the VPC"),
        (network("SUBNET", "OTHER"), "are not in the same VPC"),
        (network("SUBNET", assignPublicIp="ENABLED"), "Assign public IP is not supported for this launch type."),
    ],
)
@pytest.mark.parametrize("by", ["RunTask", "StartTask", "CreateService"])
async def test_what_cannot_be_is_refused_in_ecss_words(world, asked, words, by):
    host, _, subnet = await ready(world)
    other_vpc, other = await pool(world)
    elsewhere = await group_of(world, other_vpc)
    meant = {"SUBNET": subnet, "OTHER": other, "ELSEWHERE": elsewhere}
    if asked is not None:
        asked = {
            "awsvpcConfiguration": {
                key: [meant.get(each, each) for each in value] if isinstance(value, list) else value
                for key, value in asked["awsvpcConfiguration"].items()
            }
        }
    fields = {
        "RunTask": {},
        "StartTask": {"containerInstances": [host]},
        "CreateService": {"serviceName": "web", "desiredCount": 1},
    }[by]
    if asked is not None:
        fields["networkConfiguration"] = asked

    with pytest.raises(InvalidParameterException, match=words):
        await world.do(by, taskDefinition="web", **fields)
    assert await interfaces(world) == []


async def test_a_service_shows_its_network_whole(world):
    _, _, subnet = await ready(world)
    asked = {"awsvpcConfiguration": {"subnets": [subnet]}}
    made = await world.do(
        "CreateService", serviceName="web", taskDefinition="web", desiredCount=0, networkConfiguration=asked
    )

    whole = {"awsvpcConfiguration": {"subnets": [subnet], "securityGroups": [], "assignPublicIp": "DISABLED"}}
    assert made["service"]["networkConfiguration"] == whole
    assert made["service"]["deployments"][0]["networkConfiguration"] == whole


async def test_a_payload_names_the_interface(world):
    _, _, subnet = await ready(world)
    task = await world.run_one(networkConfiguration=network(subnet))
    entry = world.records.tasks.get(REGION, "default", task.rsplit("/", 1)[1])
    (one,) = await interfaces(world)

    (shown,) = tasknetwork.in_payload(world.context, entry.value)

    assert (shown.ec2_id, shown.mac_address) == (one["networkInterfaceId"], one["macAddress"])
    assert shown.ipv4_addresses[0].private_address == one["privateIpAddress"]
    assert (shown.subnet_gateway_ipv4_address, shown.interface_association_protocol) == ("10.0.1.1/24", "sexton")
    assert shown.attachment_arn == f"{LOCATION}attachment/{one['attachment']['attachmentId']}"


async def test_a_group_in_use_is_kept_and_is_free_again_afterwards(world):
    from sexton.wire.query import QueryError

    _, vpc, subnet = await ready(world)
    group = await group_of(world, vpc)
    task = await world.run_one(networkConfiguration=network(subnet, groups=[group]))
    for action, fields in (("DeleteSecurityGroup", {"GroupId": group}), ("DeleteSubnet", {"SubnetId": subnet})):
        with pytest.raises(QueryError) as refused:
            await ec2(world, action, **fields)
        assert refused.value.code == "DependencyViolation"
    await world.ended(task)

    await ec2(world, "DeleteSecurityGroup", GroupId=group)
    await ec2(world, "DeleteSubnet", SubnetId=subnet)


async def test_no_address_twice_whichever_control_plane_is_asked():
    server = Server()
    async with AsyncExitStack() as stack:
        worlds = [await stack.enter_async_context(world_over(View(server))) for _ in range(3)]
        await worlds[0].do("CreateCluster")
        await worlds[0].define(networkMode="awsvpc", container={"cpu": 1, "memory": 6})
        _, subnet = await pool(worlds[0], "10.0.1.0/28")
        await worlds[0].join(offers=OFFERS)
        for one in worlds:
            await one.records.catch_up()

        answers = await asyncio.gather(
            *(one.run(networkConfiguration=network(subnet), count=3) for one in worlds for _ in range(3))
        )

        for one in worlds:
            await one.records.catch_up()
        tasks = [task for answer in answers for task in answer["tasks"]]
        shown = [{pair["name"]: pair["value"] for pair in task["attachments"][0]["details"]} for task in tasks]
        assert len(tasks) == 11
        for name in ("privateIPv4Address", "macAddress", "networkInterfaceId"):
            assert len({one[name] for one in shown}) == 11
        assert {failure["reason"] for answer in answers for failure in answer["failures"]} == {"RESOURCE:ENI"}
        await asyncio.gather(*(worlds[n % 3].ended(task["taskArn"]) for n, task in enumerate(tasks)))
        await worlds[0].records.catch_up()
        assert await interfaces(worlds[0]) == []
