"""What one container has used so far, from its cgroup files and its network namespace's counters.

A handful of small reads per container, at a cost that does not depend on how much it did. The container engine is not
asked: its own statistics cost many times more, on both ends. Every counter is None where this kernel does not have it.
Files are opened anew each time, since an open one would keep a removed cgroup from going away.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from sexton.host import pressure

# The files are a page or two; a file that is larger than this is cut, which loses lines at its end at worst.
_MOST_BYTES = 64 * 1024


class Network(NamedTuple):
    """Sums over a network namespace's interfaces, loopback excepted."""

    rx_bytes: int = 0
    rx_packets: int = 0
    rx_errors: int = 0
    rx_dropped: int = 0
    tx_bytes: int = 0
    tx_packets: int = 0
    tx_errors: int = 0
    tx_dropped: int = 0


class Counters(NamedTuple):
    """One container at one moment. ``memory`` is what it holds without page cache that can go at once, counted as
    Amazon's agent does on each version; ``held`` is what a limit has to hold: no cache of files, but shared memory,
    and with it everything in a tmpfs."""

    cpu_ns: int
    memory: int
    read_bytes: int = 0
    written_bytes: int = 0
    oom_kills: int = 0
    network: Network | None = None
    held: int = 0


class Throttling(NamedTuple):
    """How often and for how long a group had used up its quota."""

    periods: int
    throttled: int
    throttled_ns: int


class ContainerCounters:
    """Reads below ``mount``, where the hierarchies are, and ``proc``."""

    def __init__(self, mount: Path, proc: Path = Path("/proc")) -> None:
        self._v2 = (mount / "cgroup.controllers").exists()
        self._mount = str(mount)
        self._proc = str(proc)

    def read(self, path: str, *, network: bool) -> Counters | None:
        """The counters of the container whose cgroup this is; None when it has ended."""
        below = path.strip("/")
        try:
            return self._read_v2(below, network) if self._v2 else self._read_v1(below, network)
        except (OSError, ValueError):
            return None  # it has just ended; the engine's event says so

    def throttling(self, path: str) -> Throttling | None:
        """Of any group: a container's, or its task's, which is where a task's quota is."""
        below = path.strip("/")
        place = f"{self._mount}/{below}" if self._v2 else f"{self._mount}/cpu/{below}"
        try:
            found = _fields(_read(f"{place}/cpu.stat"))
        except (OSError, ValueError):
            return None
        if b"nr_periods" not in found:
            return None
        time = found.get(b"throttled_time") or found.get(b"throttled_usec", 0) * 1000
        return Throttling(found[b"nr_periods"], found.get(b"nr_throttled", 0), time)

    def stalled(self, path: str) -> dict[str, float]:
        """Seconds in which something in a group waited, by resource; only cgroup v2 counts that by group."""
        if not self._v2:
            return {}
        below = path.strip("/")
        texts = {one: _there(f"{self._mount}/{below}/{one}.pressure") for one in pressure.RESOURCES}
        return {name: waited for name, text in texts.items() if (waited := pressure.some_seconds(text)) is not None}

    def _read_v1(self, below: str, network: bool) -> Counters:
        top = self._mount
        memory = f"{top}/memory/{below}"
        used = int(_read(f"{memory}/memory.usage_in_bytes"))
        stat = _fields(_read(f"{memory}/memory.stat"))
        uncached = max(used - stat.get(b"total_cache", 0), 0)
        return Counters(
            cpu_ns=int(_read(f"{top}/cpuacct/{below}/cpuacct.usage")),
            memory=uncached,
            held=uncached + stat.get(b"total_shmem", 0),
            oom_kills=_field(_there(f"{memory}/memory.oom_control"), b"oom_kill"),
            network=self._network(f"{memory}/cgroup.procs") if network else None,
            **_blkio(_there(f"{top}/blkio/{below}/blkio.throttle.io_service_bytes_recursive")),
        )

    def _read_v2(self, below: str, network: bool) -> Counters:
        place = f"{self._mount}/{below}"
        used = int(_read(f"{place}/memory.current"))
        stat = _fields(_read(f"{place}/memory.stat"))
        droppable = stat.get(b"file", 0) - stat.get(b"shmem", 0) + stat.get(b"slab_reclaimable", 0)
        return Counters(
            cpu_ns=_field(_read(f"{place}/cpu.stat"), b"usage_usec") * 1000,
            memory=max(used - stat.get(b"inactive_file", 0), 0),
            held=max(used - droppable, 0),
            oom_kills=_field(_there(f"{place}/memory.events"), b"oom_kill"),
            network=self._network(f"{place}/cgroup.procs") if network else None,
            **_io(_there(f"{place}/io.stat")),
        )

    def _network(self, processes: str) -> Network | None:
        """Any process of the container has its namespace, so the first will do."""
        for word in _there(processes).split(maxsplit=1)[:1]:
            text = _there(f"{self._proc}/{int(word)}/net/dev")
            if text:
                return parse_interfaces(text)
        return None


def parse_interfaces(text: bytes) -> Network:
    """``/proc/net/dev``: after two lines of headings, a name and sixteen numbers each."""
    sums = [0] * 8
    for line in text.splitlines()[2:]:
        name, _, rest = line.partition(b":")
        words = rest.split()
        if name.strip() == b"lo" or len(words) < 16:
            continue
        for index, word in enumerate(words[:4] + words[8:12]):
            sums[index] += int(word)
    return Network(*sums)


def _blkio(text: bytes) -> dict[str, int]:
    """Lines of device, operation and bytes."""
    read = written = 0
    for line in text.splitlines():
        words = line.split()
        if len(words) == 3 and words[1] == b"Read":
            read += int(words[2])
        elif len(words) == 3 and words[1] == b"Write":
            written += int(words[2])
    return {"read_bytes": read, "written_bytes": written}


def _io(text: bytes) -> dict[str, int]:
    """Lines of a device and ``key=number`` words."""
    sums = {b"rbytes": 0, b"wbytes": 0}
    for word in text.split():
        key, _, value = word.partition(b"=")
        if key in sums:
            sums[key] += int(value)
    return {"read_bytes": sums[b"rbytes"], "written_bytes": sums[b"wbytes"]}


def _read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, _MOST_BYTES)
    finally:
        os.close(descriptor)


def _there(path: str) -> bytes:
    """A file that need not be there."""
    try:
        return _read(path)
    except OSError:
        return b""


def _field(text: bytes, name: bytes) -> int:
    return _fields(text).get(name, 0)


def _fields(text: bytes) -> dict[bytes, int]:
    words = text.split()
    return {key: int(value) for key, value in zip(words[::2], words[1::2], strict=False) if value.isdigit()}
