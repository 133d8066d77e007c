"""One store in memory that many candidates share, each over a wire of its own that a test can break.

It counts leases by the loop's clock, as a server does, and ends them by itself. A view is what one process has of it:
``cut`` makes its calls fail, ``silent`` makes them hang, and neither shows it any change meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

from sexton.store.contract import Compare, KeyValue, Page, Put, StoreError, TxnResult, Watch, Write
from sexton.store.draft import Draft
from sexton.store.image import Image
from sexton.store.watching import Watches

T = TypeVar("T")

TICK = 0.25
"""Seconds between the server's looks at its leases."""


class Server:
    """The state itself, and the clock of its leases."""

    def __init__(self) -> None:
        self.image = Image([], {}, 0, 0)
        self.watches = Watches(0)

    def do(self, decision: Callable[[Draft], T]) -> T:
        draft = Draft(self.image)
        outcome = decision(draft)
        commit = draft.commit()
        if commit is not None:
            self.image.apply(commit)
            self.watches.publish(commit.history)
        return outcome

    def end_leases(self) -> None:
        self.do(lambda draft: draft.expire(asyncio.get_running_loop().time()))

    async def run(self) -> None:
        while True:
            self.end_leases()
            await asyncio.sleep(TICK)


class View:
    """The store as one process sees it."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._whole = asyncio.Event()
        self._whole.set()
        self.cut = False

    @property
    def silent(self) -> bool:
        return not self._whole.is_set()

    @silent.setter
    def silent(self, silent: bool) -> None:
        (self._whole.clear if silent else self._whole.set)()

    @property
    def revision(self) -> int:
        return self._server.image.revision

    async def get(self, key: str) -> KeyValue | None:
        return self._server.image.get(key)

    async def range(self, prefix: str, *, after: str = "", limit: int = 0) -> Page:
        return self._server.image.range(prefix, after, limit)

    async def txn(self, compares: Sequence[Compare], writes: Sequence[Write]) -> TxnResult:
        return await self._ask(lambda draft: draft.txn(compares, writes))

    async def compare_and_swap(self, key: str, expected: int, value: bytes, lease: int = 0) -> TxnResult:
        return await self.txn([Compare(key, expected)], [Put(key, value, lease)])

    @asynccontextmanager
    async def watch(self, prefix: str, after: int) -> AsyncIterator[Watch]:
        watch = self._server.watches.add(prefix, after)
        try:
            yield Delayed(watch, self._whole)
        finally:
            self._server.watches.discard(watch)

    async def grant(self, ttl: float, now: float) -> int:
        time = asyncio.get_running_loop().time()
        return await self._ask(lambda draft: draft.grant(ttl, time))

    async def keep_alive(self, lease: int, now: float) -> bool:
        time = asyncio.get_running_loop().time()
        return await self._ask(lambda draft: draft.keep_alive(lease, time))

    async def revoke(self, lease: int) -> None:
        await self._ask(lambda draft: draft.revoke(lease))

    async def expire(self, now: float) -> int:
        return 0

    async def close(self) -> None:
        return

    async def _ask(self, decision: Callable[[Draft], T]) -> T:
        await asyncio.sleep(0.001)
        await self._whole.wait()
        if self.cut:
            raise StoreError("cannot reach the store: cut")
        return self._server.do(decision)


class Delayed:
    """A watch that shows nothing while its wire is silent."""

    def __init__(self, watch: Watch, whole: asyncio.Event) -> None:
        self._batches = aiter(watch)
        self._whole = whole

    def __aiter__(self) -> Delayed:
        return self

    async def __anext__(self) -> object:
        batch = await anext(self._batches)
        await self._whole.wait()
        return batch
