"""Task definitions: families of numbered revisions.

A revision never changes after it is registered, except that deregistering makes it INACTIVE. Numbers are handed out
by one record per family, so two registrations at the same instant get two numbers and no number is used twice.
"""

from __future__ import annotations

import asyncio

import msgspec

from sexton.control.context import CONFLICT_TRIES, Call, Context, Operation, busy, client_error, invalid, page
from sexton.control.records import DefinitionRecord, Entry, FamilyRecord, revision_key
from sexton.core import capabilities, definition, names
from sexton.wire import ecs

# Registrations of one family in this process queue here instead of colliding in the store.
_family_locks: dict[tuple[int, str, str], asyncio.Lock] = {}


def find(context: Context, call: Call, given: str | None) -> Entry[DefinitionRecord] | None:
    """The definition a request names; a family alone means its newest active revision."""
    name = names.parse_definition(given or "")
    if name is None:
        return None
    if name.revision:
        return context.records.definitions.get(call.region, name.family, revision_key(name.revision))
    family = context.records.families.get(call.region, name.family)
    for revision in range(family.value.latest if family else 0, 0, -1):
        entry = context.records.definitions.get(call.region, name.family, revision_key(revision))
        if entry is not None and entry.value.definition.status == "ACTIVE":
            return entry
    return None


def active(context: Context, call: Call, given: str | None) -> DefinitionRecord:
    """The definition that a task is to be started from."""
    entry = find(context, call, given)
    if entry is None:
        raise client_error("TaskDefinition not found.")
    if entry.value.definition.status != "ACTIVE":
        raise client_error("TaskDefinition is inactive")
    return entry.value


async def register(
    context: Context, call: Call, request: ecs.RegisterTaskDefinitionRequest
) -> ecs.RegisterTaskDefinitionResponse:
    problem = definition.check(request)
    if problem:
        raise client_error(problem)
    family = request.family or ""
    lock_key = (id(context.records), call.region, family)
    lock = _family_locks.setdefault(lock_key, asyncio.Lock())
    try:
        async with lock:
            record = await _append(context, call, request, family)
    finally:
        # Nobody can be between setdefault and acquire here: both happen without giving up the loop.
        if not lock.locked() and _family_locks.get(lock_key) is lock:
            del _family_locks[lock_key]
    return ecs.RegisterTaskDefinitionResponse(task_definition=record.definition, tags=record.tags or None)


async def _append(
    context: Context, call: Call, request: ecs.RegisterTaskDefinitionRequest, family: str
) -> DefinitionRecord:
    records = context.records
    for _ in range(CONFLICT_TRIES):
        counter = records.families.get(call.region, family)
        revision = counter.value.latest + 1 if counter else 1
        record = DefinitionRecord(definition=_build(context, call, request, revision), tags=request.tags or ())
        result = await records.commit(
            [records.unchanged(records.families, counter, call.region, family)],
            [
                records.put(records.families, FamilyRecord(latest=revision), call.region, family),
                records.put(records.definitions, record, call.region, family, revision_key(revision)),
            ],
        )
        if result.succeeded:
            return record
    raise busy(f"task definition family {family}")


def _build(
    context: Context, call: Call, request: ecs.RegisterTaskDefinitionRequest, revision: int
) -> ecs.TaskDefinition:
    place = context.place(call)
    return ecs.TaskDefinition(
        task_definition_arn=names.definition_arn(place, request.family or "", revision),
        family=request.family,
        revision=revision,
        status="ACTIVE",
        container_definitions=tuple(map(definition.normalise, request.container_definitions or ())),
        task_role_arn=request.task_role_arn,
        execution_role_arn=request.execution_role_arn,
        network_mode=request.network_mode,
        volumes=request.volumes or (),
        requires_attributes=tuple(ecs.Attribute(name=name) for name in capabilities.required(request)),
        placement_constraints=request.placement_constraints or (),
        compatibilities=definition.compatibilities(request),
        requires_compatibilities=request.requires_compatibilities,
        cpu=request.cpu,
        memory=request.memory,
        pid_mode=request.pid_mode,
        ipc_mode=request.ipc_mode,
        proxy_configuration=request.proxy_configuration,
        inference_accelerators=request.inference_accelerators,
        ephemeral_storage=request.ephemeral_storage,
        runtime_platform=request.runtime_platform,
        enable_fault_injection=request.enable_fault_injection,
        registered_at=call.now,
        registered_by=f"arn:{names.partition(call.region)}:iam::{context.account}:user/{call.access_key}",
    )


async def describe(
    context: Context, call: Call, request: ecs.DescribeTaskDefinitionRequest
) -> ecs.DescribeTaskDefinitionResponse:
    entry = find(context, call, request.task_definition)
    if entry is None:
        raise client_error("Unable to describe task definition.")
    tags = entry.value.tags if "TAGS" in (request.include or ()) else None
    return ecs.DescribeTaskDefinitionResponse(task_definition=entry.value.definition, tags=tags)


async def deregister(
    context: Context, call: Call, request: ecs.DeregisterTaskDefinitionRequest
) -> ecs.DeregisterTaskDefinitionResponse:
    name = names.parse_definition(request.task_definition or "")
    if name is None or not name.revision:
        raise invalid("Task definition identifier must be an ARN or family:revision.")
    records = context.records
    for _ in range(CONFLICT_TRIES):
        entry = find(context, call, request.task_definition)
        if entry is None:
            raise client_error("The specified task definition does not exist.")
        if entry.value.definition.status != "ACTIVE":
            return ecs.DeregisterTaskDefinitionResponse(task_definition=entry.value.definition)
        inactive = msgspec.structs.replace(entry.value.definition, status="INACTIVE", deregistered_at=call.now)
        record = msgspec.structs.replace(entry.value, definition=inactive)
        where = (call.region, name.family, revision_key(name.revision))
        result = await records.commit(
            [records.unchanged(records.definitions, entry, *where)],
            [records.put(records.definitions, record, *where)],
        )
        if result.succeeded:
            return ecs.DeregisterTaskDefinitionResponse(task_definition=inactive)
    raise busy(f"task definition {request.task_definition}")


async def listing(
    context: Context, call: Call, request: ecs.ListTaskDefinitionsRequest
) -> ecs.ListTaskDefinitionsResponse:
    status = request.status or "ACTIVE"
    prefix = request.family_prefix
    where = (call.region, prefix) if prefix else (call.region,)
    keys = sorted(
        key for key, one in context.records.definitions.under(*where) if one.value.definition.status == status
    )
    # Newest first turns each family's revisions round, and the families with them, as ECS does.
    if request.sort == "DESC":
        keys.reverse()
        keys, token = _page_backwards(keys, request.next_token, request.max_results)
    else:
        keys, token = page(keys, request.next_token, request.max_results)
    rows = (context.records.definitions.get(key) for key in keys)
    arns = tuple(row.value.definition.task_definition_arn or "" for row in rows if row)
    return ecs.ListTaskDefinitionsResponse(task_definition_arns=arns, next_token=token)


def _page_backwards(keys: list[str], token: str | None, size: int | None) -> tuple[list[str], str | None]:
    limit = size if size and 0 < size <= 100 else 100
    if token:
        try:
            before = bytes.fromhex(token).decode()
        except ValueError:
            raise invalid("Invalid token.") from None
        keys = [key for key in keys if key < before]
    chosen = keys[:limit]
    return chosen, chosen[-1].encode().hex() if len(keys) > limit else None


async def families(
    context: Context, call: Call, request: ecs.ListTaskDefinitionFamiliesRequest
) -> ecs.ListTaskDefinitionFamiliesResponse:
    status = request.status or "ACTIVE"
    found = set()
    prefix = request.family_prefix or ""
    active_families = set()
    for key, one in context.records.definitions.under(call.region):
        family = key.split("/")[1]
        if family.startswith(prefix):
            found.add(family)
            if one.value.definition.status == "ACTIVE":
                active_families.add(family)
    chosen = {"ACTIVE": active_families, "INACTIVE": found - active_families}.get(status, found)
    listed, token = page(sorted(chosen), request.next_token, request.max_results)
    return ecs.ListTaskDefinitionFamiliesResponse(families=tuple(listed), next_token=token)


OPERATIONS: dict[str, Operation] = {
    "RegisterTaskDefinition": register,
    "DescribeTaskDefinition": describe,
    "DeregisterTaskDefinition": deregister,
    "ListTaskDefinitions": listing,
    "ListTaskDefinitionFamilies": families,
}
