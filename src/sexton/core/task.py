"""A task's life as a table, and the two values it is computed from.

``DesiredTask`` is what the control plane asked for. ``KnownTask`` is what is known to have happened, and the only
thing that must survive a restart besides the desired one. Both are immutable: ``plan`` reads them and says which
containers may take which step now, ``observe`` takes one thing that happened and gives the next known value. Time
arrives with the event. Nothing ever moves backwards, so repeated, late and reordered events are harmless.

Diagram of one container (``docs/flow-of-a-task.md`` is generated from the same table):

    NONE --resolved--> MANIFEST_PULLED --pulled--> PULLED --created--> CREATED --started--> RUNNING
      any of them --exited | gave_up | vanished--> STOPPED (final)

A container with a restart policy that ends and is to be started again stays RUNNING meanwhile, marked ``restarting``.
Which of the steps that may be taken have to wait for other containers is said by ``core.ordering``.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from sexton.core import restart
from sexton.wire import acs_task
from sexton.wire.network import PROTOCOL

# Reasons travel in fields that the service cuts there.
REASON_LIMIT = 1024


class ContainerStatus(StrEnum):
    NONE = "NONE"
    MANIFEST_PULLED = "MANIFEST_PULLED"
    PULLED = "PULLED"
    CREATED = "CREATED"
    RUNNING = "RUNNING"
    STOPPED = "STOPPED"

    @property
    def rank(self) -> int:
        return _CONTAINER_RANK[self]


_CONTAINER_RANK = {status: rank for rank, status in enumerate(ContainerStatus)}


class TaskStatus(StrEnum):
    NONE = "NONE"
    MANIFEST_PULLED = "MANIFEST_PULLED"
    CREATED = "CREATED"
    RUNNING = "RUNNING"
    STOPPED = "STOPPED"

    @property
    def rank(self) -> int:
        return _TASK_RANK[self]


_TASK_RANK = {status: rank for rank, status in enumerate(TaskStatus)}

# A container's part in its task's status: the task is as far as its slowest container.
SHARE: dict[ContainerStatus, TaskStatus] = {
    ContainerStatus.NONE: TaskStatus.NONE,
    ContainerStatus.MANIFEST_PULLED: TaskStatus.MANIFEST_PULLED,
    ContainerStatus.PULLED: TaskStatus.MANIFEST_PULLED,
    ContainerStatus.CREATED: TaskStatus.CREATED,
    ContainerStatus.RUNNING: TaskStatus.RUNNING,
    ContainerStatus.STOPPED: TaskStatus.STOPPED,
}


class Step(StrEnum):
    """What can be done to a container; one file in ``agent/steps`` each."""

    RESOLVE = "resolve"
    PULL = "pull"
    CREATE = "create"
    START = "start"
    STOP = "stop"


class Happened(StrEnum):
    """What an event says about a container. UNSEEN: the engine has none, and never had."""

    UNSEEN = "unseen"
    RESOLVED = "resolved"
    PULLED = "pulled"
    CREATED = "created"
    STARTED = "started"
    EXITED = "exited"
    VANISHED = "vanished"
    GAVE_UP = "gave_up"


# The next step of a container that should run, by where it is.
FORWARD: dict[ContainerStatus, Step] = {
    ContainerStatus.NONE: Step.RESOLVE,
    ContainerStatus.MANIFEST_PULLED: Step.PULL,
    ContainerStatus.PULLED: Step.CREATE,
    ContainerStatus.CREATED: Step.START,
}

# Where each event can take a container to. What it does not raise, it leaves alone.
REACHES: dict[Happened, ContainerStatus] = {
    Happened.UNSEEN: ContainerStatus.NONE,
    Happened.RESOLVED: ContainerStatus.MANIFEST_PULLED,
    Happened.PULLED: ContainerStatus.PULLED,
    Happened.CREATED: ContainerStatus.CREATED,
    Happened.STARTED: ContainerStatus.RUNNING,
    Happened.EXITED: ContainerStatus.STOPPED,
    Happened.VANISHED: ContainerStatus.STOPPED,
    Happened.GAVE_UP: ContainerStatus.STOPPED,
}

TRANSITIONS: dict[tuple[ContainerStatus, Happened], ContainerStatus] = {
    (status, happened): target if target.rank > status.rank else status
    for status in ContainerStatus
    for happened, target in REACHES.items()
}


class Binding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A port of a container as it is reachable on the host; with ``span`` so many of them, from the given ones on."""

    container_port: int
    host_port: int
    bind_ip: str
    protocol: str
    span: int = 0


class Health(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the engine's health check of a container last said. ``output`` is cut; ``since`` is of the status."""

    status: str = "UNKNOWN"  # or HEALTHY, UNHEALTHY
    since: float = 0.0
    exit_code: int | None = None
    output: str = ""


class KnownContainer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is known of one container. ``started_at`` is its first start, ``running_since`` its last."""

    name: str
    status: ContainerStatus = ContainerStatus.NONE
    runtime_id: str = ""
    image_digest: str = ""
    exit_code: int | None = None
    reason: str = ""  # of the first error; the first one explains best
    bindings: tuple[Binding, ...] = ()
    created_at: float = 0.0
    started_at: float = 0.0
    finished_at: float = 0.0
    sent: ContainerStatus = ContainerStatus.NONE  # what the control plane has acknowledged
    health: Health | None = None
    running_since: float = 0.0
    restarting: bool = False  # it ended, and its restart policy wants it back
    restarts: int = 0
    stopped_again: bool = False  # somebody started it after its end, and it was stopped once more


class KnownTask(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is known of a task. ``stop`` says that it must end, whoever decided so."""

    arn: str
    status: TaskStatus = TaskStatus.NONE
    stop: bool = False
    reason: str = ""
    containers: tuple[KnownContainer, ...] = ()
    received_at: float = 0.0
    pull_started_at: float = 0.0
    pull_stopped_at: float = 0.0
    execution_stopped_at: float = 0.0
    stopped_at: float = 0.0
    sent: TaskStatus = TaskStatus.NONE
    wired: bool = False  # its host has to take its own network down before it has ended
    reclaimed: bool = False  # its cgroup is drained and gone
    removed: bool = False  # its containers are gone

    def container(self, name: str) -> KnownContainer:
        for one in self.containers:
            if one.name == name:
                return one
        raise KeyError(name)

    def change(self, name: str, **fields: object) -> KnownTask:
        """The same with these fields of one container."""
        containers = tuple(
            msgspec.structs.replace(one, **fields) if one.name == name else one for one in self.containers
        )
        return msgspec.structs.replace(self, containers=containers)


class DesiredTask(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the control plane asked for: the payload as it came, and whether it should still run."""

    task: acs_task.Task
    stopped: bool = False
    sequence: int = 0

    @property
    def arn(self) -> str:
        return self.task.arn or ""


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened to one container of a task."""

    container: str
    happened: Happened
    time: float
    runtime_id: str = ""
    image_digest: str = ""
    exit_code: int | None = None
    error: str = ""  # "<ErrorName>: text"; empty when nothing went wrong
    fatal: bool = False  # the error ends the whole task, essential container or not
    bindings: tuple[Binding, ...] | None = None
    created_at: float = 0.0
    started_at: float = 0.0
    finished_at: float = 0.0
    health: Health | None = None


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """A container that may take a step now."""

    container: str
    step: Step


def accept(desired: DesiredTask, now: float) -> KnownTask:
    """The first known value of a task that has just been asked for."""
    names = tuple(KnownContainer(name=one.name or "") for one in desired.task.containers or ())
    first = KnownTask(
        arn=desired.arn,
        containers=names,
        received_at=now,
        stop=desired.stopped,
        wired=any(
            one.interface_association_protocol == PROTOCOL for one in desired.task.elastic_network_interfaces or ()
        ),
    )
    return _settle(desired, first, now)


def plan(desired: DesiredTask, known: KnownTask) -> tuple[Move, ...]:
    """Every step that may be taken now; the caller leaves out containers that already have one in flight."""
    if known.status is TaskStatus.STOPPED:
        return ()
    if not ends(desired, known):
        return tuple(
            Move(container=one.name, step=Step.START if one.restarting else FORWARD[one.status])
            for one in known.containers
            if one.status in FORWARD or one.restarting
        )
    # A created container may have been started by a step that died before it could tell: only the stop step,
    # which looks first, may call it stopped.
    return tuple(
        Move(container=one.name, step=Step.STOP)
        for one in known.containers
        if one.status in (ContainerStatus.CREATED, ContainerStatus.RUNNING)
    )


def ends(desired: DesiredTask, known: KnownTask) -> bool:
    """Whether the task is on its way to its end."""
    return desired.stopped or known.stop


def observe(desired: DesiredTask, known: KnownTask, event: Event) -> KnownTask:
    """The next known value after one event."""
    again = restart_verdict(desired, known, event).again
    policy = _policy(desired, event.container)
    counted = policy is not None and bool(policy.enabled)
    containers = tuple(
        _advance(one, event, again=again, counted=counted) if one.name == event.container else one
        for one in known.containers
    )
    known = msgspec.structs.replace(known, containers=containers)
    if event.error and event.fatal and not known.stop and known.status is not TaskStatus.STOPPED:
        known = msgspec.structs.replace(known, stop=True, reason=known.reason or event.error[:REASON_LIMIT])
    return _settle(desired, known, event.time)


def restart_verdict(desired: DesiredTask, known: KnownTask, event: Event) -> restart.Verdict:
    """What a container's restart policy makes of its end; anything but the end of one that ran is none."""
    one = next((one for one in known.containers if one.name == event.container), None)
    if one is None or event.happened is not Happened.EXITED or one.status is ContainerStatus.STOPPED:
        return restart.Verdict(again=False)
    return restart.decide(
        _policy(desired, event.container),
        ending=ends(desired, known),
        exit_code=event.exit_code,
        running_since=max(one.running_since, event.started_at),
        ended_at=event.finished_at or event.time,
    )


def _policy(desired: DesiredTask, container: str) -> acs_task.RestartPolicy | None:
    return next((one.restart_policy for one in desired.task.containers or () if one.name == container), None)


def pulling(known: KnownTask, started: float = 0.0, stopped: float = 0.0) -> KnownTask:
    """Remember the first start and the last end of image pulls."""
    return msgspec.structs.replace(
        known,
        pull_started_at=known.pull_started_at or started,
        pull_stopped_at=max(known.pull_stopped_at, stopped),
    )


def end(desired: DesiredTask, known: KnownTask, now: float, reason: str = "") -> KnownTask:
    """The known value once the task has been told to end; one that has ended stays as it is."""
    if not known.stop and known.status is not TaskStatus.STOPPED:
        known = msgspec.structs.replace(known, stop=True, reason=known.reason or reason[:REASON_LIMIT])
    return _settle(desired, known, now)


def acknowledged(known: KnownTask, report: KnownTask) -> KnownTask:
    """Mark what a delivered report said as sent."""
    delivered = {one.name: one.status for one in report.containers}
    containers = tuple(
        msgspec.structs.replace(one, sent=delivered[one.name])
        if one.name in delivered and delivered[one.name].rank > one.sent.rank
        else one
        for one in known.containers
    )
    told = TaskStatus.RUNNING if goes_down(report) else report.status
    sent = told if told.rank > known.sent.rank else known.sent
    return msgspec.structs.replace(known, containers=containers, sent=sent)


def goes_down(known: KnownTask) -> bool:
    """Whether nothing of the task runs any more, and it has not ended: its network is still here."""
    return known.status is TaskStatus.STOPPED and known.wired


def unreported(known: KnownTask) -> bool:
    """Whether the control plane has yet to hear of this; only what it understands counts."""
    if known.sent is TaskStatus.STOPPED:
        return False
    worth = {TaskStatus.RUNNING, TaskStatus.STOPPED}
    if known.status in worth and known.status.rank > known.sent.rank:
        return True
    told = {ContainerStatus.RUNNING, ContainerStatus.STOPPED}
    return any(one.status in told and one.status.rank > one.sent.rank for one in known.containers)


def _advance(one: KnownContainer, event: Event, *, again: bool, counted: bool) -> KnownContainer:
    status = TRANSITIONS[one.status, event.happened]
    if one.status is ContainerStatus.STOPPED:
        # Final. A better look at the same end may still add what was missing.
        if one.exit_code is None and event.exit_code is not None and not one.reason:
            return msgspec.structs.replace(one, exit_code=event.exit_code)
        return one
    # Back from its restart, or found running since later than known: the clock may have been set back meanwhile.
    back = one.restarting and event.happened is Happened.STARTED
    later = event.started_at > one.running_since
    one = msgspec.structs.replace(
        one,
        runtime_id=event.runtime_id or one.runtime_id,  # one that could not be started is made anew
        image_digest=one.image_digest or event.image_digest,
        bindings=event.bindings if event.bindings is not None else one.bindings,
        created_at=one.created_at or event.created_at,
        started_at=one.started_at or event.started_at,
        running_since=event.started_at if back and event.started_at else max(one.running_since, event.started_at),
        restarts=one.restarts + (back or (counted and later and one.running_since > 0)),
        health=_health(one.health, event),
    )
    if again:
        # For everybody else it runs on: neither its exit code nor its error is one of the task.
        return msgspec.structs.replace(one, status=ContainerStatus.RUNNING, restarting=True)
    return msgspec.structs.replace(
        one,
        status=status,
        exit_code=event.exit_code if event.exit_code is not None else one.exit_code,
        reason=one.reason or event.error[:REASON_LIMIT],
        finished_at=event.finished_at or (event.time if status is ContainerStatus.STOPPED else 0.0),
        restarting=one.restarting and not back and status is ContainerStatus.RUNNING,
    )


def _health(before: Health | None, event: Event) -> Health | None:
    """The newest word of the health check, with the time since when its status holds."""
    if event.health is None:
        return before
    if before is not None and before.status == event.health.status:
        return msgspec.structs.replace(event.health, since=before.since)
    return msgspec.structs.replace(event.health, since=event.time)


def _settle(desired: DesiredTask, known: KnownTask, now: float) -> KnownTask:
    """Draw every conclusion that follows from the containers: ends, quick stops, the task's own status."""
    if known.status is TaskStatus.STOPPED:
        return known
    essential = {one.name for one in desired.task.containers or () if one.essential is not False}
    stop = known.stop or desired.stopped or _any_stopped(known.containers, essential)
    containers = known.containers
    if stop:
        # What never reached the engine has nothing to stop there.
        containers = tuple(
            msgspec.structs.replace(one, status=ContainerStatus.STOPPED, finished_at=now)
            if one.status.rank < ContainerStatus.CREATED.rank
            else one
            for one in containers
        )
    status = min((SHARE[one.status] for one in containers), key=lambda s: s.rank, default=TaskStatus.STOPPED)
    if status.rank < known.status.rank or (stop and status is not TaskStatus.STOPPED):
        status = known.status  # a task on its way out never turns RUNNING late
    return msgspec.structs.replace(
        known,
        stop=stop,
        containers=containers,
        status=status,
        execution_stopped_at=known.execution_stopped_at or (now if _any_stopped(containers, essential) else 0.0),
        stopped_at=known.stopped_at or (now if status is TaskStatus.STOPPED else 0.0),
    )


def _any_stopped(containers: tuple[KnownContainer, ...], names: set[str | None]) -> bool:
    return any(one.name in names and one.status is ContainerStatus.STOPPED for one in containers)
