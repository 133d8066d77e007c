"""How busy this host is and how full: processor time since boot, memory in use, from two files of fixed size.

No reader here raises; where a file cannot be read everything it tells is 0.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

# Fields of the first line of /proc/stat after its name. Time of guests is in that of users already.
_IDLE, _IOWAIT, _STEAL, _GUESTS = 3, 4, 7, 8


class HostCounters(NamedTuple):
    """Seconds since boot over all cores, in which something ran and in which a hypervisor ran something else; bytes
    of memory, and of that what could not be had without writing anything to a disk."""

    busy_seconds: float = 0.0
    steal_seconds: float = 0.0
    memory: int = 0
    memory_used: int = 0


def read(proc: Path = Path("/proc")) -> HostCounters:
    """One look."""
    busy, steal = _processors(proc)
    total, available = _memory(proc)
    return HostCounters(busy, steal, total, max(total - available, 0))


def _processors(proc: Path) -> tuple[float, float]:
    try:
        with (proc / "stat").open() as file:
            times = [int(word) for word in file.readline().split()[1:]]
        busy = sum(times[:_GUESTS]) - times[_IDLE] - times[_IOWAIT] - times[_STEAL]
    except (OSError, ValueError, IndexError):
        return 0.0, 0.0
    tick = os.sysconf("SC_CLK_TCK")
    return busy / tick, times[_STEAL] / tick


def _memory(proc: Path) -> tuple[int, int]:
    found = {}
    try:
        with (proc / "meminfo").open() as file:
            for line in file:  # both are among the first three lines
                name, _, rest = line.partition(":")
                if name in ("MemTotal", "MemAvailable"):
                    found[name] = int(rest.split()[0]) * 1024
                if len(found) == 2:
                    break
    except (OSError, ValueError, IndexError):
        return 0, 0
    return (found["MemTotal"], found["MemAvailable"]) if len(found) == 2 else (0, 0)
