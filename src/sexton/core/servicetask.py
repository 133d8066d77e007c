"""A task as its service sees it: where it is, how healthy it is, and what may happen to it.

In comes what the task's record says; out comes one of three standings. GOOD counts towards the minimum of healthy
tasks, FRESH may yet become so, BAD must be replaced. A standing can change by time alone (a task settles, its grace
ends), so ``changes_at`` says when to look again. Everything is computed from the record: nothing is remembered.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from sexton.core.pace import Pace
from sexton.wire import ecs


class Stage(StrEnum):
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    STOPPING = "STOPPING"  # told to stop, and not yet ended
    STOPPED = "STOPPED"


class Health(StrEnum):
    UNCHECKED = "UNCHECKED"  # no essential container has a check
    UNKNOWN = "UNKNOWN"
    HEALTHY = "HEALTHY"
    UNHEALTHY = "UNHEALTHY"


class Standing(StrEnum):
    GOOD = "good"
    FRESH = "fresh"
    BAD = "bad"


class ServiceTask(msgspec.Struct, frozen=True, kw_only=True):
    """One task of a service. Times are 0 when the thing has not happened."""

    id: str
    deployment: str  # or task set: what started it
    stage: Stage
    health: Health = Health.UNCHECKED
    created_at: float = 0.0
    started_at: float = 0.0
    stopped_at: float = 0.0
    healthy_at: float = 0.0  # when a check first found it healthy
    stop_code: str = ""
    host: str = ""
    zone: str = ""
    leaving: bool = False  # its host is draining, or no longer meets the service's constraints
    protected_until: float = 0.0

    @property
    def live(self) -> bool:
        """Nobody has told it to stop and it has not ended."""
        return self.stage in (Stage.STARTING, Stage.RUNNING)


# Ends that say nothing about the task's own revision: somebody or something outside ended it.
OUTSIDE = frozenset(
    str(code)
    for code in (
        ecs.TaskStopCode.USER_INITIATED,
        ecs.TaskStopCode.SERVICE_SCHEDULER_INITIATED,
        ecs.TaskStopCode.SPOT_INTERRUPTION,
        ecs.TaskStopCode.TERMINATION_NOTICE,
        ecs.TaskStopCode.INFRASTRUCTURE_HEALTH,
    )
)


def seen(
    task: ecs.Task,
    *,
    checked: bool,
    healthy_at: float = 0.0,
    zone: str = "",
    leaving: bool = False,
    protected_until: float = 0.0,
) -> ServiceTask:
    """The view of a task's record. ``checked``: an essential container of its definition has a health check."""
    if task.last_status == "STOPPED":
        stage = Stage.STOPPED
    elif task.desired_status == "STOPPED":
        stage = Stage.STOPPING
    else:
        stage = Stage.RUNNING if task.last_status == "RUNNING" else Stage.STARTING
    health = Health.UNCHECKED
    if checked:
        word = task.health_status or ""
        health = Health(word) if word in (Health.HEALTHY, Health.UNHEALTHY) else Health.UNKNOWN
    return ServiceTask(
        id=(task.task_arn or "").rsplit("/", 1)[-1],
        deployment=task.started_by or "",
        stage=stage,
        health=health,
        created_at=task.created_at or 0.0,
        started_at=task.started_at or 0.0,
        stopped_at=task.stopped_at or 0.0,
        healthy_at=healthy_at,
        stop_code=task.stop_code or "",
        host=task.container_instance_arn or "",
        zone=zone or task.availability_zone or "",
        leaving=leaving,
        protected_until=protected_until,
    )


def healthy_since(task: ServiceTask, pace: Pace) -> float:
    """From when the task counts, or counted, as healthy; 0 if it never did. May lie ahead for a task that runs."""
    if not task.started_at:
        return 0.0
    if task.health != Health.UNCHECKED:
        return task.healthy_at
    settled = task.started_at + pace.settle
    return 0.0 if task.stopped_at and task.stopped_at < settled else settled


def standing(task: ServiceTask, pace: Pace, grace: float, now: float) -> Standing:
    """How a live task stands. ``grace`` is the service's: so long after its start an unhealthy task is only fresh."""
    if task.stage != Stage.RUNNING:
        return Standing.FRESH
    if task.health == Health.UNHEALTHY:
        return Standing.FRESH if now < task.started_at + grace else Standing.BAD
    since = healthy_since(task, pace)
    return Standing.GOOD if 0.0 < since <= now else Standing.FRESH


def serving(task: ServiceTask) -> bool:
    """Whether it may be of use by now: it runs, and no check says otherwise or has yet to speak."""
    return task.stage == Stage.RUNNING and task.health in (Health.UNCHECKED, Health.HEALTHY)


def changes_at(task: ServiceTask, pace: Pace, grace: float, now: float) -> float | None:
    """When time alone next changes how a live task stands or whether it may be stopped."""
    ahead = []
    if task.stage == Stage.RUNNING and task.health == Health.UNCHECKED:
        ahead.append(task.started_at + pace.settle)
    if task.stage == Stage.RUNNING and task.health == Health.UNHEALTHY:
        ahead.append(task.started_at + grace)
    ahead.append(task.protected_until)
    return min((moment for moment in ahead if moment > now), default=None)


def failed_by_itself(task: ServiceTask, pace: Pace) -> bool:
    """Whether an ended task speaks against its revision: it ended of its own, and had never been healthy.

    ECS documents the tasks that never reach RUNNING and those that fail their checks. A task that runs and exits
    before it counts as healthy has not started well either, so it is one of them here.
    """
    return task.stop_code not in OUTSIDE and not healthy_since(task, pace)
