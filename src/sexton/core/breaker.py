"""Counting what fails: the deployment circuit breaker, and the growing wait between starts that keep failing.

Both read the same facts: a task that ended by itself before it was ever healthy, a task stopped because its checks
failed, a start that found no room. The breaker counts tasks and gives a deployment up; the wait counts rounds (tasks
started together fail together) and only slows it down, and it holds with or without a breaker.

Each end is counted once: the shell shows an ended task to ``account`` until the decision that counted it is stored.
The counts live in the ``Deployment`` and survive with it.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from sexton.core.deployment import Deployment, RolloutState
from sexton.core.pace import Pace, backoff
from sexton.core.servicetask import ServiceTask, failed_by_itself, healthy_since
from sexton.wire import ecs

# ECS keeps a percentage between these two, so that a small service tolerates a hiccup and a large one ends at all.
BOUNDED_LEAST, BOUNDED_MOST = 3, 200


class Breaker(msgspec.Struct, frozen=True, kw_only=True):
    """The circuit breaker as a service configures it."""

    enabled: bool = False
    rollback: bool = False
    reset_on_healthy: bool = True
    kind: str = ecs.ThresholdType.BOUNDED_PERCENT
    value: int = 50


def breaker_of(given: ecs.DeploymentCircuitBreaker | None) -> Breaker:
    if given is None:
        return Breaker()
    limit = given.threshold_configuration or ecs.ThresholdConfiguration()
    return Breaker(
        enabled=bool(given.enable),
        rollback=bool(given.rollback),
        reset_on_healthy=given.reset_on_healthy_task is not False,
        kind=limit.type or ecs.ThresholdType.BOUNDED_PERCENT,
        value=limit.value if limit.value is not None else 50,
    )


def threshold(breaker: Breaker, desired: int) -> int:
    """How many failures are too many. Percentages are of the desired count and round up."""
    if breaker.kind == ecs.ThresholdType.COUNT:
        return max(1, breaker.value)
    share = -(-desired * breaker.value // 100)
    if breaker.kind == ecs.ThresholdType.UNBOUNDED_PERCENT:
        return max(1, share)
    return min(BOUNDED_MOST, max(BOUNDED_LEAST, share))


def tripped(deployment: Deployment, breaker: Breaker, desired: int) -> bool:
    """Whether a deployment that is under way has failed too often. One that came to its end is no longer watched."""
    watched = breaker.enabled and deployment.rollout == RolloutState.IN_PROGRESS
    return watched and deployment.failed_tasks >= threshold(breaker, desired)


def account(
    deployment: Deployment, tasks: Iterable[ServiceTask], *, reset_on_healthy: bool, pace: Pace, now: float
) -> Deployment:
    """The deployment with what its tasks have done since: those that became healthy, those that failed."""
    newest = 0.0
    failed = []
    for task in tasks:
        since = healthy_since(task, pace)
        if since <= now:
            newest = max(newest, since)
        if task.stopped_at and failed_by_itself(task, pace):
            failed.append(task)
    if newest > deployment.healthy_at:
        deployment = msgspec.structs.replace(
            deployment,
            healthy_at=newest,
            failed_tasks=0 if reset_on_healthy else deployment.failed_tasks,
            strikes=0,
            not_before=0.0,
            unplaced_at=0.0,
        )
    for task in sorted(failed, key=lambda one: (one.stopped_at, one.id)):
        # What failed before another one became healthy is forgiven, unless failures add up for good.
        if task.stopped_at >= deployment.healthy_at or not reset_on_healthy:
            deployment = failure(deployment, task, pace=pace, now=now)
    return deployment


def failure(deployment: Deployment, task: ServiceTask, *, pace: Pace, now: float) -> Deployment:
    """The deployment once one of its tasks has failed."""
    deployment = msgspec.structs.replace(deployment, failed_tasks=deployment.failed_tasks + 1)
    if task.created_at < deployment.struck_at:
        return deployment  # of a round that is counted already
    strikes = deployment.strikes + 1
    wait = backoff(pace.retry_first, pace.retry_most, strikes - 1)
    return msgspec.structs.replace(deployment, strikes=strikes, struck_at=now, not_before=now + wait)


def not_placed(deployment: Deployment, *, pace: Pace, now: float) -> Deployment:
    """The deployment once a start has found no room.

    The shell calls this for what the scheduler refused and stores the outcome. A start that was only tried again
    because the cluster had changed meanwhile is no further failure: a busy cluster would trip any breaker.
    """
    if deployment.unplaced_at and now < deployment.not_before:
        return msgspec.structs.replace(deployment, unplaced_at=now)
    strikes = deployment.strikes + 1
    return msgspec.structs.replace(
        deployment,
        failed_tasks=deployment.failed_tasks + 1,
        strikes=strikes,
        struck_at=now,
        unplaced_at=now,
        not_before=now + backoff(pace.place_first, pace.retry_most, strikes),
    )


def placed(deployment: Deployment) -> Deployment:
    """The deployment once a start has found room again; the shell calls this when it stores the tasks."""
    return msgspec.structs.replace(deployment, unplaced_at=0.0) if deployment.unplaced_at else deployment


def may_start(deployment: Deployment, room_since: float, now: float) -> bool:
    """Whether tasks may be started now. ``room_since`` is when the cluster last gained room."""
    if deployment.frozen:
        return False
    return now >= deployment.not_before or 0.0 < deployment.unplaced_at < room_since
