"""What every store can do, in etcd's vocabulary.

Keys are text, values are bytes, and every accepted transaction that changes something advances the one revision
of the whole store; where others share the server, their changes may advance it too. A write is acknowledged once it
is durable, and from then on every read of this process sees it. A write that fails with StoreError, or whose caller
was cancelled, was not acknowledged: this process never shows a failed one, yet after a crash it may turn out to have
been kept. The exception says so itself: ``OutcomeUnknown``, when a store behind a network fell silent after it was
asked. Transactions of one process that name the same key or lease happen in the order they were asked for, others in
any order. Reads are answered from memory. A watch delivers every change after a revision, in revision order, a
transaction's changes together: whoever watches rebuilds exactly what the store holds.

A store belongs to the event loop that opened it. Once it is closed, everything but ``close`` raises StoreError,
open watches included.

Nothing here reads a clock or invents an id: the time a lease is counted from is the caller's argument, so
that the same calls always make the same state. Only a server that many processes share must count by a clock
of its own (etcd does): there ``now`` is ignored, a lease lives at least as long as it was granted for, and
``expire`` has nothing to do. The suite in ``tests/contract/test_store.py`` runs unchanged over every implementation.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from enum import StrEnum
from typing import NamedTuple, Protocol, runtime_checkable


class StoreError(Exception):
    """The store could not do what was asked; the message names the store and the next step."""


class Damaged(StoreError):  # noqa: N818 - a condition of the file, not of the call
    """What is there is not, or no longer, a store; nothing of it can be read."""


class InUse(StoreError):  # noqa: N818 - a condition that may pass
    """Another process has this store for itself."""


class Compacted(StoreError):  # noqa: N818 - a condition the watcher handles, not a failure
    """The history before the asked revision is gone: read everything again, then watch from there."""


class OutcomeUnknown(StoreError):  # noqa: N818 - a condition the writer settles by reading
    """The write may have happened, or may yet in the next seconds: read before doing it again."""


class Durability(StrEnum):
    """What an acknowledged write has outlived; both outlive the death of the process."""

    FULL = "full"
    """A power cut too: the control plane's records, which exist nowhere else."""

    NORMAL = "normal"
    """Not the last moments before a power cut: for what the host itself can tell again."""


class KeyValue(NamedTuple):
    """One key as the store holds it."""

    key: str
    value: bytes
    create_revision: int
    mod_revision: int
    lease: int = 0


class Page(NamedTuple):
    """Part of a range, and the revision it is true at."""

    items: tuple[KeyValue, ...]
    revision: int
    more: bool


class Compare(NamedTuple):
    """A condition of a transaction: the key's last change happened at this revision; 0 means it is absent."""

    key: str
    mod_revision: int


class Put(NamedTuple):
    """Write a value; a lease makes the key vanish when the lease ends."""

    key: str
    value: bytes
    lease: int = 0


class Delete(NamedTuple):
    """Remove a key; removing an absent one is no error and no change."""

    key: str


Write = Put | Delete


class TxnResult(NamedTuple):
    """Whether the conditions held, and the revision after the transaction (or now, when they did not)."""

    succeeded: bool
    revision: int


class Change(NamedTuple):
    """One key's change, as a watcher sees it. ``value`` is None when the key was removed."""

    key: str
    value: bytes | None
    revision: int


class Watch(Protocol):
    """Batches of changes, one batch per transaction, in revision order; a batch never is empty.

    Iterating raises Compacted when the reader has fallen further behind than the store keeps changes for it.
    """

    def __aiter__(self) -> AsyncIterator[tuple[Change, ...]]: ...


class Store(Protocol):
    """Durable, ordered, watched key-value state."""

    @property
    def revision(self) -> int:
        """The newest durable revision this process has seen."""
        ...

    async def get(self, key: str) -> KeyValue | None: ...

    async def range(self, prefix: str, *, after: str = "", limit: int = 0) -> Page:
        """Keys that start with prefix, in order, beginning behind ``after``; limit 0 means all."""
        ...

    async def txn(self, compares: Sequence[Compare], writes: Sequence[Write]) -> TxnResult:
        """All writes when every condition holds, else none. Returns after the result is durable.

        Raises StoreError for an empty key, a key written twice, a lease that has ended, or more than the store takes
        at once. Every store takes 64 conditions with 4,096 writes of a megabyte together.
        """
        ...

    async def compare_and_swap(self, key: str, expected: int, value: bytes, lease: int = 0) -> TxnResult:
        """Write one key if its last change is the expected revision (0: if it is absent)."""
        ...

    def watch(self, prefix: str, after: int) -> AbstractAsyncContextManager[Watch]:
        """Changes under prefix with a revision greater than ``after``.

        Entering raises Compacted when the changes behind ``after`` are no longer held.
        """
        ...

    async def grant(self, ttl: float, now: float) -> int:
        """A new lease that ends ``ttl`` seconds after ``now`` unless kept alive."""
        ...

    async def keep_alive(self, lease: int, now: float) -> bool:
        """Begin the lease's time anew; False when it ended, or its time is over and it is about to."""
        ...

    async def revoke(self, lease: int) -> None:
        """End a lease and remove its keys, in one transaction."""
        ...

    async def expire(self, now: float) -> int:
        """End every lease whose time is over; the owner of the clock calls this. Returns how many this call ended.

        The keys of one lease vanish in one transaction. A server with a clock of its own ends them unasked: always 0.
        """
        ...

    async def close(self) -> None:
        """Finish the writes that wait, then let go of everything; closing again is no error."""
        ...


@runtime_checkable
class Distant(Protocol):
    """What a store behind a network can say besides: how old the state may be that its reads show."""

    @property
    def stale_for(self) -> float:
        """Seconds since reads were last known to be current; about a second at most while all is well."""
        ...

    @property
    def healthy(self) -> bool:
        """Whether reads are current and writes have somebody to go to; else refuse work, and say ``trouble``."""
        ...

    @property
    def trouble(self) -> str:
        """Why it is not healthy, for a person; empty while it is."""
        ...
