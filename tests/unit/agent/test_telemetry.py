"""Telemetry: pages that the other end takes, at their pace; a connection that ends, comes back and loses little."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from sexton.agent import reports
from sexton.agent import telemetry as module
from sexton.agent.instancehealth import InstanceHealth
from sexton.agent.reports import Seen
from sexton.agent.session import Refused
from sexton.agent.stats import MIB, CgroupStats
from sexton.agent.steps.context import Identity
from sexton.agent.telemetry import MOST_ROUNDS, RECONNECT_BACKOFF, ROUND_SECONDS, Telemetry
from sexton.cloud.client import Unreachable
from sexton.cloud.credentials import Attempt, Credentials, NoCredentials
from sexton.core.task import ContainerStatus, Health, KnownContainer
from sexton.runtime.contract import EngineInfo
from sexton.wire import acs_task, ecs
from unit.agent.rig import CLUSTER, INSTANCE, Host, arn, container, now, settle, task, until
from unit.agent.test_session import Socket
from unit.agent.test_stats import v1

pytestmark = pytest.mark.looptime


class Wallet:
    """Credentials that a test may take away for a while."""

    def __init__(self) -> None:
        self.missing = False

    async def current(self) -> Credentials:
        if self.missing:
            raise NoCredentials([Attempt("test", "taken away", True)])
        return Credentials("AKSX", "secret")


class Wire(Socket):
    """One connection; takes signed frames apart and can acknowledge each."""

    def __init__(self, *, acknowledges: bool = True) -> None:
        super().__init__()
        self.acknowledges = acknowledges
        self.headers: list[str] = []

    async def send_str(self, text: str) -> None:
        head, _, body = text.partition("\r\n\r\n")
        await super().send_str(body)
        self.headers.append(head)
        if self.acknowledges:
            kind = self.sent[-1]["type"].removesuffix("Request").replace("Metrics", "Metric")
            self.say(f"Ack{kind}", message="")

    def of(self, kind: str) -> list[dict[str, Any]]:
        return self.answers(f"Publish{kind}Request")


class Link:
    """Answers the dials of one agent's telemetry; a context manager."""

    def __init__(self, host: Host, mount: Path, monkeypatch: pytest.MonkeyPatch, *, acknowledges: bool = True) -> None:
        self.dials: list[float] = []
        self.urls: list[str] = []
        self.wires: list[Wire] = []
        self.refusals: list[Exception] = []
        self.down: Exception | None = None
        self.wallet = Wallet()
        self._acknowledges = acknowledges
        monkeypatch.setattr(module, "dial", self._dial)
        self.stats = CgroupStats(mount, cores=1)
        self.health = InstanceHealth(host.runtime, now)
        self.telemetry = Telemetry(
            None,  # type: ignore[arg-type]
            self,  # type: ignore[arg-type]
            self.wallet,  # type: ignore[arg-type]
            host.context,
            "us-east-1",
            EngineInfo(name="fake", version="1", api_version="1.41"),
            host.engine,
            self.stats,
            self.health,
            clock=now,
        )
        self._running = asyncio.get_running_loop().create_task(self.telemetry.run())

    async def call(self, operation: str, request: Any, answer: Any) -> ecs.DiscoverPollEndpointResponse:
        return ecs.DiscoverPollEndpointResponse(telemetry_endpoint="http://127.0.0.1:1/tcs")

    async def _dial(self, http: Any, url: str, credentials: Any, region: str) -> Wire:
        self.dials.append(asyncio.get_running_loop().time())
        self.urls.append(url)
        if self.down is not None:
            raise self.down
        if self.refusals:
            raise self.refusals.pop(0)
        self.wires.append(Wire(acknowledges=self._acknowledges))
        return self.wires[-1]

    async def wire(self, number: int = 1) -> Wire:
        await until(lambda: len(self.wires) >= number, seconds=7200)
        return self.wires[number - 1]

    async def __aenter__(self) -> Link:
        return self

    async def __aexit__(self, *error: object) -> None:
        self._running.cancel()
        await asyncio.wait([self._running])


async def many(host: Host, mount: Path, count: int) -> None:
    await host.engine.take([task(number) for number in range(1, count + 1)], 1)
    for number in range(1, count + 1):
        await host.until_running(number)
        v1(mount, f"ecs/{number:032x}/{host.known(number=number).runtime_id}", 0, 5 * MIB, MIB)


async def test_pages_of_ten_and_only_the_last_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Host() as host:
        await many(host, tmp_path, 25)
        async with Link(host, tmp_path, monkeypatch) as link:
            wire = await link.wire()
            await until(lambda: len(wire.of("Metrics")) == 3)
    pages = wire.of("Metrics")
    assert [len(one["taskMetrics"]) for one in pages] == [10, 10, 5]
    assert [one["metadata"]["fin"] for one in pages] == [False, False, True]
    assert {one["metadata"]["messageId"] for one in pages} == {pages[0]["metadata"]["messageId"]}
    assert {one["metadata"]["cluster"] for one in pages} == {CLUSTER}
    (metric,) = pages[0]["taskMetrics"][0]["containerMetrics"]
    assert metric["memoryStatsSet"] == {"max": 4.0, "min": 4.0, "sampleCount": 3, "sum": 12.0}
    assert wire.headers[0].startswith("Authorization: AWS4-HMAC-SHA256 Credential=AKSX/")


async def test_a_frame_has_the_fields_of_amazons_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    captured = (Path(__file__).parents[2] / "data/session-basic.jsonl").read_text().splitlines()
    frames = [json["data"] for json in map(msgspec.json.decode, captured) if "PublishMetricsRequest" in str(json)]
    theirs = next(
        body["message"]
        for body in (msgspec.json.decode(one.partition("\r\n\r\n")[2]) for one in frames if "\r\n" in one)
        if body["message"].get("taskMetrics")
    )
    async with Host() as host:
        await host.engine.take([task(network_mode="host")], 1)
        await host.until_running()
        v1(tmp_path, f"ecs/{1:032x}/{host.known().runtime_id}", 0, 5 * MIB, MIB)
        async with Link(host, tmp_path, monkeypatch) as link:
            wire = await link.wire()
            await until(lambda: bool(wire.of("Metrics")))
    (ours,) = wire.of("Metrics")
    assert shape(ours) == shape(theirs)


def shape(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: shape(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return float if isinstance(value, int | float) and not isinstance(value, bool) else type(value)


async def test_nothing_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Host() as host, Link(host, tmp_path, monkeypatch) as link:
        wire = await link.wire()
        await settle(0.1)
        assert len(wire.of("Metrics")) == 1  # the first round at once
        await settle(2 * ROUND_SECONDS)
    assert len(wire.of("Metrics")) == 3
    assert all(one["metadata"]["idle"] and one["metadata"]["fin"] for one in wire.of("Metrics"))


async def test_metrics_can_be_switched_off_and_the_connection_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Host(disable_metrics=True) as host:
        await many(host, tmp_path, 2)
        async with Link(host, tmp_path, monkeypatch) as link:
            wire = await link.wire()
            await settle(5 * ROUND_SECONDS)
            assert link.stats.latest(host.known().runtime_id) is None
    assert wire.of("Metrics") == [] and len(wire.of("InstanceStatus")) == 1


def known(name: str, **fields: Any) -> KnownContainer:
    return KnownContainer(name=name, status=ContainerStatus.RUNNING, runtime_id=name * 8, **fields)


IDENTITY = Identity(CLUSTER, INSTANCE)


def test_health_of_containers_that_have_a_check_in_pages_of_ten() -> None:
    checked = container("b", health_check_type="docker")
    bad = known("b", health=Health(status="UNHEALTHY", since=5.12345))
    tasks = [Seen(task(number, container("a"), checked), (known("a"), bad)) for number in range(12)]
    pages = reports.health(IDENTITY, [*tasks, Seen(task(99), (known("app"),))], 9.0)
    assert [len(one.tasks or ()) for one in pages] == [10, 2]
    assert [one.metadata and one.metadata.fin for one in pages] == [False, True]
    (one,) = (pages[0].tasks or ())[0].containers or ()
    assert (one.container_name, one.health_status, one.status_since) == ("b", "UNHEALTHY", 5.123)
    (unknown,) = reports.health(IDENTITY, [Seen(task(1, checked), (known("b", started_at=3.0),))], 9.0)
    assert ((unknown.tasks or ())[0].containers or ())[0].health_status == "UNKNOWN"
    assert reports.health(IDENTITY, [Seen(task(1), (known("app"),))], 9.0) == []


async def test_restarts_since_the_last_round_and_only_with_a_policy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = acs_task.RestartPolicy(enabled=True)
    async with Host() as host:
        await host.engine.take([task(1, container("a", restart_policy=policy), container("b"))], 1)
        await host.until_running()
        for name in ("a", "b"):
            v1(tmp_path, f"ecs/{1:032x}/{host.known(name).runtime_id}", 0, 5 * MIB, MIB)
        async with Link(host, tmp_path, monkeypatch) as link:
            wire = await link.wire()
            await settle(ROUND_SECONDS + 1)
            runner = host.engine.find(arn())
            assert runner is not None
            more = tuple(msgspec.structs.replace(one, restarts=3) for one in runner.known.containers)
            monkeypatch.setattr(runner, "known", msgspec.structs.replace(runner.known, containers=more))
            await settle(2 * ROUND_SECONDS)
    rounds = [one["taskMetrics"][0]["containerMetrics"] for one in wire.of("Metrics")]
    assert [[one.get("restartStatsSet") for one in each] for each in rounds] == [
        [{"restartCount": count}, None] for count in (0, 3, 0)
    ]


async def test_status_is_told_when_a_check_has_run_and_only_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Host() as host, Link(host, tmp_path, monkeypatch) as link:
        wire = await link.wire()
        await settle(5 * ROUND_SECONDS)
        assert [one["statuses"][0]["status"] for one in wire.of("InstanceStatus")] == ["INITIALIZING"]
        await link.health.check()
        await settle(2 * ROUND_SECONDS)
        (status,) = wire.of("InstanceStatus")[1:]
        assert status["statuses"][0]["status"] == "OK"
        assert status["metadata"]["containerInstance"] == INSTANCE


async def test_credentials_that_are_missing_for_a_while_cost_only_that_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Host() as host, Link(host, tmp_path, monkeypatch) as link:
        wire = await link.wire()
        await settle(1.0)
        told = len(wire.sent)
        link.wallet.missing = True
        await settle(2 * ROUND_SECONDS)
        assert len(wire.sent) == told
        link.wallet.missing = False
        await settle(ROUND_SECONDS)
        assert len(wire.sent) > told


async def test_what_could_not_be_sent_waits_but_not_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Host() as host, Link(host, tmp_path, monkeypatch) as link:
        first = await link.wire()
        await settle(1.0)
        link.down = Unreachable("cannot reach it")
        first.hang_up(1006)
        await asyncio.sleep(3600.0)
        link.down = None
        wire = await link.wire(2)
        await settle(1.0)
        # Those that waited, and one more where the next was just due.
        assert len(wire.of("Metrics")) in (MOST_ROUNDS, MOST_ROUNDS + 1)
        pace = [b["timestamp"] - a["timestamp"] for a, b in itertools.pairwise(wire.of("Metrics"))]
        assert all(one == pytest.approx(ROUND_SECONDS) for one in pace)
        assert now() - wire.of("Metrics")[-1]["timestamp"] <= ROUND_SECONDS + 1


async def test_unreachable_is_dialled_with_growing_capped_pauses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Host() as host, Link(host, tmp_path, monkeypatch) as link:
        link.down = Unreachable("cannot reach it")
        await asyncio.sleep(3600.0)
        pauses = [b - a for a, b in itertools.pairwise(link.dials)]
        assert 1.0 <= pauses[0] <= 1.2 and max(pauses) <= RECONNECT_BACKOFF.cap * 1.2
        assert all(b >= a * 0.8 for a, b in itertools.pairwise(pauses)) and len(pauses) < 75


async def test_neither_heartbeat_nor_acknowledgement_ends_a_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Frames of any other kind do not count: the other end takes nothing."""
    async with Host() as host, Link(host, tmp_path, monkeypatch, acknowledges=False) as link:
        wire = await link.wire()

        async def chatter() -> None:
            while wire.close_code is None:
                wire.say("ServerException", message="busy")
                await asyncio.sleep(10.0)

        await asyncio.gather(chatter(), link.wire(2))
        assert wire.close_code == 1000
        assert 60.0 <= link.dials[1] <= 123.0
        assert link.telemetry.refusals >= 5 and link.telemetry.reconnects == 1


async def test_a_heartbeat_alone_keeps_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Host() as host, Link(host, tmp_path, monkeypatch, acknowledges=False) as link:
        wire = await link.wire()
        for _ in range(20):
            wire.say("HeartbeatMessage", healthy=True)
            await asyncio.sleep(55.0)
        assert wire.close_code is None and len(link.wires) == 1


async def test_connection_is_renewed_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Host() as host, Link(host, tmp_path, monkeypatch) as link:
        wire = await link.wire()
        await link.wire(2)
        assert wire.close_code == 1000
        assert 1800.0 <= link.dials[1] <= 2110.0


async def test_one_that_ends_in_order_is_dialled_again_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Host() as host, Link(host, tmp_path, monkeypatch) as link:
        wire = await link.wire()
        await asyncio.sleep(30.0)
        wire.hang_up(1001)
        await link.wire(2)
        assert link.dials[1] == pytest.approx(30.0, abs=0.5)


async def test_a_refusal_to_connect_is_waited_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Host() as host, Link(host, tmp_path, monkeypatch) as link:
        link.refusals = [Refused("InvalidClusterException", "no"), Refused("ServerException", "busy")]
        await link.wire()
        assert len(link.dials) == 3


async def test_nonsense_on_the_line_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Host() as host, Link(host, tmp_path, monkeypatch) as link:
        wire = await link.wire()
        for text in ("no json", "[]", '{"type":"HeartbeatMessage","message":5}', '{"type":"Invention","message":{}}'):
            wire.raw(text)
        wire._frames.put_nowait(aiohttp.WSMessage(aiohttp.WSMsgType.BINARY, b"\xff", None))
        await settle(3 * ROUND_SECONDS)
        assert wire.close_code is None and len(wire.of("Metrics")) == 4


async def test_the_address_that_is_dialled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Host() as host, Link(host, tmp_path, monkeypatch) as link:
        await link.wire()
        assert link.urls[0].startswith("http://127.0.0.1:1/tcs/ws?agentHash=sexton&agentVersion=")
        assert "&cluster=default&containerInstance=arn%3A" in link.urls[0] and "&dockerVersion=1" in link.urls[0]
