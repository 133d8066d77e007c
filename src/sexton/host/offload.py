"""Blocking reads off the event loop, in a thread that cannot hold the process.

A read of a kernel file may sleep uninterruptibly on a sick host, which is exactly where the caretaker is needed. The
loop's own pool is joined when the loop closes, so one stuck read would keep the command from ever ending; a daemon
thread is simply left behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def in_thread(name: str, read: Callable[[], T]) -> T:
    """Run ``read`` in a daemon thread of that name; cancelling the wait abandons the thread."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()

    def settle(value: T | None, error: BaseException | None) -> None:
        if answer.done():
            return
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(value)  # type: ignore[arg-type]  # set together with error=None only

    def work() -> None:
        value, error = None, None
        try:
            value = read()
        except Exception as fault:  # handed over to the waiter, whatever it is
            error = fault
        with contextlib.suppress(RuntimeError):  # the loop is gone: nobody waits any more
            loop.call_soon_threadsafe(settle, value, error)

    threading.Thread(target=work, name=name, daemon=True).start()
    return await answer
