"""The history of sizes: what is added is found again, after a restart too; it ends with its day, and stays bounded."""

from __future__ import annotations

from typing import Any

import pytest

from sexton.agent import sizebook
from sexton.agent.sampling import ContainerSample, TaskSample
from sexton.agent.sizebook import KEPT_SECONDS, MOST_ROWS, WINDOW_SECONDS, SizeBook
from sexton.core.reserved import Reserved
from sexton.core.sizewindow import Measured
from sexton.core.usage import HostUse, Throttled
from sexton.host.container_counters import Counters
from unit.agent.rig import Memory

NOW = 1_700_000_000.0
MIB = 1 << 20


def sample(
    cpu: float = 100.0, held: int = 10 * MIB, family: str = "web", names: tuple[str, ...] = ("app",), **more: Any
) -> TaskSample:
    containers = tuple(
        ContainerSample(name, Reserved(cpu=64), 0, 10.0, cpu, Counters(0, held, held=held)) for name in names
    )
    given = {"reserved": Reserved(cpu=512, cpu_limit=512), "throttled": Throttled(periods=10, throttled=3, seconds=0.5)}
    return TaskSample(
        **({"arn": "a", "family": family, "revision": "1", "service": "", "seconds": 10.0} | given | more),
        containers=containers,
    )


def book(store: Memory | None = None) -> SizeBook:
    return SizeBook(store)  # type: ignore[arg-type]


def by_name(found: list[Measured]) -> dict[str, Measured]:
    return {one.container: one for one in found}


async def test_a_task_is_the_sum_of_its_containers() -> None:
    kept = book()
    for _ in range(6):
        kept.add([sample(names=("app", "side"))], NOW)
    kept.killed(("web", "1", "side"), Reserved(memory_limit=8), 1, NOW + 1)
    found = by_name(await kept.measured(NOW + 2))

    assert set(found) == {"", "app", "side"}
    whole, side = found[""], found["side"]
    assert whole.cpu is not None and (whole.cpu.mean, whole.cpu.max, whole.samples) == (200.0, 200.0, 6)
    assert whole.memory is not None and whole.memory.max == 20.0
    assert (whole.seconds, whole.periods, whole.throttled, whole.throttled_seconds) == (60.0, 60, 18, 3.0)
    assert (side.oom_kills, side.periods, side.varied) == (1, 0, True)


async def test_it_outlives_a_restart_and_counts_nothing_twice() -> None:
    store = Memory()
    kept = book(store)
    for _ in range(4):
        kept.add([sample()], NOW)
        await kept.flush(NOW)
    after = book(store)
    await after.load(NOW + 60)
    for _ in range(3):
        after.add([sample(cpu=300.0)], NOW + 60)
    (one,) = (one for one in await after.measured(NOW + 60) if one.container)

    assert (one.samples, one.seconds) == (7, 70.0)
    assert one.cpu is not None and one.cpu.max == 300.0
    assert len(store.rows) == 2
    # Killed before it wrote: what was added since is lost, what was written is there once.
    after.add([sample()], NOW + 61)
    third = book(store)
    await third.load(NOW + 61)
    assert by_name(await third.measured(NOW + 61))["app"].samples == 7


async def test_what_is_added_before_the_history_is_read_counts_as_well() -> None:
    store = Memory()
    kept = book(store)
    kept.add([sample()], NOW)
    await kept.flush(NOW)
    after = book(store)
    after.add([sample()], NOW + 5)
    await after.load(NOW + 5)
    assert by_name(await after.measured(NOW + 5))["app"].samples == 2


async def test_a_store_that_refuses_loses_nothing() -> None:
    store = Memory()
    kept = book(store)
    kept.add([sample()], NOW)
    store.refusals = 1
    await kept.flush(NOW)
    assert store.rows == {}
    await kept.flush(NOW)
    assert len(store.rows) == 2
    before = dict(store.rows)
    await kept.flush(NOW)
    assert store.rows == before


async def test_days_are_kept_for_two_weeks() -> None:
    store = Memory()
    kept = book(store)
    days = 20
    for day in range(days):
        now = NOW + day * (WINDOW_SECONDS + 1)
        kept.add([sample(cpu=float(100 * (day + 1)))], now)
        await kept.flush(now)
    (one,) = (one for one in await kept.measured(now) if one.container)

    assert one.samples == int(KEPT_SECONDS // WINDOW_SECONDS)
    assert len(store.rows) <= 2 * (one.samples + 1)
    assert one.cpu is not None and one.cpu.p50 > 100.0 * (days - one.samples)


async def test_a_clock_that_was_set_back_begins_another_window() -> None:
    store = Memory()
    kept = book(store)
    kept.add([sample()], NOW)
    kept.add([sample()], NOW - 3600)
    assert by_name(await kept.measured(NOW))["app"].samples == 2
    assert len(store.rows) == 4


async def test_memory_and_rows_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizebook, "MOST_SUBJECTS", 10)
    monkeypatch.setattr(sizebook, "MOST_ROWS", 30)
    store = Memory()
    kept = book(store)
    for number in range(100):
        kept.add([sample(family=f"f{number}")], NOW + number)
        await kept.flush(NOW + number)
    assert len(kept._open) == 10 and not kept._ended
    assert len(store.rows) <= 30 + 10
    assert f"f{99}" in {one.family for one in await kept.measured(NOW + 100)}
    assert MOST_ROWS > 1000


async def test_a_row_that_cannot_be_read_costs_itself(caplog: pytest.LogCaptureFixture) -> None:
    store = Memory()
    kept = book(store)
    kept.add([sample()], NOW)
    await kept.flush(NOW)
    store.rows["use/web/1/app/1.000"] = b"{"
    assert len(await kept.measured(NOW)) == 2
    assert "use of a task cannot be read" in caplog.text


async def test_the_host_has_a_window_of_its_own() -> None:
    kept = book()
    capacity = Reserved(cpu=2048, memory=1000)
    before = HostUse(cores=2, capacity=capacity, reserved=Reserved(), busy_seconds=10, memory_used=64 * MIB)
    after = HostUse(
        cores=2, capacity=capacity, reserved=Reserved(), busy_seconds=15, steal_seconds=1.5, memory_used=128 * MIB
    )
    kept.add_host(before, after, 10.0, NOW)
    (host,) = await kept.measured(NOW)

    assert (host.family, host.reserved.cpu, host.seconds, host.steal_seconds) == ("", 2048, 10.0, 1.5)
    assert host.cpu is not None and host.cpu.max == 512.0
    assert host.memory is not None and host.memory.max == 128.0
