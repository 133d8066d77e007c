"""Which roles a task is to have, and whether it can: asked when it is run, so that nobody waits for keys in vain.

An execution role needs no entry where there is no roles file at all: then the agent's own credentials make tasks
ready, as on a host that was never told of roles. A task's own role always needs one.
"""

from __future__ import annotations

import logging

import msgspec

from sexton.control.context import Context, client_error
from sexton.control.records import TaskRecord
from sexton.control.rolekeys import NoRole, RoleKeys
from sexton.core import lifecycle, names, taskroles
from sexton.core.lifecycle import StopCode
from sexton.core.taskroles import EXECUTION, BadRole, TaskRole
from sexton.store.contract import StoreError
from sexton.wire import ecs
from sexton.wire.errors import ServerException

log = logging.getLogger(__name__)


def of_record(context: Context, record: TaskRecord) -> tuple[TaskRole, ...]:
    """The roles whose keys a task is sent."""
    definition = context.records.definition_of(record)
    if definition is None or context.roles is None:
        return ()
    try:
        return _served(context.roles, _roles(context, record.region, definition.definition, record.task.overrides))
    except BadRole:
        return ()  # refused when it is run; one of an older version's records


def problem(
    context: Context, region: str, definition: ecs.TaskDefinition, overrides: ecs.TaskOverride | None = None
) -> str:
    """Why a task cannot have its roles as far as the roles file says; nothing when it can."""
    try:
        wanted = _roles(context, region, definition, overrides)
    except BadRole as error:
        return str(error)
    if context.roles is None:
        return ""
    for role in _served(context.roles, wanted):
        try:
            context.roles.entry(role.arn)
        except NoRole as error:
            return taskroles.refusal(role.arn, str(error))
    return ""


async def check(
    context: Context, region: str, definition: ecs.TaskDefinition, overrides: ecs.TaskOverride | None = None
) -> None:
    """The API's error for a task that cannot have its roles, those who give the keys being asked."""
    if found := problem(context, region, definition, overrides):
        raise client_error(found)
    if context.roles is None:
        return
    for role in _served(context.roles, _roles(context, region, definition, overrides)):
        try:
            await context.roles.prove(role.arn)
        except NoRole as error:
            text = taskroles.refusal(role.arn, str(error))
            raise (ServerException(text) if error.passing else client_error(text)) from None


async def give_up(context: Context, record: TaskRecord, reason: str) -> bool:
    """Tell a task to stop that has never started and never will; False when that could not be written down."""
    records, where = context.records, (record.region, record.cluster, record.id)
    try:
        entry = records.tasks.get(*where)
        if entry is None:
            return True
        task = lifecycle.stop(entry.value.task, StopCode.FAILED_TO_START, reason, context.clock())
        after = msgspec.structs.replace(entry.value, task=task)
        unchanged = records.unchanged(records.tasks, entry, *where)
        return (await records.commit([unchanged], [records.put(records.tasks, after, *where)])).succeeded
    except StoreError as error:
        log.warning("task not stopped", extra={"task": record.arn, "reason": str(error)})
        return False


def _roles(
    context: Context, region: str, definition: ecs.TaskDefinition, overrides: ecs.TaskOverride | None
) -> tuple[TaskRole, ...]:
    return taskroles.of_task(definition, overrides, names.partition(region), context.account)


def _served(roles: RoleKeys, wanted: tuple[TaskRole, ...]) -> tuple[TaskRole, ...]:
    return tuple(one for one in wanted if one.kind != EXECUTION or roles.book.present)
