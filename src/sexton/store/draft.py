"""Decides what a group of requests makes of the state, before any of it is durable.

A draft lies over the image like tracing paper: each request is decided against the image and all requests
decided before it, conditions included, and only the draft changes. ``commit`` is then the sum of the group,
to be written to disk at once; if that fails the draft is dropped and nothing has happened. No clock, no
I/O: the same requests over the same image always give the same commit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from sexton.store.contract import Change, Compare, Delete, KeyValue, Put, StoreError, TxnResult, Write
from sexton.store.image import Commit, Image, Lease


def check_writes(writes: Sequence[Write]) -> None:
    """Refuse what no store can hold, before it can spoil the group it would be written with."""
    seen: set[str] = set()
    for write in writes:
        key = write.key
        if not key:
            raise StoreError("cannot write an empty key; give the record a name")
        if key in seen:
            raise StoreError(f"cannot write key {key!r} twice in one transaction; keep only the last write")
        seen.add(key)
        if not key.isascii():
            try:
                key.encode()
            except UnicodeEncodeError as error:
                raise StoreError(
                    f"cannot write key {key!r}: it is not valid Unicode; replace the surrogates"
                ) from error


def check_ttl(ttl: float) -> None:
    if not (0 < ttl < math.inf):
        raise StoreError(f"cannot grant a lease of {ttl} seconds; give a positive number")


class Draft:
    """The state as it will be when the group is durable."""

    def __init__(self, image: Image) -> None:
        self.revision = image.revision
        self._image = image
        self._last_lease = image.last_lease
        self._records: dict[str, KeyValue | None] = {}
        self._leases: dict[int, Lease | None] = {}
        self._history: list[tuple[Change, ...]] = []

    def commit(self) -> Commit | None:
        """Everything decided so far; None when nothing would change."""
        if not self._records and not self._leases:
            return None
        return Commit(self._records, self._leases, self.revision, self._last_lease, tuple(self._history))

    def txn(self, compares: Sequence[Compare], writes: Sequence[Write]) -> TxnResult:
        for compare in compares:
            record = self._get(compare.key)
            if (record.mod_revision if record else 0) != compare.mod_revision:
                return TxnResult(False, self.revision)
        for write in writes:
            if isinstance(write, Put) and write.lease and self._lease(write.lease) is None:
                raise StoreError(f"cannot write key {write.key!r}: lease {write.lease} has ended; grant a new one")
        self._write(writes)
        return TxnResult(True, self.revision)

    def grant(self, ttl: float, now: float) -> int:
        self._last_lease += 1
        self._leases[self._last_lease] = Lease(ttl, now + ttl)
        return self._last_lease

    def keep_alive(self, lease: int, now: float) -> bool:
        state = self._lease(lease)
        if state is None or state.ends <= now:
            return False
        self._leases[lease] = Lease(state.ttl, now + state.ttl)
        return True

    def revoke(self, lease: int) -> None:
        if self._lease(lease) is None:
            return
        self._leases[lease] = None
        self._write([Delete(key) for key in sorted(self._attached(lease))])

    def expire(self, now: float) -> int:
        leases: dict[int, Lease | None] = {**self._image.leases, **self._leases}
        over = sorted(lease for lease, state in leases.items() if state is not None and state.ends <= now)
        for lease in over:
            self.revoke(lease)
        return len(over)

    def _get(self, key: str) -> KeyValue | None:
        return self._records[key] if key in self._records else self._image.get(key)

    def _lease(self, lease: int) -> Lease | None:
        return self._leases[lease] if lease in self._leases else self._image.leases.get(lease)

    def _attached(self, lease: int) -> Iterable[str]:
        yield from (key for key in self._image.attached(lease) if key not in self._records)
        yield from (key for key, record in self._records.items() if record is not None and record.lease == lease)

    def _write(self, writes: Sequence[Write]) -> None:
        revision = self.revision + 1
        changes: list[Change] = []
        for write in writes:
            key = write.key
            before = self._get(key)
            if isinstance(write, Put):
                created = before.create_revision if before else revision
                self._records[key] = KeyValue(key, write.value, created, revision, write.lease)
                changes.append(Change(key, write.value, revision))
            elif before is not None:
                self._records[key] = None
                changes.append(Change(key, None, revision))
        if changes:
            self.revision = revision
            self._history.append(tuple(changes))
