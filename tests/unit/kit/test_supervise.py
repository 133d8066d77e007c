"""Background work has an owner: failures are told at once, and closing ends in bounded time."""

from __future__ import annotations

import asyncio
import logging

import pytest

from sexton.kit import supervise
from sexton.kit.supervise import Nursery


async def forever():
    await asyncio.Event().wait()


async def fail():
    raise ValueError("broken")


async def test_a_failure_is_logged_and_told_under_its_name(caplog):
    told = []
    nursery = Nursery("house", lambda name, error: told.append((name, str(error))))
    task = nursery.start("roof", fail())
    await asyncio.wait([task])
    await asyncio.sleep(0)

    assert told == [("house/roof", "broken")]
    (line,) = caplog.records
    assert (line.levelno, line.task_name) == (logging.ERROR, "house/roof")
    assert len(nursery) == 0


async def test_work_that_ends_is_forgotten():
    nursery = Nursery("house")
    await nursery.start("nap", asyncio.sleep(0))
    await asyncio.sleep(0)

    assert len(nursery) == 0
    await nursery.close()


async def test_closing_cancels_the_newest_first_and_says_nothing_of_it(caplog):
    ended = []

    async def work(name):
        try:
            await forever()
        finally:
            ended.append(name)

    nursery = Nursery("house")
    for name in "abc":
        nursery.start(name, work(name))
    await asyncio.sleep(0)
    await nursery.close()

    assert ended == ["c", "b", "a"]
    assert len(nursery) == 0
    assert caplog.records == []


async def test_a_failure_while_closing_is_logged_but_ends_nobody(caplog):
    async def work():
        try:
            await forever()
        finally:
            raise ValueError("while leaving")

    told = []
    nursery = Nursery("house", lambda *what: told.append(what))
    nursery.start("a", work())
    await asyncio.sleep(0)
    await nursery.close()
    await asyncio.sleep(0)

    assert told == []
    assert len(caplog.records) == 1


async def test_work_that_will_not_end_is_left_behind_in_bounded_time(monkeypatch, caplog):
    monkeypatch.setattr(supervise, "CLOSE_DEADLINE", 0.05)
    release = asyncio.Event()

    async def stubborn():
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    nursery = Nursery("house")
    task = nursery.start("mule", stubborn())
    await asyncio.sleep(0)
    await asyncio.wait_for(nursery.close(), 5)

    assert [line.task_name for line in caplog.records] == ["house/mule"]
    release.set()
    await task


async def test_nothing_starts_in_a_closed_house():
    nursery = Nursery("house")
    await nursery.close()

    with pytest.raises(RuntimeError, match="cannot start late: house is closing"):
        nursery.start("late", forever())


async def test_work_may_close_its_own_house():
    nursery = Nursery("house")

    async def leave():
        await nursery.close()

    other = nursery.start("other", forever())
    await asyncio.wait_for(nursery.start("leave", leave()), 5)

    assert other.cancelled()
