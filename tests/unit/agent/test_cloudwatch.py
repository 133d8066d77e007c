"""A minute of samples becomes metrics that are put once: what is refused waits, what may have arrived does not."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from sexton.agent import cloudwatch as module
from sexton.agent.cloudwatch import MINUTE, MOST_WAITING, CloudWatch, Member
from sexton.agent.sampling import ContainerSample, TaskSample
from sexton.cloud.client import Unreachable
from sexton.cloud.credentials import Attempt, Credentials, NoCredentials
from sexton.cloud.monitoring import Lost
from sexton.core.insights import Datum
from sexton.core.reserved import Reserved
from sexton.core.usage import HostUse, Throttled, Usage
from sexton.host.container_counters import Counters
from sexton.kit.supervise import Nursery
from sexton.wire.errors import EcsError

pytestmark = pytest.mark.looptime
MB = 1 << 20


class Sink:
    """Takes metrics, or fails as told."""

    url = "http://sink"

    def __init__(self) -> None:
        self.taken: list[tuple[float, Sequence[Datum]]] = []
        self.failures: list[Exception] = []
        self.tries = 0

    async def put(self, namespace: str, at: float, data: Sequence[Datum], keys: Credentials) -> None:
        assert namespace == "N"
        self.tries += 1
        if self.failures:
            raise self.failures.pop(0)
        self.taken.append((at, data))

    def values(self, name: str, dimensions: int = 1) -> list[tuple[tuple[float, int], ...]]:
        return [
            one.values
            for _, data in self.taken
            for one in data
            if one.name == name and len(one.dimensions) == dimensions
        ]


class Wallet:
    def __init__(self) -> None:
        self.missing = False
        self.forgotten = 0

    async def current(self) -> Credentials:
        if self.missing:
            raise NoCredentials([Attempt("test", "taken away", True)])
        return Credentials("AKID", "secret")

    def forget(self, refused: Credentials) -> None:
        self.forgotten += 1


class Bench:
    """CloudWatch with a sink; the host is half used and half promised."""

    def __init__(self) -> None:
        self.sink, self.wallet = Sink(), Wallet()
        member = Member("prod", "arn:aws:ecs:r:1:container-instance/prod/ci1", "i-1")
        self.cloudwatch = CloudWatch(self.sink, "N", member, self.wallet, self.look, clock=self.clock)
        self._nursery = Nursery("test")

    def clock(self) -> float:
        return 1_700_000_000.0 + asyncio.get_running_loop().time()

    def look(self) -> Usage:
        at = asyncio.get_running_loop().time()
        host = HostUse(
            cores=2,
            capacity=Reserved(cpu=2048, memory=1000),
            reserved=Reserved(cpu=1024, memory=250),
            busy_seconds=at,
            memory=100,
            memory_used=40,
        )
        return Usage(at=at, instance="", cluster="", host=host)

    async def __aenter__(self) -> Bench:
        self._nursery.start("run", self.cloudwatch.run())
        await asyncio.sleep(0)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._nursery.close()


def sample(cpu: float = 100.0, memory: int = 10 * MB, read: int = 0, restarts: int = 0, arn: str = "a") -> TaskSample:
    counters = Counters(0, memory, read_bytes=read, held=memory)
    part = ContainerSample("app", Reserved(), restarts, 10.0, cpu, counters, rx_rate=5.0)
    return TaskSample(arn, "web", "1", "front", Reserved(cpu=256, memory=64), 10.0, Throttled(), (part,))


async def test_a_minute_of_two_tasks() -> None:
    async with Bench() as bench:
        for second in range(6):
            bench.cloudwatch.add([sample(cpu=100.0 + second, read=100 * second), sample(cpu=10.0, arn="b")])
        await asyncio.sleep(MINUTE + 1)
    sink = bench.sink

    assert sink.values("CpuUtilized") == [((10.0, 1), (102.5, 1))]
    assert sink.values("CpuReserved", 2) == [((256.0, 2),), ((256.0, 2),)]  # by family and by service
    assert sink.values("MemoryUtilized") == [((10.0, 2),)]
    assert sink.values("NetworkRxBytes") == [((5.0, 2),)]
    assert sink.values("StorageReadBytes") == [((0.0, 1), (500.0, 1))]
    assert sink.values("instance_cpu_reserved_capacity", 3) == [((50.0, 1),)]
    assert sink.values("instance_cpu_utilization") == [((50.0, 1),)]
    assert sink.values("instance_memory_utilization") == [((40.0, 1),)]
    assert sink.values("instance_number_of_running_tasks") == [((2.0, 1),)]
    assert sink.taken[0][0] == 1_700_000_000.0  # named by its beginning


async def test_counters_go_on_from_one_minute_to_the_next() -> None:
    async with Bench() as bench:
        bench.cloudwatch.add([sample(read=100, restarts=1)])
        await asyncio.sleep(MINUTE + 1)
        bench.cloudwatch.add([sample(read=350, restarts=3)])
        await asyncio.sleep(MINUTE)

    assert bench.sink.values("StorageReadBytes") == [((0.0, 1),), ((250.0, 1),)]
    assert bench.sink.values("RestartCount") == [((0.0, 1),), ((2.0, 1),)]


async def test_without_tasks_the_host_is_told_alone() -> None:
    async with Bench() as bench:
        await asyncio.sleep(MINUTE + 1)

    assert bench.sink.values("CpuUtilized") == []
    assert bench.sink.values("instance_number_of_running_tasks") == [((0.0, 1),)]


@pytest.mark.parametrize(
    ("failure", "comes_again"),
    [
        (Unreachable("nobody there"), True),
        (EcsError("slow down", code="Throttling", status=400), True),
        (EcsError("later", code="InternalFailure", status=500), True),
        (EcsError("old", code="ExpiredToken", status=403), True),
        (EcsError("no", code="AccessDenied", status=403), False),
        (Lost("no answer"), False),
    ],
)
async def test_only_what_surely_did_not_arrive_is_put_again(
    failure: Exception, comes_again: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with Bench() as bench:
        bench.sink.failures = [failure]
        await asyncio.sleep(MINUTE + 1)
        assert bench.sink.taken == []
        await asyncio.sleep(MINUTE)

    times = [at for at, _ in bench.sink.taken]
    assert times == ([1_700_000_000.0, 1_700_000_060.0] if comes_again else [1_700_000_060.0])
    assert caplog.text.count("metrics cannot be put") == 1
    assert caplog.text.count("metrics are put again") == 1
    assert bench.wallet.forgotten == (getattr(failure, "code", "") == "ExpiredToken")


async def test_what_waits_is_bounded_and_trouble_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    async with Bench() as bench:
        bench.wallet.missing = True
        await asyncio.sleep(3600 + 1)
        assert bench.sink.tries == 0
        bench.wallet.missing = False
        await asyncio.sleep(MINUTE)

    assert len(bench.sink.taken) == MOST_WAITING
    assert [at for at, _ in bench.sink.taken] == sorted(at for at, _ in bench.sink.taken)
    assert caplog.text.count("metrics cannot be put") == 1


async def test_many_calls_are_made_where_one_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    def halves(data: Any) -> Any:
        data = list(data)
        return iter([data[:5], data[5:]])

    monkeypatch.setattr(module, "batches", halves)
    async with Bench() as bench:
        await asyncio.sleep(MINUTE + 1)
    assert [len(data) for _, data in bench.sink.taken] == [5, 5]
