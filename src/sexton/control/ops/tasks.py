"""Tasks: run, start, stop, describe, list.

A task is accepted with its place: RunTask answers once the record with its container instance is durable, and the
link to that instance delivers it from there. Whoever asks for more than fits gets what fits, and for every host the
reason why it could not take the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import msgspec

from sexton.control.context import (
    CONFLICT_TRIES,
    Call,
    Context,
    Operation,
    active_cluster,
    busy,
    client_error,
    invalid,
    page,
    unsupported,
)
from sexton.control.ops import taskdefs
from sexton.control.records import DefinitionRecord, Entry, TaskRecord
from sexton.core import lifecycle, names, render
from sexton.core.lifecycle import StopCode
from sexton.core.placement import Refusal
from sexton.core.resources import Resources, demand_of
from sexton.wire import ecs

MOST_TASKS_PER_CALL = 10
MOST_DESCRIBED = 100


async def run(context: Context, call: Call, request: ecs.RunTaskRequest) -> ecs.RunTaskResponse:
    cluster = active_cluster(context, call, request.cluster).value.name
    _refuse_unserved(request)
    count = 1 if request.count is None else request.count
    if not 1 <= count <= MOST_TASKS_PER_CALL:
        raise invalid(f"Count must be between 1 and {MOST_TASKS_PER_CALL}.")
    definition = taskdefs.active(context, call, request.task_definition)
    overrides = _overrides(request.overrides, definition.definition)
    demand = demand_of(definition.definition, overrides)
    hosts = context.scheduler.hosts(call.region, cluster)
    if not hosts:
        raise invalid("No Container Instances were found in your cluster.")
    with context.scheduler.place(hosts, demand, _needs(definition), count) as (chosen, refusals):
        tasks = await _accept(context, call, cluster, definition, overrides, demand, chosen, request)
    failures = tuple(_failure(one) for one in refusals)
    return ecs.RunTaskResponse(tasks=tasks, failures=failures)


async def start(context: Context, call: Call, request: ecs.StartTaskRequest) -> ecs.StartTaskResponse:
    cluster = active_cluster(context, call, request.cluster).value.name
    _refuse_unserved(request)
    given = request.container_instances or ()
    if not 1 <= len(given) <= MOST_TASKS_PER_CALL:
        raise invalid(f"Container instances must be between 1 and {MOST_TASKS_PER_CALL}.")
    definition = taskdefs.active(context, call, request.task_definition)
    overrides = _overrides(request.overrides, definition.definition)
    demand = demand_of(definition.definition, overrides)
    tasks: list[ecs.Task] = []
    failures: list[ecs.Failure] = []
    for text in given:
        member = names.parse_instance(text)
        entry = member and context.records.instances.get(call.region, member.cluster or cluster, member.id)
        if not entry or entry.value.cluster != cluster:
            arn = text if text.startswith("arn:") else names.instance_arn(context.place(call), cluster, text)
            failures.append(ecs.Failure(arn=arn, reason="MISSING"))
            continue
        with context.scheduler.place([context.scheduler.host(entry)], demand, _needs(definition), 1) as (on, refusals):
            tasks.extend(await _accept(context, call, cluster, definition, overrides, demand, on, request))
        failures.extend(_failure(one) for one in refusals)
    return ecs.StartTaskResponse(tasks=tuple(tasks), failures=tuple(failures))


def _refuse_unserved(request: ecs.RunTaskRequest | ecs.StartTaskRequest) -> None:
    """What this control plane does not do yet is said by name, never silently left out."""
    for field in (
        "placement_constraints",
        "placement_strategy",
        "capacity_provider_strategy",
        "volume_configurations",
        "enable_execute_command",
    ):
        if getattr(request, field, None):
            wire_name = "".join(word.title() if index else word for index, word in enumerate(field.split("_")))
            raise unsupported(f"{wire_name} is not supported by this control plane yet; leave it out.")
    if getattr(request, "launch_type", None) not in (None, "EC2", "EXTERNAL"):
        raise unsupported("launchType FARGATE is not supported by this control plane yet; use EC2 or EXTERNAL.")


def _overrides(given: ecs.TaskOverride | None, definition: ecs.TaskDefinition) -> ecs.TaskOverride:
    known = {one.name for one in definition.container_definitions or ()}
    for one in (given.container_overrides if given else None) or ():
        if one.name not in known:
            raise client_error(f"Override for container named {one.name} is not a container in the TaskDefinition.")
        if one.environment_files or one.resource_requirements:
            raise unsupported("environmentFiles and resourceRequirements overrides are not supported yet.")
    if given is None:
        return ecs.TaskOverride(container_overrides=(), inference_accelerator_overrides=())
    return given


def _needs(definition: DefinitionRecord) -> frozenset[str]:
    return frozenset(one.name or "" for one in definition.definition.requires_attributes or ())


async def _accept(
    context: Context,
    call: Call,
    cluster: str,
    definition: DefinitionRecord,
    overrides: ecs.TaskOverride,
    demand: Resources,
    chosen: Sequence[str],
    request: ecs.RunTaskRequest | ecs.StartTaskRequest,
) -> tuple[ecs.Task, ...]:
    """Make the records of newly placed tasks durable, all or none."""
    records = context.records
    made = [_record(context, call, cluster, definition, overrides, demand, instance, request) for instance in chosen]
    if made:
        writes = [records.put(records.tasks, one, one.region, one.cluster, one.id) for one in made]
        await records.commit([], writes)
    return tuple(one.task for one in made)


def _record(
    context: Context,
    call: Call,
    cluster: str,
    definition: DefinitionRecord,
    overrides: ecs.TaskOverride,
    demand: Resources,
    instance: str,
    request: ecs.RunTaskRequest | ecs.StartTaskRequest,
) -> TaskRecord:
    place = context.place(call)
    task_id = context.new_id()
    ids = tuple(context.new_id() for _ in definition.definition.container_definitions or ())
    known = context.records.instances.get(call.region, cluster, names.last_part(instance))
    attributes = (known.value.instance.attributes if known else None) or ()
    task = ecs.Task(
        task_arn=names.task_arn(place, cluster, task_id),
        cluster_arn=names.cluster_arn(place, cluster),
        container_instance_arn=instance,
        task_definition_arn=definition.definition.task_definition_arn,
        containers=render.containers_of(definition.definition, place, cluster, task_id, ids),
        attachments=(),
        attributes=tuple(one for one in attributes if one.name == "ecs.cpu-architecture"),
        availability_zone=next((one.value for one in attributes if one.name == "ecs.availability-zone"), None),
        cpu=overrides.cpu or definition.definition.cpu or str(demand.cpu),
        memory=overrides.memory or definition.definition.memory or str(demand.memory),
        created_at=call.now,
        desired_status="RUNNING",
        last_status="PENDING",
        enable_execute_command=False,
        group=request.group or f"family:{definition.definition.family}",
        launch_type=getattr(request, "launch_type", None) or "EC2",
        overrides=overrides,
        started_by=request.started_by,
        tags=_tags(request, definition),
        version=1,
    )
    return TaskRecord(
        region=call.region, cluster=cluster, id=task_id, task=task, demand=demand, account=context.account
    )


def _tags(request: ecs.RunTaskRequest | ecs.StartTaskRequest, definition: DefinitionRecord) -> tuple[ecs.Tag, ...]:
    own = {tag.key: tag for tag in request.tags or ()}
    if request.propagate_tags == "TASK_DEFINITION":
        own = {tag.key: tag for tag in definition.tags} | own
    return tuple(own.values())


def _failure(refusal: Refusal) -> ecs.Failure:
    return ecs.Failure(arn=refusal.arn, reason=str(refusal.why), detail=refusal.detail or None)


def find(context: Context, call: Call, cluster: str, text: str | None) -> Entry[TaskRecord] | None:
    member = names.parse_task(text or "")
    if member is None or member.cluster not in ("", cluster):
        return None
    return context.records.tasks.get(call.region, cluster, member.id)


async def stop(context: Context, call: Call, request: ecs.StopTaskRequest) -> ecs.StopTaskResponse:
    cluster = active_cluster(context, call, request.cluster).value.name
    records = context.records
    reason = request.reason or "Task stopped by user"
    for _ in range(CONFLICT_TRIES):
        entry = find(context, call, cluster, request.task)
        if entry is None:
            raise invalid("The referenced task was not found.")
        task = lifecycle.stop(entry.value.task, StopCode.USER, reason, call.now)
        instance = names.parse_instance(task.container_instance_arn or "")
        if instance is None or records.instances.get(call.region, cluster, instance.id) is None:
            task = lifecycle.never_started(task, call.now)  # its host is gone: nobody is left to report its end
        if task == entry.value.task:
            return ecs.StopTaskResponse(task=task)
        record = msgspec.structs.replace(entry.value, task=task)
        where = (record.region, record.cluster, record.id)
        result = await records.commit(
            [records.unchanged(records.tasks, entry, *where)], [records.put(records.tasks, record, *where)]
        )
        if result.succeeded:
            return ecs.StopTaskResponse(task=task)
    raise busy(f"task {request.task}")


def encoded(entry: Entry[TaskRecord]) -> msgspec.Raw:
    """The task's wire form without tags, made once per change."""
    if entry.encoded is None:
        entry.encoded = msgspec.Raw(msgspec.json.encode(msgspec.structs.replace(entry.value.task, tags=())))
    return entry.encoded


async def describe(context: Context, call: Call, request: ecs.DescribeTasksRequest) -> ecs.DescribeTasksResponse:
    cluster = active_cluster(context, call, request.cluster).value.name
    given = request.tasks or ()
    if not given:
        raise invalid("Tasks cannot be empty.")
    if len(given) > MOST_DESCRIBED:
        raise invalid(f"Tasks cannot have more than {MOST_DESCRIBED} entries.")
    tags = "TAGS" in (request.include or ())
    found: list[Any] = []
    failures = []
    for text in given:
        entry = find(context, call, cluster, text)
        if entry is None:
            arn = text if text.startswith("arn:") else names.task_arn(context.place(call), cluster, text)
            failures.append(ecs.Failure(arn=arn, reason="MISSING"))
        else:
            found.append(entry.value.task if tags else encoded(entry))
    return ecs.DescribeTasksResponse(tasks=cast("tuple[ecs.Task, ...]", tuple(found)), failures=tuple(failures))


async def listing(context: Context, call: Call, request: ecs.ListTasksRequest) -> ecs.ListTasksResponse:
    cluster = active_cluster(context, call, request.cluster).value.name
    wanted = request.desired_status or "RUNNING"
    instance = ""
    if request.container_instance:
        member = names.parse_instance(request.container_instance)
        known = member and context.records.instances.get(call.region, cluster, member.id)
        if not known:
            raise invalid("The specified container instance was not found.")
        instance = known.value.arn
    keys = []
    for key, entry in context.records.tasks.under(call.region, cluster):
        task = entry.value.task
        definition = names.parse_definition(task.task_definition_arn or "")
        if (
            task.desired_status == wanted
            and (not instance or task.container_instance_arn == instance)
            and (not request.family or (definition and definition.family == request.family))
            and (not request.started_by or task.started_by == request.started_by)
            and (not request.service_name or task.group == f"service:{request.service_name}")
            and (not request.launch_type or task.launch_type == request.launch_type)
        ):
            keys.append(key)
    chosen, token = page(sorted(keys), request.next_token, request.max_results)
    rows = (context.records.tasks.get(key) for key in chosen)
    return ecs.ListTasksResponse(task_arns=tuple(row.value.arn for row in rows if row), next_token=token)


OPERATIONS: dict[str, Operation] = {
    "RunTask": run,
    "StartTask": start,
    "StopTask": stop,
    "DescribeTasks": describe,
    "ListTasks": listing,
}
