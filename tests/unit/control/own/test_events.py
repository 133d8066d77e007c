"""The stream over HTTP: in order, resumed by cursor, told of gaps, and unharmed by readers that do not read."""

from __future__ import annotations

import asyncio
import json
import socket
import time

import aiohttp
import pytest

from amazon_agent import AmazonAgent, recorded_calls
from plane import ACCOUNT, REGION, open_plane
from sexton.cloud.sigv4 import sign
from unit.control.own.conftest import Caller, events_in


@pytest.fixture
async def task(admin, plane):
    """A task that an agent was told to run and has reported on."""
    agent = AmazonAgent(plane.host, plane.key)
    answer = await agent.replay(recorded_calls("RegisterContainerInstance")[0])
    agent.instance = answer.json["containerInstance"]["containerInstanceArn"]
    container = {"name": "main", "image": "bb", "memory": 8}
    await agent.call("RegisterTaskDefinition", family="web", networkMode="none", containerDefinitions=[container])
    async with await agent.open("acs") as acs:
        await acs.expect("HeartbeatMessage")
        answer = await agent.call("RunTask", taskDefinition="web", startedBy="me", tags=[{"key": "team", "value": "a"}])
        arn = answer["tasks"][0]["taskArn"]
        await agent.call("SubmitTaskStateChange", task=arn, status="RUNNING")
        exited = [{"containerName": "main", "status": "STOPPED", "exitCode": 3}]
        await agent.call("SubmitTaskStateChange", task=arn, status="STOPPED", containers=exited)
    return arn


async def test_a_tasks_life_is_told_in_order_and_in_eventbridges_shape(admin, task):
    events = await admin.told(since="oldest")

    told = [one for one in events if one["detail-type"] == "ECS Task State Change"]
    assert [one["detail"]["lastStatus"] for one in told] == ["PENDING", "RUNNING", "STOPPED"]
    assert [one["detail"]["version"] for one in told] == [1, 2, 3]
    last = told[-1]
    assert last["source"] == "aws.ecs"
    assert (last["version"], last["account"], last["region"], last["resources"]) == ("0", ACCOUNT, REGION, [task])
    detail = last["detail"]
    assert detail["stopCode"] == "EssentialContainerExited"
    assert detail["containers"][0]["exitCode"] == 3
    assert detail["startedBy"] == "me"
    assert detail["createdAt"].endswith("Z")
    assert detail["updatedAt"] >= detail["stoppedAt"] > detail["createdAt"]
    assert "tags" not in detail
    assert len({one["id"] for one in events}) == len(events)


async def test_instances_are_told_of_from_registration_to_their_end(admin, plane, task):
    instance = task_instance(await admin.told(since="oldest"))
    await admin.ecs("DeregisterContainerInstance", containerInstance=instance, force=True)

    told = [one for one in await admin.told(since="oldest") if "Instance" in one["detail-type"]]
    states = [(one["detail"]["status"], one["detail"]["agentConnected"]) for one in told]
    assert states[:2] == [("ACTIVE", False), ("ACTIVE", True)]
    assert states[-1] == ("INACTIVE", False)
    assert told[0]["detail"]["remainingResources"]
    versions = [one["detail"]["version"] for one in told]
    assert versions == sorted(set(versions))


def task_instance(events):
    return next(one["resources"][0] for one in events if "Instance" in one["detail-type"])


async def test_services_and_deployments_are_told_of(admin):
    container = {"name": "main", "image": "bb", "memory": 8}
    await admin.ecs("RegisterTaskDefinition", family="web", networkMode="none", containerDefinitions=[container])
    await admin.ecs("CreateService", serviceName="web", taskDefinition="web", desiredCount=1)
    await admin.ecs("UpdateService", service="web", desiredCount=0)
    async with asyncio.timeout(10):
        while "SERVICE_STEADY_STATE" not in (found := names_of(await admin.told(since="oldest"))):
            await asyncio.sleep(0.02)

    assert found.index("SERVICE_DEPLOYMENT_IN_PROGRESS") < found.index("SERVICE_DEPLOYMENT_COMPLETED")
    assert found.index("SERVICE_DESIRED_COUNT_UPDATED") < found.index("SERVICE_STEADY_STATE")


def names_of(events):
    return [one["detail"].get("eventName") for one in events]


async def test_a_stream_goes_on_behind_the_last_event_that_arrived(admin, task):
    events = await admin.told(since="oldest")
    for index, one in enumerate(events):
        behind = events[index + 1 :]
        again = await admin.told(after=one["cursor"])
        # The agent's leaving may be told meanwhile.
        assert [other["id"] for other in again][: len(behind)] == [other["id"] for other in behind]


async def test_a_follower_gets_what_happens_as_it_happens(admin):
    async with admin.open("GET", "/sexton/events?follow=true") as answer:
        await admin.ecs("RegisterContainerInstance", cluster="default")
        text = ""
        async with asyncio.timeout(10):
            while not (found := events_in(text)):
                text += (await answer.content.readany()).decode()

    assert found[0]["detail"]["status"] == "ACTIVE"


async def test_each_region_and_cluster_has_its_own_events(admin):
    await admin.ecs("CreateCluster", clusterName="other")
    await admin.ecs("RegisterContainerInstance", cluster="default")
    await admin.ecs("RegisterContainerInstance", cluster="other")

    assert len(await admin.told(since="oldest")) == 2
    assert len(await admin.told(since="oldest", cluster="other")) == 1
    async with admin.open("GET", "/sexton/events?follow=false", region="eu-west-1") as answer:
        assert events_in(await answer.text()) == []


async def test_only_what_is_newer_than_asked_for_is_told(admin):
    await admin.ecs("RegisterContainerInstance", cluster="default")

    assert len(await admin.told(since=f"{time.time() - 60}")) == 1
    assert await admin.told(since=f"{time.time() + 60}") == []


@pytest.mark.parametrize("query", ["after=x", "after=1", "since=yesterday", "cluster=%2F%2F"])
async def test_a_wrong_question_is_refused(admin, query):
    status, answer = await admin.own("GET", f"/sexton/events?{query}&follow=false")

    assert (status, answer["__type"]) == (400, "InvalidParameterException")


async def test_readers_may_and_agents_may_not(admin):
    for role, allowed in (("read", True), ("agent", False)):
        _, key = await admin.own("POST", "/sexton/keys", role=role)
        async with admin.with_key(key).open("GET", "/sexton/events?follow=false") as answer:
            assert (answer.status == 200) == allowed
    async with aiohttp.ClientSession() as http, http.get(f"http://{admin.plane.host}/sexton/events") as answer:
        assert answer.status == 403


async def test_old_events_go_and_whoever_misses_them_is_told(tmp_path):
    async with open_plane(tmp_path, events_kept=10) as plane, aiohttp.ClientSession() as http:
        admin = Caller(plane, http, plane.key)
        await admin.ecs("RegisterContainerInstance", cluster="default")
        (first,) = await admin.told(since="oldest")
        for _ in range(14):
            await admin.ecs("RegisterContainerInstance", cluster="default")
        async with asyncio.timeout(15):
            while len(events := await admin.told(since="oldest")) > 10:
                await asyncio.sleep(0.05)
        late = await admin.told(after=first["cursor"])
        stranger = await admin.told(after="999999-x")

    assert len(events) == 10
    for answer in (late, stranger):
        assert answer[0]["name"] == "gap"
        assert [one["id"] for one in answer[1:]] == [one["id"] for one in events]


async def test_a_restart_keeps_the_stream_and_its_cursors(tmp_path):
    async with aiohttp.ClientSession() as http:
        async with open_plane(tmp_path) as plane:
            admin = Caller(plane, http, plane.key)
            await admin.ecs("RegisterContainerInstance", cluster="default")
            await admin.ecs("RegisterContainerInstance", cluster="default")
            before = await admin.told(since="oldest")
        async with open_plane(tmp_path) as plane:
            admin = Caller(plane, http, plane.key)

            assert await admin.told(since="oldest") == before
            assert await admin.told(after=before[0]["cursor"]) == before[1:]


async def test_a_reader_that_does_not_read_is_let_go_and_costs_nobody_anything(admin, plane, monkeypatch):
    monkeypatch.setattr("sexton.control.own.events.READER_SECONDS", 0.2)
    path = "/sexton/events"
    headers = {"Host": plane.host}
    headers |= sign("GET", path, "", headers, b"", plane.key, region=REGION, service="ecs", now=time.time())
    with socket.create_connection(("127.0.0.1", plane.port)) as mute:
        mute.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        lines = [f"GET {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
        mute.sendall("\r\n".join([*lines, "", ""]).encode())
        streams = plane.control._streams
        async with asyncio.timeout(15):
            while not streams._readers:
                await asyncio.sleep(0.01)
            big = [{"name": f"a{index}", "value": "x" * 100} for index in range(100)]
            while streams._readers:
                begun = time.monotonic()
                status, answer = await admin.ecs("RegisterContainerInstance", cluster="default", attributes=big)
                assert status == 200, json.dumps(answer)
                assert time.monotonic() - begun < 5
