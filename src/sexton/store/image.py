"""The whole store as it is durable now, held in memory, so that a read costs no I/O.

It is filled when a store opens and changes only by ``apply``, with a ``Commit`` the disk has already taken:
what a read returns can never be lost again. Keys are kept twice, in a dict to look one up and in a sorted
list to walk a prefix. Nothing here survives a restart; it is read back from the store's file.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from sexton.store.contract import Change, KeyValue, Page

BULK = 256
"""From this many keys that come or go at once, rebuilding the sorted list is cheaper than moving its tail for each."""


class Lease(NamedTuple):
    """How long a lease lives without being kept alive, and the time at which it ends."""

    ttl: float
    ends: float


class Commit(NamedTuple):
    """What one durable write makes of the state before it; None removes a key or a lease."""

    records: Mapping[str, KeyValue | None]
    leases: Mapping[int, Lease | None]
    revision: int
    last_lease: int
    history: tuple[tuple[Change, ...], ...]
    """The changes of each transaction, oldest first, for those who watch."""


class Image:
    """Every record and lease, in key order, at one revision."""

    def __init__(
        self, records: Iterable[KeyValue], leases: Mapping[int, Lease], revision: int, last_lease: int
    ) -> None:
        self.revision = revision
        self.last_lease = last_lease
        self.leases = dict(leases)
        self._records: dict[str, KeyValue] = {}
        self._attached: dict[int, set[str]] = {}
        for record in records:
            self._records[record.key] = record
            if record.lease:
                self._attached.setdefault(record.lease, set()).add(record.key)
        self._keys = sorted(self._records)

    def __len__(self) -> int:
        return len(self._records)

    def get(self, key: str) -> KeyValue | None:
        return self._records.get(key)

    def range(self, prefix: str, after: str, limit: int) -> Page:
        keys = self._keys
        first = bisect_left(keys, prefix)
        if after:
            first = max(first, bisect_right(keys, after))
        # From the first key on, those under the prefix come before those that are not: the border is bisected too.
        end = bisect_left(keys, True, lo=first, key=lambda key: not key.startswith(prefix))
        stop = min(end, first + limit) if limit > 0 else end
        records = self._records
        return Page(tuple([records[key] for key in keys[first:stop]]), self.revision, more=stop < end)

    def attached(self, lease: int) -> Iterable[str]:
        """The keys that vanish with the lease."""
        return self._attached.get(lease, ())

    def apply(self, commit: Commit) -> None:
        added: list[str] = []
        removed: list[str] = []
        for key, record in commit.records.items():
            before = self._records.pop(key, None) if record is None else self._records.get(key)
            if before is not None and before.lease:
                self._detach(key, before.lease)
            if record is not None:
                self._records[key] = record
                if record.lease:
                    self._attached.setdefault(record.lease, set()).add(key)
                if before is None:
                    added.append(key)
            elif before is not None:
                removed.append(key)
        self._reorder(added, removed)
        for lease, state in commit.leases.items():
            if state is None:
                self.leases.pop(lease, None)
            else:
                self.leases[lease] = state
        self.revision = commit.revision
        self.last_lease = commit.last_lease

    def _detach(self, key: str, lease: int) -> None:
        keys = self._attached[lease]
        keys.discard(key)
        if not keys:
            del self._attached[lease]

    def _reorder(self, added: list[str], removed: list[str]) -> None:
        if len(removed) > 1:
            # What is old goes many at a time and often stands together: one cut, whatever else there is.
            removed.sort()
            first = bisect_left(self._keys, removed[0])
            last = first + len(removed)
            if self._keys[first:last] == removed:
                del self._keys[first:last]
                removed = []
        if len(added) + len(removed) > BULK:
            kept = [key for key in self._keys if key in self._records] if removed else self._keys
            kept.extend(added)
            kept.sort()
            self._keys = kept
            return
        for key in removed:
            del self._keys[bisect_left(self._keys, key)]
        for key in added:
            insort(self._keys, key)
