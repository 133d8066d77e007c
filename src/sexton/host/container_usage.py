"""Everything one container's cgroup says of its use, for programs that want the engine's own statistics.

Read when somebody asks, never by the clock: about ten small files. Beside it the host's own CPU time, which such
programs divide by. A file that this kernel does not have costs its own field; a container that has ended has none.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from sexton.core.dockerstats import Block, Cpu, Reading
from sexton.host.container_counters import _field, _fields, _read, _there

_NETWORK = ("rx_bytes", "rx_packets", "rx_errors", "rx_dropped", "tx_bytes", "tx_packets", "tx_errors", "tx_dropped")
# What the kernel says for "no limit", rounded to pages in different ways.
_UNLIMITED = 1 << 62


class ContainerUsage:
    """Reads below ``mount`` and ``proc``."""

    def __init__(self, mount: Path, proc: Path = Path("/proc")) -> None:
        self._v2 = (mount / "cgroup.controllers").exists()
        self._mount = str(mount)
        self._proc = str(proc)
        self._tick = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
        self._memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")

    def read(self, path: str, *, at: float, clock: float, network: bool) -> Reading | None:
        """The counters of the container whose cgroup this is; None when it has ended."""
        below = path.strip("/")
        try:
            cpu, memory, io_bytes, io_operations = self._read_v2(below) if self._v2 else self._read_v1(below)
        except (OSError, ValueError):
            return None
        place = f"{self._mount}/{below}" if self._v2 else f"{self._mount}/pids/{below}"
        processes = {"current": _number(_there(f"{place}/pids.current"))}
        limit = _there(f"{place}/pids.max").strip()
        if limit and limit != b"max":
            processes["limit"] = int(limit)
        group = f"{self._mount}/{below}" if self._v2 else f"{self._mount}/memory/{below}"
        networks = self._networks(f"{group}/cgroup.procs") if network else None
        return Reading(at, clock, cpu, memory, io_bytes, io_operations, processes, networks, self._v2)

    def _read_v1(self, below: str) -> tuple[Cpu, dict[str, Any], tuple[Block, ...], tuple[Block, ...]]:
        top = self._mount
        accounts = _fields(_there(f"{top}/cpuacct/{below}/cpuacct.stat"))
        quota = _fields(_there(f"{top}/cpu/{below}/cpu.stat"))
        host, cores = self._host()
        cpu = Cpu(
            total=int(_read(f"{top}/cpuacct/{below}/cpuacct.usage")),
            kernel=accounts.get(b"system", 0) * self._tick,
            user=accounts.get(b"user", 0) * self._tick,
            per_core=tuple(int(word) for word in _there(f"{top}/cpuacct/{below}/cpuacct.usage_percpu").split()),
            host=host,
            cores=cores,
            periods=quota.get(b"nr_periods", 0),
            throttled=quota.get(b"nr_throttled", 0),
            throttled_ns=quota.get(b"throttled_time", 0),
        )
        group = f"{top}/memory/{below}"
        memory: dict[str, Any] = {
            "usage": int(_read(f"{group}/memory.usage_in_bytes")),
            "max_usage": _number(_there(f"{group}/memory.max_usage_in_bytes")),
            "stats": _named(_there(f"{group}/memory.stat")),
        }
        failures = _number(_there(f"{group}/memory.failcnt"))
        if failures:
            memory["failcnt"] = failures
        memory["limit"] = self._limit(_there(f"{group}/memory.limit_in_bytes"))
        throttle = f"{top}/blkio/{below}/blkio.throttle"
        return (
            cpu,
            memory,
            _blocks(_there(f"{throttle}.io_service_bytes_recursive")),
            _blocks(_there(f"{throttle}.io_serviced_recursive")),
        )

    def _read_v2(self, below: str) -> tuple[Cpu, dict[str, Any], tuple[Block, ...], tuple[Block, ...]]:
        place = f"{self._mount}/{below}"
        times = _fields(_read(f"{place}/cpu.stat"))
        host, cores = self._host()
        cpu = Cpu(
            total=times.get(b"usage_usec", 0) * 1000,
            kernel=times.get(b"system_usec", 0) * 1000,
            user=times.get(b"user_usec", 0) * 1000,
            host=host,
            cores=cores,
            periods=times.get(b"nr_periods", 0),
            throttled=times.get(b"nr_throttled", 0),
            throttled_ns=times.get(b"throttled_usec", 0) * 1000,
        )
        memory: dict[str, Any] = {
            "usage": int(_read(f"{place}/memory.current")),
            "stats": _named(_there(f"{place}/memory.stat")),
        }
        failures = _field(_there(f"{place}/memory.events"), b"max")
        if failures:
            memory["failcnt"] = failures
        memory["limit"] = self._limit(_there(f"{place}/memory.max"))
        devices = _there(f"{place}/io.stat")
        return cpu, memory, _io(devices, b"rbytes", b"wbytes"), _io(devices, b"rios", b"wios")

    def _limit(self, text: bytes) -> int:
        """What it may have; without a limit, what the host has, as the engine says it."""
        limit = _number(text)
        return limit if 0 < limit < _UNLIMITED else self._memory

    def _host(self) -> tuple[int, int]:
        """Nanoseconds that all cores spent on anything since boot, guests not counted twice; and how many there are."""
        text = _there(f"{self._proc}/stat")
        words = text.partition(b"\n")[0].split()[1:8]
        cores = sum(1 for line in text.splitlines() if line.startswith(b"cpu")) - 1
        return sum(int(word) for word in words) * self._tick, max(cores, 1)

    def _networks(self, processes: str) -> dict[str, dict[str, int]] | None:
        for word in _there(processes).split(maxsplit=1)[:1]:
            text = _there(f"{self._proc}/{int(word)}/net/dev")
            return {name: counters for name, counters in _interfaces(text).items() if name != "lo"} if text else None
        return None


def _interfaces(text: bytes) -> dict[str, dict[str, int]]:
    found = {}
    for line in text.splitlines()[2:]:
        name, _, rest = line.partition(b":")
        words = rest.split()
        if len(words) >= 16:
            numbers = [int(word) for word in words[:4] + words[8:12]]
            found[name.strip().decode()] = dict(zip(_NETWORK, numbers, strict=True))
    return found


def _number(text: bytes) -> int:
    word = text.strip()
    return int(word) if word.isdigit() else 0


def _named(text: bytes) -> dict[str, int]:
    return {key.decode(): value for key, value in _fields(text).items()}


def _blocks(text: bytes) -> tuple[Block, ...]:
    """Lines of device, operation and a number."""
    found = []
    for line in text.splitlines():
        words = line.split()
        if len(words) == 3:
            major, _, minor = words[0].partition(b":")
            found.append(Block(int(major), int(minor), words[1].decode(), int(words[2])))
    return tuple(found)


def _io(text: bytes, read: bytes, write: bytes) -> tuple[Block, ...]:
    """Lines of a device and ``key=number`` words."""
    found = []
    for line in text.splitlines():
        device, *words = line.split()
        major, colon, minor = device.partition(b":")
        pairs = dict(word.split(b"=", 1) for word in words if b"=" in word)
        if colon:
            for key, op in ((read, "read"), (write, "write")):
                if key in pairs:
                    found.append(Block(int(major), int(minor), op, int(pairs[key])))
    return tuple(found)
