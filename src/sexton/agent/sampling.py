"""From a round of readings to what each task did since the round before: for the history of sizes and for CloudWatch.

The containers' counters have just been read for telemetry; what is added is one file per task, for the time its quota
held it back. What was there before is remembered per task; a new process begins anew.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from sexton.agent.engine import Engine
from sexton.agent.groups import Groups, runs, throttled
from sexton.agent.runner import Runner
from sexton.agent.stats import CgroupStats
from sexton.core import reserved
from sexton.core.reserved import Reserved
from sexton.core.resources import CPU_PER_CORE
from sexton.core.task import KnownContainer
from sexton.core.usage import Throttled
from sexton.host.container_counters import Counters

_NO_THROTTLING = Throttled()


class ContainerSample(NamedTuple):
    """One container since the round before: CPU in units, and its counters so far."""

    name: str
    reserved: Reserved
    restarts: int
    seconds: float
    cpu: float
    counters: Counters
    rx_rate: float = 0.0
    tx_rate: float = 0.0


class TaskSample(NamedTuple):
    """One task; its figures are those of its containers together."""

    arn: str
    family: str
    revision: str
    service: str
    reserved: Reserved
    seconds: float
    throttled: Throttled
    containers: tuple[ContainerSample, ...]

    @property
    def cpu(self) -> float:
        return sum(one.cpu for one in self.containers)

    @property
    def memory(self) -> int:
        return sum(one.counters.memory for one in self.containers)

    @property
    def held(self) -> int:
        return sum(one.counters.held for one in self.containers)


class Sampler:
    """Reads after each round of the statistics."""

    def __init__(self, engine: Engine, groups: Groups, stats: CgroupStats) -> None:
        self._engine = engine
        self._groups = groups
        self._stats = stats
        self._before: dict[str, Throttled] = {}

    def samples(self) -> list[TaskSample]:
        """Every task of which there is something to say yet."""
        there = self._engine.runners()
        self._before = {one.arn: self._before[one.arn] for one in there if one.arn in self._before}
        return [sample for one in there if (sample := self._task(one)) is not None]

    def _task(self, runner: Runner) -> TaskSample | None:
        task = runner.desired.task
        by_name = {one.name: one for one in task.containers or ()}
        found = []
        for one in runner.known.containers:
            wanted = by_name.get(one.name)
            sample = self._container(one, reserved.of_container(wanted)) if wanted is not None else None
            if sample is not None:
                found.append(sample)
        if not found:
            return None
        return TaskSample(
            arn=runner.arn,
            family=task.family or "",
            revision=task.version or "",
            service=task.service_name or "",
            reserved=reserved.of_task(task, limited=self._groups.limited),
            seconds=max(one.seconds for one in found),
            throttled=self._throttled(runner.arn, self._groups.of_task(runner.task_id, runner.known.containers)),
            containers=tuple(found),
        )

    def _container(self, one: KnownContainer, promised: Reserved) -> ContainerSample | None:
        sample = self._stats.sample(one.runtime_id) if one.runtime_id and runs(one) else None
        if sample is None or sample.cpu is None:
            return None
        return ContainerSample(
            name=one.name,
            reserved=promised,
            restarts=one.restarts,
            seconds=sample.seconds,
            cpu=sample.cpu / 100 * self._stats.cores * CPU_PER_CORE,
            counters=sample.counters,
            rx_rate=sample.rx_rate or 0.0,
            tx_rate=sample.tx_rate or 0.0,
        )

    def _throttled(self, arn: str, groups: Iterable[str]) -> Throttled:
        now = throttled(self._stats.counters, groups)
        if now is None:
            return _NO_THROTTLING
        before = self._before.get(arn)
        self._before[arn] = now
        if before is None or now.periods < before.periods:
            return _NO_THROTTLING
        return Throttled(
            periods=now.periods - before.periods,
            throttled=max(now.throttled - before.throttled, 0),
            seconds=max(now.seconds - before.seconds, 0.0),
        )
