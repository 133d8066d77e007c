"""Amazon's own agent, as it was recorded, can register and run tasks here.

The record was made with another control plane that the agent accepted; whatever that one answered with, this one must
answer with as well: every key, of the same kind.
"""

from __future__ import annotations

import asyncio
import json

import pytest

from amazon_agent import (
    AmazonAgent,
    Closed,
    recorded_calls,
    recorded_frames,
    recorded_messages,
)
from plane import open_plane

DEFINITION = {
    "family": "peer",
    "networkMode": "none",
    "containerDefinitions": [
        {
            "name": "main",
            "image": "bb:latest",
            "cpu": 2,
            "memory": 8,
            "command": ["sleep", "100000"],
            "environment": [{"name": "FOO", "value": "bar"}],
        }
    ],
}


@pytest.fixture
async def plane(tmp_path):
    async with open_plane(tmp_path) as made:
        yield made


@pytest.fixture
async def agent(plane):
    """The agent, registered as recorded."""
    agent = AmazonAgent(plane.host, plane.key)
    (call,) = recorded_calls("RegisterContainerInstance")
    answer = await agent.replay(call)
    assert answer.status == 200, answer.body
    agent.registered = answer.json
    agent.instance = answer.json["containerInstance"]["containerInstanceArn"]
    return agent


def missing(expected, found, path="$"):
    """Keys that a recorded value has and another has not, or has with another kind of value."""
    if isinstance(expected, dict):
        if not isinstance(found, dict):
            return [path]
        wanted = {key: value for key, value in expected.items() if value is not None}
        absent = [f"{path}.{key}" for key in wanted if key not in found]
        return absent + [
            one for key in wanted if key in found for one in missing(wanted[key], found[key], f"{path}.{key}")
        ]
    if isinstance(expected, list):
        if not isinstance(found, list):
            return [path]
        pairs = zip(expected, found, strict=False)
        return [one for place, (a, b) in enumerate(pairs) for one in missing(a, b, f"{path}[{place}]")]
    number = isinstance(expected, int | float) and not isinstance(expected, bool)
    same = isinstance(found, int | float) if number else type(found) is type(expected)
    return [] if same else [path]


async def run(agent, **fields):
    answer = await agent.call("RunTask", taskDefinition="peer", **fields)
    assert answer["failures"] == []
    return answer["tasks"][0]["taskArn"]


async def described(agent, task):
    return (await agent.call("DescribeTasks", tasks=[task]))["tasks"][0]


async def test_registration_echoes_every_attribute_and_answers_as_recorded(agent):
    (call,) = recorded_calls("RegisterContainerInstance")
    instance = agent.registered["containerInstance"]

    echoed = {one["name"]: one.get("value", "") for one in instance["attributes"]}
    for one in call["body"]["attributes"]:
        assert echoed[one["name"]] == one.get("value", "")
    assert echoed["ecs.availability-zone"]
    assert missing(call["resp_body"], agent.registered) == []
    assert instance["registeredResources"] == call["body"]["totalResources"]
    assert instance["remainingResources"] == call["body"]["totalResources"]


async def test_a_registration_that_is_sent_again_is_the_same_instance(agent):
    (call,) = recorded_calls("RegisterContainerInstance")

    again = await agent.replay(call)

    assert again.json["containerInstance"]["containerInstanceArn"] == agent.instance


async def test_discovery_leads_to_both_sockets(agent):
    (call,) = recorded_calls("DiscoverPollEndpoint")

    answer = await agent.replay(call)

    assert answer.status == 200
    assert missing(call["resp_body"], answer.json) == []
    for which, name in (("acs", "endpoint"), ("tcs", "telemetryEndpoint")):
        assert answer.json[name] == f"http://{agent.host}/{which}/"
        async with await agent.open(which):
            pass


async def test_a_task_from_payload_to_stopped_as_recorded(agent):
    await agent.call("RegisterTaskDefinition", **DEFINITION)
    (running, stopped) = recorded_messages("acs", "PayloadMessage", "service")[:2]
    states = recorded_calls("SubmitTaskStateChange")[:2]
    old = running["tasks"][0]["arn"]
    async with await agent.open("acs") as acs:
        heartbeat = await acs.expect("HeartbeatMessage")
        assert missing(recorded_messages("acs", "HeartbeatMessage", "service")[0], heartbeat) == []
        await acs.send_message("HeartbeatAckRequest", messageId=heartbeat["messageId"])
        task = await run(agent)

        payload = await acs.expect("PayloadMessage")

        assert missing(running, payload) == []
        (sent,) = payload["tasks"]
        assert (sent["arn"], sent["desiredStatus"], sent["overrides"]) == (task, "RUNNING", "{}")
        (container,) = sent["containers"]
        assert container["overrides"] == "{}"
        for name, value in running["tasks"][0]["containers"][0].items():
            if name not in ("containerArn", "dockerConfig", "environment"):
                assert container[name] == value, name
        # ECS says where a container runs; the control plane of the record did not.
        recorded = running["tasks"][0]["containers"][0]["environment"]
        assert container["environment"] == recorded | {"AWS_EXECUTION_ENV": "AWS_ECS_EC2"}
        settings = json.loads(container["dockerConfig"]["hostConfig"])
        assert settings["NetworkMode"] == "none"
        assert isinstance(json.loads(container["dockerConfig"]["config"]), dict)
        await acs.acknowledge(payload)
        assert (await agent.replay(states[0], {old: task})).json["acknowledgment"]
        shown = await described(agent, task)
        assert (shown["lastStatus"], shown["containers"][0]["lastStatus"]) == ("RUNNING", "RUNNING")

        await agent.call("StopTask", task=task, reason="enough")
        payload = await acs.expect("PayloadMessage")
        assert missing(stopped, payload) == []
        assert [(one["arn"], one["desiredStatus"]) for one in payload["tasks"]] == [(task, "STOPPED")]
        await acs.acknowledge(payload)
        assert (await agent.replay(states[1], {old: task})).json["acknowledgment"]
    shown = await described(agent, task)
    assert (shown["lastStatus"], shown["stopCode"], shown["stoppedReason"]) == ("STOPPED", "UserInitiated", "enough")
    assert shown["containers"][0]["exitCode"] == 137


async def test_every_recorded_state_change_is_taken(agent):
    """All of the record in its order: exits, a published port, an image and a command that do not exist."""
    await agent.call("RegisterTaskDefinition", **DEFINITION)
    tasks = {}
    async with await agent.open("acs") as acs:
        await acs.expect("HeartbeatMessage")
        for call in recorded_calls("SubmitTaskStateChange"):
            old = call["body"]["task"]
            if old not in tasks:
                tasks[old] = await run(agent)
            answer = await agent.replay(call, {old: tasks[old]})
            assert answer.status == 200, answer.body
            assert missing(call["resp_body"], answer.json) == []
    ends = {}
    for old, task in tasks.items():
        ends[old.rpartition("/")[2][:4]] = await described(agent, task)

    assert [ends[one]["containers"][0].get("exitCode") for one in ("0754", "6060", "28a6", "86ee")] == [
        137,
        137,
        137,
        3,
    ]
    assert ends["86ee"]["stopCode"] == "EssentialContainerExited"
    published = ends["c920"]["containers"][0]
    assert published["networkBindings"] == [
        {"bindIP": "0.0.0.0", "containerPort": 80, "hostPort": 32768, "protocol": "tcp"}
    ]
    assert (ends["7fa5"]["stopCode"], ends["8573"]["stopCode"]) == ("TaskFailedToStart", "TaskFailedToStart")
    assert ends["7fa5"]["stoppedReason"].startswith("CannotPullImageManifestError: ")
    assert ends["8573"]["stoppedReason"].startswith("CannotStartContainerError: ")
    assert ends["7fa5"]["pullStartedAt"] < ends["7fa5"]["pullStoppedAt"]


async def test_what_is_not_acknowledged_is_sent_again_after_a_reconnection(agent):
    await agent.call("RegisterTaskDefinition", **DEFINITION)
    async with await agent.open("acs") as acs:
        await acs.expect("HeartbeatMessage")
        task = await run(agent)
        first = await acs.expect("PayloadMessage")
    async with await agent.open("acs") as acs:
        again = await acs.expect("PayloadMessage")
        assert [one["arn"] for one in again["tasks"]] == [task]
        assert again["messageId"] != first["messageId"]
        manifest = await acs.expect("TaskManifestMessage")
        assert manifest["timeline"] > again["seqNum"] >= first["seqNum"]


async def test_the_manifest_names_what_should_run_and_vetoes_what_should_stay(agent):
    await agent.call("RegisterTaskDefinition", **DEFINITION)
    async with await agent.open("acs") as acs:
        await acs.expect("HeartbeatMessage")
        kept, stopped = await run(agent), await run(agent)
        await agent.call("StopTask", task=stopped)
    async with await agent.open("acs") as acs:
        await acs.acknowledge(await acs.expect("PayloadMessage"))
        manifest = await acs.expect("TaskManifestMessage")
        (recorded,) = recorded_messages("acs", "TaskManifestMessage", "service")
        assert missing(recorded, manifest) == []
        assert [(one["taskArn"], one["desiredStatus"]) for one in manifest["tasks"]] == [(kept, "RUNNING")]
        await acs.acknowledge(manifest)
        unknown = kept.rpartition("/")[0] + "/" + "e" * 32
        candidates = [
            {"taskArn": arn, "taskClusterArn": "c", "desiredStatus": "STOPPED"} for arn in (kept, stopped, unknown)
        ]

        await acs.send_message(
            "TaskStopVerificationMessage", messageId=manifest["messageId"], stopCandidates=candidates
        )

        answer = await acs.expect("TaskStopVerificationAck")
        assert answer["messageId"] == manifest["messageId"]
        assert {one["taskArn"] for one in answer["stopTasks"]} == {stopped, unknown}


async def test_every_recorded_telemetry_frame_is_acknowledged(agent):
    acks = {
        "PublishMetricsRequest": "AckPublishMetric",
        "PublishInstanceStatusRequest": "AckPublishInstanceStatus",
    }
    async with await agent.open("tcs") as tcs:
        heartbeat = await tcs.expect("HeartbeatMessage")
        assert missing(recorded_messages("tcs", "HeartbeatMessage", "service")[0], heartbeat) == []
        for kind, ack in acks.items():
            (expected, *_) = recorded_messages("tcs", ack, "service")
            frames = recorded_frames("tcs", kind, "agent")
            assert frames
            for frame in frames:
                await tcs.replay_signed(frame)
                found, message = await tcs.receive()
                assert found == ack
                assert missing(expected, message) == []
        shown = await agent.call(
            "DescribeContainerInstances",
            containerInstances=[agent.instance],
            include=["CONTAINER_INSTANCE_HEALTH"],
        )
    health = shown["containerInstances"][0]["healthStatus"]
    assert health["overallStatus"] == "OK"
    assert [one["type"] for one in health["details"]] == ["CONTAINER_RUNTIME"]


async def test_presence_follows_the_socket(agent):
    async def connected():
        answer = await agent.call("DescribeContainerInstances", containerInstances=[agent.instance])
        return answer["containerInstances"][0]["agentConnected"]

    async def becomes(expected):
        async with asyncio.timeout(10):
            while await connected() is not expected:
                await asyncio.sleep(0.01)

    await becomes(False)
    for _ in range(5):
        async with await agent.open("acs"):
            pass  # gone again at once: what remains must be the truth
    async with await agent.open("acs") as older:
        await becomes(True)
        async with await agent.open("acs") as newer:
            await newer.expect("HeartbeatMessage")
            with pytest.raises(Closed) as closed:
                await older.expect("nothing more")
            assert closed.value.code == 1001
            await becomes(True)
    await becomes(False)


async def test_a_deregistered_agent_is_disconnected_and_told_so_when_it_calls_again(agent):
    async with await agent.open("acs") as acs, await agent.open("tcs") as tcs:
        await acs.expect("HeartbeatMessage")
        await agent.call("DeregisterContainerInstance", containerInstance=agent.instance, force=True)
        for socket in (acs, tcs):
            with pytest.raises(Closed):
                await socket.expect("nothing more")
    for which in ("acs", "tcs"):
        with pytest.raises(AssertionError) as refused:
            await agent.open(which)
        status, body = refused.value.args
        assert (status, body["type"]) == (400, "InactiveInstanceException")


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"clusterArn=default": "clusterArn=nowhere"}, "InvalidClusterException"),
        ({"%2Fdefault%2F": "%2Felsewhere%2F"}, "InvalidInstanceException"),
        ({"container-instance": "task"}, "InactiveInstanceException"),
    ],
)
async def test_why_an_upgrade_is_refused(agent, changes, kind):
    with pytest.raises(AssertionError) as refused:
        await agent.open("acs", changes)
    status, body = refused.value.args
    assert (status, body["type"]) == (400, kind)
    assert body["message"]["message"]


async def test_its_versions_are_those_that_it_connects_with(agent):
    async with await agent.open("acs") as acs:
        await acs.expect("HeartbeatMessage")
        (shown,) = (await agent.call("DescribeContainerInstances", containerInstances=[agent.instance]))[
            "containerInstances"
        ]

    assert shown["versionInfo"] == {
        "agentVersion": "1.105.1",
        "agentHash": "a8b3e7d3",
        "dockerVersion": "DockerVersion: 20.10.24+dfsg1",
    }


async def test_a_stranger_is_refused(agent, plane):
    stranger = AmazonAgent(plane.host, plane.key.__class__(plane.key.access_key_id, "wrong"))
    stranger.instance = agent.instance
    with pytest.raises(AssertionError) as refused:
        await stranger.open("acs")
    assert (refused.value.args[0], refused.value.args[1]["type"]) == (403, "AccessDeniedException")


async def test_a_stopping_control_plane_tells_its_agents_to_come_back(agent, plane):
    async with await agent.open("acs") as acs, await agent.open("tcs") as tcs:
        await acs.expect("HeartbeatMessage")
        stopping = asyncio.ensure_future(plane.control.stop())
        for socket in (acs, tcs):
            with pytest.raises(Closed) as closed:
                await socket.expect("nothing more")
            assert closed.value.code == 1001
            socket.writer.close()
        async with asyncio.timeout(5):
            await stopping
