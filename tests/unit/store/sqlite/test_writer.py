"""The thread that waits for the disk: in order, telling how it went, and never in the way of the process's end."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading

import pytest

from sexton.store.sqlite.writer import Writer


async def test_work_is_done_in_order_on_one_other_thread_and_told_on_the_loop() -> None:
    writer = Writer(asyncio.get_running_loop())
    told: list[tuple[int, int]] = []
    did: list[tuple[int, int]] = []
    all_told = asyncio.Event()

    def done(number: int) -> None:
        told.append((number, threading.get_ident()))
        if number == 99:
            all_told.set()

    for number in range(100):
        writer.do(
            lambda number=number: did.append((number, threading.get_ident())), lambda _, number=number: done(number)
        )
    writer.end()
    await asyncio.wait_for(all_told.wait(), 10)

    assert [number for number, _ in did] == [number for number, _ in told] == list(range(100))
    assert {thread for _, thread in told} == {threading.get_ident()}
    assert len({thread for _, thread in did} | {threading.get_ident()}) == 2


async def test_an_error_is_told_and_the_next_work_done() -> None:
    writer = Writer(asyncio.get_running_loop())

    with pytest.raises(ZeroDivisionError):
        await writer.result(lambda: 1 // 0)
    assert await writer.result(lambda: 1 // 1) == 1
    writer.end()


async def test_who_gave_up_waiting_is_not_told() -> None:
    writer = Writer(asyncio.get_running_loop())
    hold = threading.Event()
    waiting = asyncio.ensure_future(writer.result(hold.wait))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    hold.set()

    assert await writer.result(lambda: "next") == "next"
    writer.end()


@pytest.mark.timeout(60)
def test_a_process_whose_store_was_not_closed_ends_all_the_same() -> None:
    program = """
import asyncio, time
from sexton.store.sqlite.writer import Writer
async def main():
    Writer(asyncio.get_running_loop()).do(lambda: time.sleep(1000))
asyncio.run(main())
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=30)
