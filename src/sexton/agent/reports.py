"""The frames of telemetry, from what is known of tasks: metrics and health in pages, the instance's own status.

Values in, values out: what was read from cgroup files arrives as intervals, what the engine's health checks said is in
the known tasks. Shapes and limits are those of the wire; internal words stay inside.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from sexton.agent.stats import Interval
from sexton.agent.steps.context import Identity
from sexton.core.task import ContainerStatus, Health, KnownContainer
from sexton.wire import acs_task, tcs

TASKS_PER_PAGE = 10

T = TypeVar("T")


class Seen(NamedTuple):
    """A task and those of its containers that are to be reported."""

    task: acs_task.Task
    containers: tuple[KnownContainer, ...]


def metrics(
    identity: Identity,
    tasks: Sequence[Seen],
    take: Callable[[KnownContainer], Interval | None],
    restarts: Callable[[KnownContainer], int],
    now: float,
) -> list[tcs.PublishMetricsRequest]:
    """One tick's pages, ``restarts`` being those since the last one. With no task at all one page says so; with tasks
    that have no samples yet there is none."""
    filled = []
    for seen in tasks:
        restarted = {
            one.name for one in seen.task.containers or () if one.restart_policy and one.restart_policy.enabled
        }
        found = [(one, take(one)) for one in seen.containers]
        per_container = tuple(
            _metric(one, interval, restarts(one) if one.name in restarted else None)
            for one, interval in found
            if interval
        )
        if per_container:
            filled.append(
                tcs.TaskMetric(
                    task_arn=seen.task.arn,
                    task_definition_family=seen.task.family,
                    task_definition_version=seen.task.version,
                    container_metrics=per_container,
                )
            )
    if tasks and not filled:
        return []
    message_id = str(uuid.uuid4())
    return [
        tcs.PublishMetricsRequest(
            metadata=tcs.MetricsMetadata(
                cluster=identity.cluster,
                container_instance=identity.instance_arn,
                idle=not tasks,
                message_id=message_id,
                fin=last,
            ),
            task_metrics=page or None,
            timestamp=_stamp(now),
        )
        for page, last in _pages(filled)
    ]


def health(identity: Identity, tasks: Iterable[Seen], now: float) -> list[tcs.PublishHealthRequest]:
    """One tick's pages of containers that have a health check; none when there is no such container."""
    filled = []
    for seen in tasks:
        checked = {one.name for one in seen.task.containers or () if one.health_check_type == "docker"}
        containers = tuple(_health(one) for one in seen.containers if one.name in checked)
        if containers:
            filled.append(
                tcs.TaskHealth(
                    task_arn=seen.task.arn,
                    task_definition_family=seen.task.family,
                    task_definition_version=seen.task.version,
                    containers=containers,
                )
            )
    if not filled:
        return []
    message_id = str(uuid.uuid4())
    return [
        tcs.PublishHealthRequest(
            metadata=tcs.HealthMetadata(
                cluster=identity.cluster,
                container_instance=identity.instance_arn,
                message_id=message_id,
                fin=last,
            ),
            tasks=page,
            timestamp=_stamp(now),
        )
        for page, last in _pages(filled)
    ]


def instance_status(
    identity: Identity, statuses: tuple[tcs.InstanceStatus, ...], now: float
) -> tcs.PublishInstanceStatusRequest:
    """What the checks of this host last said."""
    return tcs.PublishInstanceStatusRequest(
        metadata=tcs.InstanceStatusMetadata(
            cluster=identity.cluster, container_instance=identity.instance_arn, request_id=str(uuid.uuid4())
        ),
        statuses=statuses,
        timestamp=_stamp(now),
    )


def running(containers: Iterable[KnownContainer]) -> tuple[KnownContainer, ...]:
    return tuple(one for one in containers if one.status is ContainerStatus.RUNNING and one.runtime_id)


def _metric(one: KnownContainer, interval: Interval, restarts: int | None) -> tcs.ContainerMetric:
    return tcs.ContainerMetric(
        container_name=one.name,
        cpu_stats_set=interval.cpu,
        memory_stats_set=interval.memory,
        network_stats_set=interval.network,
        storage_stats_set=interval.storage,
        restart_stats_set=tcs.RestartStatsSet(restart_count=restarts) if restarts is not None else None,
    )


def _health(one: KnownContainer) -> tcs.ContainerHealth:
    found = one.health or Health(since=one.started_at)
    return tcs.ContainerHealth(
        container_name=one.name, health_status=found.status, status_since=_stamp(found.since or one.started_at)
    )


def _pages(filled: list[T]) -> Iterator[tuple[tuple[T, ...], bool]]:
    for start in range(0, len(filled), TASKS_PER_PAGE) or range(1):
        yield tuple(filled[start : start + TASKS_PER_PAGE]), start + TASKS_PER_PAGE >= len(filled)


def _stamp(seconds: float) -> float:
    """Unix seconds with milliseconds, as every time on this channel is."""
    return round(seconds, 3)
