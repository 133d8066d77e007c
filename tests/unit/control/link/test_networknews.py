"""What a connected agent is told of its tasks' networks: before the payload, on every change, and nothing else."""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import AsyncExitStack
from urllib.parse import urlencode

import msgspec
import pytest

from amazon_agent import AmazonAgent, recorded_calls
from plane import REGION, open_plane
from sexton.control.context import Call
from sexton.control.ec2.service import OPERATIONS
from sexton.control.link import networknews
from sexton.control.networkrecords import InterfaceRecord
from sexton.core.networkchange import applied
from sexton.store.contract import Delete
from sexton.wire.network import CAPABILITY, VERSION
from sexton.wire.query import as_request, read_form
from unit.control.ec2.forms import ec2 as form
from unit.control.ec2.forms import pool
from unit.control.shared_store import Server, View
from unit.control.world import world_over

CAPABLE = (
    "ecs.capability.task-eni",
    CAPABILITY,
    "com.amazonaws.ecs.capability.docker-remote-api.1.18",
)


@pytest.fixture
async def plane(tmp_path):
    async with open_plane(tmp_path) as made:
        yield made


def context_of(plane):
    return plane.control._links[0]._context


async def ec2(plane, action, **fields):
    operation = OPERATIONS[action]
    form = urlencode({name.replace("__", "."): str(value) for name, value in fields.items()}).encode()
    call = Call(REGION, plane.key.access_key_id, time.time())
    return await operation.serve(context_of(plane), call, as_request(read_form(form), operation.request))


async def joined(plane, address, version=""):
    """An agent that makes interfaces, at this address; of a ``version`` that takes changes, or an older one."""
    agent = AmazonAgent(plane.host, plane.key)
    attributes = [{"name": one} for one in CAPABLE if one != CAPABILITY] + [{"name": CAPABILITY, "value": version}]
    attributes.append({"name": "sexton.network.address", "value": address})
    fields = recorded_calls("RegisterContainerInstance")[0]["body"] | {"attributes": attributes, "clientToken": address}
    answer = await agent.call("RegisterContainerInstance", **fields)
    agent.instance = answer["containerInstance"]["containerInstanceArn"]
    return agent


async def prepared(plane):
    """A definition, a subnet, and a group of the VPC: their ids."""
    vpc = (await ec2(plane, "CreateVpc", CidrBlock="10.0.0.0/16"))["vpc"]["vpcId"]
    subnet = (await ec2(plane, "CreateSubnet", VpcId=vpc, CidrBlock="10.0.1.0/24"))["subnet"]["subnetId"]
    group = (await ec2(plane, "CreateSecurityGroup", GroupName="web", GroupDescription="d", VpcId=vpc))["groupId"]
    return subnet, group


async def run(agent, subnet, group, instance=None):
    where = {"awsvpcConfiguration": {"subnets": [subnet], "securityGroups": [group]}}
    answer = await agent.call(
        "StartTask", taskDefinition="web", containerInstances=[instance or agent.instance], networkConfiguration=where
    )
    assert answer["failures"] == []
    return answer["tasks"][0]


@pytest.fixture
async def agent(plane):
    agent = await joined(plane, "192.0.2.1")
    container = {"name": "main", "image": "bb", "memory": 8}
    await agent.call("RegisterTaskDefinition", family="web", networkMode="awsvpc", containerDefinitions=[container])
    return agent


async def test_the_network_comes_before_the_payload_that_needs_it(agent, plane):
    subnet, group = await prepared(plane)
    async with await agent.open("acs") as acs:
        first = await acs.expect("SextonNetworkMessage")
        assert not first.keys() & {"interfaces", "groups", "subnets"}
        task = await run(agent, subnet, group)

        told = await acs.expect("SextonNetworkMessage")
        payload = (await acs.expect("PayloadMessage"))["tasks"][0]

    (interface,) = told["interfaces"]
    details = {pair["name"]: pair["value"] for pair in task["attachments"][0]["details"]}
    assert interface == {
        "id": details["networkInterfaceId"],
        "subnet": subnet,
        "mac": details["macAddress"],
        "ipv4": details["privateIPv4Address"],
        "groups": [group],
        "taskArn": task["taskArn"],
    }
    assert payload["elasticNetworkInterfaces"][0]["ec2Id"] == interface["id"]
    (shown,) = told["subnets"]
    assert (shown["cidr"], shown["gateway"]) == ("10.0.1.0/24", "10.0.1.1")
    assert [one["id"] for one in told["groups"]] == [group]
    assert told["groups"][0]["egress"][0]["cidr"] == "0.0.0.0/0"
    assert told["revision"] > first["revision"]


async def test_a_change_of_a_rule_arrives_within_a_second(agent, plane):
    subnet, group = await prepared(plane)
    async with await agent.open("acs") as acs:
        await acs.acknowledge(await acs.expect("SextonNetworkMessage"))
        await run(agent, subnet, group)
        await acs.acknowledge(await acs.expect("SextonNetworkMessage"))
        began = time.monotonic()
        permission = {"IpPermissions__1__IpProtocol": "tcp", "IpPermissions__1__FromPort": 80}
        permission |= {"IpPermissions__1__ToPort": 80, "IpPermissions__1__IpRanges__1__CidrIp": "10.0.0.0/8"}
        await ec2(plane, "AuthorizeSecurityGroupIngress", GroupId=group, **permission)
        told = await acs.expect("SextonNetworkMessage")

        assert time.monotonic() - began < 1
        (rule,) = told["groups"][0]["ingress"]
        assert (rule["protocol"], rule["fromPort"], rule["toPort"], rule["cidr"]) == ("tcp", 80, 80, "10.0.0.0/8")
        await acs.acknowledge(told)
        await ec2(plane, "RevokeSecurityGroupIngress", GroupId=group, **permission)
        assert "ingress" not in (await acs.expect("SextonNetworkMessage"))["groups"][0]


async def test_hosts_of_a_vpc_know_each_others_interfaces(agent, plane):
    subnet, group = await prepared(plane)
    other = await joined(plane, "192.0.2.2")
    async with await agent.open("acs") as here, await other.open("acs") as there:
        await here.acknowledge(await here.expect("SextonNetworkMessage"))
        await there.acknowledge(await there.expect("SextonNetworkMessage"))
        mine = await run(agent, subnet, group)
        await here.acknowledge(await here.expect("SextonNetworkMessage"))
        theirs = await run(other, subnet, group)
        told = {}
        for name, acs in (("here", here), ("there", there)):
            message = await acs.expect("SextonNetworkMessage")
            told[name] = {one["taskArn"]: one.get("host", "") for one in message["interfaces"]}

    assert told["here"] == {mine["taskArn"]: "", theirs["taskArn"]: "192.0.2.2"}
    assert told["there"] == {mine["taskArn"]: "192.0.2.1", theirs["taskArn"]: ""}


async def test_when_the_last_task_has_ended_nothing_is_left(agent, plane):
    subnet, group = await prepared(plane)
    async with await agent.open("acs") as acs:
        await acs.expect("SextonNetworkMessage")
        task = await run(agent, subnet, group)
        await acs.expect("SextonNetworkMessage")
        await agent.call("SubmitTaskStateChange", task=task["taskArn"], status="STOPPED")
        told = await acs.expect("SextonNetworkMessage")
        assert not told.keys() & {"interfaces", "groups", "subnets"}


async def test_it_is_told_again_until_acknowledged_and_on_the_next_connection(agent, plane, monkeypatch):
    monkeypatch.setattr(networknews, "RESEND_AFTER", 0.05)
    monkeypatch.setattr("sexton.control.link.acs.RESEND_AFTER", 0.05)
    subnet, group = await prepared(plane)
    async with await agent.open("acs") as acs:
        await acs.expect("SextonNetworkMessage")
        task = await run(agent, subnet, group)
    for _ in range(2):
        async with await agent.open("acs") as acs:
            first = await acs.expect("SextonNetworkMessage")
            again = await acs.expect("SextonNetworkMessage")
            assert first["interfaces"] == again["interfaces"]
            assert first["interfaces"][0]["taskArn"] == task["taskArn"]


async def test_a_burst_of_changes_is_few_messages(agent, plane):
    subnet, group = await prepared(plane)
    async with await agent.open("acs") as acs:
        await acs.acknowledge(await acs.expect("SextonNetworkMessage"))
        await run(agent, subnet, group)
        await acs.acknowledge(await acs.expect("SextonNetworkMessage"))
        for port in range(40):
            permission = {"IpPermissions__1__IpProtocol": "tcp", "IpPermissions__1__FromPort": 1000 + port}
            permission |= {
                "IpPermissions__1__ToPort": 1000 + port,
                "IpPermissions__1__IpRanges__1__CidrIp": "10.0.0.0/8",
            }
            await ec2(plane, "AuthorizeSecurityGroupIngress", GroupId=group, **permission)
        messages = 0
        while True:
            messages += 1
            if len((await acs.expect("SextonNetworkMessage"))["groups"][0].get("ingress", ())) == 40:
                break
    assert messages <= 40 / 2


async def test_after_the_whole_only_what_has_changed_is_told(agent, plane):
    subnet, group = await prepared(plane)
    fresh = await joined(plane, "192.0.2.4", VERSION)
    async with await agent.open("acs"), await fresh.open("acs") as acs:
        await acs.acknowledge(await acs.expect("SextonNetworkMessage"))
        mine = await run(fresh, subnet, group)
        whole = await acs.expect("SextonNetworkMessage")
        await acs.acknowledge(whole)
        assert "since" not in whole and [one["taskArn"] for one in whole["interfaces"]] == [mine["taskArn"]]

        theirs = await run(agent, subnet, group)
        came = await acs.expect("SextonNetworkMessage")
        assert came["since"] == whole["messageId"]
        assert [(one["taskArn"], one["host"]) for one in came["interfaces"]] == [(theirs["taskArn"], "192.0.2.1")]
        assert not came.keys() & {"groups", "subnets", "gone"}

        permission = {"IpPermissions__1__IpProtocol": "-1", "IpPermissions__1__IpRanges__1__CidrIp": "10.0.0.0/8"}
        await ec2(plane, "AuthorizeSecurityGroupIngress", GroupId=group, **permission)
        ruled = await acs.expect("SextonNetworkMessage")
        assert ruled["since"] == came["messageId"] and "interfaces" not in ruled
        assert [rule["cidr"] for rule in ruled["groups"][0]["ingress"]] == ["10.0.0.0/8"]

        await agent.call("SubmitTaskStateChange", task=theirs["taskArn"], status="STOPPED")
        went = await acs.expect("SextonNetworkMessage")
        assert went["gone"] == [came["interfaces"][0]["id"]] and "interfaces" not in went


async def test_who_cannot_follow_a_change_is_told_the_whole(agent, plane):
    subnet, group = await prepared(plane)
    fresh = await joined(plane, "192.0.2.4", VERSION)
    async with await agent.open("acs"), await fresh.open("acs") as acs:
        await acs.expect("SextonNetworkMessage")
        await run(fresh, subnet, group)
        await acs.acknowledge(await acs.expect("SextonNetworkMessage"))
        await run(agent, subnet, group)
        change = await acs.expect("SextonNetworkMessage")
        await acs.send_message("NackRequest", messageId=change["messageId"], reason="unknown")

        whole = await acs.expect("SextonNetworkMessage")
        assert change["since"] and "since" not in whole and len(whole["interfaces"]) == 2


def like(state):
    return [sorted(msgspec.to_builtins(rows), key=str) for rows in (state.subnets, state.groups, state.interfaces)]


async def test_changes_one_after_the_other_make_what_the_whole_says(plane, monkeypatch):
    """Three hosts follow a hundred random changes, each at its own pace; one of them is often behind for too long."""
    monkeypatch.setattr(networknews, "REMEMBERED", 6)
    context, chance = context_of(plane), random.Random(5)
    (subnet, one), (other_subnet, other) = await prepared(plane), await prepared(plane)
    places = {one.value.id: one.value for one in context.records.subnets.all()}
    instances = [f"arn:aws:ecs:{REGION}:1:container-instance/default/{name}" for name in "abc"]
    news = networknews.NetworkNews(context)
    news._address = lambda instance: "" if instance.endswith("c") else f"192.0.2.{ord(instance[-1])}"
    there, told, changes = {}, {}, 0
    for turn in range(100):
        table = context.records.interfaces
        if there and chance.random() < 0.4:
            key = chance.choice(sorted(there))
            del there[key]
            await context.records.commit([], [Delete(table.key(*key))])
        else:
            place = places[chance.choice([subnet, subnet, other_subnet])]
            record = InterfaceRecord(
                region=REGION, id=f"eni-{turn}", vpc=place.vpc, subnet=place.id, ipv4=f"10.0.1.{turn}", mac=str(turn),
                groups=(one if place.id == subnet else other,), task=f"t{turn}", instance=chance.choice(instances),
            )  # fmt: skip
            there[REGION, record.subnet, record.ipv4] = record
            await context.records.commit([], [context.records.put(table, record, REGION, record.subnet, record.ipv4)])
        for instance, pace in zip(instances, (1.0, 0.5, 0.1), strict=True):
            if chance.random() < pace:
                mark = news.mark(instance, lambda: None)
                before = told.get(instance)
                change = news.change(instance, before[0], mark) if before else None
                whole = news.state(instance)
                changes += change is not None
                if change is not None:
                    assert like(applied(before[1], change)) == like(whole)
                told[instance] = mark, applied(before[1], change) if change is not None else whole
    assert changes > 50


async def test_a_host_that_is_busy_is_told_the_next_once_it_has_done_the_last(agent, plane, monkeypatch):
    monkeypatch.setattr(networknews, "HOLD", 60.0)
    subnet, group = await prepared(plane)
    async with await agent.open("acs") as acs:
        await acs.acknowledge(await acs.expect("SextonNetworkMessage"))
        await run(agent, subnet, group)
        first = await acs.expect("SextonNetworkMessage")
        for port in (80, 81):
            permission = {"IpPermissions__1__IpProtocol": "tcp", "IpPermissions__1__FromPort": port}
            permission |= {"IpPermissions__1__ToPort": port, "IpPermissions__1__IpRanges__1__CidrIp": "10.0.0.0/8"}
            await ec2(plane, "AuthorizeSecurityGroupIngress", GroupId=group, **permission)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await acs.expect("SextonNetworkMessage")
        await run(agent, subnet, group)  # whose payload needs it
        second = await acs.expect("SextonNetworkMessage")
        assert len(second["interfaces"]) == 2 and len(second["groups"][0]["ingress"]) == 2
        await ec2(plane, "RevokeSecurityGroupIngress", GroupId=group, **permission)
        await acs.acknowledge(first)
        await acs.acknowledge(second)
        assert len((await acs.expect("SextonNetworkMessage"))["groups"][0]["ingress"]) == 1


async def test_who_has_no_such_task_is_not_told(agent, plane):
    """Neither an agent that cannot, nor one that could and has none."""
    subnet, group = await prepared(plane)
    amazons = AmazonAgent(plane.host, plane.key)
    answer = await amazons.replay(recorded_calls("RegisterContainerInstance")[0])
    amazons.instance = answer.json["containerInstance"]["containerInstanceArn"]
    idle = await joined(plane, "192.0.2.3")
    async with await amazons.open("acs") as old, await idle.open("acs") as free, await agent.open("acs") as acs:
        await free.acknowledge(await free.expect("SextonNetworkMessage"))
        await acs.expect("SextonNetworkMessage")
        await run(agent, subnet, group)
        for acs in (old, free):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.4):
                    await acs.expect("SextonNetworkMessage")


async def test_a_thousand_hosts_share_what_they_are_told(plane):
    """What all are told alike is made once, and an unconcerned host is not looked at."""
    context = context_of(plane)
    subnet, group = await prepared(plane)
    vpc = next(one.value.vpc for one in context.records.subnets.all() if one.value.id == subnet)
    rows = [
        InterfaceRecord(
            region=REGION, id=f"eni-{n}", vpc=vpc, subnet=subnet, ipv4=f"10.0.{n // 250}.{n % 250}", mac=f"02:{n}",
            groups=(group,), task=f"task-{n}", instance=f"arn:aws:ecs:{REGION}:1:container-instance/default/{n}",
        )
        for n in range(1000)
    ]  # fmt: skip
    puts = [context.records.put(context.records.interfaces, one, REGION, one.subnet, one.ipv4) for one in rows]
    await context.records.commit([], puts)
    news = networknews.NetworkNews(context)
    woken = []
    marks = [news.mark(one.instance, lambda one=one: woken.append(one)) for one in rows]

    assert len(set(marks)) == 1
    assert len(news._shared) == 1
    context.network._listeners.remove(news._changed)
    stranger = f"arn:aws:ecs:{REGION}:1:container-instance/default/none"
    assert news.mark(stranger, lambda: woken.append(stranger)) == networknews.Mark()
    news._changed(vpc)
    assert len(woken) == 1000 and stranger not in woken


async def test_what_another_control_plane_writes_wakes_the_agents_of_this_one():
    server = Server()
    async with AsyncExitStack() as stack:
        here, there = [await stack.enter_async_context(world_over(View(server))) for _ in range(2)]
        await there.do("CreateCluster")
        await there.define(networkMode="awsvpc")
        vpc, subnet = await pool(there)
        offers = ("ecs.capability.task-eni", "sexton.capability.network", "sexton.network.address=192.0.2.1")
        host = await there.join(offers=offers)
        network = {"awsvpcConfiguration": {"subnets": [subnet]}}
        await there.run_one(networkConfiguration=network)
        await here.records.catch_up()
        news, woken = networknews.NetworkNews(here.context), []
        before = news.mark(host, lambda: woken.append(1))
        assert before.vpcs

        (group,) = (entry.value.id for entry in here.records.groups.all() if entry.value.vpc == vpc)
        permission = {"IpPermissions__1__IpProtocol": "-1", "IpPermissions__1__IpRanges__1__CidrIp": "10.0.0.0/8"}
        await form(there, "AuthorizeSecurityGroupIngress", GroupId=group, **permission)
        await here.records.catch_up()

        assert woken
        after = news.mark(host, lambda: woken.append(1))
        assert after != before
        state = news.state(host)
        assert "10.0.0.0/8" in {rule.cidr for one in state.groups for rule in one.ingress}
        assert [one.host for one in state.interfaces] == [""]
