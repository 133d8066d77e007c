"""The one thread that waits for the disk, so that the event loop never does.

In flow pieces of work, out flow, on the loop, how each of them went. It does them one after the other in the order
in which they were given. An executor of the standard library does the same with a future, two locks and a semaphore
for each piece, which was a fifth of what a small commit costs.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import TypeVar

T = TypeVar("T")
Work = Callable[[], object]
Done = Callable[[BaseException | None], None]


def _nobody_waits(error: BaseException | None) -> None:
    """What is told when nobody asked."""


class Writer:
    """A thread and what it has to do. It ends with ``end``, or with the process: nothing unfinished was promised."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._queue: SimpleQueue[tuple[Work, Done] | None] = SimpleQueue()
        threading.Thread(target=self._run, name="store", daemon=True).start()

    def do(self, work: Work, done: Done = _nobody_waits) -> None:
        """Do this after all that was given before, then tell the loop how it went."""
        self._queue.put((work, done))

    async def result(self, work: Callable[[], T]) -> T:
        """What the work gives, or its error."""
        found: list[T] = []
        finished: asyncio.Future[None] = self._loop.create_future()

        def tell(error: BaseException | None) -> None:
            if finished.done():
                return  # whoever asked has given up
            if error is None:
                finished.set_result(None)
            else:
                finished.set_exception(error)

        self.do(lambda: found.append(work()), tell)
        await finished
        return found[0]

    def end(self) -> None:
        """The thread ends when all that was given is done; nobody waits for that."""
        self._queue.put(None)

    def _run(self) -> None:
        while (given := self._queue.get()) is not None:
            work, done = given
            error: BaseException | None = None
            try:
                work()
            except BaseException as failed:  # told to whoever gave the work; the thread goes on
                error = failed
            # The loop is gone when its owner did not close the store; then nobody waits for the answer.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(done, error)
            del given, work, done, error
