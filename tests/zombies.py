"""Makes zombie memory cgroups on this very host, below a group of its own, and takes everything away again.

A process enters a new group, touches pages of a file there for the first time, leaves, and the group is removed: its
pages stay charged to it. Which file decides what kind of zombie that is: on a tmpfs nothing can reclaim it, so counts
stand still; on a disk it is page cache, as on a real host, and melts away when the kernel needs memory.

The maker is a process of its own, since it moves itself about.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from sexton.host.cgroup import MemoryHierarchy, census, find_memory
from sexton.host.memcg_walk import walk

ROOT = Path("/")
# How long the kernel may take to free what is freed, which it does afterwards, in its own time.
SETTLE_DEADLINE = 20.0

_MAKER = """
import json, os, sys
top, names, file, first, each = json.load(sys.stdin)
page = b"z" * 4096
def enter(group):
    handle = os.open(group + "/cgroup.procs", os.O_WRONLY)
    os.write(handle, b"0")
    os.close(handle)
enter(top + "/home")
shared = None if each else os.open(file, os.O_RDWR | os.O_CREAT, 0o644)
for number, name in enumerate(names):
    group = top + "/" + name
    try:
        os.mkdir(group)
    except FileNotFoundError:
        os.makedirs(group)
    enter(group)
    if each:
        own = os.open(f"{file}-{first + number}", os.O_RDWR | os.O_CREAT, 0o644)
        os.pwrite(own, page, 0)
        os.close(own)
    else:
        os.pwrite(shared, page, (first + number) * 4096)
    enter(top + "/home")
    os.rmdir(group)
if shared is not None:
    os.fsync(shared)
"""


class Graveyard:
    """A group of the test's own, ``top``, and the files that pin the zombies made in it."""

    def __init__(self, place: MemoryHierarchy, top: Path, scratch: Path) -> None:
        self.place = place
        self.top = top
        self.path = f"/{top.relative_to(place.mount)}"
        self.disk = scratch / "disk"
        self.tmpfs = scratch / "tmpfs"

    def make(self, names: Sequence[str], file: Path, *, first: int = 0, each: bool = False) -> None:
        """One zombie for each name, each pinned by a page of its own: the next of one file, or the first of its own
        file when ``each``."""
        self._group("home")
        for parent in {str(Path(name).parent) for name in names}:
            self._group(parent)
            if self.place.version == 2:
                (self.top / parent / "cgroup.subtree_control").write_text("+memory")
        order = json.dumps([str(self.top), list(names), str(file), first, each])
        subprocess.run([sys.executable, "-S", "-c", _MAKER], input=order, text=True, check=True)
        if each:
            os.sync()

    def _group(self, name: str) -> None:
        here = self.top
        for part in Path(name).parts:
            if self.place.version == 2:
                (here / "cgroup.subtree_control").write_text("+memory")
            here = here / part
            here.mkdir(exist_ok=True)

    def zombies(self) -> int:
        """How many of them the kernel holds now."""
        seen = walk(census(ROOT).tracked)
        return sum(1 for row in seen.dead() if seen.groups[row].path.startswith(self.path + "/"))

    def settle(self, want: Callable[[int], bool]) -> int:
        deadline = time.monotonic() + SETTLE_DEADLINE
        while not want(now := self.zombies()):
            assert time.monotonic() < deadline, f"{now} zombies"
            time.sleep(0.05)
        return now


def numbered(pattern: str, count: int) -> list[str]:
    """Names of a pattern, its asterisk replaced by a number."""
    return [pattern.replace("*", str(number)) for number in range(count)]


@contextmanager
def graveyard(scratch: Path) -> Iterator[Graveyard]:
    """Ready to make zombies; afterwards files, mount and groups are gone and nothing pins anything."""
    place = find_memory(ROOT)
    top = place.mount / f"sexton-test-{secrets.token_hex(4)}"
    yard = Graveyard(place, top, scratch)
    yard.disk.mkdir()
    yard.tmpfs.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", yard.tmpfs], check=True)
    top.mkdir()
    try:
        if place.version == 2:
            (place.mount / "cgroup.subtree_control").write_text("+memory")
        yield yard
    finally:
        subprocess.run(["umount", yard.tmpfs], check=True)
        shutil.rmtree(yard.disk)
        for here, below, _ in os.walk(top, topdown=False):
            for name in below:
                os.rmdir(os.path.join(here, name))
        top.rmdir()
