"""CPU and memory of containers, from their cgroup files: two small reads per container and round.

The engine's own statistics stream costs many times more, on both ends. A sample is the difference of two readings, so
the first reading of a container gives none. Nothing survives a restart: the next two readings begin anew.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

MIB = 1024 * 1024
NANOSECONDS = 1_000_000_000


class Reading(NamedTuple):
    """A container's counters at one moment."""

    cpu_ns: int
    memory: int
    at: float


class Sample(NamedTuple):
    """CPU in percent of the host, memory in MiB."""

    cpu: float
    memory: int


class Sums(NamedTuple):
    """What a publishing interval saw."""

    least: float
    most: float
    samples: int
    total: float


class CgroupStats:
    """Reads and remembers; ``mount`` is where the hierarchies are."""

    def __init__(self, mount: Path, cores: int | None = None) -> None:
        self._v2 = (mount / "cgroup.controllers").exists()
        self._mount = mount
        self._cores = cores or os.cpu_count() or 1
        self._last: dict[str, Reading] = {}
        self._samples: dict[str, list[Sample]] = {}

    def read(self, containers: Iterable[tuple[str, str]], now: float) -> None:
        """One round over (container, cgroup path below a hierarchy); what is not listed is forgotten."""
        present = set()
        for container, path in containers:
            present.add(container)
            reading = self._reading(path, now)
            if reading is None:
                continue
            before = self._last.get(container)
            self._last[container] = reading
            if before is not None and reading.at > before.at and reading.cpu_ns >= before.cpu_ns:
                share = (reading.cpu_ns - before.cpu_ns) / NANOSECONDS / (reading.at - before.at) / self._cores
                self._samples.setdefault(container, []).append(Sample(100 * share, reading.memory // MIB))
        for container in self._last.keys() - present:
            del self._last[container]
            self._samples.pop(container, None)

    def take(self, container: str) -> tuple[Sums, Sums] | None:
        """CPU and memory since the last take; None when there is nothing new."""
        samples = self._samples.pop(container, None)
        if not samples:
            return None
        return _sums([one.cpu for one in samples]), _sums([float(one.memory) for one in samples])

    def _reading(self, path: str, now: float) -> Reading | None:
        below = path.lstrip("/")
        try:
            if self._v2:
                place = self._mount / below
                cpu = _field((place / "cpu.stat").read_text(), "usage_usec") * 1000
                used = int((place / "memory.current").read_text())
                cache = _field((place / "memory.stat").read_text(), "inactive_file")
            else:
                cpu = int((self._mount / "cpuacct" / below / "cpuacct.usage").read_text())
                used = int((self._mount / "memory" / below / "memory.usage_in_bytes").read_text())
                cache = _field((self._mount / "memory" / below / "memory.stat").read_text(), "total_cache")
        except (OSError, ValueError):
            return None  # it has just ended; the engine's event says so
        return Reading(cpu, max(used - cache, 0), now)


def _field(text: str, name: str) -> int:
    for line in text.splitlines():
        key, _, value = line.partition(" ")
        if key == name:
            return int(value)
    return 0


def _sums(values: list[float]) -> Sums:
    return Sums(min(values), max(values), len(values), sum(values))
