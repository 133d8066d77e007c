"""Which processes have a file open, map it, or lock memory: who must let go before pages that reclaim cannot free go.

Read from ``/proc`` alone and bounded in time: on a host with very many processes the answer may be a part of the truth,
and says so. A process that ends meanwhile, or may not be looked into, is passed over.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

# Files are looked up among all open ones of all processes; after so long, what was found must do.
DEADLINE = 1.0

# Device (major, minor) and inode.
FileId = tuple[int, int, int]


class User(NamedTuple):
    pid: int
    name: str


class Users(msgspec.Struct, frozen=True, kw_only=True):
    """By file; ``complete`` is False when time ran out."""

    of: dict[FileId, tuple[User, ...]]
    locking: tuple[User, ...]
    complete: bool


def file_users(files: Iterable[FileId], proc: Path = Path("/proc")) -> Users:
    """Who uses these files, and who has memory locked."""
    wanted = frozenset(files)
    of: dict[FileId, list[User]] = {}
    locking: list[User] = []
    until = time.monotonic() + DEADLINE
    complete = True
    for pid in sorted(int(name) for name in os.listdir(proc) if name.isdigit()):
        if time.monotonic() > until:
            complete = False
            break
        here = proc / str(pid)
        status = _text(here / "status")
        user = User(pid, _field(status, "Name") or "?")
        if _field(status, "VmLck") not in ("", "0 kB"):
            locking.append(user)
        if wanted:
            for file in wanted.intersection({*_open_files(here / "fd"), *_mapped_files(here / "maps")}):
                of.setdefault(file, []).append(user)
    return Users(of={file: tuple(users) for file, users in of.items()}, locking=tuple(locking), complete=complete)


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _field(status: str, name: str) -> str:
    for line in status.splitlines():
        if line.startswith(f"{name}:"):
            return line.partition(":")[2].strip()
    return ""


def _open_files(folder: Path) -> Iterator[FileId]:
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                try:
                    found = entry.stat()
                except OSError:
                    continue
                yield os.major(found.st_dev), os.minor(found.st_dev), found.st_ino
    except OSError:
        return


def _mapped_files(path: Path) -> Iterator[FileId]:
    for line in _text(path).splitlines():
        words = line.split(None, 5)
        if len(words) >= 5 and words[4] != "0":
            major, _, minor = words[3].partition(":")
            yield int(major, 16), int(minor, 16), int(words[4])
