"""The history of what each definition used on this host, which ``sexton advise`` judges by.

A sample is put into the window of its subject at a cost that does not depend on the history. Windows are written to
the agent's store every few minutes, whole, so a kill loses the samples since then and never counts one twice. A window
ends after a day, and windows are kept for two weeks; how many there may be at all is bounded, and the oldest go first.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

import msgspec

from sexton.agent.sampling import TaskSample
from sexton.core.reserved import Reserved
from sexton.core.sizewindow import Measured, Subject, Window, measured
from sexton.core.usage import HostUse, Throttled
from sexton.store.contract import Delete, Put, Store, StoreError, Write
from sexton.wire.errors import UNREADABLE

log = logging.getLogger(__name__)

_USE = "use/"
WINDOW_SECONDS = 24 * 3600.0
KEPT_SECONDS = 14 * WINDOW_SECONDS
# Subjects in memory at once: each has a few kilobytes. One that is pushed out begins another window when it returns.
MOST_SUBJECTS = 300
MOST_ROWS = 2000
KIB = 1024


class SizeBook:
    """The windows of one host. Without a store they last as long as the process."""

    def __init__(self, store: Store | None = None) -> None:
        self._store = store
        self._open: dict[Subject, Window] = {}
        self._dirty: set[Subject] = set()
        self._ended: list[Window] = []  # not written yet

    async def load(self, now: float) -> None:
        """Go on with the windows of the last day, unless one was begun while they were read."""
        begun = set(self._open)
        for one in await self._rows():
            if 0 <= now - one.first < WINDOW_SECONDS and one.subject not in begun and len(self._open) < MOST_SUBJECTS:
                self._open[one.subject] = one

    def add(self, samples: Iterable[TaskSample], now: float) -> None:
        """One round."""
        for task in samples:
            whole = self._window((task.family, task.revision, ""), task.reserved, now)
            _count(whole, now, task.seconds, task.cpu, task.held)
            _hold_back(whole, task.throttled)
            for one in task.containers:
                window = self._window((task.family, task.revision, one.name), one.reserved, now)
                _count(window, now, one.seconds, one.cpu, one.counters.held)

    def add_host(self, before: HostUse, after: HostUse, seconds: float, now: float) -> None:
        """The host between two looks."""
        busy = max(after.busy_seconds - before.busy_seconds, 0.0)
        window = self._window(("", "", ""), after.capacity, now)
        _count(window, now, seconds, busy / seconds * 1024, after.memory_used)
        window.steal_seconds += max(after.steal_seconds - before.steal_seconds, 0.0)

    def killed(self, subject: Subject, reserved: Reserved, times: int, now: float) -> None:
        """The kernel killed something in a container for memory."""
        window = self._window(subject, reserved, now)
        window.oom_kills += times
        window.last = now

    async def flush(self, now: float) -> None:
        """Write what has changed; what cannot be written now is written with the next."""
        if self._store is None or not (self._dirty or self._ended):
            return
        ended, self._ended = self._ended, []
        dirty, self._dirty = self._dirty, set()
        changed = {_key(one): one for one in [*ended, *(self._open[subject] for subject in dirty)]}
        writes: list[Write] = [Put(key, msgspec.json.encode(one)) for key, one in changed.items()]
        try:
            await self._store.txn([], writes)
            if ended:
                await self._prune(now)
        except BaseException as error:
            self._dirty |= dirty & self._open.keys()
            self._ended = [*ended, *self._ended][-MOST_ROWS:]
            if not isinstance(error, StoreError):
                raise
            log.warning("use of tasks cannot be saved", extra={"reason": str(error)})

    async def measured(self, now: float) -> list[Measured]:
        """Everything that is known, by subject."""
        await self.flush(now)
        current = {_key(one): one for one in [*self._ended, *self._open.values()]}
        stored = [one for one in await self._rows() if _key(one) not in current]
        return measured(one for one in [*stored, *current.values()] if now - one.last < KEPT_SECONDS)

    def _window(self, subject: Subject, reserved: Reserved, now: float) -> Window:
        window = self._open.get(subject)
        # A clock that was set back ends a window as well.
        if window is not None and not 0 <= now - window.first < WINDOW_SECONDS:
            self._end(subject)
            window = None
        if window is None:
            if len(self._open) >= MOST_SUBJECTS:
                self._end(min(self._open, key=lambda one: self._open[one].last))
            family, revision, container = subject
            window = Window(
                family=family, revision=revision, container=container, reserved=reserved, first=now, last=now
            )
            self._open[subject] = window
        if window.reserved != reserved:
            window.reserved, window.varied = reserved, True
        self._dirty.add(subject)
        return window

    def _end(self, subject: Subject) -> None:
        window = self._open.pop(subject)
        self._dirty.discard(subject)
        if self._store is not None:
            self._ended.append(window)

    async def _prune(self, now: float) -> None:
        assert self._store is not None
        in_use = {_key(one) for one in self._open.values()}
        rows = sorted(await self._rows(), key=lambda one: one.last, reverse=True)
        old = [one for number, one in enumerate(rows) if number >= MOST_ROWS or now - one.last > KEPT_SECONDS]
        writes: list[Write] = [Delete(key) for one in old if (key := _key(one)) not in in_use]
        if writes:
            await self._store.txn([], writes)

    async def _rows(self) -> list[Window]:
        if self._store is None:
            return []
        try:
            found = (await self._store.range(_USE)).items
        except StoreError as error:
            log.warning("use of tasks is not known", extra={"reason": str(error)})
            return []
        windows = []
        for row in found:
            try:
                windows.append(msgspec.json.decode(row.value, type=Window))
            except UNREADABLE as error:
                log.warning("use of a task cannot be read", extra={"key": row.key, "reason": str(error)})
        return windows


def _key(one: Window) -> str:
    name = "/".join(one.subject)
    return f"{_USE}{name}/{one.first:.3f}"


def _count(window: Window, now: float, seconds: float, cpu: float, held: int) -> None:
    window.last = now
    window.seconds += seconds
    window.cpu.add(cpu)
    window.memory.add(held / KIB)


def _hold_back(window: Window, held: Throttled) -> None:
    window.periods += held.periods
    window.throttled += held.throttled
    window.throttled_seconds += held.seconds
