"""The ordered stream of state changes: written with the change itself, kept for a while, read from any point on.

    a change of a task, instance or service -> its event in the same transaction -> the store -> every replica's log
    -> whoever reads, from a cursor on -> the oldest are removed by the leader, which remembers up to where

An event is in the very transaction of the change that it tells of, so there is never one without the other, however a
process ends. Its place in the stream is the store's revision: the same on every replica, and the cursor that a reader
comes back with. Here only the places are kept in memory beside the store's own; an event's text is made when somebody
reads it, since most are never read.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import takewhile
from time import time
from typing import NamedTuple

import msgspec

from sexton.control.fence import Fence, alone
from sexton.control.records import InstanceRecord, Records, ServiceRecord, TaskRecord
from sexton.control.usage import Usage
from sexton.core import event, names, resources
from sexton.core.event import Detail, Kind
from sexton.kit.randomids import random_uuid
from sexton.kit.retry import Backoff
from sexton.store.contract import Change, Delete, Put, StoreError, Write

log = logging.getLogger(__name__)

PREFIX = "events/"
MARK_KEY = "eventmark/removed"

KEPT = 10_000
"""Events that are kept unless the settings say otherwise; each takes about as much memory as the task it tells of."""

SLACK = 10
"""The log may outgrow its bound by this part before the oldest go: many go at once."""

BATCH = 500
"""Removals in one transaction."""

BACKOFF = Backoff(first=1.0, cap=30.0)


class Position(NamedTuple):
    """Where an event is in the stream."""

    revision: int
    key: str

    def __str__(self) -> str:
        return f"{self.revision}-{self.key}"


START = Position(0, "")


class BadCursor(Exception):  # noqa: N818 - an answer to whoever sent it
    """What was given as a cursor is none."""


def read_cursor(text: str) -> Position:
    revision, dash, key = text.partition("-")
    if not (dash and revision.isascii() and revision.isdecimal() and len(revision) < 20):
        raise BadCursor
    return Position(int(revision), key)


_NOTHING = msgspec.Raw()


class Stored(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An event in the store. A task's is its record as it was written; the others are told at once."""

    id: str
    kind: str
    at: float
    region: str
    cluster: str
    resources: tuple[str, ...]
    task: msgspec.Raw = _NOTHING
    detail: msgspec.Raw = _NOTHING


class _Mark(msgspec.Struct, frozen=True):
    revision: int
    key: str


class EventLog:
    """Every event that is kept, in order."""

    def __init__(self, records: Records, usage: Usage, kept: int = KEPT, clock: Callable[[], float] = time) -> None:
        self._records = records
        self._usage = usage
        self._kept = kept
        self._clock = clock
        self._order: list[Position] = []  # from ``_first`` on
        self._first = 0
        self._known: set[str] = set()
        self._removed = START
        self._numbers = itertools.count()
        self._encoder = msgspec.json.Encoder()
        self._news = asyncio.Event()
        records.carry(self._tell, {PREFIX: self._take, MARK_KEY: self._take_mark})

    def __len__(self) -> int:
        return len(self._order) - self._first

    @property
    def newest(self) -> Position:
        """Where the stream ends now."""
        return self._order[-1] if len(self) else self._removed

    @property
    def oldest(self) -> Position:
        """Just before the first event that is still there."""
        return self._removed

    def lost_since(self, cursor: Position) -> bool:
        """Whether events behind a cursor are gone, or the cursor is of another stream."""
        if cursor == START or cursor == self._removed:
            return cursor < self._removed
        return cursor < self._removed or cursor.key not in self._known

    def after(self, cursor: Position, many: int) -> list[Position]:
        """The next places behind a cursor."""
        start = bisect_right(self._order, cursor, lo=self._first)
        return self._order[start : start + many]

    async def news(self) -> None:
        """Wait until something was added since the call."""
        await self._news.wait()

    async def read(self, place: Position) -> Stored | None:
        """An event; None when it was removed meanwhile."""
        data = await self._records.raw(PREFIX + place.key)
        return msgspec.json.decode(data, type=Stored) if data is not None else None

    def _take(self, change: Change) -> None:
        key = change.key[len(PREFIX) :]
        if change.value is None:
            self._forget(key)
        elif key not in self._known:
            self._known.add(key)
            place = Position(change.revision, key)
            if self._order and place < self._order[-1]:
                # Only while everything is read at once, by key: later events come in the order of their revisions.
                self._order.insert(bisect_right(self._order, place, lo=self._first), place)
            else:
                self._order.append(place)
            self._news.set()
            self._news = asyncio.Event()

    def _forget(self, key: str) -> None:
        if key not in self._known:
            return
        self._known.discard(key)
        while self._first < len(self._order) and self._order[self._first].key not in self._known:
            self._first += 1
        if self._first > self._kept:
            del self._order[: self._first]
            self._first = 0

    def _take_mark(self, change: Change) -> None:
        if change.value is not None:
            mark = msgspec.json.decode(change.value, type=_Mark)
            self._removed = Position(mark.revision, mark.key)

    async def trim(self) -> int:
        """Remove the oldest until no more are there than are to be kept; how many went."""
        gone = 0
        while len(self) > self._kept:
            many = min(BATCH, len(self) - self._kept)
            places = [one for one in self._order[self._first : self._first + many] if one.key in self._known]
            last = places[-1]
            mark = Put(MARK_KEY, self._encoder.encode(_Mark(last.revision, last.key)))
            await self._records.commit([], [*(Delete(PREFIX + one.key) for one in places), mark])
            gone += len(places)
        return gone

    async def run(self, fence: Fence = alone) -> None:
        """Keep the log within its bound, on the one control plane that may."""
        delays = BACKOFF.delays()
        while True:
            if len(self) > self._kept + self._kept // SLACK and fence() is not None:
                try:
                    await self.trim()
                    delays = BACKOFF.delays()
                except StoreError as error:
                    log.warning("old events not removed", extra={"reason": str(error)})
            await asyncio.sleep(next(delays))

    def _tell(self, writes: Sequence[Write]) -> list[Put]:
        """The events of these writes, to be written with them."""
        found: list[Put] = []
        for write in writes:
            told = self._told(write)
            found += [self._put(one) for one in told]
        return found

    def _told(self, write: Write) -> list[Stored]:
        table, _, key = write.key.partition("/")
        if isinstance(write, Delete):
            gone = self._records.instances.get(key) if table == "instances" else None
            return [self._of_instance(gone.value, gone=True)] if gone else []
        match table, self._records.written(write):
            case "tasks", TaskRecord() as after:
                task = self._records.tasks.get(key)
                changed = event.task_changed(task.value.task if task else None, after.task)
                return [self._of_task(after, write.value)] if changed else []
            case "instances", InstanceRecord() as after:
                one = self._records.instances.get(key)
                changed = event.instance_changed(one.value.instance if one else None, after.instance)
                return [self._of_instance(after)] if changed else []
            case "services", ServiceRecord() as after:
                service = self._records.services.get(key)
                return self._of_service(service.value if service else None, after)
        return []

    def _put(self, stored: Stored) -> Put:
        # Keys sort by time and, within one process, in the order in which they were made.
        key = f"{int(stored.at * 1000):012x}{next(self._numbers) & 0xFFFFFF:06x}{stored.id[:6]}"
        return Put(PREFIX + key, self._encoder.encode(stored))

    def _stored(self, kind: Kind, region: str, cluster: str, resource: str, **body: msgspec.Raw) -> Stored:
        return Stored(
            id=random_uuid(),
            kind=kind,
            at=self._clock(),
            region=region,
            cluster=cluster,
            resources=(resource,),
            **body,
        )

    def _of_task(self, record: TaskRecord, data: bytes) -> Stored:
        return self._stored(Kind.TASK, record.region, record.cluster, record.arn, task=msgspec.Raw(data))

    def _of_instance(self, record: InstanceRecord, *, gone: bool = False) -> Stored:
        used = self._usage.of(record.arn)
        shown = msgspec.structs.replace(
            record.instance,
            remaining_resources=resources.remaining(
                record.instance.registered_resources or (), used.resources, used.gpus
            ),
            running_tasks_count=used.running,
            pending_tasks_count=used.pending,
        )
        if gone:
            version = (shown.version or 0) + 1
            shown = msgspec.structs.replace(shown, status="INACTIVE", agent_connected=False, version=version)
        place = names.Place(record.region, names.account_of(record.arn))
        detail = event.instance_detail(shown, self._clock())
        detail["clusterArn"] = names.cluster_arn(place, record.cluster)
        return self._detailed(Kind.INSTANCE, record.region, record.cluster, record.arn, detail)

    def _of_service(self, before: ServiceRecord | None, after: ServiceRecord) -> list[Stored]:
        now = self._clock()
        newest = before.events[0].id if before and before.events else None
        texts = [one.message or "" for one in takewhile(lambda one: one.id != newest, after.events)][::-1]
        actions = event.spoken(texts, after.service.cluster_arn or "", now)
        if before is not None and not after.ended_at:
            actions = event.desired_count_changed(before.service, after.service, now) + actions
        changes = event.rollouts(before.deployments if before else (), after.deployments, now)
        where = (after.region, after.cluster, after.arn)
        return [self._detailed(Kind.DEPLOYMENT, *where, one) for one in changes] + [
            self._detailed(Kind.SERVICE, *where, one) for one in actions
        ]

    def _detailed(self, kind: Kind, region: str, cluster: str, resource: str, detail: Detail) -> Stored:
        return self._stored(kind, region, cluster, resource, detail=msgspec.Raw(self._encoder.encode(detail)))


def told(stored: Stored) -> bytes:
    """An event's whole text."""
    detail: Detail
    if bytes(stored.task):
        record = msgspec.json.decode(stored.task, type=TaskRecord)
        detail = event.task_detail(record.task, stored.at)
    else:
        detail = msgspec.json.decode(stored.detail)
    return msgspec.json.encode(
        event.envelope(
            event_id=stored.id,
            kind=stored.kind,
            account=names.account_of(stored.resources[0]),
            at=stored.at,
            region=stored.region,
            resources=stored.resources,
            detail=detail,
        )
    )
