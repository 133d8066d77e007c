"""What containers use, over time: readings become samples, samples become what a publishing interval saw.

A CPU sample is the difference of two readings, so the first reading of a container gives none. A container that its
restart policy starts again counts from nothing; what it had before is added, so that no counter ever goes back.
Nothing survives a restart of the agent: the next two readings begin anew.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from sexton.core import statistics
from sexton.host.container_counters import ContainerCounters, Counters, Network
from sexton.wire import tcs

MIB = 1024 * 1024
NANOSECONDS = 1_000_000_000
# Samples of four publishing intervals; what was not sent by then is not worth sending.
MOST_SAMPLES = 16


class Subject(NamedTuple):
    """A container to read: who it is, where its cgroup is, whether it has a network of its own."""

    container: str
    path: str
    network: bool = False


class Sample(NamedTuple):
    """CPU in percent of the host (None at the first reading), counters so far, bytes a second over the network, and
    the time since the reading before."""

    cpu: float | None
    counters: Counters
    rx_rate: float | None = None
    tx_rate: float | None = None
    seconds: float = 0.0


class Interval(NamedTuple):
    """What a publishing interval saw of one container."""

    cpu: tcs.CWStatsSet
    memory: tcs.CWStatsSet
    storage: tcs.StorageStatsSet
    network: tcs.NetworkStatsSet | None


class _Track:
    """One container's readings."""

    __slots__ = ("at", "base", "last", "pending", "raw", "total")

    def __init__(self) -> None:
        self.at = 0.0
        self.raw: Counters | None = None
        self.base = Counters(0, 0)
        self.total: Counters | None = None
        self.last: Sample | None = None
        self.pending: list[Sample] = []

    def add(self, raw: Counters, now: float, cores: int) -> None:
        if self.raw is not None and raw.cpu_ns < self.raw.cpu_ns:
            self.base = _sum(self.base, self.raw)  # made anew: what it had is history
        before, then = self.total, self.at
        self.raw, self.at = raw, now
        self.total = _sum(self.base, raw)._replace(memory=raw.memory, held=raw.held)
        cpu = rx_rate = tx_rate = None
        seconds = 0.0
        if before is not None and now > then:
            seconds = now - then
            cpu = 100 * (self.total.cpu_ns - before.cpu_ns) / NANOSECONDS / seconds / cores
            if self.total.network is not None and before.network is not None:
                rx_rate = max(self.total.network.rx_bytes - before.network.rx_bytes, 0) / seconds
                tx_rate = max(self.total.network.tx_bytes - before.network.tx_bytes, 0) / seconds
        self.last = Sample(cpu, self.total, rx_rate, tx_rate, seconds)
        self.pending.append(self.last)
        del self.pending[:-MOST_SAMPLES]


class CgroupStats:
    """Reads and remembers; ``mount`` is where the hierarchies are."""

    def __init__(self, mount: Path, cores: int | None = None, proc: Path = Path("/proc")) -> None:
        self._counters = ContainerCounters(mount, proc)
        self.cores = cores or os.cpu_count() or 1
        self._read_at = 0.0
        self._tracks: dict[str, _Track] = {}

    def read(self, subjects: Iterable[Subject], now: float) -> None:
        """One round; what is not listed is forgotten."""
        present = set()
        self._read_at = now
        for subject in subjects:
            present.add(subject.container)
            counters = self._counters.read(subject.path, network=subject.network)
            if counters is not None:
                self._tracks.setdefault(subject.container, _Track()).add(counters, now, self.cores)
        for container in self._tracks.keys() - present:
            del self._tracks[container]

    def take(self, container: str) -> Interval | None:
        """What was seen since the last take; None when there is nothing to say yet."""
        track = self._tracks.get(container)
        if track is None or not any(one.cpu is not None for one in track.pending):
            return None
        samples, track.pending = track.pending, []
        counters = [one.counters for one in samples]
        return Interval(
            cpu=statistics.doubles([one.cpu for one in samples if one.cpu is not None]),
            memory=statistics.doubles([float(one.memory // MIB) for one in counters]),
            storage=tcs.StorageStatsSet(
                read_size_bytes=statistics.longs([one.read_bytes for one in counters]),
                write_size_bytes=statistics.longs([one.written_bytes for one in counters]),
            ),
            network=_network(samples),
        )

    def latest(self, container: str) -> Counters | None:
        """The counters of the last reading."""
        track = self._tracks.get(container)
        return track.total if track is not None else None

    def sample(self, container: str) -> Sample | None:
        """What the last round said of a container; None when it could not be read then."""
        track = self._tracks.get(container)
        return track.last if track is not None and track.at == self._read_at else None

    @property
    def counters(self) -> ContainerCounters:
        """For whoever wants to know now, not as of the last round."""
        return self._counters


def _network(samples: list[Sample]) -> tcs.NetworkStatsSet | None:
    counters = [one.counters.network for one in samples if one.counters.network is not None]
    received = [one.rx_rate for one in samples if one.rx_rate is not None]
    sent = [one.tx_rate for one in samples if one.tx_rate is not None]
    if not counters or not received:
        return None
    return tcs.NetworkStatsSet(
        rx_bytes=statistics.longs([one.rx_bytes for one in counters]),
        rx_bytes_per_second=statistics.unsigned_doubles(received),
        rx_dropped=statistics.longs([one.rx_dropped for one in counters]),
        rx_errors=statistics.longs([one.rx_errors for one in counters]),
        rx_packets=statistics.longs([one.rx_packets for one in counters]),
        tx_bytes=statistics.longs([one.tx_bytes for one in counters]),
        tx_bytes_per_second=statistics.unsigned_doubles(sent),
        tx_dropped=statistics.longs([one.tx_dropped for one in counters]),
        tx_errors=statistics.longs([one.tx_errors for one in counters]),
        tx_packets=statistics.longs([one.tx_packets for one in counters]),
    )


def _sum(one: Counters, other: Counters) -> Counters:
    networks = [each.network for each in (one, other) if each.network is not None]
    return Counters(
        cpu_ns=one.cpu_ns + other.cpu_ns,
        memory=other.memory,
        read_bytes=one.read_bytes + other.read_bytes,
        written_bytes=one.written_bytes + other.written_bytes,
        oom_kills=one.oom_kills + other.oom_kills,
        network=Network(*map(sum, zip(*networks, strict=True))) if networks else None,
    )
