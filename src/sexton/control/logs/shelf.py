"""The shelf: every log group of this control plane, in a directory of its own, bounded in all.

It is not in the records: lines are many, and none of them decides anything. What is told on the way in is on the disk
within a second (``SYNC_SECONDS``), and known to the system before it is answered: a process that is killed loses
nothing, a machine that loses its power loses at most that second.

The bound counts what is on the disk. Beyond it the segment whose lines came longest ago goes, whosever it is.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from sexton.control.logs.following import Followers
from sexton.control.logs.formats import FORMAT, GroupRecord
from sexton.control.logs.group import GROUP_FILE, Group, Workers, aside
from sexton.core.logbatch import oldest_kept
from sexton.kit.supervise import Nursery

log = logging.getLogger(__name__)

SYNC_SECONDS = 1.0
# How often old lines are looked for.
SWEEP_SECONDS = 60.0
# A file that nothing was written to for so long is closed.
IDLE_MS = 30_000
# As many as the service gives a region.
MOST_GROUPS = 10_000
# Of all groups; each costs memory.
MOST_STREAMS = 100_000
_TRASH = ".trash-"


class ShelfError(Exception):
    """The shelf cannot be used; the message is for a person."""


class Shelf:
    """All groups. ``bound`` is in bytes."""

    def __init__(self, folder: Path, bound: int, clock: Callable[[], float] = time.time) -> None:
        self._folder = folder
        self._bound = bound
        self._clock = clock
        self._groups: dict[tuple[str, str], Group] = {}
        self._workers = Workers.make()
        self._nursery = Nursery("logs")
        self._wake = asyncio.Event()
        self._changing = asyncio.Lock()
        self.followers = Followers()

    # Coming and going.

    async def open(self) -> None:
        """Take up what there is; ShelfError when the directory cannot be used."""
        try:
            await aside(self._workers.writer, self._load)
        except OSError as error:
            raise ShelfError(f"cannot keep logs in {self._folder}: {error.strerror or error}") from None
        self._nursery.start("sync", self._sync())
        self._nursery.start("tidy", self._tidy())
        self._nursery.start("sweep", self._sweep())
        self._wake.set()

    def _load(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for path in sorted(self._folder.glob("*/*")):
            file = path / GROUP_FILE
            if path.name.startswith(_TRASH) or not file.exists():
                shutil.rmtree(path, ignore_errors=True)
                continue
            try:
                record = msgspec.json.decode(file.read_bytes(), type=GroupRecord)
            except msgspec.MsgspecError as error:
                log.error("log group cannot be read", extra={"folder": str(path), "reason": str(error)})
                continue
            if record.format > FORMAT:
                raise ShelfError(f"cannot read the logs in {path}: a newer release wrote them; use that one")
            group = Group(path, record, self._workers, self._number())
            group.load()
            self._groups[path.parent.name, record.name] = group

    def _number(self) -> int:
        """What no earlier process has counted to: events come in slower than one a microsecond."""
        return int(self._clock() * 1e6)

    async def close(self) -> None:
        await self._nursery.close()
        for group in self._groups.values():
            await aside(self._workers.writer, group.close)
        await asyncio.to_thread(self._workers.close)

    # Groups.

    def get(self, region: str, name: str) -> Group | None:
        return self._groups.get((region, name))

    def groups(self, region: str) -> Iterator[Group]:
        """Those of a region, by name."""
        return (self._groups[key] for key in sorted(self._groups) if key[0] == region)

    def __len__(self) -> int:
        return len(self._groups)

    @property
    def streams(self) -> int:
        return sum(len(one.streams) for one in self._groups.values())

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return sum(one.size for one in self._groups.values())

    async def create(self, region: str, record: GroupRecord) -> bool:
        """False when there is one of this name; durable when it returns."""
        async with self._changing:
            if (region, record.name) in self._groups:
                return False
            folder = self._folder / region / hashlib.sha256(record.name.encode()).hexdigest()[:32]
            group = Group(folder, record, self._workers, self._number())
            await aside(self._workers.writer, group.make)
            self._groups[region, record.name] = group
            return True

    async def change(self, group: Group, change: Callable[[GroupRecord], GroupRecord]) -> None:
        """Give a group another record; durable when it returns."""
        async with self._changing:
            record = change(group.record)
            if not group.deleted:
                await aside(self._workers.writer, group.save, record)

    async def delete(self, region: str, name: str) -> bool:
        """False when there is none."""
        async with self._changing:
            group = self._groups.pop((region, name), None)
            if group is None:
                return False
            group.deleted = True
            async with group.lock:
                await aside(self._workers.writer, self._throw_away, group)
            return True

    def _throw_away(self, group: Group) -> None:
        group.close()
        trash = group.folder.with_name(_TRASH + secrets.token_hex(8))
        group.folder.rename(trash)
        shutil.rmtree(trash, ignore_errors=True)

    # Keeping.

    def written(self, group: Group) -> None:
        """Told after each batch: there may be something to tidy."""
        if group.untidy:
            self._wake.set()

    async def _sync(self) -> None:
        while True:
            await asyncio.sleep(SYNC_SECONDS)
            for group in [one for one in self._groups.values() if one.dirty]:
                try:
                    await group.sync()
                except OSError as error:
                    log.error("logs cannot be written", extra={"group": group.record.name, "reason": str(error)})

    async def _tidy(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            for group in [one for one in self._groups.values() if one.untidy]:
                try:
                    await group.tidy()
                except OSError as error:
                    if not group.deleted:
                        log.error("logs cannot be sealed", extra={"group": group.record.name, "reason": str(error)})
            await self.keep_bound()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            await self.sweep()

    async def sweep(self) -> None:
        """Drop what is older than its group keeps, and let go of what rests."""
        now = int(self._clock() * 1000)
        for group in [*self._groups.values()]:
            oldest = oldest_kept(now, group.record.retention_days)
            old = [one for one in group.segments if one.high < oldest]
            try:
                await group.rest(now - IDLE_MS)
                if old:
                    await group.drop(old)
                    log.info("log lines left", extra={"group": group.record.name, "segments": len(old)})
            except OSError as error:
                log.error("old logs cannot be removed", extra={"group": group.record.name, "reason": str(error)})
        self._wake.set()

    async def keep_bound(self) -> None:
        """Drop the oldest until it fits."""
        while self.size > self._bound:
            oldest = min(
                ((one.ingested, key, one) for key, group in self._groups.items() for one in group.segments),
                default=None,
            )
            if oldest is None:
                largest = max(self._groups.values(), key=lambda one: one.size)
                await largest.seal_all()
                if not largest.segments:
                    return
                continue
            group = self._groups[oldest[1]]
            log.warning("logs are full, the oldest leave", extra={"group": group.record.name, "bound": self._bound})
            await group.drop([oldest[2]])
