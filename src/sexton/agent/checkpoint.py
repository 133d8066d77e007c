"""What an agent must still know after it was killed: who it is, and of each task what was asked and what is known.

Changes are written behind, the newest per task, in the order they happened; the one write that somebody waits for is
the acceptance of tasks, which must be durable before they are acknowledged. What is lost between a change and its
write is found again by looking at the engine.

A row that cannot be read costs itself: it is named in ``unreadable``, and whoever opened the state fills it from the
plain records that are kept beside (``agent/records``). A format of the future is refused.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

import msgspec

from sexton.agent.migrations import FORMAT_KEY, migrate
from sexton.agent.records import Records
from sexton.core.names import last_part
from sexton.core.task import ContainerStatus, DesiredTask, KnownTask, TaskStatus
from sexton.kit.retry import Backoff
from sexton.store.contract import Delete, Put, Store, StoreError, Write
from sexton.wire.errors import UNREADABLE

log = logging.getLogger(__name__)

WRITE_BACKOFF = Backoff(first=0.2, cap=10.0)

_SELF = "self"
_TASKS = "tasks/"
_TOLD = (ContainerStatus.RUNNING, ContainerStatus.STOPPED)

Mark = tuple[bool, tuple[ContainerStatus, ...]]


class Self(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Who this agent is. ``sequence`` is the newest word of the control plane that it has followed."""

    cluster: str = ""
    region: str = ""
    backend: str = ""
    instance_arn: str = ""
    ec2_instance_id: str = ""
    sequence: int = -1


class Saved(msgspec.Struct, frozen=True, kw_only=True):
    """One task."""

    desired: DesiredTask
    known: KnownTask


class Checkpoint:
    """The agent's durable state."""

    def __init__(self, store: Store, records: Records | None = None) -> None:
        self._store = store
        self._records = records
        self._dirty: dict[str, Saved | None] = {}
        self._recorded: dict[str, Mark] = {}  # as far as its record says a task has come
        self._wake = asyncio.Event()
        self.self = Self()
        self.unreadable: tuple[str, ...] = ()

    async def load(self) -> dict[str, Saved]:
        """Everything that was saved; tasks by ARN."""
        rows = await self._rows()
        tasks = {}
        unreadable = []
        for key, value in rows.items():
            try:
                if key == _SELF:
                    self.self = msgspec.json.decode(value, type=Self)
                elif key.startswith(_TASKS):
                    saved = msgspec.json.decode(value, type=Saved)
                    tasks[saved.desired.arn] = saved
            except UNREADABLE as error:
                log.error("saved state cannot be read", extra={"row": key, "reason": str(error)})
                unreadable.append(key)
        self.unreadable = tuple(unreadable)
        return tasks

    async def _rows(self) -> dict[str, bytes]:
        """The rows of this agent in today's format, which they have on disk as well when this returns."""
        found = [await self._store.get(key) for key in (_SELF, FORMAT_KEY)]
        there = [one for one in found if one is not None] + list((await self._store.range(_TASKS)).items)
        rows = {one.key: one.value for one in there}
        try:
            changed = migrate(rows)
        except UNREADABLE as error:
            log.error("saved state cannot be read", extra={"row": FORMAT_KEY, "reason": str(error)})
            changed = migrate({key: value for key, value in rows.items() if key != FORMAT_KEY})
        if changed is None:
            return rows
        writes: list[Write] = [Put(key, value) for key, value in changed.items() if rows.get(key) != value]
        writes += [Delete(key) for key in rows.keys() - changed.keys()]
        await self._store.txn([], writes)
        return changed

    async def discard(self, keys: Iterable[str]) -> None:
        """Remove rows that cannot be read."""
        writes: list[Write] = [Delete(key) for key in keys]
        if writes:
            await self._store.txn([], writes)

    async def start_over(self, arns: Iterable[str]) -> None:
        """Forget who this was and these tasks, at once."""
        writes: list[Write] = [Delete(_SELF), *(Delete(_key(arn)) for arn in arns)]
        await self._store.txn([], writes)
        self.self = Self()
        self._recorded.clear()
        if self._records is not None:
            self._records.clear()

    async def become(self, me: Self) -> None:
        """Remember who this agent is; durable when it returns."""
        await self._store.txn([], [Put(_SELF, msgspec.json.encode(me))])
        self.self = me
        if self._records is not None:
            self._records.keep_identity(me)

    async def accept(self, tasks: Iterable[Saved], sequence: int) -> None:
        """Remember new tasks and how far the control plane has been followed; durable when it returns."""
        tasks = tuple(tasks)
        writes: list[Write] = []
        older: dict[str, Saved | None] = {}
        for one in tasks:
            writes.append(Put(_key(one.desired.arn), msgspec.json.encode(one)))
            if one.desired.arn in self._dirty:  # older than this; written later, it would undo it
                older[one.desired.arn] = self._dirty.pop(one.desired.arn)
        me = self.self
        if sequence > me.sequence:
            me = msgspec.structs.replace(me, sequence=sequence)
            writes.append(Put(_SELF, msgspec.json.encode(me)))
        if writes:
            try:
                await self._store.txn([], writes)
            except BaseException:
                self._dirty = older | self._dirty
                raise
        self.self = me
        for one in tasks:
            self._record(one)

    def changed(self, desired: DesiredTask, known: KnownTask) -> None:
        """Remember a task's newest state, soon."""
        saved = self._dirty[desired.arn] = Saved(desired=desired, known=known)
        self._wake.set()
        if self._recorded.get(desired.arn) != _mark(known):
            self._record(saved)

    async def forget(self, arn: str) -> None:
        """The task is over and everything of it gone."""
        self._dirty[arn] = None
        self._wake.set()
        self._recorded.pop(arn, None)
        if self._records is not None:
            self._records.drop(arn)

    def _record(self, saved: Saved) -> None:
        if self._records is not None:
            self._recorded[saved.desired.arn] = _mark(saved.known)
            self._records.keep(saved.desired.arn, saved)

    async def run(self) -> None:
        """Write behind, for ever. A store that refuses is asked again: the engine is the truth meanwhile."""
        delays = WRITE_BACKOFF.delays()
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self.flush()
                delays = WRITE_BACKOFF.delays()
            except StoreError as error:
                log.error("state cannot be saved", extra={"reason": str(error)})
                await asyncio.sleep(next(delays))
                self._wake.set()

    async def flush(self) -> None:
        """Write what has changed; unless that is known to be done, it counts as changed, except where it changed
        since."""
        batch, self._dirty = self._dirty, {}
        writes: list[Write] = [
            Delete(_key(arn)) if saved is None else Put(_key(arn), msgspec.json.encode(saved))
            for arn, saved in batch.items()
        ]
        if not writes:
            return
        try:
            await self._store.txn([], writes)
        except BaseException:
            self._dirty = batch | self._dirty
            raise


def _mark(known: KnownTask) -> Mark:
    """What a record is written for: which containers have run or are over, since no engine may know that any more.
    What comes before is found out again by trying."""
    return known.status is TaskStatus.STOPPED, tuple(
        one.status if one.status in _TOLD else ContainerStatus.NONE for one in known.containers
    )


def _key(arn: str) -> str:
    return _TASKS + last_part(arn)
