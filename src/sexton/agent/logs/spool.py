"""The spool: what the relay took and the agent has not delivered yet, a directory for each container.

    relay.lock              held by the relay that lives
    relay.json              where it listens
    wake.sock               the relay knocks here when something came
    dropped                 how many lines never found room, and how many bytes
    <token>/way.json        whose lines these are, and where they go
    <token>/lock            held by whoever adds to the files or removes one
    <token>/<number>.spool  frames: one letter that says what it is, and its bytes
    <token>/cursor          how far they are delivered

The relay adds, the agent removes; they meet in these files and nowhere else, so that either may die at any time and
come back. What is added is known to the system at once: a process that is killed loses nothing.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

RELAY_LOCK = "relay.lock"
RELAY_FILE = "relay.json"
WAKE = "wake.sock"
DROPPED = "dropped"
WAY = "way.json"
LOCK = "lock"
CURSOR = "cursor"
SUFFIX = ".spool"

BATCH = b"B"
GAP = b"G"

TOKEN = re.compile(r"[0-9a-f]{32}")


def files_of(folder: Path) -> list[int]:
    """The numbers of a way's files."""
    return sorted(int(path.name.removesuffix(SUFFIX), 16) for path in folder.glob(f"*{SUFFIX}"))


def file_path(folder: Path, number: int) -> Path:
    return folder / f"{number:08x}{SUFFIX}"


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Alone with a way's files; FileNotFoundError when the way is gone."""
    handle = os.open(folder / LOCK, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def mark(body: bytes) -> bytes:
    """What a batch is known by when it comes again."""
    return hashlib.blake2b(body, digest_size=16).digest()


def size_of(root: Path) -> int:
    """Bytes in all files of the spool."""
    total = 0
    for path in root.glob(f"*/*{SUFFIX}"):
        try:
            total += path.stat().st_size
        except FileNotFoundError:
            continue
    return total
