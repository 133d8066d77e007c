"""Task protection: a service's task asks not to be ended by scale-in or a deployment for a while.

Only tasks of services can be protected, as in ECS: nothing else ends a standalone task but its owner. Whoever may
call the API may protect a task, its own agent on the task's behalf included. The record keeps until when; once that
has passed the task is not protected any more, without anybody having to write anything. A StopTask by a person, or
the forced deregistration of the instance, ends a protected task all the same.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from sexton.control.context import CONFLICT_TRIES, Call, Context, Operation, active_cluster, busy, invalid, same_cluster
from sexton.control.records import Entry, TaskRecord
from sexton.core import names
from sexton.wire import ecs

MOST_SHOWN = 100
MOST_UPDATED = 10
# The API's own bounds and default, in minutes.
LEAST, MOST, DEFAULT = 1, 2880, 120

_SERVICE_GROUP = "service:"
_MISSING = "The specified task could not be found. Make sure that the cluster and the task ARN or ID are valid."
_NOT_VALID = "Only a task of an Amazon ECS service that has not stopped can be protected."


def protected(record: TaskRecord, now: float) -> bool:
    """Whether scale-in and deployments have to leave a task alone."""
    return record.protected_until > now


def _shown(record: TaskRecord, now: float) -> ecs.ProtectedTask:
    on = protected(record, now)
    until = record.protected_until if on else None
    return ecs.ProtectedTask(task_arn=record.arn, protection_enabled=on, expiration_date=until)


def _find(context: Context, call: Call, cluster: str, text: str) -> Entry[TaskRecord] | ecs.Failure:
    """The task of a service that a request names, or why it is none."""
    member = names.parse_task(text)
    if member is not None:
        same_cluster(member.cluster, cluster)
    entry = member and context.records.tasks.get(call.region, cluster, member.id)
    if not entry:
        arn = text if text.startswith("arn:") else names.task_arn(context.place(call), cluster, text)
        return ecs.Failure(arn=arn, reason="MISSING", detail=_MISSING)
    if entry.value.stopped or not (entry.value.task.group or "").startswith(_SERVICE_GROUP):
        return ecs.Failure(arn=entry.value.arn, reason="TASK_NOT_VALID", detail=_NOT_VALID)
    return entry


def _asked(tasks: Sequence[str] | None, most: int) -> list[str]:
    if not tasks:
        raise invalid("Tasks cannot be empty.")
    if len(tasks) > most:
        raise invalid(f"Tasks cannot have more than {most} entries.")
    return list(dict.fromkeys(tasks))


async def get(context: Context, call: Call, request: ecs.GetTaskProtectionRequest) -> ecs.GetTaskProtectionResponse:
    cluster = active_cluster(context, call, request.cluster).value.name
    found = [_find(context, call, cluster, text) for text in _asked(request.tasks, MOST_SHOWN)]
    return ecs.GetTaskProtectionResponse(
        protected_tasks=tuple(_shown(one.value, call.now) for one in found if isinstance(one, Entry)),
        failures=tuple(one for one in found if isinstance(one, ecs.Failure)),
    )


async def update(
    context: Context, call: Call, request: ecs.UpdateTaskProtectionRequest
) -> ecs.UpdateTaskProtectionResponse:
    cluster = active_cluster(context, call, request.cluster).value.name
    minutes = DEFAULT if request.expires_in_minutes is None else request.expires_in_minutes
    if not LEAST <= minutes <= MOST:
        raise invalid(f"expiresInMinutes must be between {LEAST} and {MOST}.")
    until = call.now + minutes * 60 if request.protection_enabled else 0.0
    done = [await _protect(context, call, cluster, text, until) for text in _asked(request.tasks, MOST_UPDATED)]
    return ecs.UpdateTaskProtectionResponse(
        protected_tasks=tuple(one for one in done if isinstance(one, ecs.ProtectedTask)),
        failures=tuple(one for one in done if isinstance(one, ecs.Failure)),
    )


async def _protect(
    context: Context, call: Call, cluster: str, text: str, until: float
) -> ecs.ProtectedTask | ecs.Failure:
    records = context.records
    for _ in range(CONFLICT_TRIES):
        entry = _find(context, call, cluster, text)
        if isinstance(entry, ecs.Failure):
            return entry
        record = msgspec.structs.replace(entry.value, protected_until=until)
        where = (record.region, record.cluster, record.id)
        if record == entry.value:
            return _shown(record, call.now)
        result = await records.commit(
            [records.unchanged(records.tasks, entry, *where)], [records.put(records.tasks, record, *where)]
        )
        if result.succeeded:
            return _shown(record, call.now)
    raise busy(f"task {text}")


OPERATIONS: dict[str, Operation] = {
    "GetTaskProtection": get,
    "UpdateTaskProtection": update,
}
