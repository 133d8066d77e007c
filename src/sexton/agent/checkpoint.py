"""What an agent must still know after it was killed: who it is, and of each task what was asked and what is known.

Changes are written behind, the newest per task, in the order they happened; the one write that somebody waits for is
the acceptance of tasks, which must be durable before they are acknowledged. What is lost between a change and its
write is found again by looking at the engine.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

import msgspec

from sexton.core.names import last_part
from sexton.core.task import DesiredTask, KnownTask
from sexton.kit.retry import Backoff
from sexton.store.contract import Delete, Put, Store, StoreError, Write
from sexton.wire.errors import UNREADABLE

log = logging.getLogger(__name__)

WRITE_BACKOFF = Backoff(first=0.2, cap=10.0)

_SELF = "self"
_TASKS = "tasks/"


class Self(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Who this agent is. ``sequence`` is the newest word of the control plane that it has followed."""

    cluster: str = ""
    region: str = ""
    backend: str = ""
    instance_arn: str = ""
    sequence: int = -1


class Saved(msgspec.Struct, frozen=True, kw_only=True):
    """One task."""

    desired: DesiredTask
    known: KnownTask


class Checkpoint:
    """The agent's durable state."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._dirty: dict[str, Saved | None] = {}
        self._wake = asyncio.Event()
        self.self = Self()

    async def load(self) -> dict[str, Saved]:
        """Everything that was saved; tasks by ARN. StoreError when it cannot be read: nothing may be guessed."""
        rows = [one for one in (await self._store.get(_SELF),) if one is not None]
        rows += (await self._store.range(_TASKS)).items
        tasks = {}
        for row in rows:
            try:
                if row.key == _SELF:
                    self.self = msgspec.json.decode(row.value, type=Self)
                else:
                    saved = msgspec.json.decode(row.value, type=Saved)
                    tasks[saved.desired.arn] = saved
            except UNREADABLE as error:
                raise StoreError(
                    f"cannot read {row.key} of the saved state: {error}; was it written by a newer version?"
                ) from None
        return tasks

    async def become(self, me: Self) -> None:
        """Remember who this agent is; durable when it returns."""
        await self._store.txn([], [Put(_SELF, msgspec.json.encode(me))])
        self.self = me

    async def accept(self, tasks: Iterable[Saved], sequence: int) -> None:
        """Remember new tasks and how far the control plane has been followed; durable when it returns."""
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

    def changed(self, desired: DesiredTask, known: KnownTask) -> None:
        """Remember a task's newest state, soon."""
        self._dirty[desired.arn] = Saved(desired=desired, known=known)
        self._wake.set()

    async def forget(self, arn: str) -> None:
        """The task is over and everything of it gone."""
        self._dirty[arn] = None
        self._wake.set()

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


def _key(arn: str) -> str:
    return _TASKS + last_part(arn)
