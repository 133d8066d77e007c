"""Sealed segments: written once, read in blocks, removed whole.

A segment takes its name when all of it is on the disk, so one that has a name is complete. Its blocks are sorted by
stream and time: reading one stream touches its own blocks alone, and a page of the whole group touches those of its
moment. Of an open segment nothing is kept in memory but where it is and when its events were.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from sexton.control.logs.formats import (
    Block,
    BlockEntry,
    Footer,
    StreamEntry,
    pack_compressed,
    read_block,
    read_footer,
)
from sexton.core.logpage import Chunk, Event

SUFFIX = ".seg"
# Characters in a block: small enough to be read for a few lines, large enough to compress well.
BLOCK_CHARACTERS = 128 << 10
_TRAILER = struct.Struct("<III")
_MAGIC = 0x474F4C58


class Damaged(Exception):  # noqa: N818 - a state of the disk
    """A segment that cannot be read."""


class Segment(NamedTuple):
    """A sealed segment."""

    path: Path
    first: int
    last: int
    low: int
    high: int
    ingested: int
    raw: int
    size: int

    def chunks(self, streams: frozenset[int] | None) -> list[Chunk]:
        """Its blocks, those that may hold something of the streams; FileNotFoundError when it is gone."""
        return [
            Chunk(one.low, one.high, one.raw, _Reader(self.path, one).read, self.last)
            for one in load_footer(self.path).blocks
            if streams is None or not streams.isdisjoint(one.streams)
        ]


class _Reader(NamedTuple):
    path: Path
    entry: BlockEntry

    def read(self) -> Iterator[Event]:
        with self.path.open("rb") as file:
            data = os.pread(file.fileno(), self.entry.length, self.entry.at)
        try:
            block = read_block(data)
        except (zlib.error, ValueError) as error:
            raise Damaged(f"cannot read {self.path}: {error}") from None
        rows = zip(block.times, block.numbers, block.streams, block.ingested, block.texts, strict=True)
        return map(Event._make, rows)


def load_footer(path: Path) -> Footer:
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        trailer = os.pread(file.fileno(), _TRAILER.size, max(size - _TRAILER.size, 0))
        if len(trailer) != _TRAILER.size:
            raise Damaged(f"cannot read {path}: it is cut off")
        length, checksum, magic = _TRAILER.unpack(trailer)
        data = os.pread(file.fileno(), length, max(size - _TRAILER.size - length, 0))
    if magic != _MAGIC or len(data) != length or zlib.crc32(data) != checksum:
        raise Damaged(f"cannot read {path}: its footer is damaged")
    return read_footer(data)


def open_segment(path: Path) -> tuple[Segment, Footer]:
    """A segment that is there, and its footer; Damaged when it is none."""
    try:
        first, last = (int(part, 16) for part in path.name.removesuffix(SUFFIX).split("-"))
    except ValueError:
        raise Damaged(f"cannot read {path}: its name is no segment's") from None
    footer = load_footer(path)
    size = path.stat().st_size
    return Segment(path, first, last, footer.low, footer.high, footer.ingested, footer.raw, size), footer


def write_segment(folder: Path, events: Sequence[Event], streams: Iterable[StreamEntry], span: tuple[int, int]) -> Path:
    """Write events, which are sorted here, as the segment of the numbers from ``span[0]`` to ``span[1]``."""
    path = folder / f"{span[0]:016x}-{span[1]:016x}{SUFFIX}"
    draft = path.with_suffix(".draft")
    ordered = sorted(events, key=lambda one: (one.stream, one.time, one.number))
    blocks: list[BlockEntry] = []
    at = 0
    with draft.open("wb") as file:
        for some in _blocks(ordered):
            data = pack_compressed(_columns(some))
            low, high = min(one.time for one in some), max(one.time for one in some)
            raw = sum(len(one.text) for one in some)
            blocks.append(BlockEntry(at, len(data), raw, low, high, tuple({one.stream: 0 for one in some})))
            file.write(data)
            at += len(data)
        footer = pack_compressed(
            Footer(
                low=min((one.low for one in blocks), default=0),
                high=max((one.high for one in blocks), default=0),
                ingested=max((one.ingested for one in ordered), default=0),
                raw=sum(one.raw for one in blocks),
                blocks=tuple(blocks),
                streams=tuple(streams),
            )
        )
        file.write(footer + _TRAILER.pack(len(footer), zlib.crc32(footer), _MAGIC))
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    return path


def _blocks(events: Sequence[Event]) -> Iterator[list[Event]]:
    some: list[Event] = []
    size = 0
    for event in events:
        if some and size + len(event.text) > BLOCK_CHARACTERS:
            yield some
            some, size = [], 0
        some.append(event)
        size += len(event.text)
    if some:
        yield some


def _columns(events: list[Event]) -> Block:
    return Block(
        streams=[one.stream for one in events],
        times=[one.time for one in events],
        numbers=[one.number for one in events],
        ingested=[one.ingested for one in events],
        texts=[one.text for one in events],
    )
