"""How many memory cgroups the kernel tracks, how many of them are live, and so how many are zombies.

A zombie is a removed memory cgroup that something still pins, mostly page cache that was first touched inside it. The
kernel's own counters include them, directories do not, and the difference is exact:

    v1, hybrid   tracked = memory row of /proc/cgroups    live = directories of the hierarchy, root included
    v2           both are counters in the root's cgroup.stat; nothing is walked

Only files whose cost does not grow with the number of zombies are read; the walk costs a few microseconds per live
directory and is bounded in time and number. Both counts are only true of the whole host when the hierarchy's real root
is visible: inside a cgroup namespace or a container's partial mount it is not, and then the answer is "cannot be seen
from here", never a guess. The kernel tells by the files it puts into a root directory and nowhere else.
"""

from __future__ import annotations

import os
import time
from enum import StrEnum
from pathlib import Path

import msgspec

from sexton.host.errors import Absent, Unreadable

# A host with more live directories than this, or whose walk takes longer, has another problem than zombies.
WALK_LIMIT = 200_000
WALK_DEADLINE = 2.0
# Cgroups come and go during the walk; so many tries are made to see the tracked count stand still around it.
WALK_ATTEMPTS = 5

# Its name in its parent, and its own "."; see count_directories.
LINKS_OF_A_LEAF = 2

ON_HOST = "Run it on the host itself, or in a container with the host's root mounted and --root naming it."


class Mode(StrEnum):
    """Which cgroup versions the host has mounted."""

    LEGACY = "v1"
    HYBRID = "hybrid"
    UNIFIED = "v2"


class MemoryHierarchy(msgspec.Struct, frozen=True, kw_only=True):
    """Where memory cgroups live. ``tracked`` is the memory row of /proc/cgroups, None where it has none."""

    mode: Mode
    version: int
    mount: Path
    tracked: int | None


class Census(msgspec.Struct, frozen=True, kw_only=True):
    """One count of a whole host. ``unsettled`` is by how much the tracked count still moved during it."""

    mode: Mode
    mount: Path
    tracked: int
    live: int
    zombies: int
    source: str
    unsettled: int = 0


class _Row(msgspec.Struct, frozen=True):
    hierarchy: int
    count: int
    enabled: bool


def _memory_row(root: Path) -> _Row | None:
    """The memory row of /proc/cgroups; None on kernels that retired the file or the row."""
    try:
        text = (root / "proc/cgroups").read_text()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Unreadable(f"cannot read {root / 'proc/cgroups'}: {error.strerror}", ON_HOST) from error
    for line in text.splitlines():
        words = line.split()
        if words[:1] == ["memory"] and len(words) >= 4 and all(word.isdigit() for word in words[1:4]):
            return _Row(int(words[1]), int(words[2]), words[3] == "1")
    return None


def hierarchy_id(root: Path) -> int:
    """The number by which the kernel's trace events name the memory hierarchy; 0 is v2's."""
    row = _memory_row(root)
    if row is not None and not row.enabled:
        raise Absent("the kernel's memory controller is switched off (cgroup_disable=memory)")
    return 0 if row is None else row.hierarchy


def _mounts(root: Path) -> list[tuple[str, Path, frozenset[str]]]:
    """Mounted cgroup file systems: type, directory as openable from here, options."""
    # Another root's own idea of its mounts is that of its first process; "self" would be us, and our paths.
    whose = "self" if root == Path("/") else "1"
    path = root / "proc" / whose / "mounts"
    try:
        text = path.read_text(errors="surrogateescape")
    except OSError as error:
        raise Unreadable(f"cannot read {path}: {error.strerror}", ON_HOST) from error
    found = []
    for line in text.splitlines():
        words = line.split(" ")
        if len(words) >= 4 and words[2] in ("cgroup", "cgroup2"):
            found.append((words[2], root / unescaped(words[1]).lstrip("/"), frozenset(words[3].split(","))))
    return found


def unescaped(field: str) -> str:
    """Blanks, tabs, newlines and backslashes are written in octal in a mount table."""
    for code, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        field = field.replace(code, char)
    return field


def find_memory(root: Path) -> MemoryHierarchy:
    """Which version manages memory here, and where it is mounted with its real root visible."""
    row = _memory_row(root)
    if row is not None and not row.enabled:
        raise Absent("the kernel's memory controller is switched off (cgroup_disable=memory)")
    mounts = _mounts(root)
    named = {kind for kind, _, _ in mounts}
    on_v1 = row is not None and row.hierarchy > 0
    places = [
        path
        for kind, path, options in mounts
        if (kind == "cgroup" and "memory" in options if on_v1 else kind == "cgroup2")
    ]
    if on_v1:
        mode = Mode.HYBRID if "cgroup2" in named else Mode.LEGACY
    else:
        mode = Mode.HYBRID if "cgroup" in named else Mode.UNIFIED
        if row is None and not mounts:
            raise Absent("this kernel has no cgroups, or none is mounted")
    told = "" if row is None else f"the kernel tracks {row.count:,} memory cgroups, but "
    if not places:
        raise Unreadable(f"{told}their hierarchy is not mounted in this view", ON_HOST)
    whole = [path for path in places if _is_real_root(path, version=1 if on_v1 else 2)]
    if not whole:
        raise Unreadable(
            f"{told}only a part of the hierarchy is visible here (a container or cgroup namespace), "
            "so nobody can say how many are live",
            ON_HOST,
        )
    if not on_v1 and "memory" not in _words(whole[0] / "cgroup.controllers"):
        raise Absent("the memory controller belongs to no mounted hierarchy")
    return MemoryHierarchy(mode=mode, version=1 if on_v1 else 2, mount=whole[0], tracked=row.count if row else None)


def _is_real_root(path: Path, version: int) -> bool:
    if version == 1:  # these two exist in a v1 hierarchy's root only, whatever namespace it is seen from
        return (path / "cgroup.sane_behavior").exists() or (path / "release_agent").exists()
    return (path / "cgroup.controllers").exists() and not (path / "cgroup.events").exists()


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError as error:
        raise Unreadable(f"cannot read {path}: {error.strerror}", ON_HOST) from error


def count_directories(top: Path) -> int:
    """Directories from ``top`` down, itself included. One that vanishes on the way is not live; one that may not be
    opened, too many or too long a walk raise Unreadable."""
    deadline = time.monotonic() + WALK_DEADLINE
    found = 1
    pending = [os.fspath(top)]
    while pending:
        here = pending.pop()
        if found > WALK_LIMIT or time.monotonic() > deadline:
            raise Unreadable(
                f"cannot count live cgroups: more than {WALK_LIMIT:,} directories or {WALK_DEADLINE:g} s below {top}",
                "Remove what makes that many live cgroups, then look again.",
            )
        try:
            with os.scandir(here) as entries:
                below = [entry for entry in entries if entry.is_dir(follow_symlinks=False)]
        except FileNotFoundError:
            if here == os.fspath(top):
                raise Unreadable(f"cannot count live cgroups: {top} is gone", ON_HOST) from None
            found -= 1
            continue
        except OSError as error:
            raise Unreadable(f"cannot count live cgroups: {here}: {error.strerror}", "Run it as root.") from error
        for entry in below:
            try:
                links = entry.stat(follow_symlinks=False).st_nlink
            except FileNotFoundError:
                continue
            found += 1
            # Each directory below adds a link to its parent, so two links mean none is there: most groups are leaves,
            # and listing the dozens of files in each would be nearly all of the cost. File systems that do not count
            # so say one.
            if links != LINKS_OF_A_LEAF:
                pending.append(entry.path)
    return found


def census(root: Path) -> Census:
    """Count the memory cgroups of the host whose root directory this is."""
    place = find_memory(root)
    return _census_v1(root, place) if place.version == 1 else _census_v2(place)


def _census_v1(root: Path, place: MemoryHierarchy) -> Census:
    before = live = after = 0
    for _ in range(WALK_ATTEMPTS):
        before = _tracked(root)
        live = count_directories(place.mount)
        after = _tracked(root)
        if before == after:
            break
    return Census(
        mode=place.mode,
        mount=place.mount,
        tracked=after,
        live=live,
        zombies=max(0, after - live),
        source=f"/proc/cgroups and directories below {place.mount}",
        unsettled=abs(after - before),
    )


def _tracked(root: Path) -> int:
    row = _memory_row(root)
    if row is None:
        raise Unreadable("cannot count memory cgroups: the memory row of /proc/cgroups has gone", "Look again.")
    return row.count


def _census_v2(place: MemoryHierarchy) -> Census:
    path = place.mount / "cgroup.stat"
    words = _words(path)
    numbers = {name: int(value) for name, value in zip(words[::2], words[1::2], strict=False) if value.isdigit()}
    # Newer kernels count the memory controller by itself; before, a dying group counts whichever controller pins it.
    live, dying = numbers.get("nr_subsys_memory"), numbers.get("nr_dying_subsys_memory")
    if live is None or dying is None:
        live, dying = numbers.get("nr_descendants"), numbers.get("nr_dying_descendants")
        if live is None or dying is None:
            raise Unreadable(
                f"cannot count memory cgroups: {path} has no counters (kernel before 4.14)", "Use a newer kernel."
            )
        live += 1  # the root is no descendant of itself
    return Census(mode=place.mode, mount=place.mount, tracked=live + dying, live=live, zombies=dying, source=str(path))
