"""The store as callers see it: reads from the image, writes sent to etcd at once and acknowledged when they arrive.

A write waits for its turn among those of this process that use the same keys, goes out as one transaction, and is
acknowledged when etcd has committed it and the image shows it: whoever was told so also reads it. Up to
``WRITES_AT_ONCE`` travel side by side, each with a deadline from the moment it was asked for, so neither a slow nor a
lost cluster makes anybody wait for ever or this process grow for long.

Writes run in tasks of their own: a caller that gives up leaves no request half-sent, and ``close`` can wait for them.
What survives a restart is in etcd.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

import msgspec

from sexton.kit.supervise import Nursery
from sexton.store.contract import (
    Compare,
    Durability,
    KeyValue,
    OutcomeUnknown,
    Page,
    Put,
    StoreError,
    TxnResult,
    Watch,
    Write,
)
from sexton.store.draft import check_ttl, check_writes
from sexton.store.etcd import address, wire
from sexton.store.etcd.feed import Feed, read_all
from sexton.store.etcd.gateway import NOT_FOUND, Gateway, Refused
from sexton.store.etcd.turns import Name, Turns

log = logging.getLogger(__name__)

T = TypeVar("T")

OPEN_SECONDS = 5.0
"""How long opening tries: a cluster that starts beside us is there by then, a wrong address is told soon."""

WRITE_SECONDS = 5.0
"""From the asking to the acknowledgement; an election of etcd's takes one or two."""

WRITES_AT_ONCE = 64
"""On their way to etcd together; more do not make it faster, they only make each wait longer."""


class EtcdStore:
    """Durable, ordered, watched key-value state under one prefix of an etcd cluster."""

    def __init__(self, gateway: Gateway, feed: Feed) -> None:
        self._gateway = gateway
        self._feed = feed
        self._prefix = gateway.address.prefix
        self._turns = Turns()
        self._slots = asyncio.Semaphore(WRITES_AT_ONCE)
        self._loop = asyncio.get_running_loop()
        self._nursery = Nursery("etcd")
        self._writes: set[asyncio.Task[None]] = set()
        self._closing: asyncio.Task[None] | None = None
        self._nursery.start("follow", feed.follow())
        self._nursery.start("pulse", feed.pulse())

    @property
    def revision(self) -> int:
        return self._feed.image.revision

    @property
    def stale_for(self) -> float:
        return self._feed.stale_for

    @property
    def healthy(self) -> bool:
        return not self.trouble

    @property
    def trouble(self) -> str:
        return self._feed.trouble

    async def get(self, key: str) -> KeyValue | None:
        self._check_usable()
        return self._feed.image.get(key)

    async def range(self, prefix: str, *, after: str = "", limit: int = 0) -> Page:
        self._check_usable()
        return self._feed.image.range(prefix, after, limit)

    async def txn(self, compares: Sequence[Compare], writes: Sequence[Write]) -> TxnResult:
        check_writes(writes)
        request = wire.transaction(self._prefix, compares, writes)
        compares, writes = tuple(compares), tuple(writes)
        leases = {write.lease for write in writes if isinstance(write, Put) and write.lease}
        return await self._ask(
            [compare.key for compare in compares] + sorted(leases),
            [write.key for write in writes],
            lambda left: self._transact(request, compares, writes, left),
        )

    async def compare_and_swap(self, key: str, expected: int, value: bytes, lease: int = 0) -> TxnResult:
        return await self.txn([Compare(key, expected)], [Put(key, value, lease)])

    @asynccontextmanager
    async def watch(self, prefix: str, after: int) -> AsyncIterator[Watch]:
        self._check_usable()
        watches = self._feed.watches
        watch = watches.add(prefix, after)
        try:
            yield watch
        finally:
            watches.discard(watch)

    async def grant(self, ttl: float, now: float) -> int:
        check_ttl(ttl)
        request = wire.LeaseGrantRequest(math.ceil(ttl))

        async def granted(left: float) -> int:
            # Sent again when in doubt: a lease nobody knows of ends by itself.
            answer = await self._call("/v3/lease/grant", request, wire.LeaseAnswer, left)
            return answer.id

        return await self._ask([], [], granted)

    async def keep_alive(self, lease: int, now: float) -> bool:
        async def kept(left: float) -> bool:
            answer = await self._call("/v3/lease/keepalive", wire.LeaseRequest(lease), wire.KeepAliveAnswer, left)
            if answer.result is None:
                words = answer.error.message if answer.error else "no reason"
                raise StoreError(f"cannot keep lease {lease} alive: {words}; try again before it ends")
            return answer.result.ttl > 0

        return await self._ask([], [], kept)

    async def revoke(self, lease: int) -> None:
        async def revoked(left: float) -> None:
            try:
                await self._call("/v3/lease/revoke", wire.LeaseRequest(lease), wire.Empty, left)
            except Refused as refusal:
                if refusal.code != NOT_FOUND:
                    raise
            await self._feed.caught_up(lambda: not self._feed.image.attached(lease))

        await self._ask([], [lease], revoked)

    async def expire(self, now: float) -> int:
        """etcd's own clock ends leases."""
        self._check_usable()
        return 0

    async def close(self) -> None:
        if self._closing is None:
            self._closing = self._nursery.start("close", self._close())
        # Shielded: a caller that gives up waiting does not stop the closing, nor those who also wait for it.
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        if self._writes:
            await asyncio.wait(self._writes)
        await self._nursery.close()
        await self._gateway.close()
        self._feed.end(self._closed())

    def _closed(self) -> StoreError:
        return StoreError(f"cannot use {self._gateway.name}: the store is closed; open it again")

    def _check_usable(self) -> None:
        if self._closing is not None:
            raise self._closed()
        if self._feed.failed is not None:
            raise StoreError(*self._feed.failed.args)

    async def _ask(self, reads: Iterable[Name], writes: Iterable[Name], work: Callable[[float], Awaitable[T]]) -> T:
        """Have the work done in its turn, before its deadline, also when the caller gives up."""
        self._check_usable()
        turn = self._turns.take(reads, writes)
        deadline = self._loop.time() + WRITE_SECONDS
        answered: asyncio.Future[T] = self._loop.create_future()

        async def serve() -> None:
            try:
                await turn.come()
                async with self._slots:
                    left = deadline - self._loop.time()
                    if left <= 0:
                        raise StoreError(
                            f"cannot write to {self._gateway.name}: too many writes wait for it; "
                            "try again when it answers faster"
                        )
                    if not answered.done():
                        outcome = await work(left)
                        if not answered.done():
                            answered.set_result(outcome)
            except Exception as error:
                if not answered.done():
                    answered.set_exception(error)
            finally:
                self._turns.done(turn)

        task = self._nursery.start("write", serve())
        self._writes.add(task)
        task.add_done_callback(self._writes.discard)
        return await answered

    async def _call(self, path: str, request: msgspec.Struct, kind: type[T], within: float) -> T:
        return await self._gateway.call(path, request, kind, within=within, repeatable=True)

    async def _transact(
        self, request: wire.TxnRequest, compares: Sequence[Compare], writes: Sequence[Write], left: float
    ) -> TxnResult:
        deadline = self._loop.time() + left
        if self._lost(compares):
            return TxnResult(False, self.revision)
        if not compares and not writes:
            return TxnResult(True, self.revision)
        try:
            answer = await self._gateway.call("/v3/kv/txn", request, wire.TxnAnswer, within=left, repeatable=not writes)
        except Refused as refusal:
            raise self._refused(refusal, writes) from refusal
        try:
            async with asyncio.timeout_at(deadline):
                return await self._arrived(answer, compares, writes)
        except TimeoutError:
            raise OutcomeUnknown(
                f"cannot see what {self._gateway.name} did in revision {answer.header.revision}: the watch is behind; "
                "read the keys again before repeating the write"
            ) from None

    def _lost(self, compares: Sequence[Compare]) -> bool:
        """Whether a condition can never hold again: the key has moved on from a revision that we have seen.

        That a key is absent is never known from the image: it may have been removed meanwhile.
        """
        image = self._feed.image
        for compare in compares:
            if 0 < compare.mod_revision <= image.revision:
                record = image.get(compare.key)
                if record is None or record.mod_revision != compare.mod_revision:
                    return True
        return False

    async def _arrived(self, answer: wire.TxnAnswer, compares: Sequence[Compare], writes: Sequence[Write]) -> TxnResult:
        """Wait until the image shows what etcd did, or what was in its way."""
        seen_at = answer.header.revision
        if answer.succeeded and answer.changed:
            await self._feed.reached(seen_at)
            self._check_feed()
            return TxnResult(True, seen_at)
        if answer.succeeded:
            held = {compare.key: compare.mod_revision for compare in compares}
            held.update((write.key, 0) for write in writes)
        else:
            held = {compare.key: 0 for compare in compares}
            for record in answer.found():
                held[record.key[len(self._prefix) :].decode()] = record.mod_revision
        await self._feed.caught_up(lambda: all(self._shows(key, held[key], seen_at) for key in held))
        self._check_feed()
        return TxnResult(answer.succeeded, self.revision)

    def _shows(self, key: str, mod_revision: int, seen_at: int) -> bool:
        """Whether the image knows of this key what etcd did at that revision, or something later."""
        record = self._feed.image.get(key)
        if mod_revision:
            return self.revision >= mod_revision
        return record is None or record.mod_revision > seen_at

    def _check_feed(self) -> None:
        if self._feed.failed is not None:
            raise OutcomeUnknown(*self._feed.failed.args)

    def _refused(self, refusal: Refused, writes: Sequence[Write]) -> StoreError:
        if refusal.code == NOT_FOUND:
            for write in writes:
                if isinstance(write, Put) and write.lease:
                    return StoreError(f"cannot write key {write.key!r}: lease {write.lease} has ended; grant a new one")
        return StoreError(str(refusal))


async def open_store(location: str, durability: Durability, history: bool = True) -> EtcdStore:
    """Open the prefix of a cluster. etcd's durability is always the full one."""
    return await _open(address.parse(location, tls=False))


async def open_store_by_tls(location: str, durability: Durability, history: bool = True) -> EtcdStore:
    return await _open(address.parse(location, tls=True))


async def _open(where: address.Address) -> EtcdStore:
    tls = await asyncio.to_thread(address.tls_context, where.tls) if where.tls is not None else None
    gateway = Gateway(where, tls)
    try:
        image, cluster = await read_all(gateway, OPEN_SECONDS)
    except BaseException:
        await gateway.close()
        raise
    log.info("store opened", extra={"store": where.name, "revision": image.revision, "records": len(image)})
    return EtcdStore(gateway, Feed(gateway, image, cluster, asyncio.get_running_loop().time))
