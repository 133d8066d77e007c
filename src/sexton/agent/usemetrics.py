"""What this host and its tasks are promised and use, as metrics: the figures that hosts and definitions are sized by.

Amounts are in base units, as is the custom there: cores, bytes, seconds. What is promised has the label ``limit`` "no"
or "yes": a limit is what the kernel holds a task to.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from sexton.core.reserved import Reserved
from sexton.core.resources import CPU_PER_CORE
from sexton.core.usage import HostUse, TaskUse, Usage

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

MIB = 1024 * 1024
_TASK = ("task", "family", "revision")
_CONTAINER = (*_TASK, "container")


def families(usage: Usage) -> Iterator[Metric]:
    """Every family of one look."""
    yield from _host(usage.host)
    yield from _tasks(usage.tasks)
    yield from _containers(usage.tasks)


def _host(host: HostUse) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    for name, text, value in (
        ("capacity_cores", "Processor time that this host offers to tasks.", host.capacity.cpu / CPU_PER_CORE),
        ("reserved_cores", "What tasks hold of it.", host.reserved.cpu / CPU_PER_CORE),
        ("capacity_memory_bytes", "Memory that this host offers to tasks.", host.capacity.memory * MIB),
        ("reserved_memory_bytes", "What tasks hold of it.", host.reserved.memory * MIB),
        ("memory_bytes", "Memory of this host.", host.memory),
        ("memory_used_bytes", "Of that, what is not available without writing to a disk.", host.memory_used),
    ):
        yield GaugeMetricFamily(f"sexton_host_{name}", text, value=value)
    yield CounterMetricFamily("sexton_host_cpu_seconds", "Processor time used by everything.", value=host.busy_seconds)


def _tasks(tasks: tuple[TaskUse, ...]) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    cores = GaugeMetricFamily(
        "sexton_task_reserved_cores", "Processor time it is promised, or held to.", labels=(*_TASK, "limit")
    )
    memory = GaugeMetricFamily(
        "sexton_task_reserved_memory_bytes", "Memory it is promised, or held to.", labels=(*_TASK, "limit")
    )
    periods = CounterMetricFamily("sexton_task_cpu_periods", "Quota periods with anything to run.", labels=_TASK)
    throttled = CounterMetricFamily("sexton_task_cpu_throttled_periods", "Those that ended early.", labels=_TASK)
    lost = CounterMetricFamily("sexton_task_cpu_throttled_seconds", "Time held back by the quota.", labels=_TASK)
    stalled = CounterMetricFamily(
        "sexton_task_stalled_seconds",
        "Time in which some of it waited for a resource; cgroup v2 only.",
        labels=(*_TASK, "resource"),
    )
    for one in tasks:
        labels = (one.id, one.family, one.revision)
        _promised(cores, memory, labels, one.reserved)
        if one.throttled is not None:
            periods.add_metric(labels, one.throttled.periods)
            throttled.add_metric(labels, one.throttled.throttled)
            lost.add_metric(labels, one.throttled.seconds)
        for resource, seconds in one.stalled.items():
            stalled.add_metric((*labels, resource), seconds)
    yield from (cores, memory, periods, throttled, lost, stalled)


def _containers(tasks: tuple[TaskUse, ...]) -> Iterator[Metric]:
    from prometheus_client.core import GaugeMetricFamily

    cores = GaugeMetricFamily(
        "sexton_container_reserved_cores", "Processor time it is promised.", labels=(*_CONTAINER, "limit")
    )
    memory = GaugeMetricFamily(
        "sexton_container_reserved_memory_bytes", "Memory it is promised, or held to.", labels=(*_CONTAINER, "limit")
    )
    held = GaugeMetricFamily(
        "sexton_container_memory_held_bytes",
        "Memory that cannot be dropped, shared memory included: what a limit must hold.",
        labels=_CONTAINER,
    )
    for task in tasks:
        for one in task.containers:
            labels = (task.id, task.family, task.revision, one.name)
            _promised(cores, memory, labels, one.reserved)
            if one.held is not None:
                held.add_metric(labels, one.held)
    yield from (cores, memory, held)


def _promised(cores: Metric, memory: Metric, labels: tuple[str, ...], promised: Reserved) -> None:
    """Without the samples of what is not set: nothing is not the same as 0."""
    for family, unit, amounts in (
        (cores, 1 / CPU_PER_CORE, (promised.cpu, promised.cpu_limit)),
        (memory, MIB, (promised.memory, promised.memory_limit)),
    ):
        for limit, amount in zip(("no", "yes"), amounts, strict=True):
            if amount:
                family.add_metric((*labels, limit), amount * unit)  # type: ignore[attr-defined]
