"""The ACS connection: acknowledged means durable, silence and refusals have an end, reconnects have a pace."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import aiohttp
import msgspec
import pytest

from sexton.agent import session as module
from sexton.agent.session import RECONNECT_BACKOFF, Refused, Session
from sexton.agent.standdown import StandDown
from sexton.agent.steps.context import Identity
from sexton.cloud.client import Unreachable
from sexton.core.task import TaskStatus
from sexton.runtime.contract import EngineInfo
from sexton.wire import ecs
from sexton.wire.errors import ClusterNotFoundException, EcsError, InvalidParameterException, ServerException
from sexton.wire.network import SextonNetworkMessage
from unit.agent.rig import CLUSTER, INSTANCE, Host, arn, settle, task, until

pytestmark = pytest.mark.looptime


class Socket:
    """The other end of one connection, as a test plays it."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.close_code: int | None = None
        self._frames: asyncio.Queue[aiohttp.WSMessage] = asyncio.Queue()

    def say(self, kind: str, **message: Any) -> None:
        self.raw(msgspec.json.encode({"type": kind, "message": message}).decode())

    def raw(self, text: str) -> None:
        self._frames.put_nowait(aiohttp.WSMessage(aiohttp.WSMsgType.TEXT, text, None))

    def hang_up(self, code: int) -> None:
        self.close_code = code
        self._frames.put_nowait(aiohttp.WSMessage(aiohttp.WSMsgType.CLOSE, code, None))

    def answers(self, kind: str) -> list[dict[str, Any]]:
        return [one["message"] for one in self.sent if one["type"] == kind]

    async def receive(self, timeout: float) -> aiohttp.WSMessage:
        return await asyncio.wait_for(self._frames.get(), timeout)

    async def send_str(self, text: str) -> None:
        if self.close_code is not None:
            raise aiohttp.ClientConnectionResetError("closed")
        self.sent.append(msgspec.json.decode(text))

    async def close(self, *, code: int = 1000, message: bytes = b"") -> None:
        self.close_code = self.close_code or code


class Line:
    """Answers the dials of one session as scripted, and notes when they came."""

    def __init__(self, host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
        self.dials: list[float] = []
        self.discoveries: list[float] = []
        self.urls: list[str] = []
        self.sockets: list[Socket] = []
        self.refusals: list[Exception] = []
        self.discovery: Exception | None = None
        self.ended: BaseException | None = None
        monkeypatch.setattr(module, "dial", self._dial)
        self.session = Session(
            None,  # type: ignore[arg-type]
            self,  # type: ignore[arg-type]
            None,  # type: ignore[arg-type]
            Identity(CLUSTER, INSTANCE),
            "us-east-1",
            EngineInfo(name="fake", version="1.0", api_version="1.41"),
            host.engine,
            host.checkpoint,
            host.context.supplies.roles,
        )
        self._running = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        try:
            await self.session.run()
        except Exception as error:
            self.ended = error

    async def call(self, operation: str, request: Any, answer: Any) -> ecs.DiscoverPollEndpointResponse:
        self.discoveries.append(asyncio.get_running_loop().time())
        if self.discovery is not None:
            raise self.discovery
        return ecs.DiscoverPollEndpointResponse(endpoint="http://127.0.0.1:1/acs/")

    async def _dial(self, http: Any, url: str, credentials: Any, region: str) -> Socket:
        self.dials.append(asyncio.get_running_loop().time())
        self.urls.append(url)
        if self.refusals:
            raise self.refusals.pop(0)
        self.sockets.append(Socket())
        return self.sockets[-1]

    async def socket(self, number: int = 1) -> Socket:
        await until(lambda: len(self.sockets) >= number)
        return self.sockets[number - 1]

    async def close(self) -> None:
        self._running.cancel()
        await asyncio.wait([self._running])


class Connected:
    """A host with a session, as a context manager."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.host = Host()
        self._monkeypatch = monkeypatch

    async def __aenter__(self) -> Connected:
        await self.host.__aenter__()
        self.line = Line(self.host, self._monkeypatch)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.line.close()
        await self.host.__aexit__(*error)


class Heard:
    """Networks that take what they know."""

    def __init__(self) -> None:
        self.followed: list[str] = []
        self.routing = self

    def knows(self, message: SextonNetworkMessage) -> bool:
        return not message.since or message.since in self.followed

    async def follow(self, message: SextonNetworkMessage) -> bool:
        self.followed.append(message.message_id or "")
        return True


async def test_a_change_of_networks_that_are_not_known_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the control plane tells the whole at once, instead of when it has waited long enough."""
    async with Connected(monkeypatch) as it:
        it.line.session._networks = networks = Heard()  # type: ignore[assignment]
        socket = await it.line.socket()
        socket.say("SextonNetworkMessage", messageId="n2", since="n1", revision=2)
        await until(lambda: socket.answers("NackRequest"))
        assert [one["messageId"] for one in socket.answers("NackRequest")] == ["n2"]
        socket.say("SextonNetworkMessage", messageId="n3", revision=2)
        socket.say("SextonNetworkMessage", messageId="n4", since="n3", revision=3)
        await until(lambda: len(socket.answers("AckRequest")) == 2)
        assert networks.followed == ["n3", "n4"]


def payload(*tasks: Any, message_id: str = "p1", sequence: int = 2) -> dict[str, Any]:
    return {
        "messageId": message_id,
        "clusterArn": CLUSTER,
        "containerInstanceArn": INSTANCE,
        "seqNum": sequence,
        "tasks": [msgspec.to_builtins(one) for one in tasks],
    }


async def test_acknowledged_means_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Connected(monkeypatch) as at:
        socket = await at.line.socket()
        at.host.store.held = asyncio.Event()
        socket.say("PayloadMessage", **payload(task()))
        await settle()
        assert socket.sent == []
        at.host.store.held.set()
        await until(lambda: bool(socket.sent))
        assert socket.answers("AckRequest") == [
            {"cluster": CLUSTER, "containerInstance": INSTANCE, "messageId": "p1"},
        ]
        await at.host.until_running()
        assert at.host.checkpoint.self.sequence == 2


async def test_what_cannot_be_saved_is_not_acknowledged_and_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Connected(monkeypatch) as at:
        socket = await at.line.socket()
        at.host.store.refusals = 1
        socket.say("PayloadMessage", **payload(task()))
        await settle()
        assert socket.sent == [] and at.line.ended is None
        socket.say("PayloadMessage", **payload(task(), message_id="p2"))
        await until(lambda: len(socket.answers("AckRequest")) == 1)
        await at.host.until_running()


async def test_message_with_a_bad_task_is_not_acknowledged_but_the_good_one_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Connected(monkeypatch) as at:
        socket = await at.line.socket()
        socket.say("PayloadMessage", **payload(task(1), task(2, network_mode="awsvpc")))
        await at.host.until_running(1)
        end = await at.host.until_stopped(2)
        assert "awsvpc" in (end.reason or "") and socket.answers("AckRequest") == []


async def test_stops_go_before_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Connected(monkeypatch) as at:
        socket = await at.line.socket()
        socket.say("PayloadMessage", **payload(task(1)))
        await at.host.until_running(1)
        order: list[str] = []
        take = at.host.engine.take

        async def spy(tasks: Any, sequence: int) -> None:
            order.extend(one.arn for one in tasks)
            await take(tasks, sequence)

        monkeypatch.setattr(at.host.engine, "take", spy)
        socket.say("PayloadMessage", **payload(task(2), task(1, desired_status="STOPPED"), message_id="p2"))
        await at.host.until_stopped(1)
        assert order == [arn(1), arn(2)]


async def test_heartbeats_are_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Connected(monkeypatch) as at:
        socket = await at.line.socket()
        socket.say("HeartbeatMessage", healthy=True, messageId="h1")
        await until(lambda: bool(socket.sent))
        assert socket.answers("HeartbeatAckRequest") == [{"messageId": "h1"}]


async def test_update_is_refused_and_the_unknown_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Connected(monkeypatch) as at:
        socket = await at.line.socket()
        socket.say("Invention", messageId="x")
        socket.raw("no json")
        socket.raw('{"type": "PayloadMessage", "message": 5}')
        socket.raw("[" * 100_000)
        socket.say("PerformUpdateMessage", messageId="u1")
        await until(lambda: bool(socket.sent))
        assert [one["reason"] for one in socket.answers("NackRequest")] == ["Updates are disabled"]


async def _manifest(at: Connected, socket: Socket, *arns: str, message_id: str = "m1", timeline: int = 10) -> None:
    listed = [{"taskArn": one, "taskClusterArn": CLUSTER, "desiredStatus": "RUNNING"} for one in arns]
    socket.say("TaskManifestMessage", messageId=message_id, timeline=timeline, tasks=listed, clusterArn=CLUSTER)
    await settle(1.0)


async def _two_tasks(at: Connected) -> Socket:
    socket = await at.line.socket()
    socket.say("PayloadMessage", **payload(task(1), task(2)))
    await at.host.until_running(1)
    await at.host.until_running(2)
    return socket


def _stop(*arns: str) -> list[dict[str, str]]:
    return [{"taskArn": one, "taskClusterArn": CLUSTER, "desiredStatus": "STOPPED"} for one in arns]


async def test_task_that_is_not_listed_is_stopped_once_confirmed(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Connected(monkeypatch) as at:
        socket = await _two_tasks(at)
        await _manifest(at, socket, arn(1))
        (asked,) = socket.answers("TaskStopVerificationMessage")
        assert [one["taskArn"] for one in asked["stopCandidates"]] == [arn(2)]
        assert asked["messageId"] == "m1"
        assert at.host.status(2) is TaskStatus.RUNNING  # not before the answer
        socket.say("TaskStopVerificationAck", messageId="m1", stopTasks=_stop(arn(2)))
        await at.host.until_stopped(2)
        assert at.host.status(1) is TaskStatus.RUNNING


@pytest.mark.parametrize(
    ("message_id", "listed"), [("m0", arn(2)), ("", arn(2)), ("m1", arn(1))], ids=["other", "none", "not asked"]
)
async def test_answer_that_is_not_one_stops_nothing(
    message_id: str, listed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Connected(monkeypatch) as at:
        socket = await _two_tasks(at)
        await _manifest(at, socket, arn(1))
        socket.say("TaskStopVerificationAck", messageId=message_id, stopTasks=_stop(listed))
        await settle(60.0)
        assert at.host.status(1) is at.host.status(2) is TaskStatus.RUNNING


async def test_answer_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Connected(monkeypatch) as at:
        socket = await _two_tasks(at)
        await _manifest(at, socket, arn(1))
        socket.say("TaskStopVerificationAck", messageId="m1", stopTasks=[])
        socket.say("TaskStopVerificationAck", messageId="m1", stopTasks=_stop(arn(2)))
        await settle(60.0)
        assert at.host.status(2) is TaskStatus.RUNNING


async def test_manifest_older_than_what_was_followed_is_no_news(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Connected(monkeypatch) as at:
        socket = await _two_tasks(at)
        await _manifest(at, socket, arn(1), arn(2), timeline=10)
        await _manifest(at, socket, message_id="m2", timeline=10)
        await _manifest(at, socket, message_id="m3", timeline=9)
        assert [one["messageId"] for one in socket.answers("AckRequest")] == ["p1", "m1"]
        await at.host.restart()
        assert at.host.checkpoint.self.sequence == 10


async def test_silence_ends_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Connected(monkeypatch) as at:
        await at.line.socket(2)
        assert 60.0 <= at.line.dials[1] <= 121.0
        assert "sendCredentials=true" in at.line.urls[0] and "sendCredentials=false" in at.line.urls[1]


async def test_connection_is_renewed_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Connected(monkeypatch) as at:
        socket = await at.line.socket()

        async def beat() -> None:
            while socket.close_code is None:
                socket.say("HeartbeatMessage", healthy=True, messageId="h")
                await asyncio.sleep(25.0)

        await asyncio.gather(beat(), until(lambda: len(at.line.sockets) == 2, seconds=3600))
        assert socket.close_code == 1000
        assert 1800.0 <= at.line.dials[1] <= 2110.0


async def test_unreachable_is_dialled_with_growing_capped_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Connected(monkeypatch) as at:
        at.line.discovery = Unreachable("cannot reach it")
        await asyncio.sleep(7200.0)
        pauses = [b - a for a, b in zip(at.line.discoveries, at.line.discoveries[1:], strict=False)]
        assert pauses[0] < 0.31 and max(pauses) <= RECONNECT_BACKOFF.cap * 1.2
        assert all(b >= a * 0.8 for a, b in itertools.pairwise(pauses))
        assert len(pauses) < 90


async def test_peer_that_dies_again_and_again_is_found_again_soon_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of its lives is short, yet it spoke: its tenth death must not cost minutes."""
    async with Connected(monkeypatch) as at:
        for number in range(1, 31):
            socket = await at.line.socket(number)
            socket.say("HeartbeatMessage", healthy=True, messageId="h")
            await settle(0.2)
            at.line.refusals = [Unreachable("restarting")] * 2
            socket.hang_up(1006)
        await at.line.socket(31)
        assert at.line.dials[-1] < 60.0


async def test_peer_that_hangs_up_at_once_is_not_hammered(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Connected(monkeypatch) as at:

        async def hang_up() -> None:
            for number in range(1, 1000):
                (await at.line.socket(number)).hang_up(1000)

        peer = asyncio.get_running_loop().create_task(hang_up())
        await asyncio.sleep(600.0)
        peer.cancel()
        await asyncio.wait([peer])
        assert len(at.line.dials) < 30


@pytest.mark.parametrize("kind", ["InactiveInstanceException", "InvalidClusterException"])
async def test_no_member_any_more_ends_the_work_here(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Connected(monkeypatch) as at:
        at.line.refusals = [Refused(kind, "no")]
        await until(lambda: at.line.ended is not None)
        assert isinstance(at.line.ended, StandDown) and len(at.line.dials) == 1


@pytest.mark.parametrize("error", [ClusterNotFoundException("no"), InvalidParameterException("no such instance")])
async def test_discovery_that_knows_nobody_ends_the_work_here(error: EcsError, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Connected(monkeypatch) as at:
        (await at.line.socket()).hang_up(1000)
        at.line.discovery = error
        await until(lambda: at.line.ended is not None)
        assert isinstance(at.line.ended, StandDown)


@pytest.mark.parametrize(
    "error", [Refused("AccessDeniedException", "no"), Refused("ServerException", "busy"), ServerException("busy")]
)
async def test_other_refusals_are_waited_out(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Connected(monkeypatch) as at:
        at.line.refusals = [error] * 5
        await at.line.socket()
        assert at.line.ended is None and len(at.line.dials) == 6


KEYS = {
    "credentialsId": "c-1",
    "roleArn": "arn:role",
    "accessKeyId": "ASIA1",
    "secretAccessKey": "hunter2",
    "sessionToken": "hunter2-token",
    "expiration": "2033-01-01T00:00:00Z",
}


async def test_keys_of_roles_are_kept_in_memory_only_and_acknowledged(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Connected(monkeypatch) as at:
        socket = await at.line.socket()
        message = payload(task())
        message["tasks"][0] |= {"executionRoleCredentials": KEYS, "roleCredentials": KEYS | {"credentialsId": "c-2"}}
        socket.say("PayloadMessage", **message)
        await at.host.until_running()
        acks = socket.answers("IAMRoleCredentialsAckRequest")
        assert sorted(one["credentialsId"] for one in acks) == ["c-1", "c-2"]
        assert {one["expiration"] for one in acks} == {KEYS["expiration"]} and {one["messageId"] for one in acks} == {
            "p1"
        }
        await at.host.checkpoint.flush()
        saved = b"".join(at.host.store.rows.values())
        assert b"hunter2" not in saved and b"ASIA1" not in saved and b"c-1" in saved
        found = at.host.context.supplies.roles.find(arn(), "TaskExecution")
        assert found is not None and found[1].secret_access_key == "hunter2"


async def test_keys_are_renewed_and_those_of_strangers_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Connected(monkeypatch) as at:
        socket = await at.line.socket()
        socket.say("PayloadMessage", **payload(task()))
        await at.host.until_running()
        renewed = {"messageId": "r1", "taskArn": arn(), "roleType": "TaskExecution", "roleCredentials": KEYS}
        for wrong in (
            renewed | {"taskArn": arn(9)},
            renewed | {"roleType": "Another"},
            {key: value for key, value in renewed.items() if key != "messageId"},
            renewed | {"roleCredentials": {"credentialsId": "c-9"}},
        ):
            socket.say("IAMRoleCredentialsMessage", **wrong)
        await settle()
        assert socket.answers("IAMRoleCredentialsAckRequest") == []
        socket.say("IAMRoleCredentialsMessage", **renewed)
        await until(lambda: bool(socket.answers("IAMRoleCredentialsAckRequest")))
        assert socket.answers("IAMRoleCredentialsAckRequest") == [
            {"messageId": "r1", "credentialsId": "c-1", "expiration": KEYS["expiration"]}
        ]
