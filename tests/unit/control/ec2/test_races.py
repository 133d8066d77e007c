"""Several control planes over one store at once: no address twice, no overlap, nothing made inside what is gone."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from sexton.wire.query import QueryError
from unit.control.ec2.forms import ec2, pool
from unit.control.shared_store import Server, View
from unit.control.world import REGION, open_world, world_over


@pytest.fixture
async def replicas():
    server = Server()
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(world_over(View(server))) for _ in range(3)]


async def settled(worlds):
    for world in worlds:
        await world.records.catch_up()


async def outcomes(*requests):
    """What each request came to: its answer, or its error code."""
    done = await asyncio.gather(*requests, return_exceptions=True)
    for one in done:
        if isinstance(one, BaseException) and not isinstance(one, QueryError):
            raise one
    return [one.code if isinstance(one, QueryError) else one for one in done]


async def test_no_address_is_given_twice(replicas):
    _, subnet = await pool(replicas[0], "10.0.1.0/28")
    await settled(replicas)

    done = await outcomes(
        *(ec2(world, "CreateNetworkInterface", SubnetId=subnet) for world in replicas for _ in range(8))
    )

    made = [one["networkInterface"] for one in done if not isinstance(one, str)]
    assert len({one["privateIpAddress"] for one in made}) == len(made) == 11
    assert len({one["macAddress"] for one in made}) == 11
    assert {one for one in done if isinstance(one, str)} == {"InsufficientFreeAddressesInSubnet"}


async def test_no_two_subnets_overlap(replicas):
    vpc, _ = await pool(replicas[0], "10.0.1.0/24")
    await settled(replicas)

    done = await outcomes(
        *(
            ec2(world, "CreateSubnet", VpcId=vpc, CidrBlock=cidr)
            for world in replicas
            for cidr in ("10.0.8.0/22", "10.0.10.0/24", "10.0.11.0/24")
        )
    )

    made = [one["subnet"]["cidrBlock"] for one in done if not isinstance(one, str)]
    assert sorted(made) in (["10.0.8.0/22"], ["10.0.10.0/24", "10.0.11.0/24"])
    assert {one for one in done if isinstance(one, str)} == {"InvalidSubnet.Conflict"}
    numbers = [entry.value.vni for entry in replicas[0].records.subnets.all()]
    assert len(set(numbers)) == len(numbers)


async def test_a_name_belongs_to_one_group(replicas):
    vpc, _ = await pool(replicas[0])
    await settled(replicas)

    done = await outcomes(
        *(
            ec2(world, "CreateSecurityGroup", GroupName="web", GroupDescription="d", VpcId=vpc)
            for world in replicas
            for _ in range(3)
        )
    )

    assert sum(not isinstance(one, str) for one in done) == 1
    assert {one for one in done if isinstance(one, str)} == {"InvalidGroup.Duplicate"}


async def test_nothing_is_made_inside_what_is_being_deleted(replicas):
    first, second, third = replicas
    for turn in range(5):
        vpc, subnet = await pool(first, f"10.0.{turn}.0/24")
        group = (await ec2(second, "CreateSecurityGroup", GroupName="g", GroupDescription="d", VpcId=vpc))["groupId"]
        await settled(replicas)
        await outcomes(
            ec2(first, "DeleteSubnet", SubnetId=subnet),
            ec2(second, "CreateNetworkInterface", SubnetId=subnet, SecurityGroupId__1=group),
            ec2(third, "DeleteSecurityGroup", GroupId=group),
            ec2(first, "DeleteVpc", VpcId=vpc),
            ec2(second, "CreateSubnet", VpcId=vpc, CidrBlock="10.0.200.0/24"),
        )
        await settled(replicas)
        records = first.records
        for entry in records.interfaces.all():
            assert records.subnets.get(REGION, entry.value.subnet)
            assert all(records.groups.get(REGION, one) for one in entry.value.groups)
        for entry in (*records.subnets.all(), *records.groups.all()):
            assert records.vpcs.get(REGION, entry.value.vpc)


async def test_the_defaults_are_made_once(replicas):
    answers = await asyncio.gather(*(ec2(world, "DescribeSubnets") for world in replicas for _ in range(3)))

    await settled(replicas)
    assert len(replicas[0].records.vpcs) == len(replicas[0].records.subnets) == len(replicas[0].records.groups) == 1
    assert {answer["subnetSet"][0]["subnetId"] for answer in answers} == {
        entry.value.id for entry in replicas[0].records.subnets.all()
    }


async def test_what_was_accepted_is_there_after_a_restart(tmp_path):
    async with open_world(tmp_path) as world:
        _, subnet = await pool(world)
        one = (await ec2(world, "CreateNetworkInterface", SubnetId=subnet))["networkInterface"]
        before = await ec2(world, "DescribeNetworkInterfaces")
    async with open_world(tmp_path, cluster=False) as world:
        assert await ec2(world, "DescribeNetworkInterfaces") == before
        assert world.context.network.is_taken(subnet, one["privateIpAddress"])
