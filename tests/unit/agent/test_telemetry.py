"""Telemetry: pages that the other end takes, a status that is true, and no end of it for want of credentials."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sexton.agent.stats import MIB, CgroupStats
from sexton.agent.telemetry import SAMPLE_SECONDS, Telemetry
from sexton.cloud.credentials import Attempt, Credentials, NoCredentials
from sexton.runtime.contract import EngineInfo
from unit.agent.rig import CLUSTER, INSTANCE, Host, settle, task, until
from unit.agent.test_stats import v1

pytestmark = pytest.mark.looptime

URL = "http://127.0.0.1:1/tcs/ws"


class Wallet:
    """Credentials that a test may take away for a while."""

    def __init__(self) -> None:
        self.missing = False

    async def current(self) -> Credentials:
        if self.missing:
            raise NoCredentials([Attempt("test", "taken away", True)])
        return Credentials("AKSX", "secret")


class Wire:
    """The socket, as far as sending goes."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []

    async def send_str(self, text: str) -> None:
        self.bodies.append(msgspec.json.decode(text.partition("\r\n\r\n")[2]))

    def metrics(self) -> list[dict[str, Any]]:
        return [one["message"] for one in self.bodies if one["type"] == "PublishMetricsRequest"]


def _telemetry(host: Host, mount: Path, wallet: Wallet) -> Telemetry:
    return Telemetry(
        None,  # type: ignore[arg-type]
        None,  # type: ignore[arg-type]
        wallet,  # type: ignore[arg-type]
        host.context,
        "us-east-1",
        EngineInfo(name="fake", version="1", api_version="1.41"),
        host.engine,
        CgroupStats(mount, cores=1),
    )


async def _publish(telemetry: Telemetry, wire: Wire) -> asyncio.Task[None]:
    publishing = telemetry._publish(wire, URL)  # type: ignore[arg-type]
    return asyncio.get_running_loop().create_task(publishing)


async def _end(publishing: asyncio.Task[None]) -> None:
    publishing.cancel()
    await asyncio.wait([publishing])


async def test_pages_of_ten_and_only_the_last_says_so(tmp_path: Path) -> None:
    async with Host() as host:
        await host.engine.take([task(number) for number in range(1, 26)], 1)
        for number in range(1, 26):
            await host.until_running(number)
            v1(tmp_path, f"ecs/{number:032x}/{host.known(number=number).runtime_id}", 0, 5 * MIB, MIB)
        wire = Wire()
        publishing = await _publish(_telemetry(host, tmp_path, Wallet()), wire)
        await until(lambda: len(wire.metrics()) >= 1 + 3, seconds=60)
        await _end(publishing)
    first, *pages = wire.metrics()[:4]
    assert first.get("taskMetrics") is None and not first["metadata"]["idle"]
    assert [len(one["taskMetrics"]) for one in pages] == [10, 10, 5]
    assert [one["metadata"]["fin"] for one in pages] == [False, False, True]
    assert {one["metadata"]["cluster"] for one in pages} == {CLUSTER}
    (metric,) = pages[0]["taskMetrics"][0]["containerMetrics"]
    assert metric["memoryStatsSet"]["max"] == 4.0


async def test_nothing_runs(tmp_path: Path) -> None:
    async with Host() as host:
        wire = Wire()
        publishing = await _publish(_telemetry(host, tmp_path, Wallet()), wire)
        await until(lambda: len(wire.metrics()) == 2)
        await _end(publishing)
    assert all(one["metadata"]["idle"] and one["metadata"]["fin"] for one in wire.metrics())


async def test_credentials_that_are_missing_for_a_while_cost_only_that_while(tmp_path: Path) -> None:
    async with Host() as host:
        wire, wallet = Wire(), Wallet()
        publishing = await _publish(_telemetry(host, tmp_path, wallet), wire)
        await until(lambda: len(wire.bodies) == 1)
        wallet.missing = True
        await settle(10 * SAMPLE_SECONDS)
        assert len(wire.bodies) == 1 and not publishing.done()
        wallet.missing = False
        await until(lambda: len(wire.bodies) > 1)
        await _end(publishing)


async def test_status_follows_the_engine(tmp_path: Path) -> None:
    async with Host() as host:
        await until(lambda: host.engine.answering)
        telemetry = _telemetry(host, tmp_path, Wallet())
        assert [one.status for one in telemetry._status().statuses or ()] == ["OK"]
        host.runtime.down()
        await until(lambda: not host.engine.answering)
        (one,) = telemetry._status().statuses or ()
        assert one.status == "IMPAIRED" and one.last_status_change == one.last_updated
        assert telemetry._status().metadata.container_instance == INSTANCE  # type: ignore[union-attr]
