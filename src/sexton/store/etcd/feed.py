"""Keeps the image true: reads the whole prefix once, then follows one watch for as long as the store is open.

In flow what etcd tells; out flow the image, the batches for those who watch, and the wake-up of writers who wait for
their own change to arrive. A broken watch is opened again behind the last revision the image has, on the next member,
so nothing is missed or doubled. When etcd has forgotten that far back, everything is read again and every watcher is
told so with Compacted.

How current the image is, is known from a pulse: once a second the member we watch confirms a majority behind it. The
pulse failing, the watch moves to another member. A cluster that knows less than the image does, or is another one, was
replaced beneath us: then the store fails for good, because what it showed is no longer true.

Nothing here survives a restart; it is all read again.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Callable, Sequence
from contextlib import aclosing
from itertools import count, groupby

import msgspec

from sexton.kit.retry import Backoff
from sexton.store.contract import Change, Compacted, KeyValue, StoreError
from sexton.store.etcd import wire
from sexton.store.etcd.gateway import Gateway, Refused, Unreachable
from sexton.store.image import Commit, Image
from sexton.store.watching import Watches

log = logging.getLogger(__name__)

READ_SECONDS = 10.0
"""For one page of the first reading: a cluster that elects a leader meanwhile still answers in time."""

PULSE_SECONDS = 1.0
"""How often the watched member is asked whether it is still part of a majority; a third of a millisecond each."""

PULSE_DEADLINE = 2.0
"""A member that takes longer is left. Longer than an election, which a good member survives, takes on most clusters."""

CREATE_SECONDS = 2.0
"""Until a member confirms a watch; it does so at once, before any change."""

STALE_SECONDS = 5.0
"""Older than this, the image counts as stale and the store as unhealthy."""

PAGE_BYTES = 1024 * 1024
"""Aimed at for one page of the first reading, so that neither side holds much at once."""

FIRST_PAGE = 64
LARGEST_PAGE = 4096

BACKOFF = Backoff(first=0.02, cap=2.0)
"""Between attempts to watch; the first is short because a writer may be waiting for its change."""

COMPACTED = 11
"""gRPC's code for a revision that etcd no longer holds."""


class _ForgottenError(Exception):
    """etcd no longer holds the changes behind the image's revision."""


class Feed:
    """The image of one prefix, and whoever waits for it to change."""

    def __init__(self, gateway: Gateway, image: Image, cluster: str, now: Callable[[], float]) -> None:
        self.image = image
        self.watches = Watches(image.revision)
        self.failed: StoreError | None = None
        self._gateway = gateway
        self._cluster = cluster
        self._now = now
        self._fresh_at = now()
        self._watched = ""  # the member whose watch is open
        self._trouble = ""
        self._moved = asyncio.Event()  # the watch is to be opened elsewhere
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []  # a heap
        self._order = count()
        self._next_change: asyncio.Future[None] | None = None

    @property
    def stale_for(self) -> float:
        return max(0.0, self._now() - self._fresh_at)

    @property
    def trouble(self) -> str:
        if self.failed is not None:
            return str(self.failed)
        if self.stale_for <= STALE_SECONDS:
            return ""
        reason = self._trouble or "it does not answer"
        return (
            f"cannot follow {self._gateway.name} for {self.stale_for:.0f} s: {reason}; "
            "check that a majority of its members runs"
        )

    async def reached(self, revision: int) -> None:
        """Wait until the image is at this revision, which must be one of our own changes."""
        if revision <= self.image.revision or self.failed is not None:
            return
        arrived: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (revision, next(self._order), arrived))
        await arrived

    async def caught_up(self, shown: Callable[[], bool]) -> None:
        """Wait until the image shows what etcd is known to hold."""
        while not shown() and self.failed is None:
            if self._next_change is None:
                self._next_change = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._next_change)

    async def follow(self) -> None:
        """The watch, opened again and again."""
        delays = BACKOFF.delays()
        while self.failed is None:
            endpoint = self._gateway.endpoint
            before = self.image.revision
            try:
                await self._watch(endpoint)
                self._move(endpoint, "its pulse stopped")
            except _ForgottenError:
                self._watched = ""
                await self._try_to_read_again()
            except StoreError as error:
                self._gateway.forget_login()
                self._move(endpoint, str(error))
            if self.image.revision > before:
                delays = BACKOFF.delays()
            await asyncio.sleep(next(delays))

    async def pulse(self) -> None:
        """Ask the watched member, once a second, whether it is still part of a majority."""
        request = wire.RangeRequest(self._gateway.address.prefix, keys_only=True)
        while self.failed is None:
            # What a majority has confirmed cannot be less than what it told us before we asked.
            endpoint, asked, known = self._watched, self._now(), self.image.revision
            if endpoint:
                try:
                    answer = await self._gateway.ask(
                        endpoint, "/v3/kv/range", request, wire.RangeAnswer, PULSE_DEADLINE
                    )
                except StoreError as error:
                    self._trouble = str(error)
                    if endpoint == self._watched:
                        self._moved.set()
                else:
                    self._check(answer.header, known)
                    if endpoint == self._watched:
                        self._fresh_at = asked
                        self._trouble = ""
            await asyncio.sleep(PULSE_SECONDS)

    def end(self, reason: StoreError) -> None:
        """No more changes will come."""
        self.watches.end(reason)
        self._wake(everybody=True)

    async def _watch(self, endpoint: str) -> None:
        """Follow one member until it fails, or the pulse wants another."""
        address = self._gateway.address
        request = wire.WatchRequest(wire.WatchCreate(address.prefix, address.end, self.image.revision + 1))
        self._moved.clear()
        moved = asyncio.ensure_future(self._moved.wait())
        reading = asyncio.ensure_future(self._read_stream(endpoint, request))
        try:
            await asyncio.wait((moved, reading), timeout=CREATE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if not self._watched:
                reading.cancel()
            await asyncio.wait((moved, reading), return_when=asyncio.FIRST_COMPLETED)
            if reading.cancelled():
                raise Unreachable(f"cannot watch {endpoint}: it did not answer in time; the next one is tried")
            if reading.done():
                reading.result()
        finally:
            for task in (moved, reading):
                task.cancel()
            await asyncio.gather(moved, reading, return_exceptions=True)

    async def _read_stream(self, endpoint: str, request: wire.WatchRequest) -> None:
        events: list[wire.Event] = []
        async with self._gateway.stream(endpoint, "/v3/watch", request) as lines, aclosing(lines):
            async for line in lines:
                answer = _read_line(line, endpoint)
                if answer.canceled:
                    if answer.compact_revision:
                        raise _ForgottenError
                    raise Unreachable(f"cannot keep watching {endpoint}: {answer.cancel_reason}; it is tried again")
                if answer.created:
                    self._check_cluster(answer.header)
                    self._watched = endpoint
                    continue
                events += answer.events
                if not answer.fragment:
                    self._take(events)
                    events = []
        raise Unreachable(f"cannot keep watching {endpoint}: it ended the watch; it is tried again")

    def _take(self, events: Sequence[wire.Event]) -> None:
        prefix = len(self._gateway.address.prefix)
        for revision, group in groupby(events, lambda event: event.kv.mod_revision):
            if revision <= self.image.revision:
                continue
            records: dict[str, KeyValue | None] = {}
            changes: list[Change] = []
            for event in group:
                key = _text(event.kv.key[prefix:])
                if key is None:
                    continue
                removed = event.type == "DELETE"
                records[key] = None if removed else _record(key, event.kv)
                changes.append(Change(key, None if removed else event.kv.value, revision))
            if changes:
                self.image.apply(Commit(records, {}, revision, 0, (tuple(changes),)))
                self.watches.publish([tuple(changes)])
        self._wake()

    def _move(self, endpoint: str, reason: str) -> None:
        self._watched = ""
        self._trouble = reason
        self._gateway.leave(endpoint, reason)

    async def _try_to_read_again(self) -> None:
        try:
            await self._read_again()
        except StoreError as error:
            # The watch will find the changes gone again, and lead back here.
            self._trouble = str(error)

    async def _read_again(self) -> None:
        """Replace the image, because the changes that led here are gone."""
        known = self.image.revision
        image, cluster = await read_all(self._gateway)
        self._check(wire.Header(cluster, image.revision), known)
        if self.failed is not None:
            return
        log.warning("etcd forgot the changes since", extra={"revision": self.image.revision, "now": image.revision})
        self.image = image
        behind, self.watches = self.watches, Watches(image.revision)
        behind.end(
            Compacted(
                f"cannot keep watching: {self._gateway.name} no longer holds every change up to revision "
                f"{image.revision}; read the range again and watch from its revision"
            )
        )
        self._wake()

    def _check(self, header: wire.Header, known: int) -> None:
        self._check_cluster(header)
        if header.revision < known and self.failed is None:
            self._fail(f"it is at revision {header.revision} and we have seen {known}")

    def _check_cluster(self, header: wire.Header) -> None:
        if header.cluster_id != self._cluster and self.failed is None:
            self._fail(f"it is cluster {header.cluster_id} and was {self._cluster}")

    def _fail(self, what: str) -> None:
        name = self._gateway.name
        self.failed = StoreError(
            f"cannot go on with {name}: its data was replaced, {what}; restart this process to read it anew"
        )
        log.error("etcd data was replaced", extra={"store": name, "reason": what})
        self.end(self.failed)
        self._moved.set()

    def _wake(self, *, everybody: bool = False) -> None:
        waiting = self._waiting
        while waiting and (everybody or waiting[0][0] <= self.image.revision):
            _, _, arrived = heapq.heappop(waiting)
            if not arrived.done():
                arrived.set_result(None)
        if self._next_change is not None:
            self._next_change.set_result(None)
            self._next_change = None


async def read_all(gateway: Gateway, within: float = READ_SECONDS) -> tuple[Image, str]:
    """Everything under the prefix at one revision, page by page, and the cluster it is from."""
    while True:
        try:
            return await _read_pages(gateway, within)
        except Refused as refusal:
            # Compacted between two pages: what was read is of a revision that is gone.
            if refusal.code != COMPACTED:
                raise


async def _read_pages(gateway: Gateway, within: float) -> tuple[Image, str]:
    address = gateway.address
    records: list[KeyValue] = []
    key, revision, limit = address.prefix, 0, FIRST_PAGE
    while True:
        request = wire.RangeRequest(key, address.end, limit, revision)
        page = await gateway.call("/v3/kv/range", request, wire.RangeAnswer, within=within, repeatable=True)
        revision = revision or page.header.revision
        size = 0
        for one in page.kvs:
            size += len(one.value) + len(one.key)
            name = _text(one.key[len(address.prefix) :])
            if name is not None:
                records.append(_record(name, one))
        if not page.more or not page.kvs:
            return Image(records, {}, revision, 0), page.header.cluster_id
        key = page.kvs[-1].key + b"\0"
        limit = max(1, min(LARGEST_PAGE, limit * 2, limit * PAGE_BYTES // max(size, 1)))


def _text(key: bytes) -> str | None:
    """Our keys are text and never empty; whatever else lies under the prefix is somebody else's and left alone."""
    try:
        return key.decode() or None
    except UnicodeDecodeError:
        log.warning("key in etcd is not ours", extra={"key": repr(key)})
        return None


def _record(key: str, record: wire.Record) -> KeyValue:
    return KeyValue(key, record.value, record.create_revision, record.mod_revision, record.lease)


def _read_line(line: bytes, endpoint: str) -> wire.WatchAnswer:
    try:
        read = wire.decode(line, wire.WatchLine)
    except msgspec.MsgspecError as error:
        raise Unreachable(f"cannot keep watching {endpoint}: it sent what is not etcd's ({error})") from error
    if read.result is None:
        words = read.error.message if read.error else "no reason"
        raise Unreachable(f"cannot keep watching {endpoint}: {words}; it is tried again")
    return read.result
