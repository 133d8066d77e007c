"""What this host's tasks are promised and have used, read now: the answer that ``sexton top`` and metrics are made of.

A few small files per task, read when somebody asks and not otherwise, and nothing is kept between two questions. Who
asks all the time, as a collector of metrics does, is told of containers what was last read of them anyway.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from sexton.agent.engine import Engine
from sexton.agent.groups import Groups, runs, stalled, throttled
from sexton.agent.runner import Runner
from sexton.agent.steps.context import Identity
from sexton.core import reserved
from sexton.core.reserved import Reserved
from sexton.core.resources import total
from sexton.core.task import KnownContainer, TaskStatus
from sexton.core.usage import ContainerUse, HostUse, TaskUse, Usage
from sexton.host import hostcounters, pressure
from sexton.host.container_counters import ContainerCounters, Counters
from sexton.wire import acs_task

_NOBODY = Reserved()


class Use:
    """Looks at one host."""

    def __init__(
        self,
        identity: Identity,
        engine: Engine,
        groups: Groups,
        counters: ContainerCounters,
        cores: int,
        proc: Path = Path("/proc"),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._identity = identity
        self._engine = engine
        self._groups = groups
        self._counters = counters
        self._cores = cores
        self._proc = proc
        self._clock = clock

    def look(self, last: Callable[[str], Counters | None] = lambda container: None) -> Usage:
        """Everything; tasks that have ended have nothing to show any more. ``last`` are readings that are new enough;
        what has none is read."""
        there = [one for one in self._engine.runners() if one.known.status is not TaskStatus.STOPPED]
        return Usage(
            at=self._clock(),
            instance=self._identity.instance_arn,
            cluster=self._identity.cluster,
            host=self.host(),
            tasks=tuple(self.task(one, last) for one in there),
        )

    def host(self) -> HostUse:
        pool = self._engine.admission.pool
        capacity, held = Reserved(), Reserved()
        if pool is not None:
            capacity = Reserved(cpu=pool.capacity.amount.cpu, memory=pool.capacity.amount.memory)
            taken = total(one.amount for one in pool.held.values())
            held = Reserved(cpu=taken.cpu, memory=taken.memory)
        seen = hostcounters.read(self._proc)
        return HostUse(
            cores=self._cores,
            capacity=capacity,
            reserved=held,
            busy_seconds=seen.busy_seconds,
            steal_seconds=seen.steal_seconds,
            memory=seen.memory,
            memory_used=seen.memory_used,
            stalled={one.resource: one.seconds for one in pressure.stalls(self._proc) if one.kind == "some"},
        )

    def task(self, runner: Runner, last: Callable[[str], Counters | None]) -> TaskUse:
        task = runner.desired.task
        by_name = {one.name: one for one in task.containers or ()}
        groups = self._groups.of_task(runner.task_id, runner.known.containers)
        return TaskUse(
            id=runner.task_id,
            arn=runner.arn,
            family=task.family or "",
            revision=task.version or "",
            service=task.service_name or "",
            status=str(runner.known.status),
            reserved=reserved.of_task(task, limited=self._groups.limited),
            throttled=throttled(self._counters, groups),
            stalled=stalled(self._counters, groups),
            containers=tuple(self._container(runner.task_id, by_name, one, last) for one in runner.known.containers),
        )

    def _container(
        self,
        task_id: str,
        wanted: dict[str | None, acs_task.Container],
        one: KnownContainer,
        last: Callable[[str], Counters | None],
    ) -> ContainerUse:
        definition = wanted.get(one.name)
        found = None
        if one.runtime_id and runs(one):
            found = last(one.runtime_id)
            if found is None:
                found = self._counters.read(self._groups.container(task_id, one.runtime_id), network=False)
        return ContainerUse(
            name=one.name,
            status=str(one.status),
            reserved=reserved.of_container(definition) if definition is not None else _NOBODY,
            restarts=one.restarts,
            health=one.health.status if one.health is not None else "",
            cpu_seconds=found.cpu_ns / 1e9 if found is not None else None,
            memory=found.memory if found is not None else None,
            held=found.held if found is not None else None,
            oom_kills=found.oom_kills if found is not None else 0,
        )
