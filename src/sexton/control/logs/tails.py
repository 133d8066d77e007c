"""Tails: batches as they came, before they are sealed.

A tail is a file of frames and a short index of them in memory. It is the only part of a group that is written in
place, and each write adds one whole frame, so whatever kills the process, every batch that was answered is there.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from sexton.control.logs.formats import Batch, pack, read_batch
from sexton.core.logpage import Chunk, Event
from sexton.kit.frames import FrameFile, read_frames

SUFFIX = ".tail"
# A tail is sealed when it is as large as this, or has as many frames: its index is in memory.
MOST_BYTES = 8 << 20
MOST_FRAMES = 4096


class Entry(NamedTuple):
    """One frame."""

    at: int
    length: int
    stream: int
    low: int
    high: int
    last: int  # number


class Tail:
    """One tail; ``first`` is the number of its first event. Files are opened when they are needed."""

    def __init__(self, folder: Path, first: int) -> None:
        self.path = folder / f"{first:016x}{SUFFIX}"
        self.first = first
        self.last = first - 1
        self.ingested = 0
        self.entries: list[Entry] = []
        self.end = 0
        self._file: FrameFile | None = None
        self._synced = 0

    @classmethod
    def load(cls, path: Path) -> tuple[Tail, list[Batch]]:
        """A tail that an earlier process left, and its batches."""
        tail = cls(path.parent, int(path.name.removesuffix(SUFFIX), 16))
        batches = []
        for frame in read_frames(path):
            batch = read_batch(frame.payload)
            tail.note(batch, frame.at, len(frame.payload))
            tail.end = frame.end
            batches.append(batch)
        tail._synced = tail.end
        return tail, batches

    @property
    def full(self) -> bool:
        return self.end >= MOST_BYTES or len(self.entries) >= MOST_FRAMES

    def write(self, payload: bytes) -> int:
        """Add a frame, in the writer's thread; where it begins."""
        if self._file is None:
            self._file = FrameFile(self.path, self.end)
        at = self._file.append(payload)
        self.end = self._file.end
        return at

    def note(self, batch: Batch, at: int, length: int) -> None:
        """Remember a frame that was written."""
        self.last = batch.first + len(batch.times) - 1
        self.entries.append(Entry(at, length, batch.stream, batch.times[0], batch.times[-1], self.last))
        self.ingested = max(self.ingested, batch.ingested)

    def sync(self, *, close: bool = False) -> None:
        """Have it on the disk, in the writer's thread."""
        if self._file is None:
            return
        if self._synced < self.end:
            end = self.end
            self._file.sync()
            self._synced = end
        if close:
            self._file.close()
            self._file = None

    @property
    def dirty(self) -> bool:
        return self._file is not None and self._synced < self.end

    @property
    def open(self) -> bool:
        return self._file is not None

    def batches(self) -> Iterator[Batch]:
        """All of them, read again."""
        return (read_batch(frame.payload) for frame in read_frames(self.path))

    def chunks(self, streams: frozenset[int] | None) -> list[Chunk]:
        return [
            Chunk(one.low, one.high, one.length, _Reader(self.path, one).read, one.last)
            for one in self.entries
            if streams is None or one.stream in streams
        ]


class _Reader(NamedTuple):
    path: Path
    entry: Entry

    def read(self) -> Iterator[Event]:
        with self.path.open("rb") as file:
            file.seek(self.entry.at)
            data = file.read(self.entry.length)
        return events_of(read_batch(data))


def events_of(batch: Batch) -> Iterator[Event]:
    for number, (time, text) in enumerate(zip(batch.times, batch.texts, strict=True), batch.first):
        yield Event(time, number, batch.stream, batch.ingested, text)


def packed(batch: Batch) -> bytes:
    return pack(batch)
