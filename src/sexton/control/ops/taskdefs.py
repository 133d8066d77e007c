"""Task definitions: families of numbered revisions.

A revision never changes after it is registered, except that deregistering makes it INACTIVE. A registration is
written on the condition that its number is free, so two at the same instant get two numbers.
"""

from __future__ import annotations

import msgspec

from sexton.control.context import (
    CONFLICT_TRIES,
    Call,
    Context,
    Operation,
    busy,
    client_error,
    invalid,
    page,
    page_end,
    page_token,
)
from sexton.control.fields import Fields
from sexton.control.records import DefinitionRecord, Entry, revision_key
from sexton.core import capabilities, constraint, definition, names, tagging
from sexton.core.constraint import RuleError
from sexton.wire import ecs


def find(context: Context, call: Call, given: str | None) -> Entry[DefinitionRecord] | None:
    """The definition a request names; a family alone means its newest active revision."""
    name = names.parse_definition(given or "")
    if name is None:
        return None
    revision = name.revision or context.revisions.newest_active(call.region, name.family)
    return context.records.definitions.get(call.region, name.family, revision_key(revision))


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
    try:
        constraint.of_definition(request.placement_constraints)
    except RuleError as error:
        raise client_error(str(error)) from None
    if problem := tagging.problem(request.tags):
        raise invalid(problem)
    record = await _append(context, call, request, request.family or "")
    return ecs.RegisterTaskDefinitionResponse(task_definition=record.definition, tags=record.tags or None)


async def _append(
    context: Context, call: Call, request: ecs.RegisterTaskDefinitionRequest, family: str
) -> DefinitionRecord:
    records = context.records
    containers = tuple(definition.normalise(one, request.network_mode) for one in request.container_definitions or ())
    for _ in range(CONFLICT_TRIES):
        with context.revisions.next(call.region, family) as revision:
            made = _build(context, call, request, containers, revision)
            record = DefinitionRecord(definition=made, tags=request.tags or ())
            where = (call.region, family, revision_key(revision))
            removed = records.families.get(call.region, family)
            result = await records.commit(
                [
                    records.unchanged(records.definitions, None, *where),
                    # A number is free only if it is not that of a revision that was removed.
                    records.unchanged(records.families, removed, call.region, family),
                ],
                [records.put(records.definitions, record, *where)],
            )
        if result.succeeded:
            return record
    raise busy(f"task definition family {family}")


def _build(
    context: Context,
    call: Call,
    request: ecs.RegisterTaskDefinitionRequest,
    containers: tuple[ecs.ContainerDefinition, ...],
    revision: int,
) -> ecs.TaskDefinition:
    place = context.place(call)
    return ecs.TaskDefinition(
        task_definition_arn=names.definition_arn(place, request.family or "", revision),
        family=request.family,
        revision=revision,
        status="ACTIVE",
        container_definitions=containers,
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
        registered_by=context.principal(call),
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
    keys = [key for key, one in context.records.definitions.under(*where) if one.value.definition.status == status]
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
        before = page_end(token)
        keys = [key for key in keys if key < before]
    chosen = keys[:limit]
    return chosen, page_token(chosen[-1]) if len(keys) > limit else None


async def families(
    context: Context, call: Call, request: ecs.ListTaskDefinitionFamiliesRequest
) -> ecs.ListTaskDefinitionFamiliesResponse:
    found = context.revisions.families(call.region, request.family_prefix or "", request.status or "ACTIVE")
    listed, token = page(found, request.next_token, request.max_results)
    return ecs.ListTaskDefinitionFamiliesResponse(families=tuple(listed), next_token=token)


FIELDS: dict[str, Fields] = {
    "RegisterTaskDefinition": Fields(
        accepted={
            "runtimePlatform": "kept and shown; the host's own platform is what runs",
            "ephemeralStorage": "kept and shown; a task has the engine's disk",
        },
        refused={
            "inferenceAccelerators": "there are no inference accelerators here; leave it out.",
            "containerDefinitions.resourceRequirements.sharingStrategy": "a GPU has one container here; leave it out.",
            "trustedExecutionConfiguration": "no agent here isolates a task like that; leave it out.",
        },
    ),
}


OPERATIONS: dict[str, Operation] = {
    "RegisterTaskDefinition": register,
    "DescribeTaskDefinition": describe,
    "DeregisterTaskDefinition": deregister,
    "ListTaskDefinitions": listing,
    "ListTaskDefinitionFamilies": families,
}
