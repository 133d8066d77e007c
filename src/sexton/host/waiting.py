"""How long work waited for processor, memory or disk, by the kernel's own account (PSI).

``some`` is the part of the time in which at least one task waited, ``full`` that in which all did and nothing got
done, as percent over the last minute. It is the host's as a whole, or on cgroup v2 one group's; a single starved core
of many does not show in it.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

import msgspec

from sexton.host.errors import Absent, Unreadable

RESOURCES = ("cpu", "memory", "io")
# Groups that are looked at for the one that waits most; their parents' figures contain theirs.
GROUPS = 2_000


class Waiting(msgspec.Struct, frozen=True):
    """Percent of the last minute, and of the last five."""

    some: float = 0.0
    full: float = 0.0
    some_long: float = 0.0
    full_long: float = 0.0


class Pressure(msgspec.Struct, frozen=True, kw_only=True):
    cpu: Waiting
    memory: Waiting
    io: Waiting


def parse(text: str) -> Waiting:
    """One pressure file."""
    found: dict[str, float] = {}
    for line in text.splitlines():
        kind, *words = line.split()
        for word in words:
            name, _, value = word.partition("=")
            try:
                found[f"{kind} {name}"] = float(value)
            except ValueError:
                continue
    return Waiting(
        found.get("some avg60", 0.0),
        found.get("full avg60", 0.0),
        found.get("some avg300", 0.0),
        found.get("full avg300", 0.0),
    )


def pressure(root: Path) -> Pressure:
    """The host's. Absent where the kernel does not measure it, Unreadable where it may not be read."""
    found = {}
    for name in RESOURCES:
        path = root / "proc/pressure" / name
        try:
            found[name] = parse(path.read_text())
        except FileNotFoundError:
            raise Absent("this kernel does not measure pressure (PSI)") from None
        except OSError as error:
            if error.errno == errno.EOPNOTSUPP:
                raise Absent("pressure (PSI) is switched off; psi=1 on the kernel's command line turns it on") from None
            raise Unreadable(f"cannot read {path}: {error.strerror}", "Run it as root on the host.") from error
    return Pressure(cpu=found["cpu"], memory=found["memory"], io=found["io"])


def waits_most(mount: Path, resource: str) -> tuple[str, Waiting] | None:
    """The deepest group of a v2 hierarchy in which nothing got done for longest; None where no group measures it."""
    worst: tuple[float, int, str, Waiting] | None = None
    pending = [(os.fspath(mount), "", 0)]
    seen = 0
    while pending and seen < GROUPS:
        folder, path, depth = pending.pop()
        seen += 1
        try:
            with os.scandir(folder) as entries:
                below = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
            if path:
                waiting = parse(Path(folder, f"{resource}.pressure").read_text())
                # A group's own wait shows in those above it as well: of equals the deepest says most.
                if worst is None or (round(waiting.full), depth) > (round(worst[0]), worst[1]):
                    worst = (waiting.full, depth, path, waiting)
        except OSError:
            continue
        pending += [(f"{folder}/{name}", f"{path}/{name}", depth + 1) for name in below]
    return None if worst is None or worst[0] <= 0 else (worst[2], worst[3])
