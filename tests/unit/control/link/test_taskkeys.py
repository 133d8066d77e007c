"""Keys of tasks' roles on their way to an agent, over a real socket and with a clock that tests move."""

from __future__ import annotations

import asyncio
import json
import time

import aiohttp
import pytest

from amazon_agent import REGION, AmazonAgent, recorded_calls
from plane import open_plane
from sexton.cloud.client import EcsClient
from sexton.cloud.credentials import Credentials
from sexton.control import rolekeys
from sexton.control.link import taskkeys
from sexton.control.rolekeys import Issued, NoRole
from sexton.wire import ecs
from unit.control.own.rolekeys import ARN, statement, write_roles

CONTAINER = {"name": "main", "image": "bb", "memory": 8}
# The recorded agent was told of no task roles; as ecs-init starts it, it offers them.
OFFERS = {'"attributes":[': '"attributes":[{"name":"com.amazonaws.ecs.capability.task-iam-role"},'}


class _Only:
    """These keys, always."""

    def __init__(self, keys):
        self.keys = keys

    async def current(self):
        return self.keys

    def forget(self, refused):
        pass


@pytest.fixture(autouse=True)
def pace(monkeypatch):
    """Waits that last seconds for people."""
    monkeypatch.setattr(taskkeys, "FETCH_BACKOFF", taskkeys.FETCH_BACKOFF._replace(first=0.01, cap=0.02))
    monkeypatch.setattr(taskkeys, "LOOK_SECONDS", 0.02)


@pytest.fixture
async def plane(tmp_path):
    roles = write_roles(tmp_path / "roles.toml", app=[statement()], exec=[statement()])
    async with open_plane(tmp_path, roles=roles) as made:
        yield made


@pytest.fixture
async def agent(plane):
    agent = AmazonAgent(plane.host, plane.key)
    answer = await agent.replay(recorded_calls("RegisterContainerInstance")[0], OFFERS)
    agent.instance = answer.json["containerInstance"]["containerInstanceArn"]
    await agent.call(
        "RegisterTaskDefinition",
        family="web",
        networkMode="none",
        containerDefinitions=[CONTAINER],
        taskRoleArn=ARN + "app",
        executionRoleArn="exec",
    )
    return agent


async def run(agent, **fields):
    """Run one task, as soon as the agent is known to be connected."""
    async with asyncio.timeout(10):
        while not (tasks := (await agent.call("RunTask", taskDefinition="web", **fields))["tasks"]):
            await asyncio.sleep(0.005)
    return tasks[0]["taskArn"]


async def status(agent, task):
    return (await agent.call("DescribeTasks", tasks=[task]))["tasks"][0]


async def reported(agent, task, word):
    await agent.call("SubmitTaskStateChange", task=task, status=word, cluster="default")


async def take(acs, message):
    """Acknowledge a payload and its keys, as Amazon's agent does."""
    await acs.acknowledge(message)
    for task in message["tasks"]:
        for keys in filter(None, (task.get("roleCredentials"), task.get("executionRoleCredentials"))):
            await have(acs, message["messageId"], keys)


async def have(acs, message_id, keys):
    await acs.send_message(
        "IAMRoleCredentialsAckRequest",
        messageId=message_id,
        credentialsId=keys["credentialsId"],
        expiration=keys["expiration"],
    )


async def until(true):
    async with asyncio.timeout(10):
        while not true():
            await asyncio.sleep(0.005)


def refuse(monkeypatch, plane, passing, fails=lambda: True):
    """Have whoever gives keys of a role refuse them while ``fails``; local roles have nobody who could."""
    issue = plane.control.role_keys._issue

    async def asked(entry, role_arn, name):
        if fails():
            raise NoRole("it is shut", passing=passing)
        return await issue(entry, role_arn, name)

    monkeypatch.setattr(plane.control.role_keys, "_issue", asked)


async def test_a_payload_brings_the_keys_of_both_roles_and_they_work(agent, plane):
    async with await agent.open("acs") as acs:
        task = await run(agent)
        (sent,) = (await acs.expect("PayloadMessage"))["tasks"]

        own, ready = sent["roleCredentials"], sent["executionRoleCredentials"]
        assert set(own) == {
            "credentialsId",
            "roleArn",
            "accessKeyId",
            "secretAccessKey",
            "sessionToken",
            "expiration",
        }
        assert (own["roleArn"], ready["roleArn"]) == (ARN + "app", ARN + "exec")
        assert own["credentialsId"] != ready["credentialsId"]
        session = plane.control.role_keys.session(own["sessionToken"])
        assert session.secret_access_key == own["secretAccessKey"]
        assert session.session.name == task.rsplit("/", 1)[1]
        keys = Credentials(own["accessKeyId"], own["secretAccessKey"], own["sessionToken"])
        async with aiohttp.ClientSession() as http:
            client = EcsClient(f"http://{plane.host}", REGION, _Only(keys), http)
            answer = await client.call("ListTasks", ecs.ListTasksRequest(), ecs.ListTasksResponse)
        assert answer.task_arns == (task,)


async def test_an_override_names_another_role(agent, plane):
    async with await agent.open("acs") as acs:
        await run(agent, overrides={"taskRoleArn": "exec"})
        (sent,) = (await acs.expect("PayloadMessage"))["tasks"]
        assert sent["roleCredentials"]["roleArn"] == ARN + "exec"


async def test_keys_are_nowhere_in_the_store_and_in_no_log_and_forgotten_once_acknowledged(
    agent, plane, tmp_path, caplog
):
    caplog.set_level("DEBUG")
    async with await agent.open("acs") as acs:
        await run(agent)
        payload = await acs.expect("PayloadMessage")
        session = next(iter(plane.control._links[0]._sessions.values()))
        held = next(iter(session.keys._tasks.values())).held
        assert all(one.issued for one in held)
        await take(acs, payload)
        await until(lambda: not any(one.issued for one in held))
    for part in ("secretAccessKey", "sessionToken"):
        secret = payload["tasks"][0]["roleCredentials"][part]
        assert secret not in caplog.text
        assert not any(secret.encode() in path.read_bytes() for path in tmp_path.glob("*.db*"))


async def test_keys_are_renewed_at_half_their_life_and_only_then(agent, plane, monkeypatch):
    moved = [0.0]
    shown = plane.control._links[0]
    monkeypatch.setattr(shown, "_context", shown._context._replace(clock=lambda: time.time() + moved[0]))
    async with await agent.open("acs") as acs:
        task = await run(agent)
        payload = await acs.expect("PayloadMessage")
        first = payload["tasks"][0]["roleCredentials"]
        await take(acs, payload)
        moved[0] = 1700.0
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await acs.expect("IAMRoleCredentialsMessage")
        moved[0] = 1900.0

        found = {}
        for _ in range(2):
            message = await acs.expect("IAMRoleCredentialsMessage")
            found[message["roleType"]] = message
            await have(acs, message["messageId"], message["roleCredentials"])

        assert set(found) == {"TaskApplication", "TaskExecution"}
        again = found["TaskApplication"]
        assert again["taskArn"] == task
        assert again["taskClusterArn"].endswith(":cluster/default")
        assert again["roleCredentials"]["credentialsId"] == first["credentialsId"]
        assert again["roleCredentials"]["sessionToken"] != first["sessionToken"]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await acs.expect("IAMRoleCredentialsMessage")


async def test_keys_that_go_unacknowledged_come_again(agent, monkeypatch):
    monkeypatch.setattr(taskkeys, "RESEND_AFTER", 0.05)
    async with await agent.open("acs") as acs:
        await run(agent)
        payload = await acs.expect("PayloadMessage")
        await acs.acknowledge(payload)  # and not the keys
        first, second = [await acs.expect("IAMRoleCredentialsMessage") for _ in range(2)]
        kinds = {one["roleType"]: one["roleCredentials"] for one in (first, second)}
        assert kinds["TaskApplication"] == payload["tasks"][0]["roleCredentials"]


async def test_an_agent_that_comes_again_is_sent_everything_again(agent):
    async with await agent.open("acs") as acs:
        await run(agent)
        payload = await acs.expect("PayloadMessage")
        await take(acs, payload)
        first = payload["tasks"][0]["roleCredentials"]
    async with await agent.open("acs") as acs:
        (sent,) = (await acs.expect("PayloadMessage"))["tasks"]
    assert sent["roleCredentials"]["credentialsId"] == first["credentialsId"]
    assert sent["roleCredentials"]["secretAccessKey"] != first["secretAccessKey"]


async def test_a_new_task_waits_for_its_keys_and_others_do_not_wait_for_it(agent, plane, monkeypatch):
    shut = [True]
    await agent.call("RegisterTaskDefinition", family="plain", networkMode="none", containerDefinitions=[CONTAINER])
    async with await agent.open("acs") as acs:
        refuse(monkeypatch, plane, passing=True, fails=lambda: shut[0])
        task = await run(agent)
        (plain,) = (await agent.call("RunTask", taskDefinition="plain"))["tasks"]
        payload = await acs.expect("PayloadMessage")
        assert [one["arn"] for one in payload["tasks"]] == [plain["taskArn"]]
        await acs.acknowledge(payload)
        shut[0] = False
        payload = await acs.expect("PayloadMessage")
        assert [one["arn"] for one in payload["tasks"]] == [task]
        assert payload["tasks"][0]["roleCredentials"]["accessKeyId"]


@pytest.mark.parametrize("passing", [True, False])
async def test_a_new_task_whose_keys_are_not_to_be_had_stops_with_the_reason(agent, plane, monkeypatch, passing):
    monkeypatch.setattr(taskkeys, "PATIENCE_SECONDS", 0.05)
    async with await agent.open("acs") as acs:
        refuse(monkeypatch, plane, passing=passing)
        task = await run(agent)
        (sent,) = (await acs.expect("PayloadMessage"))["tasks"]
        assert (sent["arn"], sent["desiredStatus"]) == (task, "STOPPED")
        assert "roleCredentials" not in sent
        await reported(agent, task, "STOPPED")
        found = await status(agent, task)
    assert found["stopCode"] == "TaskFailedToStart"
    assert found["stoppedReason"] == (
        f"ECS was unable to assume the role '{ARN}app' that was provided for this task. it is shut"
    )


async def test_a_running_task_goes_on_without_keys_and_gets_them_later(agent, plane, monkeypatch):
    shut = [True]
    async with await agent.open("acs") as acs:
        task = await run(agent)
        await take(acs, await acs.expect("PayloadMessage"))
        await reported(agent, task, "RUNNING")
    refuse(monkeypatch, plane, passing=False, fails=lambda: shut[0])
    async with await agent.open("acs") as acs:
        payload = await acs.expect("PayloadMessage")
        assert "roleCredentials" not in payload["tasks"][0]
        await acs.acknowledge(payload)
        shut[0] = False
        message = await acs.expect("IAMRoleCredentialsMessage")
        assert message["taskArn"] == task
        assert (await status(agent, task))["desiredStatus"] == "RUNNING"


async def test_a_fault_of_ours_costs_the_task_its_keys_and_nobody_the_connection(agent, plane, monkeypatch, caplog):
    broken = [True]
    issue = plane.control.role_keys._issue

    async def asked(*args):
        if broken[0]:
            raise KeyError("a fault of ours")
        return await issue(*args)

    monkeypatch.setattr(plane.control.role_keys, "_issue", asked)
    async with await agent.open("acs") as acs:
        task = await run(agent)
        await until(lambda: "keys of a role cannot be got" in caplog.text)
        broken[0] = False
        assert (await acs.expect("PayloadMessage"))["tasks"][0]["arn"] == task


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"taskRoleArn": ARN + "stranger"}, "no role in .*roles.toml fits it; add it there"),
        ({"executionRoleArn": "stranger"}, "no role in .*roles.toml fits it; add it there"),
        ({"taskRoleArn": "no:role/at all"}, "Role is not valid: no:role/at all"),
    ],
)
async def test_an_unknown_role_is_an_error_when_a_task_is_run(agent, change, said):
    with pytest.raises(AssertionError, match=said):
        await agent.call("RunTask", taskDefinition="web", overrides=change)
    with pytest.raises(AssertionError, match=said):
        await agent.call("StartTask", taskDefinition="web", overrides=change, containerInstances=[agent.instance])


async def test_an_unknown_role_is_an_error_when_a_service_is_made_and_an_event_when_it_goes_later(agent, plane):
    wish = {"family": "odd", "networkMode": "none", "containerDefinitions": [CONTAINER]}
    await agent.call("RegisterTaskDefinition", **wish, taskRoleArn="stranger")
    with pytest.raises(AssertionError, match="unable to assume the role"):
        await agent.call("CreateService", serviceName="odd", taskDefinition="odd", desiredCount=1)

    async with await agent.open("acs") as acs:
        await acs.expect("HeartbeatMessage")
        await agent.call("CreateService", serviceName="web", taskDefinition="web", desiredCount=0)
        book = plane.control.role_keys.book
        write_roles(book.path, exec=[statement()])
        book.look()
        await agent.call("UpdateService", service="web", desiredCount=1)
        async with asyncio.timeout(10):
            while True:
                (service,) = (await agent.call("DescribeServices", services=["web"]))["services"]
                texts = [one["message"] for one in service["events"]]
                if any("failed to launch a task with (error ECS was unable to assume the role" in one for one in texts):
                    break
                await asyncio.sleep(0.02)
        assert service["runningCount"] + service["pendingCount"] == 0


async def test_without_a_roles_file_execution_roles_are_the_agents_own_affair(tmp_path):
    async with open_plane(tmp_path) as plane:
        agent = AmazonAgent(plane.host, plane.key)
        answer = await agent.replay(recorded_calls("RegisterContainerInstance")[0], OFFERS)
        agent.instance = answer.json["containerInstance"]["containerInstanceArn"]
        wish = {"family": "web", "networkMode": "none", "containerDefinitions": [CONTAINER]}
        await agent.call("RegisterTaskDefinition", **wish, executionRoleArn="exec")
        async with await agent.open("acs") as acs:
            await run(agent)
            (sent,) = (await acs.expect("PayloadMessage"))["tasks"]
            assert "executionRoleCredentials" not in sent
        with pytest.raises(AssertionError, match=r"there is no roles file .*; make one with it"):
            await agent.call("RunTask", taskDefinition="web", overrides={"taskRoleArn": "app"})


async def test_who_gives_keys_is_asked_when_a_task_is_run_and_not_again_soon(agent, plane, monkeypatch):
    """A role that STS refuses is an error of RunTask, one that cannot be reached an error that clients try again."""
    book = plane.control.role_keys.book
    book.path.write_text(f'[[role]]\narn = "{ARN}*"\nsource = "assume-role"\n')
    book.look()
    asked, answers = [], [NoRole("it is shut", passing=False), NoRole("it is away", passing=True)]

    async def issue(entry, role_arn, name):
        asked.append(name)
        if answers:
            raise answers.pop(0)
        now = time.time()
        return Issued(Credentials("ASIAX", "secret", "token", now + 900), now, now + 900)

    monkeypatch.setattr(plane.control.role_keys, "_issue", issue)
    async with await agent.open("acs") as acs:
        with pytest.raises(AssertionError, match=r"ClientException.*it is shut"):
            await agent.call("RunTask", taskDefinition="web")
        with pytest.raises(AssertionError, match=r"ServerException.*it is away"):
            await agent.call("RunTask", taskDefinition="web")
        for _ in range(2):
            await run(agent)
        await acs.expect("PayloadMessage")
        assert asked.count(rolekeys.PROOF_NAME) == 2 + 2  # the two failures, and once for each role


def test_keys_are_renewed_at_half_of_what_is_left_of_their_life():
    keys = Credentials("a", "b", "c", None)
    assert taskkeys.renewal(Issued(keys, 0.0, 3600.0), 0.0) == 1800.0
    assert taskkeys.renewal(Issued(keys, 0.0, 3600.0), 3000.0) == 3300.0
    assert taskkeys.renewal(Issued(keys, 0.0, 3600.0), 4000.0) == 4030.0


def test_nothing_shows_keys():
    held = taskkeys._Held(taskkeys.TaskRole("TaskApplication", ARN + "app"), "id")
    held.issued = Issued(Credentials("ASIAX", "very secret", "very token", None), 0.0, 900.0)
    shown = repr(held.wire()) + repr(held.issued) + json.dumps(repr(held))
    assert "very" not in shown
