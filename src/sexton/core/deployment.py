"""One deployment of a service: what is kept of it, the arithmetic of its bounds, and how a new one begins.

``Deployment`` is a durable value: the shell stores what a decision gives back and shows it in the next view. The
newest one is PRIMARY; those it replaces are ACTIVE until their last task has ended, and one of them is kept longer
while it is what a failing PRIMARY would be rolled back to. Counts of tasks are never stored: they are computed from
the tasks, and so they always agree with them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import NamedTuple

import msgspec

from sexton.core.servicetask import ServiceTask, Stage
from sexton.wire import ecs

RolloutState = ecs.DeploymentRolloutState


class Status(StrEnum):
    PRIMARY = "PRIMARY"
    ACTIVE = "ACTIVE"


class Deployment(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What survives a restart of one deployment (or, for an EXTERNAL service, of one task set's scheduling)."""

    id: str
    revision: str  # the service revision it brings
    status: Status = Status.PRIMARY
    rollout: RolloutState = RolloutState.IN_PROGRESS
    reason: str = ""
    created_at: float
    updated_at: float
    desired: int  # how many tasks it should hold by now
    failed_tasks: int = 0  # as the circuit breaker counts
    healthy_at: float = 0.0  # when one of its tasks last became healthy
    strikes: int = 0  # failing rounds in a row
    struck_at: float = 0.0
    not_before: float = 0.0  # no start before then
    unplaced_at: float = 0.0  # when a start last found no room; 0 once one did

    @property
    def frozen(self) -> bool:
        """It starts nothing any more."""
        return self.rollout == RolloutState.FAILED

    @property
    def completed(self) -> bool:
        return self.rollout == RolloutState.COMPLETED


class Bounds(NamedTuple):
    """How many tasks must stay healthy, and how many there may be at once."""

    minimum: int
    maximum: int


def bounds(desired: int, minimum_percent: int, maximum_percent: int) -> Bounds:
    """The minimum rounds up and the maximum down, as in ECS; the maximum is never below what is desired."""
    return Bounds(-(-desired * minimum_percent // 100), max(desired, desired * maximum_percent // 100))


class Counts(NamedTuple):
    """A deployment's tasks, as the API counts them."""

    running: int
    pending: int


def counts(tasks: Iterable[ServiceTask]) -> Counts:
    stages = [task.stage for task in tasks]
    return Counts(stages.count(Stage.RUNNING), stages.count(Stage.STARTING))


def in_progress(deployment_id: str) -> str:
    return f"ECS deployment {deployment_id} in progress."


def begin(
    deployments: Sequence[Deployment], *, deployment_id: str, revision: str, desired: int, now: float
) -> tuple[Deployment, ...]:
    """The deployments once a new one has become PRIMARY; those before it are ACTIVE from now on."""
    before = (
        msgspec.structs.replace(one, status=Status.ACTIVE, updated_at=now) if one.status == Status.PRIMARY else one
        for one in deployments
    )
    first = Deployment(
        id=deployment_id,
        revision=revision,
        reason=in_progress(deployment_id),
        created_at=now,
        updated_at=now,
        desired=desired,
    )
    return (first, *before)


def primary_first(deployments: Sequence[Deployment]) -> tuple[Deployment, ...]:
    """PRIMARY, then the others from the newest to the oldest."""
    return tuple(sorted(deployments, key=lambda one: (one.status != Status.PRIMARY, -one.created_at, one.id)))


def candidate(others: Sequence[Deployment]) -> Deployment | None:
    """What the PRIMARY would be rolled back to: the newest of the others that came to completion."""
    return next((one for one in others if one.completed), None)


# What a service's update may bring that its running tasks cannot take over; the service model says so field by field.
DEPLOYS = (
    "task_definition",
    "network_configuration",
    "platform_version",
    "load_balancers",
    "service_registries",
    "service_connect_configuration",
    "volume_configurations",
    "vpc_lattice_configurations",
)


def needs_deployment(current: ecs.ServiceRevision, update: ecs.UpdateServiceRequest) -> bool:
    """Whether an update starts a new deployment: it forces one, or brings something else than what is deployed.

    The update's task definition must be resolved to an ARN beforehand. What the update does not speak of stays.
    """
    if update.force_new_deployment:
        return True
    return any(
        getattr(update, field) is not None and getattr(update, field) != getattr(current, field) for field in DEPLOYS
    )
