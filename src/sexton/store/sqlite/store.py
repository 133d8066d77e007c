"""The store as callers see it: reads from the image, writes in groups.

Whatever is asked for while a commit is on its way to the disk waits in a queue. When the disk answers, all of
it is decided in order against the image (``draft``), written as one commit, and acknowledged together: one
fsync and one wake-up of the event loop, however many wrote. Only then does the image change, so a read never
shows what a crash could undo, and a writer always reads its own write.

Who is answered usually asks again a moment later. Where several wrote together, the next group therefore waits until
as many are there again, or nobody comes any more: one sync for all of them, and the loop rests while the writer thread
needs the interpreter, which is worth more than an early start for the first of them. A lone writer waits for nobody.

Everything here runs on the event loop's thread and never waits for the disk; the one writer thread holds the
file. What survives a restart is in the file; what waits in the queue was not acknowledged.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from sexton.store.contract import Compare, Durability, KeyValue, Page, Put, StoreError, TxnResult, Watch, Write
from sexton.store.draft import Draft, check_ttl, check_writes
from sexton.store.image import Commit, Image
from sexton.store.sqlite.file import StoreFile
from sexton.store.sqlite.writer import Writer
from sexton.store.watching import Watches

log = logging.getLogger(__name__)

GROUP_LIMIT = 512
"""Requests decided in one go, so that a flood of writes holds the event loop for milliseconds at most."""

QUIET_TURNS = 3
"""So many turns of the loop in a row without a newcomer close a group: a request takes one to be read from its socket
and one to come here."""

GATHER_SECONDS = 0.002
"""The first of a group waits no longer than this for the others, about what a commit takes on an ordinary disk."""

T = TypeVar("T")


class Waiting(Protocol):
    """A request in the queue."""

    @property
    def given_up(self) -> bool: ...

    def decide(self, draft: Draft) -> None: ...

    def answer(self) -> None: ...

    def fail(self, error: Exception) -> None: ...


class Request(Generic[T]):
    """What somebody asked for, and where the answer goes once it is durable."""

    def __init__(self, decision: Callable[[Draft], T], answered: asyncio.Future[T]) -> None:
        self._decision = decision
        self._answered = answered
        self._outcome: T | Exception

    @property
    def given_up(self) -> bool:
        return self._answered.done()

    def decide(self, draft: Draft) -> None:
        try:
            self._outcome = self._decision(draft)
        except Exception as error:
            self._outcome = error

    def answer(self) -> None:
        if self._answered.done():
            return
        if isinstance(self._outcome, Exception):
            self._answered.set_exception(self._outcome)
        else:
            self._answered.set_result(self._outcome)

    def fail(self, error: Exception) -> None:
        if not self._answered.done():
            self._answered.set_exception(error)


class SqliteStore:
    """Durable, ordered, watched key-value state in one SQLite file."""

    def __init__(self, path: Path, file: StoreFile, image: Image, writer: Writer, *, history: bool = True) -> None:
        self._path = path
        self._file = file
        self._image = image
        self._writer = writer
        self._loop = asyncio.get_running_loop()
        self._watches = Watches(image.revision, history=history)
        self._queue: deque[Waiting] = deque()
        self._busy = False
        self._company = 0  # how many requests the last group was of
        self._closing = False
        self._closed: asyncio.Future[None] = self._loop.create_future()

    @property
    def revision(self) -> int:
        return self._image.revision

    async def get(self, key: str) -> KeyValue | None:
        self._check_open()
        return self._image.get(key)

    async def range(self, prefix: str, *, after: str = "", limit: int = 0) -> Page:
        self._check_open()
        return self._image.range(prefix, after, limit)

    async def txn(self, compares: Sequence[Compare], writes: Sequence[Write]) -> TxnResult:
        # Copied: what was checked is what gets decided, even if the caller changes its lists meanwhile.
        compares, writes = tuple(compares), tuple(writes)
        check_writes(writes)
        return await self._ask(partial(Draft.txn, compares=compares, writes=writes))

    async def compare_and_swap(self, key: str, expected: int, value: bytes, lease: int = 0) -> TxnResult:
        return await self.txn([Compare(key, expected)], [Put(key, value, lease)])

    @asynccontextmanager
    async def watch(self, prefix: str, after: int) -> AsyncIterator[Watch]:
        self._check_open()
        watch = self._watches.add(prefix, after)
        try:
            yield watch
        finally:
            self._watches.discard(watch)

    async def grant(self, ttl: float, now: float) -> int:
        check_ttl(ttl)
        return await self._ask(partial(Draft.grant, ttl=ttl, now=now))

    async def keep_alive(self, lease: int, now: float) -> bool:
        return await self._ask(partial(Draft.keep_alive, lease=lease, now=now))

    async def revoke(self, lease: int) -> None:
        await self._ask(partial(Draft.revoke, lease=lease))

    async def expire(self, now: float) -> int:
        return await self._ask(partial(Draft.expire, now=now))

    async def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._go_on()
        # Shielded: a caller that gives up waiting does not stop the closing, nor those who also wait for it.
        await asyncio.shield(self._closed)

    def _check_open(self) -> None:
        if self._closing:
            raise StoreError(f"cannot use {self._path}: the store is closed; open it again")

    async def _ask(self, decision: Callable[[Draft], T]) -> T:
        self._check_open()
        answered: asyncio.Future[T] = self._loop.create_future()
        self._queue.append(Request(decision, answered))
        self._go_on()
        return await answered

    def _go_on(self) -> None:
        """Form the next group at the end of this turn of the loop, when all who are about to write have."""
        if not self._busy:
            self._busy = True
            if self._company > 1:
                self._loop.call_soon(self._gather, 0, 0, self._loop.time() + GATHER_SECONDS)
            else:
                self._loop.call_soon(self._form_group)

    def _gather(self, known: int, quiet: int, until: float) -> None:
        """Form the group once as many wait as the last one had, or nobody has come for some turns."""
        waiting = len(self._queue)
        quiet = quiet + 1 if waiting == known else 0
        complete = waiting >= self._company or quiet >= QUIET_TURNS
        if not complete and not self._closing and self._loop.time() < until:
            self._loop.call_soon(self._gather, waiting, quiet, until)
        else:
            self._form_group()

    def _form_group(self) -> None:
        group: list[Waiting] = []
        draft = Draft(self._image)
        while self._queue and len(group) < GROUP_LIMIT:
            request = self._queue.popleft()
            if not request.given_up:
                request.decide(draft)
                group.append(request)
        self._company = len(group)
        commit = draft.commit()
        if commit is not None:
            self._writer.do(partial(self._file.write, commit), partial(self._settle, group, commit))
            return
        for request in group:
            request.answer()
        if self._closing and not self._queue:
            self._writer.do(self._file.close, self._finish)
            return
        self._rest()

    def _settle(self, group: list[Waiting], commit: Commit, error: BaseException | None) -> None:
        if error is None:
            self._image.apply(commit)
            self._watches.publish(commit.history)
            for request in group:
                request.answer()
        else:
            log.error("store write failed", extra={"path": str(self._path), "writes": len(group), "error": str(error)})
            for request in group:
                # Each waiter its own exception: they raise it in different tasks, with different tracebacks.
                failure = StoreError(*error.args)
                failure.__cause__ = error
                request.fail(failure)
        self._rest()

    def _rest(self) -> None:
        self._busy = False
        if self._queue or self._closing:
            self._go_on()

    def _finish(self, error: BaseException | None) -> None:
        if error is not None:
            log.warning("store closed uncleanly", extra={"path": str(self._path), "error": str(error)})
        # Not waited for: its last work is done and the file let go, so the thread ends by itself in this instant.
        self._writer.end()
        self._watches.end(StoreError(f"cannot keep watching {self._path}: the store is closed; open it again"))
        self._closed.set_result(None)


async def open_store(location: str, durability: Durability, history: bool = True) -> SqliteStore:
    """Open the file at an absolute path, making it (and its directory) if it is not there."""
    path = Path(location)
    if not path.is_absolute() or "\0" in location:
        raise StoreError(
            f"cannot open {location!r}: the path must be absolute, as in sqlite:///var/lib/sexton/state.db"
        )
    file = StoreFile(path, durability)
    writer = Writer(asyncio.get_running_loop())
    try:
        image = await writer.result(file.open)
    except BaseException:
        # Also when cancelled: the thread may still be opening, so the closing is queued behind it.
        writer.do(file.close)
        writer.end()
        raise
    log.info("store opened", extra={"path": str(path), "revision": image.revision, "records": len(image)})
    return SqliteStore(path, file, image, writer, history=history)
