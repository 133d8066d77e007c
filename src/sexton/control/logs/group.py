"""One log group on disk: its streams, the tail that grows, and the segments it is sealed into.

put -> a frame at the end of the tail -> answered -> (the tail is full, or old) -> sealed: sorted, compressed, a segment

Small segments that follow each other are merged, so that a group that is written slowly does not become many files.
Everything that waits for a disk is done in threads; what is known of the group changes in the event loop alone, after
the disk has it. Files say by their names which numbers they hold, so that of a seal or a merge that a crash cut short
either the old files count or the new one, never both.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from sexton.control.logs import tails
from sexton.control.logs.formats import Batch, GroupRecord, StreamEntry, StreamRecord, pack, read_stream
from sexton.control.logs.segments import SUFFIX, Damaged, Segment, load_footer, open_segment, write_segment
from sexton.control.logs.tails import Tail
from sexton.core.logpage import Event, Page, Wanted, choose
from sexton.kit.atomicfile import write_atomic
from sexton.kit.frames import FrameFile, framed, read_frames

log = logging.getLogger(__name__)

GROUP_FILE = "group.json"
STREAMS_FILE = "streams.log"
# Batches of a sender that names them so are known when they come again; any other token says nothing.
NAMED = "sexton:"
# So many neighbours are merged once they are together no larger than a full tail.
MERGED_AT = 8
# Records of streams that are gone, beyond which their file is written anew at a start.
SPARE_RECORDS = 1000
# How often a page is chosen anew because a file of it was merged or dropped meanwhile.
TRIES = 5

T = TypeVar("T")


class Workers(NamedTuple):
    """Threads that may wait for a disk."""

    writer: ThreadPoolExecutor
    sealer: ThreadPoolExecutor
    reader: ThreadPoolExecutor

    @classmethod
    def make(cls) -> Workers:
        return cls(
            ThreadPoolExecutor(1, "log-writer"),
            ThreadPoolExecutor(1, "log-sealer"),
            ThreadPoolExecutor(2, "log-reader"),
        )

    def close(self) -> None:
        for one in self:
            one.shutdown(wait=True, cancel_futures=True)


class Gone(Exception):  # noqa: N818 - an answer for the client
    """The group or stream was deleted meanwhile."""


async def aside(pool: ThreadPoolExecutor, work: Callable[..., T], *args: Any) -> T:
    return await asyncio.get_running_loop().run_in_executor(pool, work, *args)


class Stream:
    """What is known of a stream."""

    __slots__ = ("created", "first", "id", "ingested", "last", "name", "number", "token")

    def __init__(self, record: StreamRecord) -> None:
        self.id = record.id
        self.name = record.name
        self.created = record.created
        self.first: int | None = None
        self.last: int | None = None
        self.ingested: int | None = None
        self.number = 0
        self.token = ""

    def note(self, first: int, last: int, ingested: int, number: int, token: str) -> None:
        """Events of these times came."""
        self.first = first if self.first is None else min(self.first, first)
        self.last = last if self.last is None else max(self.last, last)
        self.ingested = max(self.ingested or 0, ingested)
        if number >= self.number:
            self.number, self.token = number, token


class Group:
    """One group. ``now`` gives numbers that no earlier process can have given."""

    def __init__(self, folder: Path, record: GroupRecord, workers: Workers, now: int) -> None:
        self.folder = folder
        self.record = record
        self.streams: dict[str, Stream] = {}
        self.segments: list[Segment] = []
        self.deleted = False
        self._names: dict[int, str] = {}
        self._workers = workers
        self._next = now
        self._tail: Tail | None = None
        self._sealing: list[Tail] = []
        self._last_id = 0
        self._journal: FrameFile | None = None
        self._journal_end = 0
        self._journal_dirty = False
        self.lock = asyncio.Lock()
        self._came = asyncio.Event()  # set, and another one made, when lines have come
        self._tidying = asyncio.Lock()

    # Coming and going.

    def make(self) -> None:
        """Write a new group."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.save(self.record)

    def save(self, record: GroupRecord) -> None:
        write_atomic(self.folder / GROUP_FILE, msgspec.json.encode(record), 0o600)
        self.record = record

    def load(self) -> None:
        """Take up what earlier processes left, and remove what they did not finish."""
        for draft in self.folder.glob("*.draft"):
            draft.unlink()
        self._load_streams()
        for path in sorted(self.folder.glob(f"*{SUFFIX}"), key=_span):
            self._load_segment(path)
        covered = [(one.first, one.last) for one in self.segments]
        for path in sorted(self.folder.glob(f"*{tails.SUFFIX}")):
            tail, batches = Tail.load(path)
            if any(first <= tail.first <= last for first, last in covered) or not batches:
                path.unlink()
                continue
            for batch in batches:
                self._note(batch)
            self._sealing.append(tail)
            self._next = max(self._next, tail.last + 1)

    def _load_streams(self) -> None:
        path = self.folder / STREAMS_FILE
        if not path.exists():
            return
        written = 0
        for frame in read_frames(path):
            record = read_stream(frame.payload)
            self._journal_end = frame.end
            self._last_id = max(self._last_id, record.id)
            written += 1
            if record.name:
                self._add(record)
            else:
                self._forget(record.id)
        if written > 2 * len(self.streams) + SPARE_RECORDS:
            kept = [StreamRecord(one.id, one.name, one.created) for one in self.streams.values()]
            kept.append(StreamRecord(self._last_id))  # the number that was given last stays known
            data = b"".join(framed(pack(one)) for one in kept if one.name or one.id not in self._names)
            write_atomic(path, data, 0o600)
            self._journal_end = len(data)

    def _load_segment(self, path: Path) -> None:
        try:
            segment, footer = open_segment(path)
        except Damaged as error:
            log.error("log segment cannot be read", extra={"group": self.record.name, "reason": str(error)})
            path.replace(path.with_suffix(".damaged"))
            return
        if self.segments and segment.last <= self.segments[-1].last:
            path.unlink()  # it was merged into the one before
            return
        self.segments.append(segment)
        self._next = max(self._next, segment.last + 1)
        for one in footer.streams:
            name = self._names.get(one.id)
            if name is not None:
                self.streams[name].note(one.first, one.last, one.ingested, one.number, one.token)

    def close(self) -> None:
        """Have all of it on the disk and let go of the files."""
        for tail in self._tails():
            tail.sync(close=True)
        if self._journal is not None:
            self._journal.sync()
            self._journal.close()
            self._journal = None

    # Streams.

    def _add(self, record: StreamRecord) -> Stream:
        stream = self.streams[record.name] = Stream(record)
        self._names[record.id] = record.name
        return stream

    def _forget(self, number: int) -> None:
        name = self._names.pop(number, None)
        if name is not None:
            del self.streams[name]

    def name_of(self, number: int) -> str:
        return self._names.get(number, "")

    async def create_stream(self, name: str, created: int) -> bool:
        """False when there is one of this name."""
        async with self.lock:
            if self.deleted:
                raise Gone
            if name in self.streams:
                return False
            self._last_id += 1
            record = StreamRecord(self._last_id, name, created)
            await aside(self._workers.writer, self._write_journal, record)
            self._add(record)
            return True

    async def delete_stream(self, name: str) -> bool:
        """False when there is none; its events are not shown any more and leave with their segments."""
        async with self.lock:
            stream = self.streams.get(name)
            if stream is None or self.deleted:
                return False
            await aside(self._workers.writer, self._write_journal, StreamRecord(stream.id))
            self._forget(stream.id)
            return True

    def _write_journal(self, record: StreamRecord) -> None:
        if self._journal is None:
            self._journal = FrameFile(self.folder / STREAMS_FILE, self._journal_end)
        self._journal.append(pack(record))
        self._journal_end = self._journal.end
        self._journal_dirty = True

    # Writing.

    async def put(self, stream: Stream, times: list[int], texts: list[str], ingested: int, token: str) -> None:
        """Add a batch; known to the system when it returns, and within a second on the disk."""
        async with self.lock:
            if self.deleted or stream.id not in self._names:
                raise Gone
            if token.startswith(NAMED) and token == stream.token:
                return  # it came before, and its answer was lost
            tail = self._tail
            if tail is None:
                tail = self._tail = Tail(self.folder, self._next)
            batch = Batch(stream.id, ingested, self._next, token if token.startswith(NAMED) else "", times, texts)
            payload = tails.packed(batch)
            at = await aside(self._workers.writer, tail.write, payload)
            self._next += len(times)
            tail.note(batch, at, len(payload))
            self._note(batch)
            self._came.set()
            self._came = asyncio.Event()
            if tail.full:
                self._rotate()

    @property
    def newest(self) -> int:
        """The number of the line that came last."""
        return self._next - 1

    async def wait_beyond(self, number: int, seconds: float) -> bool:
        """Whether lines came after this number, within so long."""
        try:
            async with asyncio.timeout(seconds):
                while self.newest <= number:
                    await self._came.wait()
        except TimeoutError:
            return False
        return True

    def _note(self, batch: Batch) -> None:
        name = self._names.get(batch.stream)
        if name is not None:
            last = batch.first + len(batch.times) - 1
            self.streams[name].note(batch.times[0], batch.times[-1], batch.ingested, last, batch.token)

    def _rotate(self) -> None:
        if self._tail is not None and self._tail.entries:
            self._sealing.append(self._tail)
            self._tail = None

    def _tails(self) -> list[Tail]:
        return [*self._sealing, *([self._tail] if self._tail is not None else [])]

    # Keeping.

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return sum(one.size for one in self.segments) + sum(one.end for one in self._tails()) + self._journal_end

    @property
    def dirty(self) -> bool:
        return self._journal_dirty or any(one.dirty for one in self._tails())

    @property
    def untidy(self) -> bool:
        return bool(self._sealing) or bool(self._mergeable())

    async def sync(self) -> None:
        self._journal_dirty = False
        await aside(self._workers.writer, self._sync)

    def _sync(self) -> None:
        if self._journal is not None:
            self._journal.sync()
        for tail in self._tails():
            tail.sync()

    async def rest(self, idle_since: int) -> None:
        """Let go of files that nothing was written to since; seal a tail that is as old as an hour."""
        async with self.lock:
            tail = self._tail
            if tail is not None and tail.ingested < idle_since - 3_600_000:
                self._rotate()
            elif tail is not None and tail.open and tail.ingested < idle_since:
                await aside(self._workers.writer, self._let_go, tail)

    def _let_go(self, tail: Tail) -> None:
        tail.sync(close=True)
        if self._journal is not None:
            self._journal.sync()
            self._journal.close()
            self._journal = None

    async def tidy(self) -> None:
        """Seal what is full, merge what is small."""
        async with self._tidying:
            while self._sealing and not self.deleted:
                tail = self._sealing[0]
                segment = await aside(self._workers.sealer, self._seal, tail)
                self.segments.append(segment)
                self._sealing.remove(tail)
                await aside(self._workers.writer, _remove_tail, tail)
            while (some := self._mergeable()) and not self.deleted:
                whole = await aside(self._workers.sealer, self._merge, some)
                at = self.segments.index(some[0])
                self.segments[at : at + len(some)] = [whole]
                await aside(self._workers.writer, _unlink, [one.path for one in some if one.path != whole.path])

    def _seal(self, tail: Tail) -> Segment:
        batches = list(tail.batches())
        events = [event for one in batches for event in tails.events_of(one)]
        entries = [
            StreamEntry(
                one.stream, one.times[0], one.times[-1], one.ingested, one.first + len(one.times) - 1, one.token
            )
            for one in batches
        ]
        return self._write(events, entries, (tail.first, tail.last))

    def _merge(self, some: Sequence[Segment]) -> Segment:
        events = [event for one in some for chunk in one.chunks(None) for event in chunk.read()]
        entries = [entry for one in some for entry in load_footer(one.path).streams]
        return self._write(events, entries, (some[0].first, some[-1].last))

    def _write(self, events: Sequence[Event], entries: Iterable[StreamEntry], span: tuple[int, int]) -> Segment:
        kept = [event for event in events if event.stream in self._names]
        return open_segment(write_segment(self.folder, kept, _together(entries), span))[0]

    def _mergeable(self) -> list[Segment]:
        """Neighbours that are small enough to become one."""
        some: list[Segment] = []
        for one in self.segments:
            if one.raw > tails.MOST_BYTES // 2 or sum(each.raw for each in some) + one.raw > tails.MOST_BYTES:
                some = []  # neighbours only: a merged segment counts for all numbers between its first and its last
            if one.raw <= tails.MOST_BYTES // 2:
                some.append(one)
            if len(some) == MERGED_AT:
                return some
        return []

    async def seal_all(self) -> None:
        """Seal even what is not full."""
        async with self.lock:
            self._rotate()
        await self.tidy()

    async def drop(self, some: Sequence[Segment]) -> None:
        """Remove segments, whatever they hold, and forget the streams that were in them alone."""
        async with self._tidying:
            gone = [one for one in some if one in self.segments]
            self.segments = [one for one in self.segments if one not in gone]
            await aside(self._workers.writer, _unlink, [one.path for one in gone])
        left = [one.low for one in self.segments] + [entry.low for one in self._tails() for entry in one.entries]
        oldest = min(left, default=None)
        for stream in [*self.streams.values()]:
            if stream.last is not None and (oldest is None or stream.last < oldest):
                await self.delete_stream(stream.name)

    # Reading.

    async def page(self, wanted: Wanted) -> Page:
        """One page of events of the streams that there are."""
        for tries_left in reversed(range(TRIES)):
            known = frozenset(self._names)
            streams = known if wanted.streams is None else wanted.streams & known
            view = (tuple(self.segments), [chunk for one in self._tails() for chunk in one.chunks(streams)])
            try:
                return await aside(self._workers.reader, _choose, view, wanted._replace(streams=streams))
            except FileNotFoundError:
                if not tries_left:
                    raise
        raise AssertionError("the last try returns or raises")


def _choose(view: tuple[tuple[Segment, ...], list[Any]], wanted: Wanted) -> Page:
    segments, chunks = view
    start = max(wanted.start, wanted.after[0] if wanted.after else 0)
    for one in segments:
        if one.high >= start and one.low < wanted.end:
            chunks += one.chunks(wanted.streams)
    return choose(chunks, wanted)


def _span(path: Path) -> tuple[int, int]:
    """Sorts segments by their first number, and of those that begin alike the longest first."""
    first, _, last = path.name.removesuffix(SUFFIX).partition("-")
    try:
        return int(first, 16), -int(last, 16)
    except ValueError:
        return 0, 0


def _together(entries: Iterable[StreamEntry]) -> list[StreamEntry]:
    """One entry for each stream; the newest of a stream's tokens counts."""
    found: dict[int, StreamEntry] = {}
    for one in entries:
        known = found.get(one.id, one)
        newest = max(known, one, key=lambda entry: entry.number)
        found[one.id] = StreamEntry(
            one.id,
            min(known.first, one.first),
            max(known.last, one.last),
            max(known.ingested, one.ingested),
            newest.number,
            newest.token,
        )
    return list(found.values())


def _remove_tail(tail: Tail) -> None:
    tail.sync(close=True)
    tail.path.unlink(missing_ok=True)


def _unlink(paths: Iterable[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)
