"""A host's memory cgroups as a walk inside the kernel tells them: the live, the dead, and what pins the dead.

Flows in: the account of ``host/memcg_walk.py``, decoded straight into these shapes (that is why rows' fields have an
order and names are bytes). Flows out: to attribution (``core/maker.py``) and to the purge's plan (``core/purge.py``).

A zombie is a removed cgroup that pages still pin. One page is one pin, whatever its size; a zombie below which others
lie is pinned by each of them as well. Sizes are in pages.
"""

from __future__ import annotations

from enum import IntFlag, StrEnum
from typing import NamedTuple

import msgspec

# What file systems call themselves in memory (their "magic").
EXT = 0xEF53
XFS = 0x58465342
BLOCK_DEVICES = 0x62646576  # a device's own pages: a file system's inode tables, bitmaps and directories
TMPFS = 0x01021994
RAMFS = 0x858458F6
HUGETLBFS = 0x958458F6
# Files here live in memory only: there is nowhere to write their pages to, so nothing but their end frees them.
MEMORY_ONLY = frozenset({TMPFS, RAMFS, HUGETLBFS})
# These hand out a file by inode and generation, so its exact pages can be dropped without a search for its name.
BY_HANDLE = frozenset({EXT, XFS})


class Group(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One memory cgroup. ``above`` is the row of the nearest live group above it; ``refs`` counts the pins of a dead
    one and means nothing for a live one."""

    id: int
    name: bytes
    dead: bool
    above: int
    refs: int
    usage: int
    inactive_anon: int
    active_anon: int
    inactive_file: int
    active_file: int
    unevictable: int

    @property
    def path(self) -> str:
        """Its path, or the one it had, below the hierarchy's root."""
        return text(self.name)

    @property
    def file(self) -> int:
        return self.inactive_file + self.active_file

    @property
    def anon(self) -> int:
        """Anonymous memory and files on tmpfs: the kernel keeps both on the same lists."""
        return self.inactive_anon + self.active_anon


class HolderKind(StrEnum):
    FILE = "file"
    PROCESS = "process"
    UNKNOWN = "unknown"


class Holder(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What pinning pages belong to. ``number`` is an inode or a process id; ``name`` is the path inside the file
    system, or the process's name, empty when the kernel no longer has one."""

    code: int
    number: int
    kernel_dev: int
    generation: int
    links: int
    magic: int
    name: bytes

    @property
    def kind(self) -> HolderKind:
        return (HolderKind.UNKNOWN, HolderKind.FILE, HolderKind.PROCESS)[self.code if self.code in (1, 2) else 0]

    @property
    def device(self) -> tuple[int, int]:
        """Major and minor number."""
        return self.kernel_dev >> 20, self.kernel_dev & 0xFFFFF


class PinFlag(IntFlag):
    DIRTY = 1
    SWAPBACKED = 2  # memory of no file on a disk
    MAPPED = 4  # part of some process's address space now


class Pin(NamedTuple):
    """One page, or one run of pages kept as one, that pins a zombie. ``group`` and ``holder`` are rows,
    ``page`` is the first one's place in the file."""

    group: int
    holder: int
    page: int
    pages: int
    flags: int


class Walk(msgspec.Struct, frozen=True):
    """One account, whole. Pins and holders are empty when only groups were asked for. ``finished`` is False when it
    ended at its deadline (``late``) or its tables were too small (``full``): then it is true, but not the whole truth.
    """

    finished: bool
    late: bool
    full: int
    strayed: int
    groups: tuple[Group, ...]
    holders: tuple[Holder, ...]
    pins: tuple[Pin, ...]

    def dead(self) -> tuple[int, ...]:
        """Rows of the zombies."""
        return tuple(row for row, group in enumerate(self.groups) if group.dead)

    def has_below(self, row: int) -> bool:
        """Is another group below this one? Groups stand in tree order: whatever is below one follows it."""
        return row + 1 < len(self.groups) and self.groups[row + 1].name.startswith(self.groups[row].name + b"/")

    def leaving(self) -> tuple[int, ...]:
        """Rows of zombies that nothing pins any more: the kernel is about to free them. Only a walk with pins knows."""
        pinned = {pin.group for pin in self.pins}
        return tuple(row for row in self.dead() if row not in pinned and not self.has_below(row))

    def pinned_by_blocks(self, within: str) -> bool:
        """Is a zombie below that group pinned by a file system's own blocks? Only a walk with pins knows."""
        return any(
            self.holders[pin.holder].magic == BLOCK_DEVICES
            and self.groups[pin.group].dead
            and below(self.groups[pin.group].path, within)
            for pin in self.pins
        )


class Ghosts(msgspec.Struct, frozen=True, kw_only=True):
    """What dead groups somewhere below one live group still hold, told by arithmetic, without their names.

    ``zombies`` is how many there are, where the kernel counts them per directory (cgroup v2), else None. ``live_file``
    is the page cache of the live group itself and of the live ones below it."""

    path: str
    file: int
    anon: int
    unevictable: int
    live_file: int
    zombies: int | None = None


def text(name: bytes) -> str:
    """A name as text; bytes that are none become visible."""
    return name.decode("utf-8", "backslashreplace")


def below(path: str, top: str) -> bool:
    """Is this group the top one, or anywhere below it?"""
    return top in ("", "/") or path == top or path.startswith(top.rstrip("/") + "/")
