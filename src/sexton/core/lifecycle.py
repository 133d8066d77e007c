"""A task's record in the control plane: how a request to stop or a report from an agent changes it.

Agents report at least once and in any order across tasks, so every rule here only moves forward: a container that
is STOPPED stays so, a task that is STOPPED is final, and a report that says nothing new gives back the very same
value. The stop code is decided once, by whatever ended the task first.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import StrEnum

import msgspec

from sexton.core import attachment
from sexton.wire import ecs
from sexton.wire.network import DEPROVISIONING

_BEFORE_RUNNING = (attachment.PROVISIONING, "PENDING", "ACTIVATING")
_ORDER = {word: rank for rank, word in enumerate((*_BEFORE_RUNNING, "RUNNING", DEPROVISIONING, "STOPPED"))}

ESSENTIAL_EXITED = "Essential container in task exited"


class StopCode(StrEnum):
    FAILED_TO_START = "TaskFailedToStart"
    ESSENTIAL_EXITED = "EssentialContainerExited"
    USER = "UserInitiated"
    SERVICE = "ServiceSchedulerInitiated"


def waits(task: ecs.Task) -> bool:
    """Whether a task has yet to run, as counts of pending tasks see it."""
    return task.last_status in _BEFORE_RUNNING


def stop(task: ecs.Task, code: StopCode, reason: str, now: float) -> ecs.Task:
    """The task once it has been told to end; the first word on why stands."""
    if task.desired_status == "STOPPED":
        return task
    return _next(task, desired_status="STOPPED", stop_code=str(code), stopped_reason=reason, stopping_at=now)


def never_started(task: ecs.Task, now: float) -> ecs.Task:
    """The task whose host is gone, so that nobody is left to report its end; one that has ended stays as it is."""
    if task.last_status == "STOPPED":
        return task
    containers = tuple(msgspec.structs.replace(one, last_status="STOPPED") for one in task.containers or ())
    task = attachment.moved(task, attachment.DELETED)
    return _next(task, containers=containers, last_status="STOPPED", desired_status="STOPPED", stopped_at=now)


def report(
    task: ecs.Task, change: ecs.SubmitTaskStateChangeRequest, essential: Collection[str], now: float
) -> ecs.Task:
    """The task after an agent's report."""
    if task.last_status == "STOPPED":
        return task
    containers = _merge(task.containers or (), change.containers or ())
    after = task
    if containers != task.containers:
        after = msgspec.structs.replace(after, containers=containers)
    after = msgspec.structs.replace(
        after,
        pull_started_at=after.pull_started_at or change.pull_started_at,
        pull_stopped_at=max(change.pull_stopped_at or 0.0, after.pull_stopped_at or 0.0) or None,
        execution_stopped_at=after.execution_stopped_at or change.execution_stopped_at,
    )
    ended = [one for one in containers if one.name in essential and one.last_status == "STOPPED"]
    after = attachment.reported(after, change.attachments or ())
    status = change.status or ""
    if attachment.waits(after):
        status = "" if status == "PENDING" else status
    elif after.last_status == attachment.PROVISIONING and status not in _ORDER:
        status = "PENDING"
    if status in (DEPROVISIONING, "STOPPED") or ended:
        after = _ending(after, change.reason or "", ended, now)
    if _ORDER.get(status, 0) > _ORDER.get(after.last_status or "", 0):
        after = msgspec.structs.replace(after, last_status=status)
        if status == "RUNNING":
            after = msgspec.structs.replace(after, started_at=now, connectivity="CONNECTED", connectivity_at=now)
            after = attachment.moved(after, attachment.ATTACHED)
        if status == DEPROVISIONING:
            after = attachment.moved(after, attachment.DETACHING)
    if after.last_status == "STOPPED":
        after = _stopped(after, now)
    return task if after == task else _next(after)


def health(task: ecs.Task, words: Mapping[str, str], essential: Collection[str]) -> ecs.Task:
    """The task after its agent said what the health checks of its containers say.

    A task is as healthy as those of its essential containers that have a check; without one nobody knows.
    """
    if task.last_status == "STOPPED":
        return task
    containers = tuple(
        msgspec.structs.replace(one, health_status=words.get(one.name or "", one.health_status))
        if one.health_status
        else one
        for one in task.containers or ()
    )
    checked = [one.health_status for one in containers if one.name in essential and one.health_status]
    whole = next((word for word in ("UNHEALTHY", "UNKNOWN") if word in checked), "HEALTHY" if checked else "UNKNOWN")
    if containers == task.containers and whole == task.health_status:
        return task
    return _next(task, containers=containers, health_status=whole)


def _ending(task: ecs.Task, reason: str, ended: list[ecs.Container], now: float) -> ecs.Task:
    """Why the task ends, if nobody has said so yet."""
    if task.desired_status == "STOPPED":
        return task
    own = reason or next((one.reason for one in ended if one.reason), "")
    ran = any(one.exit_code is not None for one in ended)
    # A container that exited is the task's own end; without any exit code nothing of it ever ran to an end.
    code = StopCode.ESSENTIAL_EXITED if ran or task.started_at else StopCode.FAILED_TO_START
    text = ESSENTIAL_EXITED if ran and not reason else own or ESSENTIAL_EXITED
    return msgspec.structs.replace(
        task, desired_status="STOPPED", stop_code=str(code), stopped_reason=text, stopping_at=task.stopping_at or now
    )


def _stopped(task: ecs.Task, now: float) -> ecs.Task:
    containers = tuple(
        msgspec.structs.replace(one, last_status="STOPPED") if one.last_status != "STOPPED" else one
        for one in task.containers or ()
    )
    task = attachment.moved(task, attachment.DELETED)
    return msgspec.structs.replace(task, containers=containers, stopped_at=now)


def _merge(
    containers: tuple[ecs.Container, ...], changes: tuple[ecs.ContainerStateChange, ...]
) -> tuple[ecs.Container, ...]:
    by_name = {one.container_name: one for one in changes}
    return tuple(_apply(one, by_name[one.name]) if one.name in by_name else one for one in containers)


def _apply(one: ecs.Container, change: ecs.ContainerStateChange) -> ecs.Container:
    if one.last_status == "STOPPED":
        return one
    forward = _ORDER.get(change.status or "", 0) > _ORDER.get(one.last_status or "", 0)
    return msgspec.structs.replace(
        one,
        last_status=change.status if forward else one.last_status,
        exit_code=change.exit_code if change.exit_code is not None else one.exit_code,
        reason=change.reason or one.reason,
        runtime_id=change.runtime_id or one.runtime_id,
        image_digest=change.image_digest or one.image_digest,
        network_bindings=change.network_bindings or one.network_bindings or (),
    )


def _next(task: ecs.Task, **fields: object) -> ecs.Task:
    return msgspec.structs.replace(task, version=(task.version or 0) + 1, **fields)
