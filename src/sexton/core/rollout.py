"""A service deployment: the API's record of one attempt to bring a revision out, and its way through its statuses.

    PENDING -> IN_PROGRESS -> SUCCESSFUL
                  |  \\-> STOP_REQUESTED -> STOPPED            (aborted, superseded, or failed without rollback)
                  \\-> ROLLBACK_REQUESTED -> ROLLBACK_IN_PROGRESS -> ROLLBACK_SUCCESSFUL | ROLLBACK_FAILED

A service has at most one that is not over. The record is the wire's own shape, so that the shell stores and shows it
as it is; every function gives back a new one. ``request_stop`` and ``supersede`` are for operations, the rest for
``service.decide``.
"""

from __future__ import annotations

import msgspec

from sexton.core.breaker import Breaker, threshold
from sexton.core.deployment import Deployment
from sexton.wire import ecs

Status = ecs.ServiceDeploymentStatus
Monitor = ecs.ServiceDeploymentRollbackMonitorsStatus

OVER = frozenset((Status.SUCCESSFUL, Status.STOPPED, Status.ROLLBACK_SUCCESSFUL, Status.ROLLBACK_FAILED))
GOING_BACK = frozenset((Status.ROLLBACK_REQUESTED, Status.ROLLBACK_IN_PROGRESS))

EXCEEDED = "Service deployment rolled back because the circuit breaker threshold was exceeded."
# ECS's words for the following are not documented.
FAILED = "Service deployment failed because the circuit breaker threshold was exceeded."
NO_CANDIDATE = "Service deployment failed because the circuit breaker threshold was exceeded. No rollback candidate."
BY_USER = "Service deployment rolled back because of a user request."
NOTHING_TO_GO_BACK_TO = "Service deployment could not be rolled back: no earlier service revision was found."
ABORTED = "Service deployment stopped because of a user request."
SUPERSEDED = "Service deployment stopped because a new service deployment was started."
AGAIN_FAILED = "Service deployment rollback failed because the circuit breaker threshold was exceeded."


def over(rollout: ecs.ServiceDeployment) -> bool:
    return rollout.status in OVER


def moved(
    rollout: ecs.ServiceDeployment, status: Status, now: float, reason: str | None = None
) -> ecs.ServiceDeployment:
    """The record in its next status, with the times that go with it."""
    over_now = status in OVER
    return msgspec.structs.replace(
        rollout,
        status=str(status),
        status_reason=reason if reason is not None else rollout.status_reason,
        updated_at=now,
        started_at=rollout.started_at or now,
        finished_at=now if over_now and status != Status.STOPPED else rollout.finished_at,
        stopped_at=now if status == Status.STOPPED else rollout.stopped_at,
    )


def going_back(rollout: ecs.ServiceDeployment, revision: str, reason: str, now: float) -> ecs.ServiceDeployment:
    note = ecs.Rollback(reason=reason, started_at=now, service_revision_arn=revision)
    return msgspec.structs.replace(moved(rollout, Status.ROLLBACK_IN_PROGRESS, now, reason), rollback=note)


def supersede(rollout: ecs.ServiceDeployment | None, now: float) -> ecs.ServiceDeployment | None:
    """The ongoing record once a newer deployment begins; None when there was nothing to end."""
    return None if rollout is None or over(rollout) else moved(rollout, Status.STOPPED, now, SUPERSEDED)


def request_stop(rollout: ecs.ServiceDeployment, stop_type: str | None, now: float) -> ecs.ServiceDeployment | None:
    """The record once a user has asked to stop it, or None when it is over and the request is a conflict.

    A rollback that is under way goes on whatever is asked, and a stop that is under way stays a stop.
    """
    if over(rollout):
        return None
    if rollout.status in (*GOING_BACK, Status.STOP_REQUESTED):
        return rollout
    if stop_type == ecs.StopServiceDeploymentStopType.ABORT:
        return moved(rollout, Status.STOP_REQUESTED, now, ABORTED)
    return moved(rollout, Status.ROLLBACK_REQUESTED, now, BY_USER)


def watched(
    rollout: ecs.ServiceDeployment, deployment: Deployment, breaker: Breaker, desired: int
) -> ecs.ServiceDeployment:
    """The record with what the circuit breaker has counted."""
    if not breaker.enabled:
        seen = ecs.ServiceDeploymentCircuitBreaker(status=Monitor.DISABLED)
    else:
        triggered = rollout.status in GOING_BACK or deployment.frozen
        done = rollout.status == Status.SUCCESSFUL
        status = Monitor.TRIGGERED if triggered else Monitor.MONITORING_COMPLETE if done else Monitor.MONITORING
        seen = ecs.ServiceDeploymentCircuitBreaker(
            status=status, failure_count=deployment.failed_tasks, threshold=threshold(breaker, desired)
        )
    if rollout.rollback is not None:
        return rollout  # what the breaker counted before the rollback stays on record
    return (
        rollout
        if rollout.deployment_circuit_breaker == seen
        else msgspec.structs.replace(rollout, deployment_circuit_breaker=seen)
    )
