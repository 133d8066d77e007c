"""The order of writes to one key, kept although many are on their way at once.

etcd handles requests side by side, so two that are sent one after the other may come out the other way round. Whoever
writes a key waits here until those of this process who wrote or read it before are done; who only reads it (a
condition) waits for the writers alone. So any number of transactions under one fencing condition travel together, and
contenders for one key each see the last one's work instead of a conflict.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import NamedTuple

Name = str | int
"""A key, or the number of a lease."""


class Turn(NamedTuple):
    """A place in the queue of every name it uses; pass it back to ``Turns.done`` in any case."""

    before: tuple[asyncio.Future[None], ...]
    over: asyncio.Future[None]
    reads: frozenset[Name]
    writes: frozenset[Name]

    async def come(self) -> None:
        for earlier in self.before:
            # Shielded: whoever gives up waiting must not take the future from those who wait beside it.
            await asyncio.shield(earlier)


class Turns:
    """Who uses which name, in the order they asked. Holds nothing for names that nobody uses."""

    def __init__(self) -> None:
        self._writer: dict[Name, asyncio.Future[None]] = {}
        self._readers: dict[Name, set[asyncio.Future[None]]] = {}  # since the last writer

    def __len__(self) -> int:
        return len(self._writer) + len(self._readers)

    def take(self, reads: Iterable[Name], writes: Iterable[Name]) -> Turn:
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        written = frozenset(writes)
        read = frozenset(reads) - written
        before: set[asyncio.Future[None]] = set()
        for name in read | written:
            if (writer := self._writer.get(name)) is not None:
                before.add(writer)
        for name in written:
            # Later users wait for this writer, who waits for these readers.
            before |= self._readers.pop(name, set())
            self._writer[name] = over
        for name in read:
            self._readers.setdefault(name, set()).add(over)
        return Turn(tuple(before), over, read, written)

    def done(self, turn: Turn) -> None:
        turn.over.set_result(None)
        for name in turn.writes:
            if self._writer.get(name) is turn.over:
                del self._writer[name]
        for name in turn.reads:
            readers = self._readers.get(name)
            if readers is not None:
                readers.discard(turn.over)
                if not readers:
                    del self._readers[name]
