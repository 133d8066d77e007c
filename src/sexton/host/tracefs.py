"""Cgroups as they are made, removed and released: the kernel's own trace events, in a trace instance of our own.

A group that was removed and not released is a zombie. The events name the group's id and path and the process that made
it, without a poll, for one hierarchy only, and cost the maker nothing that could be measured. They need root and
tracefs.

The instance is nobody else's: other people's tracing is neither seen nor disturbed. It is removed on the way out,
whatever the way, and one that a killed predecessor left behind is removed on the way in: the kernel refuses to remove
an instance that somebody still reads, which tells a predecessor's from a neighbour's.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path

import msgspec

from sexton.host.cgroup import hierarchy_id
from sexton.host.errors import Unreadable

# Kilobytes of each processor's buffer: some thousand events, a second of the fastest loop there is.
BUFFER_KB = 512
# Bytes of text taken out and told at a time, some hundred events; whoever watches holds no more of a flood than that.
PORTION = 65_536
PREFIX = "sexton-groups-"
_PLACES = ("sys/kernel/tracing", "sys/kernel/debug/tracing")
_EVENTS = {"cgroup_mkdir": "made", "cgroup_rmdir": "removed", "cgroup_release": "released"}
_LINE = re.compile(
    rb"\s*(?P<comm>.*)-(?P<pid>\d+)\s+(?:\(\s*[-\d]+\)\s+)?\[\d+\]\s+\S+\s+(?P<at>\d+\.\d+): "
    rb"cgroup_(?P<what>mkdir|rmdir|release): root=\d+ id=(?P<id>\d+) level=\d+ path=(?P<path>.*)"
)
_LOST = re.compile(rb"CPU:\d+ \[LOST (\d+) EVENTS\]")


class Seen(StrEnum):
    MADE = "made"
    REMOVED = "removed"
    RELEASED = "released"


_SEEN = {b"mkdir": Seen.MADE, b"rmdir": Seen.REMOVED, b"release": Seen.RELEASED}


class GroupEvent(msgspec.Struct, frozen=True, gc=False):
    """``at`` is on the monotonic clock; ``by`` is the name of the process that did it (a release is the kernel's)."""

    what: Seen
    id: int
    path: str
    at: float
    by: str
    pid: int


def parse(text: bytes) -> tuple[list[GroupEvent], int]:
    """Events of a piece of trace, and how many the kernel says were lost."""
    found: list[GroupEvent] = []
    lost = 0
    for line in text.splitlines():
        told = _LINE.match(line)
        if told is None:
            if gone := _LOST.search(line):
                lost += int(gone.group(1))
            continue
        found.append(
            GroupEvent(
                what=_SEEN[told["what"]],
                id=int(told["id"]),
                path=told["path"].decode("utf-8", "backslashreplace"),
                at=float(told["at"]),
                by=told["comm"].decode("utf-8", "backslashreplace").strip(),
                pid=int(told["pid"]),
            )
        )
    return found, lost


class GroupTrace:
    """An open instance; a context manager. ``fileno`` becomes readable when there is something to read."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._instance: Path | None = None
        self._pipe = -1
        self._rest = b""
        self.lost = 0

    def __enter__(self) -> GroupTrace:
        """Raises Absent or Unreadable."""
        hierarchy = hierarchy_id(self._root)
        place = find_tracefs(self._root)
        remove_leftovers(place)
        instance = place / "instances" / f"{PREFIX}{os.getpid()}-{os.urandom(3).hex()}"
        try:
            instance.mkdir()
        except OSError as error:
            raise _unreadable(instance, error) from error
        self._instance = instance
        try:
            # First the reader: from then on nobody takes this instance for a leftover.
            self._pipe = os.open(instance / "trace_pipe", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            _write(instance / "buffer_size_kb", str(BUFFER_KB))
            _write(instance / "trace_clock", "mono")
            with contextlib.suppress(OSError):  # older kernels wake a reader for each event without being told
                _write(instance / "buffer_percent", "0")
            for event in _EVENTS:
                _write(instance / "events/cgroup" / event / "filter", f"root=={hierarchy}")
                _write(instance / "events/cgroup" / event / "enable", "1")
        except OSError as error:
            self.__exit__()
            raise _unreadable(instance, error) from error
        return self

    def fileno(self) -> int:
        return self._pipe

    def read(self) -> list[GroupEvent]:
        """What has happened since the last read, or the first part of much; empty when there is nothing more. Never
        waits."""
        text = bytearray(self._rest)
        while len(text) < PORTION:
            try:
                piece = os.read(self._pipe, PORTION)
            except BlockingIOError:
                break
            except OSError as error:
                raise _unreadable(self._instance or self._root, error) from error
            if not piece:
                break
            text += piece
        whole, end, rest = bytes(text).rpartition(b"\n")
        self._rest = rest
        found, lost = parse(whole + end)
        self.lost += lost
        return found

    def __exit__(self, *_: object) -> None:
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1
        if self._instance is not None:
            with contextlib.suppress(OSError):
                self._instance.rmdir()
            self._instance = None


def find_tracefs(root: Path) -> Path:
    """Where trace events are; Unreadable where they cannot be had."""
    mount = "Run it as root, and mount it: mount -t tracefs tracefs /sys/kernel/tracing."
    refused: OSError | None = None
    for relative in _PLACES:
        place = root / relative
        try:
            if (place / "events/cgroup/cgroup_mkdir").is_dir():
                return place
            if (place / "events").is_dir():
                raise Unreadable("this kernel has no trace events of cgroups", "It takes a kernel of 4.19 or later.")
            os.listdir(place)
        except FileNotFoundError:
            continue
        except OSError as error:
            refused = error
    if refused is not None:
        raise Unreadable(f"cannot see trace events: {refused.strerror}", mount)
    raise Unreadable("cannot see trace events: tracefs is not mounted", mount)


def remove_leftovers(place: Path) -> int:
    """Remove instances of ours that nobody reads any more; how many."""
    removed = 0
    with contextlib.suppress(OSError):
        for instance in _ours(place):
            try:
                instance.rmdir()
                removed += 1
            except OSError as error:
                if error.errno not in (errno.EBUSY, errno.ENOENT):
                    raise
    return removed


def _ours(place: Path) -> Iterator[Path]:
    for name in sorted(os.listdir(place / "instances")):
        if name.startswith(PREFIX):
            yield place / "instances" / name


def _write(path: Path, text: str) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(handle, text.encode())
    finally:
        os.close(handle)


def _unreadable(path: Path, error: OSError) -> Unreadable:
    return Unreadable(f"cannot trace cgroups with {path}: {error.strerror}", "Run it as root on the host itself.")
