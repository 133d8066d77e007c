"""What a decision about a service is made from, and what it consists of.

The shell (``control/services``) builds a ``ServiceView`` from the records and applies a ``Decision`` to them, in one
transaction as far as records are concerned. Nothing in either reaches outside: tasks are ids, time is a number.

What survives a restart: the deployments, the ongoing service deployment and ``Memory``, each stored as given back.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

import msgspec

from sexton.core.breaker import Breaker, breaker_of
from sexton.core.deployment import Counts, Deployment
from sexton.core.pace import ECS, Pace
from sexton.core.servicetask import ServiceTask
from sexton.wire import ecs


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """What the service's owner asks for."""

    desired: int = 0
    daemon: bool = False
    external: bool = False
    minimum_percent: int = 100
    maximum_percent: int = 200
    grace: float = 0.0
    breaker: Breaker = Breaker()
    rebalancing: bool = False


def terms(service: ecs.Service) -> Terms:
    """The terms in a service's record, with ECS's defaults for what it leaves open."""
    given = service.deployment_configuration or ecs.DeploymentConfiguration()
    controller = service.deployment_controller.type if service.deployment_controller else None
    daemon = service.scheduling_strategy == ecs.SchedulingStrategy.DAEMON
    least, most = (0, 100) if daemon else (100, 200)
    return Terms(
        desired=service.desired_count or 0,
        daemon=daemon,
        external=controller == ecs.DeploymentControllerType.EXTERNAL,
        minimum_percent=given.minimum_healthy_percent if given.minimum_healthy_percent is not None else least,
        maximum_percent=given.maximum_percent if given.maximum_percent is not None else most,
        grace=float(service.health_check_grace_period_seconds or 0),
        breaker=breaker_of(given.deployment_circuit_breaker),
        rebalancing=service.availability_zone_rebalancing == ecs.AvailabilityZoneRebalancing.ENABLED,
    )


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """An event whose cause may last, so that it is not said again each time somebody looks."""

    kind: str
    text: str
    at: float


class Rebalance(msgspec.Struct, frozen=True, kw_only=True):
    """A move of tasks into ``zone`` that is under way, or (``extra`` 0) one that was given up at ``since``."""

    zone: str = ""
    extra: int = 0
    since: float = 0.0


class Memory(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a service must remember that no deployment holds."""

    said: tuple[Said, ...] = ()
    rebalance: Rebalance | None = None


class DaemonHost(NamedTuple):
    """A host that meets a DAEMON service's constraints; ``ready`` when a task could be started there now."""

    arn: str
    ready: bool = True


class ScaledSet(msgspec.Struct, frozen=True, kw_only=True):
    """A task set of an EXTERNAL service. ``state`` is what ``taskset.begin`` or the last decision gave for it."""

    state: Deployment
    scale_percent: float = 0.0
    draining: bool = False
    stability: str = ecs.StabilityStatus.STABILIZING


class ServiceView(msgspec.Struct, frozen=True, kw_only=True):
    """A service at one moment."""

    name: str
    terms: Terms
    deployments: tuple[Deployment, ...] = ()
    # Every task that has not ended, and every ended one that no stored decision has listed in ``accounted`` yet.
    tasks: tuple[ServiceTask, ...] = ()
    rollout: ecs.ServiceDeployment | None = None  # the service deployment that is not over yet, if any
    deleting: bool = False
    hosts: tuple[DaemonHost, ...] = ()  # DAEMON only
    zones: tuple[str, ...] = ()  # zones in which a task of this service could be placed; for rebalancing
    room_since: float = 0.0  # when the cluster last gained room: a task ended, a host came, one was set ACTIVE
    task_sets: tuple[ScaledSet, ...] = ()  # EXTERNAL only
    memory: Memory = Memory()
    pace: Pace = ECS


class StartTasks(msgspec.Struct, frozen=True):
    """Place and start ``count`` tasks of a deployment; in that zone, or on that host, when one is named."""

    deployment: str
    count: int
    host: str = ""
    zone: str = ""
    replaces_unhealthy: int = 0  # so many of them stand in for unhealthy tasks; the event says so


class StopWhy(StrEnum):
    SCALING = "scaling"
    UNHEALTHY = "unhealthy"
    LEAVING = "leaving"
    REBALANCING = "rebalancing"
    DELETING = "deleting"


class StopTasks(NamedTuple):
    """Stop these tasks with ``TaskStopCode.SERVICE_SCHEDULER_INITIATED`` and this reason."""

    deployment: str
    tasks: tuple[str, ...]
    why: StopWhy
    reason: str


class Rollback(NamedTuple):
    """The service goes back: take the fields of ``revision`` over into the service's record."""

    failed: str
    deployment: str
    revision: str
    reason: str


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What to do now. Only what differs from the view is listed; an empty decision changes nothing."""

    starts: tuple[StartTasks, ...] = ()
    stops: tuple[StopTasks, ...] = ()
    deployments: tuple[Deployment, ...] = ()  # store these
    inactive: tuple[str, ...] = ()  # deployments to forget
    rollback: Rollback | None = None
    rollout: ecs.ServiceDeployment | None = None  # store this; over when ``rollout.over`` says so
    task_sets: tuple[ScaledSet, ...] = ()  # store these
    task_sets_gone: tuple[str, ...] = ()  # ids of DRAINING task sets that hold nothing any more
    memory: Memory | None = None  # store this
    accounted: tuple[str, ...] = ()  # ended tasks not to show again
    events: tuple[str, ...] = ()  # service events, oldest first
    ended: bool = False  # a service being deleted holds nothing any more: INACTIVE
    next_look_at: float | None = None  # look again then, even if nothing has changed
    why: tuple[str, ...] = ()  # what is being waited for, in sentences
    counts: Mapping[str, Counts] = {}  # of every deployment and task set, for the API; not for storing

    @property
    def acts(self) -> bool:
        return bool(self.starts or self.stops)

    @property
    def stores(self) -> bool:
        """Whether any record changes."""
        return bool(
            self.deployments
            or self.inactive
            or self.rollout
            or self.task_sets
            or self.task_sets_gone
            or self.memory
            or self.accounted
            or self.events
            or self.ended
        )
