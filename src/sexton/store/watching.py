"""Hands every durable change to those who watch its prefix, and remembers the latest for those who come late.

In flow the changes of each transaction, in revision order; out flow, per watch, those under its prefix. Two
things are bounded so that nobody can make the process grow: the history a new watch may start from, and what
waits for a watch whose reader is slow. Behind either bound the answer is Compacted: read again, watch from
there. Nothing here survives a restart: after it, a watch can start from the revision the store opened at.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator

from sexton.store.contract import Change, Compacted, StoreError

HELD_CHANGES = 4096
"""Changes held at most, in the history and for each slow watch: seconds of the busiest host's writes."""

HELD_BYTES = 4 * 1024 * 1024
"""Bytes of keys and values held at most, each: large records must not outgrow the agent's memory budget."""

CHANGE_BYTES = 160
"""What one change weighs in memory beside its key and value, roughly."""


class Backlog:
    """Batches of changes in order, with their weight."""

    def __init__(self) -> None:
        self._batches: deque[tuple[tuple[Change, ...], int]] = deque()
        self._changes = 0
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[tuple[tuple[Change, ...], int]]:
        return iter(self._batches)

    @property
    def over(self) -> bool:
        return self._changes > HELD_CHANGES or self._bytes > HELD_BYTES

    def append(self, batch: tuple[Change, ...], weight: int) -> None:
        self._batches.append((batch, weight))
        self._changes += len(batch)
        self._bytes += weight

    def pop(self) -> tuple[Change, ...]:
        batch, weight = self._batches.popleft()
        self._changes -= len(batch)
        self._bytes -= weight
        return batch


def _weight(batch: tuple[Change, ...]) -> int:
    weight = CHANGE_BYTES * len(batch)
    for change in batch:
        weight += len(change.key)
        if change.value is not None:
            weight += len(change.value)
    return weight


class PrefixWatch:
    """The changes under one prefix, waiting to be read by one reader."""

    def __init__(self, prefix: str, after: int) -> None:
        self._prefix = prefix
        self._after = after
        self._backlog = Backlog()
        self._ended: StoreError | None = None
        self._arrived = asyncio.Event()

    def __aiter__(self) -> PrefixWatch:
        return self

    async def __anext__(self) -> tuple[Change, ...]:
        while not self._backlog:
            if self._ended is not None:
                raise self._ended
            self._arrived.clear()
            await self._arrived.wait()
        return self._backlog.pop()

    def offer(self, batch: tuple[Change, ...], weight: int) -> None:
        """Take what is under the prefix of a batch of this weight."""
        if self._ended is not None or batch[0].revision <= self._after:
            return
        if self._prefix:
            mine = tuple([change for change in batch if change.key.startswith(self._prefix)])
            if not mine:
                return
            if len(mine) != len(batch):
                weight = _weight(mine)
            batch = mine
        self._backlog.append(batch, weight)
        # One batch is always taken, however large: it exists already, and refusing it would help nobody.
        if self._backlog.over and len(self._backlog) > 1:
            self._backlog = Backlog()
            self.end(
                Compacted(
                    f"cannot keep watching {self._prefix!r}: its reader is more than {HELD_CHANGES} changes or "
                    f"{HELD_BYTES} bytes behind; read the range again and watch from its revision"
                )
            )
            return
        self._arrived.set()

    def end(self, reason: StoreError) -> None:
        """Let the reader have what already waits, then raise the reason."""
        if self._ended is None:
            self._ended = reason
            self._arrived.set()


class Watches:
    """The latest history, and every open watch."""

    def __init__(self, revision: int, *, history: bool = True) -> None:
        self._history = Backlog()
        self._remembers = history
        self._forgotten = revision
        self._open: set[PrefixWatch] = set()

    def add(self, prefix: str, after: int) -> PrefixWatch:
        if after < self._forgotten:
            raise Compacted(
                f"cannot watch {prefix!r} from revision {after}: changes up to revision {self._forgotten} are no "
                "longer held; read the range again and watch from its revision"
            )
        watch = PrefixWatch(prefix, after)
        for batch, weight in self._history:
            watch.offer(batch, weight)
        self._open.add(watch)
        return watch

    def discard(self, watch: PrefixWatch) -> None:
        self._open.discard(watch)

    def publish(self, history: Iterable[tuple[Change, ...]]) -> None:
        for batch in history:
            weight = _weight(batch)
            self._history.append(batch, weight)
            for watch in self._open:
                watch.offer(batch, weight)
            while self._history.over or (len(self._history) and not self._remembers):
                self._forgotten = self._history.pop()[0].revision

    def end(self, reason: StoreError) -> None:
        for watch in self._open:
            watch.end(reason)
        self._open.clear()
