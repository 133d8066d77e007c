"""Keys over HTTP: what each role may do, whose instance an agent speaks for, and rotation without a restart."""

from __future__ import annotations

import json
import logging

import pytest

from amazon_agent import AmazonAgent, Closed, recorded_calls
from sexton.core.roles import AGENT_OPERATIONS
from sexton.wire import ecs


async def made(admin, role, **fields):
    status, key = await admin.own("POST", "/sexton/keys", role=role, **fields)
    assert status == 201, key
    return key


async def registered(caller, **fields):
    status, answer = await caller.ecs("RegisterContainerInstance", cluster="default", **fields)
    assert status == 200, answer
    return answer["containerInstance"]["containerInstanceArn"]


async def test_a_secret_is_in_the_answer_to_its_making_and_nowhere_else(admin, caplog):
    caplog.set_level(logging.DEBUG)

    key = await made(admin, "read", name="dashboard")
    status, listed = await admin.own("GET", "/sexton/keys")

    assert status == 200
    assert [one["role"] for one in listed["keys"]] == ["admin", "read"]
    assert [one.get("own", False) for one in listed["keys"]] == [True, False]
    assert listed["keys"][1]["name"] == "dashboard"
    assert key["secretAccessKey"] not in json.dumps(listed)
    assert key["secretAccessKey"] not in caplog.text
    assert "secretAccessKey" not in json.dumps(listed)


async def test_a_key_that_reads_changes_nothing(admin):
    reader = admin.with_key(await made(admin, "read"))
    for operation in ecs.OPERATIONS:
        status, answer = await reader.ecs(operation)

        looks = operation.startswith(("Describe", "List")) or operation == "GetTaskProtection"
        assert (answer.get("__type") == "AccessDeniedException") != looks, answer
        if not looks:
            assert status == 400
            said = f"ecs:{operation} because its key has the role read, which may describe and list"
            assert said in answer["message"]


async def test_only_administrators_deal_with_keys_and_exports(admin):
    for role in ("read", "agent"):
        other = admin.with_key(await made(admin, role))
        for method, path in (
            ("GET", "/sexton/keys"),
            ("POST", "/sexton/keys"),
            ("DELETE", "/sexton/keys/AKSX"),
            ("POST", "/sexton/keys/AKSX/rotate"),
            ("GET", "/sexton/export"),
        ):
            status, answer = await other.own(method, path)

            assert (status, answer["__type"]) == (400, "AccessDeniedException"), path
            assert f"the role {role}" in answer["message"]


async def test_an_agents_key_is_bound_by_its_first_registration_and_speaks_for_no_other(admin):
    mine, yours = [admin.with_key(await made(admin, "agent")) for _ in range(2)]
    first, second = await registered(mine), await registered(yours)

    assert (await mine.ecs("DiscoverPollEndpoint", containerInstance=first))[0] == 200
    assert await registered(mine, containerInstanceArn=first) == first
    for operation, fields in (
        ("DiscoverPollEndpoint", {"containerInstance": second}),
        ("DeregisterContainerInstance", {"containerInstance": second, "force": True}),
        ("UpdateContainerInstancesState", {"containerInstances": [first, second], "status": "DRAINING"}),
        ("RegisterContainerInstance", {"containerInstanceArn": second}),
        ("RegisterContainerInstance", {}),
    ):
        status, answer = await mine.ecs(operation, **fields)

        assert (status, answer["__type"]) == (400, "AccessDeniedException"), operation
        assert f"is bound to another container instance, {first}" in answer["message"]
    status, listed = await admin.own("GET", "/sexton/keys")
    assert [one.get("containerInstance") for one in listed["keys"]] == [None, first, second]


async def test_an_agents_key_whose_instance_is_gone_registers_another(admin):
    agent = admin.with_key(await made(admin, "agent"))
    first = await registered(agent)
    assert (await agent.ecs("DeregisterContainerInstance", containerInstance=first))[0] == 200

    assert await registered(agent) != first


async def test_an_instance_that_is_there_is_not_taken_over_by_a_new_key(admin):
    instance = await registered(admin)
    stranger = admin.with_key(await made(admin, "agent"))
    named = admin.with_key(await made(admin, "agent", containerInstance=instance))

    status, answer = await stranger.ecs("RegisterContainerInstance", containerInstanceArn=instance)

    assert (status, answer["__type"]) == (400, "AccessDeniedException")
    assert await registered(named, containerInstanceArn=instance) == instance


async def test_an_agent_reports_on_its_own_tasks_only(admin, plane):
    mine, yours = [admin.with_key(await made(admin, "agent")) for _ in range(2)]
    await registered(mine)
    agent = AmazonAgent(plane.host, yours.key)
    answer = await agent.replay(recorded_calls("RegisterContainerInstance")[0])
    agent.instance = answer.json["containerInstance"]["containerInstanceArn"]
    container = {"name": "main", "image": "bb", "memory": 8}
    await admin.ecs("RegisterTaskDefinition", family="web", networkMode="none", containerDefinitions=[container])
    async with await agent.open("acs") as acs:
        await acs.expect("HeartbeatMessage")
        _, answer = await admin.ecs("RunTask", taskDefinition="web")
    task = answer["tasks"][0]["taskArn"]

    assert (await yours.ecs("SubmitTaskStateChange", task=task, status="RUNNING"))[0] == 200
    assert (await yours.ecs("UpdateTaskProtection", cluster="default", tasks=[task], protectionEnabled=True))[0] == 200
    for operation, fields in (
        ("SubmitTaskStateChange", {"task": task, "status": "STOPPED"}),
        ("SubmitContainerStateChange", {"task": task, "containerName": "main", "status": "STOPPED"}),
        ("UpdateTaskProtection", {"cluster": "default", "tasks": [task], "protectionEnabled": False}),
    ):
        status, refused = await mine.ecs(operation, **fields)
        assert (status, refused["__type"]) == (400, "AccessDeniedException"), operation
        assert "this task is not on its container instance" in refused["message"]


async def test_what_no_agent_does_no_agents_key_may(admin):
    agent = admin.with_key(await made(admin, "agent"))
    for operation in set(ecs.OPERATIONS) - AGENT_OPERATIONS:
        status, answer = await agent.ecs(operation)

        assert (status, answer["__type"]) == (400, "AccessDeniedException"), operation


async def test_amazons_agent_lives_with_a_key_of_its_own(admin, plane):
    key = await made(admin, "agent")
    agent = AmazonAgent(plane.host, admin.with_key(key).key)
    answer = await agent.replay(recorded_calls("RegisterContainerInstance")[0])
    agent.instance = answer.json["containerInstance"]["containerInstanceArn"]
    await agent.call("DiscoverPollEndpoint", containerInstance=agent.instance)
    async with await agent.open("acs") as acs, await agent.open("tcs"):
        await acs.expect("HeartbeatMessage")

    stranger = AmazonAgent(plane.host, admin.with_key(await made(admin, "agent")).key)
    stranger.instance = agent.instance
    for which in ("acs", "tcs"):
        with pytest.raises(AssertionError, match="AccessDeniedException"):
            await stranger.open(which)
    reader = AmazonAgent(plane.host, admin.with_key(await made(admin, "read")).key)
    reader.instance = agent.instance
    with pytest.raises(AssertionError, match="AccessDeniedException"):
        await reader.open("acs")


async def test_a_rotated_key_is_followed_by_the_new_one_at_once_and_ends_with_its_grace(admin):
    agent = await made(admin, "agent")
    instance = await registered(admin.with_key(agent))

    status, new = await admin.own("POST", f"/sexton/keys/{agent['accessKeyId']}/rotate", graceSeconds=3600)
    assert (status, new["role"], new["containerInstance"]) == (201, "agent", instance)
    for key in (agent, new):
        status, _ = await admin.with_key(key).ecs("DiscoverPollEndpoint", containerInstance=instance)
        assert status == 200

    status, newest = await admin.own("POST", f"/sexton/keys/{new['accessKeyId']}/rotate", graceSeconds=0)
    assert status == 201
    assert (await admin.with_key(new).ecs("ListClusters"))[1]["__type"] == "UnrecognizedClientException"
    assert (await admin.with_key(newest).ecs("DiscoverPollEndpoint", containerInstance=instance))[0] == 200


async def test_a_key_is_switched_off_and_on_and_deleted(admin):
    key = await made(admin, "read")
    reader, path = admin.with_key(key), f"/sexton/keys/{key['accessKeyId']}"

    assert (await reader.ecs("ListClusters"))[0] == 200
    await admin.own("POST", f"{path}/disable")
    assert (await reader.ecs("ListClusters"))[1]["__type"] == "UnrecognizedClientException"
    await admin.own("POST", f"{path}/enable")
    assert (await reader.ecs("ListClusters"))[0] == 200
    await admin.own("DELETE", path)
    assert (await reader.ecs("ListClusters"))[1]["__type"] == "UnrecognizedClientException"
    assert (await admin.own("DELETE", path))[1]["__type"] == "ResourceNotFoundException"


@pytest.mark.parametrize(("method", "action"), [("POST", "/disable"), ("DELETE", "")])
async def test_an_agents_connection_ends_with_its_key(admin, plane, method, action):
    key = await made(admin, "agent")
    agent = AmazonAgent(plane.host, admin.with_key(key).key)
    answer = await agent.replay(recorded_calls("RegisterContainerInstance")[0])
    agent.instance = answer.json["containerInstance"]["containerInstanceArn"]
    async with await agent.open("acs") as acs:
        await acs.expect("HeartbeatMessage")
        assert (await admin.own(method, f"/sexton/keys/{key['accessKeyId']}{action}"))[0] == 200
        with pytest.raises(Closed):
            await acs.expect("nothing more")
        with pytest.raises(AssertionError, match="AccessDeniedException"):
            await agent.open("acs")


async def test_the_control_planes_own_key_can_only_be_rotated(admin, plane):
    own = plane.key.access_key_id
    for method, path in (("DELETE", f"/sexton/keys/{own}"), ("POST", f"/sexton/keys/{own}/disable")):
        status, answer = await admin.own(method, path)
        assert (status, answer["__type"]) == (400, "ResourceInUseException")

    status, new = await admin.own("POST", f"/sexton/keys/{own}/rotate")

    assert status == 201
    assert plane.control.admin_key.access_key_id == new["accessKeyId"]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"role": "king"}, "role must be one of"),
        ({"role": "read", "name": "a\nb"}, "printable"),
        ({"role": "read", "name": "x" * 200}, "at most 128"),
        ({"role": "read", "containerInstance": "arn:x"}, "agent belongs"),
        ({"role": "agent", "containerInstance": "abc"}, "whole ARN"),
        ({"role": "agent", "secret": "x"}, "cannot read the body"),
        ({}, "cannot read the body"),
    ],
)
async def test_a_wrong_wish_is_refused_by_name(admin, fields, said):
    status, answer = await admin.own("POST", "/sexton/keys", **fields)

    assert status == 400
    assert said in answer["message"]
