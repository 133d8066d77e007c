"""Who is promised how much of a host, and who has used how much of it: one look, and what two looks say together.

``Usage`` is what the agent answers on its socket. It holds counters that only grow, so a reader that looks twice knows
what happened in between, at whatever pace it looks. ``rates`` is that comparison; what has no counter before, or one
that went back because its container was started again, has no rate yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from sexton.core.reserved import Reserved
from sexton.core.resources import CPU_PER_CORE


class Throttled(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How often a quota's period had anything to run, how often it was used up, and the time that was held back."""

    periods: int = 0
    throttled: int = 0
    seconds: float = 0.0


class ContainerUse(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One container; without counters while it does not run. Memory in bytes: what it holds without page cache, and
    what of it cannot be dropped, which is what a limit must hold."""

    name: str
    status: str
    reserved: Reserved
    restarts: int = 0
    health: str = ""
    cpu_seconds: float | None = None
    memory: int | None = None
    held: int | None = None
    oom_kills: int = 0


class TaskUse(msgspec.Struct, frozen=True, kw_only=True):
    """One task. ``stalled``: seconds in which some of it waited, by resource, where the kernel tells."""

    id: str
    arn: str
    family: str
    revision: str
    status: str
    reserved: Reserved
    service: str = ""
    throttled: Throttled | None = None
    stalled: dict[str, float] = {}
    containers: tuple[ContainerUse, ...] = ()


class HostUse(msgspec.Struct, frozen=True, kw_only=True):
    """The host: what it offers to tasks, what of that they hold, and how it is used by everything that runs there."""

    cores: int
    capacity: Reserved
    reserved: Reserved
    busy_seconds: float = 0.0
    steal_seconds: float = 0.0
    memory: int = 0
    memory_used: int = 0
    stalled: dict[str, float] = {}


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """``at`` is seconds of a clock that only goes forward."""

    at: float
    instance: str
    cluster: str
    host: HostUse
    tasks: tuple[TaskUse, ...] = ()


class ContainerRate(NamedTuple):
    cpu: float | None = None  # units


class TaskRate(NamedTuple):
    """CPU in units; shares from 0 to 1: of periods that were used up, and of time in which some of it waited."""

    cpu: float | None = None
    throttled: float | None = None
    stalled: Mapping[str, float] = {}
    containers: Mapping[str, ContainerRate] = {}


class Rates(NamedTuple):
    """What happened between two looks; shares are of all the host's time."""

    cpu: float | None
    steal: float | None
    stalled: Mapping[str, float]
    tasks: Mapping[str, TaskRate]


def rates(before: Usage, after: Usage) -> Rates:
    """Per second, between two looks at one host."""
    seconds = after.at - before.at
    if seconds <= 0:
        return Rates(None, None, {}, {})
    then = {one.arn: one for one in before.tasks}
    busy = _growth(before.host.busy_seconds, after.host.busy_seconds)
    steal = _growth(before.host.steal_seconds, after.host.steal_seconds)
    return Rates(
        cpu=busy / seconds * CPU_PER_CORE if busy is not None else None,
        steal=steal / seconds / after.host.cores if steal is not None else None,
        stalled=_shares(before.host.stalled, after.host.stalled, seconds),
        tasks={one.arn: _task(then[one.arn], one, seconds) for one in after.tasks if one.arn in then},
    )


def _task(before: TaskUse, after: TaskUse, seconds: float) -> TaskRate:
    then = {one.name: one for one in before.containers}
    containers = {
        one.name: ContainerRate(_cpu(then[one.name], one, seconds)) for one in after.containers if one.name in then
    }
    known = [one.cpu for one in containers.values() if one.cpu is not None]
    return TaskRate(
        cpu=sum(known) if known else None,
        throttled=_throttled(before.throttled, after.throttled),
        stalled=_shares(before.stalled, after.stalled, seconds),
        containers=containers,
    )


def _cpu(before: ContainerUse, after: ContainerUse, seconds: float) -> float | None:
    grown = _growth(before.cpu_seconds, after.cpu_seconds)
    return grown / seconds * CPU_PER_CORE if grown is not None else None


def _throttled(before: Throttled | None, after: Throttled | None) -> float | None:
    if before is None or after is None:
        return None
    periods, used_up = after.periods - before.periods, after.throttled - before.throttled
    return used_up / periods if periods > 0 and used_up >= 0 else 0.0


def _growth(before: float | None, after: float | None) -> float | None:
    return after - before if before is not None and after is not None and after >= before else None


def _shares(before: Mapping[str, float], after: Mapping[str, float], seconds: float) -> dict[str, float]:
    return {name: min(max(value - before[name], 0.0) / seconds, 1.0) for name, value in after.items() if name in before}
