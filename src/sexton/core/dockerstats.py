"""Two readings of a container's counters in the shape of the engine's statistics, which is what programs parse.

Field names and their absence are the engine's own: on cgroup v1 there is a peak and a count of failures, on v2 there is
not; nothing is said of networks where a container has none of its own. A reading without an earlier one has zeros for
it, and a time that never was.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

NEVER = "0001-01-01T00:00:00Z"


class Cpu(NamedTuple):
    """Nanoseconds, of the container and of the whole host."""

    total: int = 0
    kernel: int = 0
    user: int = 0
    per_core: tuple[int, ...] = ()
    host: int = 0
    cores: int = 0
    periods: int = 0
    throttled: int = 0
    throttled_ns: int = 0


class Block(NamedTuple):
    """One counter of one device."""

    major: int
    minor: int
    op: str
    value: int


class Reading(NamedTuple):
    """Everything at one moment; ``at`` is wall time, ``clock`` one that only goes forward."""

    at: float
    clock: float
    cpu: Cpu
    memory: Mapping[str, Any]
    io_bytes: tuple[Block, ...] = ()
    io_operations: tuple[Block, ...] = ()
    processes: Mapping[str, int] = {}
    networks: Mapping[str, Mapping[str, int]] | None = None
    v2: bool = False


def shape(now: Reading, before: Reading | None, *, name: str, container: str) -> dict[str, Any]:
    """The engine's statistics object."""
    body: dict[str, Any] = {
        "read": _time(now.at),
        "preread": _time(before.at) if before else NEVER,
        "pids_stats": dict(now.processes),
        "blkio_stats": _block(now),
        "num_procs": 0,
        "storage_stats": {},
        "cpu_stats": _cpu(now.cpu, v2=now.v2),
        "precpu_stats": _cpu(before.cpu if before else Cpu(), v2=now.v2),
        "memory_stats": dict(now.memory),
        "name": f"/{name}",
        "id": container,
    }
    if now.networks is not None:
        body["networks"] = {one: dict(counters) for one, counters in now.networks.items()}
    return body


def rates(now: Reading, before: Reading | None) -> dict[str, float] | None:
    """Bytes a second over all networks; None where there is no network or nothing to compare with."""
    if before is None or now.networks is None or before.networks is None or now.clock <= before.clock:
        return None
    seconds = now.clock - before.clock

    def rate(counter: str) -> float:
        more = sum(one[counter] for one in (now.networks or {}).values())
        less = sum(one[counter] for one in (before.networks or {}).values())
        return max(more - less, 0) / seconds

    return {"rx_bytes_per_sec": rate("rx_bytes"), "tx_bytes_per_sec": rate("tx_bytes")}


def _cpu(cpu: Cpu, *, v2: bool) -> dict[str, Any]:
    usage: dict[str, Any] = {"total_usage": cpu.total}
    if cpu.per_core:
        usage["percpu_usage"] = list(cpu.per_core)
    usage |= {"usage_in_kernelmode": cpu.kernel, "usage_in_usermode": cpu.user}
    body: dict[str, Any] = {"cpu_usage": usage}
    if cpu.host:
        body |= {"system_cpu_usage": cpu.host, "online_cpus": cpu.cores}
    body["throttling_data"] = {
        "periods": cpu.periods,
        "throttled_periods": cpu.throttled,
        "throttled_time": cpu.throttled_ns,
    }
    return body


def _block(now: Reading) -> dict[str, Any]:
    def rows(blocks: tuple[Block, ...]) -> list[dict[str, Any]] | None:
        return [one._asdict() for one in blocks] or (None if now.v2 else [])

    nothing: list[Any] | None = None if now.v2 else []
    return {
        "io_service_bytes_recursive": rows(now.io_bytes),
        "io_serviced_recursive": rows(now.io_operations),
        "io_queue_recursive": nothing,
        "io_service_time_recursive": nothing,
        "io_wait_time_recursive": nothing,
        "io_merged_recursive": nothing,
        "io_time_recursive": nothing,
        "sectors_recursive": nothing,
    }


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
