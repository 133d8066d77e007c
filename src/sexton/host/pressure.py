"""How much of this host is promised twice: processor time that a hypervisor took, and time lost to waiting.

Steal is in ``/proc/stat``; pressure stall information is in ``/proc/pressure`` where the kernel has it. Files of fixed
size; no reader here raises, and what a kernel does not tell is left out.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

RESOURCES = ("cpu", "memory", "io")
# Fields of the first line of /proc/stat after its name.
_STEAL = 7


class Stall(NamedTuple):
    """Time in which some, or all, of what wanted to run was waiting for a resource."""

    resource: str
    kind: str  # "some" or "full"
    seconds: float
    last_minute: float  # share of the last minute, in percent


def steal_seconds(proc: Path = Path("/proc")) -> float | None:
    """Processor time that this host was ready to use and its hypervisor gave to others, since boot."""
    try:
        words = (proc / "stat").read_text().partition("\n")[0].split()
        return int(words[1 + _STEAL]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return None


def stalls(proc: Path = Path("/proc")) -> list[Stall]:
    """Pressure of the whole host."""
    found = []
    for resource in RESOURCES:
        try:
            text = (proc / "pressure" / resource).read_text()
        except OSError:
            continue
        found += _parse(resource, text)
    return found


def some_seconds(text: bytes) -> float | None:
    """Of one such file, the time in which at least something was waiting; None when it does not say."""
    for line in text.splitlines():
        if line.startswith(b"some "):
            total = line.rpartition(b"total=")[2]
            return int(total) / 1e6 if total.isdigit() else None
    return None


def _parse(resource: str, text: str) -> list[Stall]:
    found = []
    for line in text.splitlines():
        kind, *words = line.split()
        values = dict(word.partition("=")[::2] for word in words)
        try:
            found.append(Stall(resource, kind, int(values["total"]) / 1e6, float(values["avg60"])))
        except (KeyError, ValueError):
            continue
    return found
