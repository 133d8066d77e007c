"""Removing task definitions: an INACTIVE revision becomes DELETE_IN_PROGRESS, and goes when nothing uses it.

What still runs from it goes on undisturbed; ``sweep``, which retention calls, removes the record after the last of
its tasks has ended. The number of a removed revision is never given again: the family keeps the largest in a record
of its own, written with the removal.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from sexton.control.context import CONFLICT_TRIES, Call, Context, Operation, busy, invalid
from sexton.control.records import DefinitionRecord, Entry, FamilyRecord, revision_key
from sexton.core import names
from sexton.wire import ecs

MOST_PER_CALL = 10
# A task that was being started while its definition was deregistered and deleted shows within this time.
GRACE_SECONDS = 60.0

_INVALID = "The specified task definition identifier is invalid. Specify a valid name or ARN and try again."
_UNKNOWN = "The specified task definition does not exist. Specify a valid account, family, revision and try again."
_ACTIVE = "The specified task definition is still in ACTIVE status. Please deregister the target and try again."


async def delete(
    context: Context, call: Call, request: ecs.DeleteTaskDefinitionsRequest
) -> ecs.DeleteTaskDefinitionsResponse:
    given = request.task_definitions or ()
    if not 1 <= len(given) <= MOST_PER_CALL:
        raise invalid(f"Task definitions must be between 1 and {MOST_PER_CALL}.")
    done = [await _delete(context, call, text) for text in dict.fromkeys(given)]
    return ecs.DeleteTaskDefinitionsResponse(
        task_definitions=tuple(one for one in done if isinstance(one, ecs.TaskDefinition)),
        failures=tuple(one for one in done if isinstance(one, ecs.Failure)),
    )


async def _delete(context: Context, call: Call, text: str) -> ecs.TaskDefinition | ecs.Failure:
    name = names.parse_definition(text)
    if name is None or not name.revision:
        return ecs.Failure(arn=text, reason=_INVALID)
    records, where = context.records, (call.region, name.family, revision_key(name.revision))
    for _ in range(CONFLICT_TRIES):
        entry = records.definitions.get(*where)
        if entry is None:
            return ecs.Failure(arn=text, reason=_UNKNOWN)
        definition = entry.value.definition
        if definition.status == "ACTIVE":
            return ecs.Failure(arn=definition.task_definition_arn, reason=_ACTIVE)
        if definition.status == "DELETE_IN_PROGRESS":
            return definition
        after = msgspec.structs.replace(definition, status="DELETE_IN_PROGRESS", delete_requested_at=call.now)
        result = await records.commit(
            [records.unchanged(records.definitions, entry, *where)],
            [records.put(records.definitions, msgspec.structs.replace(entry.value, definition=after), *where)],
        )
        if result.succeeded:
            return after
    raise busy(f"task definition {text}")


async def sweep(context: Context, now: float) -> int:
    """Remove revisions that are to go and that nothing uses; returns how many."""
    records = context.records
    removed = 0
    for key, entry in list(_unused(context, now)):
        region_and_family, _, revision = key.rpartition("/")
        before = records.families.get(region_and_family)
        newest = max(int(revision), before.value.newest if before else 0)
        result = await records.commit(
            [
                records.unchanged(records.definitions, entry, key),
                records.unchanged(records.families, before, region_and_family),
            ],
            [
                records.delete(records.definitions, key),
                records.put(records.families, FamilyRecord(newest=newest), region_and_family),
            ],
        )
        # One that conflicts was changed by somebody else just now, and is looked at again in the next round.
        removed += result.succeeded
    return removed


def _unused(context: Context, now: float) -> Iterator[tuple[str, Entry[DefinitionRecord]]]:
    leaving = [
        (key, entry)
        for key, entry in context.records.definitions.items()
        if entry.value.definition.status == "DELETE_IN_PROGRESS"
        and now - (entry.value.definition.delete_requested_at or now) >= GRACE_SECONDS
    ]
    if not leaving:
        return
    used = {one.value.task.task_definition_arn for one in context.records.tasks.all() if not one.value.stopped}
    used |= {
        revision.value.task_definition
        for service in context.records.services.all()
        if not service.value.ended_at
        for _, revision in context.records.service_revisions.under(
            service.value.region, service.value.cluster, service.value.name
        )
    }
    for key, entry in leaving:
        if entry.value.definition.task_definition_arn not in used:
            yield key, entry


OPERATIONS: dict[str, Operation] = {
    "DeleteTaskDefinitions": delete,
}
