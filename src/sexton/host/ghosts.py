"""What dead groups still hold, found by arithmetic over the live ones: no rights, no new kernel, no names.

A live group's totals include its dead descendants, so whatever its own pages and its live children's totals do not
explain belongs to dead groups right below it. That says under which live group, how many bytes and of which kind:

    v1   memory.stat has both: total_* with descendants, and the group's own
    v2   memory.stat has totals only. A group with children holds (nearly) nothing of its own; cgroup.stat counts the
         dead ones in every directory. Below a group without live children, its own pages and dead ones' look the same,
         so bytes are told for the former only

How many zombies that is (v1), their names and who holds them, it cannot say. Costs a few dozen microseconds for each
live group, never more for zombies.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from sexton.core.zombie import Ghosts
from sexton.host.cgroup import WALK_DEADLINE, WALK_LIMIT, MemoryHierarchy
from sexton.host.errors import Unreadable

PAGE = os.sysconf("SC_PAGE_SIZE")
_FILE = ("inactive_file", "active_file")
_ANON = ("inactive_anon", "active_anon")
_UNEVICTABLE = ("unevictable",)


def find_ghosts(place: MemoryHierarchy) -> tuple[Ghosts, ...]:
    """Every live group right below which dead ones hold something, the largest first. Raises Unreadable."""
    deadline = time.monotonic() + WALK_DEADLINE
    found: list[Ghosts] = []
    seen = 0

    # (directory, its path below the root, its numbers, live children's directories still to be read)
    def visit(folder: str, path: str) -> dict[str, int]:
        nonlocal seen
        seen += 1
        if seen > WALK_LIMIT or time.monotonic() > deadline:
            raise Unreadable(
                f"cannot locate zombies: more than {WALK_LIMIT:,} live cgroups or {WALK_DEADLINE:g} s",
                "Remove what makes that many live cgroups, then look again.",
            )
        numbers = _numbers(folder)
        below = [visit(f"{folder}/{name}", f"{path.rstrip('/')}/{name}") for name in _children(folder)]
        ghost = _ghost(place.version, path, numbers, below)
        if ghost is not None:
            found.append(ghost)
        return numbers

    visit(os.fspath(place.mount), "/")
    return tuple(sorted(found, key=lambda ghost: (-(ghost.file + ghost.anon + ghost.unevictable), ghost.path)))


def _children(folder: str) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []  # gone since its parent was listed


def _numbers(folder: str) -> dict[str, int]:
    """Counters of one group; empty when it is gone. memory.stat is read anew each time: cheap since kernel 4.16."""
    numbers: dict[str, int] = {}
    for name in ("memory.stat", "cgroup.stat"):
        try:
            text = Path(folder, name).read_text()
        except FileNotFoundError:
            continue
        except OSError as error:
            raise Unreadable(f"cannot locate zombies: {folder}/{name}: {error.strerror}", "Run it as root.") from error
        for line in text.splitlines():
            key, _, value = line.partition(" ")
            if value.isdigit():
                numbers[key] = int(value)
    return numbers


def _ghost(version: int, path: str, numbers: dict[str, int], below: list[dict[str, int]]) -> Ghosts | None:
    if version == 1:
        prefix, own = "total_", numbers
        dead = None
    else:
        prefix, own = "", {}
        dead = numbers.get("nr_dying_descendants", 0) - sum(child.get("nr_dying_descendants", 0) for child in below)

    def pages(kinds: tuple[str, ...]) -> int:
        total = sum(numbers.get(prefix + kind, 0) for kind in kinds)
        mine = sum(own.get(kind, 0) for kind in kinds)
        theirs = sum(child.get(prefix + kind, 0) for child in below for kind in kinds)
        return max(0, total - mine - theirs) // PAGE

    def live(kinds: tuple[str, ...]) -> int:
        return sum(numbers.get(prefix + kind, 0) for kind in kinds) // PAGE

    if version == 2 and not below:
        if not dead:
            return None
        return Ghosts(path=path, file=0, anon=0, unevictable=0, live_file=live(_FILE), zombies=dead)
    if version == 2 and not dead:
        return None
    file, anon, unevictable = pages(_FILE), pages(_ANON), pages(_UNEVICTABLE)
    if not (file or anon or unevictable or dead):
        return None
    return Ghosts(path=path, file=file, anon=anon, unevictable=unevictable, live_file=live(_FILE) - file, zombies=dead)
