"""Tasks: run, start, stop, describe, list.

A task is accepted with its place: RunTask answers once the record with its container instance is durable, and the
link to that instance delivers it from there. Whoever asks for more than fits gets what fits, and for every host the
reason why it could not take the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import islice
from typing import Any, NamedTuple, cast

import msgspec

from sexton.control import providers, tasknetwork, taskroles, tokens
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
    same_cluster,
    unsupported,
)
from sexton.control.fields import Fields
from sexton.control.ops import taskdefs
from sexton.control.records import DefinitionRecord, Entry, SlotRecord, TaskRecord
from sexton.control.scheduler import choose
from sexton.core import capabilities, constraint, fargate, lifecycle, names, render, strategy, tagging
from sexton.core.constraint import RuleError
from sexton.core.containerrules import resource_problems
from sexton.core.definition import LEAST_MEMORY
from sexton.core.fargate import NO_PLATFORM, Platform
from sexton.core.lifecycle import StopCode
from sexton.core.placement import Refusal, Wanted
from sexton.core.resources import demand_of, free_gpus, gpus_of, number
from sexton.store.contract import Compare, Write
from sexton.wire import ecs
from sexton.wire.errors import ServiceNotFoundException

MOST_TASKS_PER_CALL = 10
MOST_DESCRIBED = 100
MOST_STARTED_BY = 128


class Order(NamedTuple):
    """One request to run tasks, understood and found sound."""

    cluster: str
    definition: DefinitionRecord
    overrides: ecs.TaskOverride
    wanted: Wanted
    request: ecs.RunTaskRequest | ecs.StartTaskRequest
    network: tasknetwork.Chosen | None = None


async def run(context: Context, call: Call, request: ecs.RunTaskRequest) -> ecs.RunTaskResponse:
    cluster = active_cluster(context, call, request.cluster).value.name
    tokens.check(request.client_token)
    await _check_roles(context, call, request)
    for _ in range(CONFLICT_TRIES):
        async with context.placing(call.region, cluster):
            answer = await _run_once(context, call, cluster, request)
        if answer is not None:
            return answer
    raise busy(f"cluster {cluster}")


async def _run_once(
    context: Context, call: Call, cluster: str, request: ecs.RunTaskRequest
) -> ecs.RunTaskResponse | None:
    """Place and accept; None when what was read has changed meanwhile."""
    token, table = request.client_token, context.records.tokens
    first = table.get(call.region, cluster, token) if token else None
    repeated = tokens.repeated(context, call, cluster, first, request)
    if repeated is not None:
        return repeated
    order = _understand(context, call, cluster, request)
    count = 1 if request.count is None else request.count
    if not 1 <= count <= MOST_TASKS_PER_CALL:
        raise invalid(f"Count must be between 1 and {MOST_TASKS_PER_CALL}.")
    home = active_cluster(context, call, cluster)
    portions = providers.portions(
        home.value.cluster,
        order.definition.definition,
        request.launch_type,
        request.capacity_provider_strategy,
        count,
    )
    pick = partial(_pick, context, call.region, order)
    chosen, refusals = providers.place(context, call.region, cluster, portions, pick)
    made = [providers.through(record_of(context, call, order, instance), name) for instance, name in chosen]
    placed = with_gpus(context, made)
    # A provider is taken from a cluster only when no task is on its way through it.
    through = any(one.provider for one in portions)
    compares = [context.records.unchanged(context.records.clusters, home, call.region, cluster)] if through else []
    with tasknetwork.plugged(context, placed, order.network, call.now) as plugged:
        made, writes = plugged.tasks, plugged.writes
        failures = tuple(map(_failure, plugged.refusals or refusals))
        compares += plugged.compares
        if token:
            compares.append(context.records.unchanged(table, first, call.region, cluster, token))
            remembered = tokens.remember(call, cluster, request, [one.id for one in made], failures)
            writes.append(context.records.put(table, remembered, call.region, cluster, token))
        if not made or await accept(context, made, compares, writes):
            return ecs.RunTaskResponse(tasks=tuple(one.task for one in made), failures=failures)
    return None


def _pick(
    context: Context, region: str, order: Order, provider: str, many: int
) -> tuple[list[str], tuple[Refusal, ...]]:
    return context.scheduler.place(region, order.cluster, provider, order.wanted, many)


async def start(context: Context, call: Call, request: ecs.StartTaskRequest) -> ecs.StartTaskResponse:
    cluster = active_cluster(context, call, request.cluster).value.name
    given = request.container_instances or ()
    if not 1 <= len(given) <= MOST_TASKS_PER_CALL:
        raise invalid(f"Container instances must be between 1 and {MOST_TASKS_PER_CALL}.")
    await _check_roles(context, call, request)
    order = _understand(context, call, cluster, request)
    tasks: list[ecs.Task] = []
    failures: list[ecs.Failure] = []
    for text in given:
        task, refusals = await _start_on(context, call, order, text)
        tasks.extend(task)
        failures.extend(refusals)
    return ecs.StartTaskResponse(tasks=tuple(tasks), failures=tuple(failures))


async def _start_on(
    context: Context, call: Call, order: Order, text: str
) -> tuple[tuple[ecs.Task, ...], tuple[ecs.Failure, ...]]:
    """One task on the container instance of this name, or why not."""
    for _ in range(CONFLICT_TRIES):
        member = names.parse_instance(text)
        entry = member and context.records.instances.get(call.region, member.cluster or order.cluster, member.id)
        if not entry or entry.value.cluster != order.cluster:
            arn = text if text.startswith("arn:") else names.instance_arn(context.place(call), order.cluster, text)
            return (), (ecs.Failure(arn=arn, reason="MISSING"),)
        async with context.placing(call.region, order.cluster):
            chosen, refusals = choose([context.scheduler.host(entry)], order.wanted, 1)
            placed = with_gpus(context, [record_of(context, call, order, instance) for instance in chosen])
            with tasknetwork.plugged(context, placed, order.network, call.now) as plugged:
                made = plugged.tasks
                if not made or await accept(context, made, plugged.compares, plugged.writes):
                    failures = map(_failure, plugged.refusals or refusals)
                    return tuple(one.task for one in made), tuple(failures)
    raise busy(f"container instance {text}")


def _understand(
    context: Context, call: Call, cluster: str, request: ecs.RunTaskRequest | ecs.StartTaskRequest
) -> Order:
    """What is to be run, or the API's error for what cannot be."""
    if problem := tagging.problem(request.tags):
        raise invalid(problem)
    if len(request.started_by or "") > MOST_STARTED_BY:
        raise invalid(f"startedBy should be less than or equal to {MOST_STARTED_BY} characters.")
    if request.propagate_tags == "SERVICE":
        raise invalid("propagateTags SERVICE is for the tasks of services; use TASK_DEFINITION or NONE.")
    definition = taskdefs.active(context, call, request.task_definition)
    platform = _platform(request, definition.definition)
    network = tasknetwork.choose(
        context,
        call.region,
        request.network_configuration,
        definition.definition,
        fargate=platform != NO_PLATFORM,
    )
    overrides = _overrides(request.overrides, definition.definition)
    missing = set(capabilities.undeliverable(definition.definition))
    if missing:
        raise unsupported(
            f"This control plane cannot give a task what this one asks for yet: {', '.join(sorted(missing))}."
        )
    demand = demand_of(definition.definition, overrides)
    needs = set(capabilities.of_host(definition.definition))
    if any(one.environment_files for one in overrides.container_overrides or ()):
        needs.add(capabilities.ENVIRONMENT_FILES)
    if overrides.task_role_arn:
        needs.update(capabilities.of_task_role(definition.definition.network_mode))
    wanted = Wanted(demand=demand, required=frozenset(needs), group=_group(request, definition))
    if isinstance(request, ecs.RunTaskRequest):  # whoever names the host is asked nothing about hosts
        try:
            rules = constraint.of_request(request.placement_constraints, definition.definition.placement_constraints)
            strategies = strategy.of_request(request.placement_strategy)
        except RuleError as error:
            raise invalid(str(error)) from None
        wanted = msgspec.structs.replace(wanted, rules=rules, strategies=strategies)
    return Order(cluster, definition, overrides, wanted, request, network)


async def _check_roles(context: Context, call: Call, request: ecs.RunTaskRequest | ecs.StartTaskRequest) -> None:
    """The API's error for roles that there are no keys of, before anything is held or placed."""
    found = taskdefs.find(context, call, request.task_definition)
    if found is not None and found.value.definition.status == "ACTIVE":
        await taskroles.check(context, call.region, found.value.definition, request.overrides)


def _group(request: ecs.RunTaskRequest | ecs.StartTaskRequest, definition: DefinitionRecord) -> str:
    return request.group or f"family:{definition.definition.family}"


def _platform(request: ecs.RunTaskRequest | ecs.StartTaskRequest, of: ecs.TaskDefinition) -> Platform:
    """What the tasks are shown to run on, or the API's error for what their launch type does not allow."""
    if isinstance(request, ecs.StartTaskRequest):
        return NO_PLATFORM
    platform = providers.platform(of, request.launch_type, request.capacity_provider_strategy, request.platform_version)
    if platform != NO_PLATFORM and request.placement_constraints:
        raise invalid("Placement constraints are not supported with FARGATE launch type.")
    if platform != NO_PLATFORM and request.placement_strategy:
        raise invalid("Placement strategies are not supported with FARGATE launch type.")
    return platform


def _overrides(given: ecs.TaskOverride | None, definition: ecs.TaskDefinition) -> ecs.TaskOverride:
    if given is None:
        return ecs.TaskOverride(container_overrides=(), inference_accelerator_overrides=())
    for text, what in ((given.cpu, "cpu"), (given.memory, "memory")):
        if text and not number(text):
            raise client_error(f"Invalid '{what}' setting for task: {text}")
    if given.ephemeral_storage and fargate.LAUNCH_TYPE not in (definition.compatibilities or ()):
        raise invalid("Ephemeral storage can only be overridden for tasks with the launch type FARGATE.")
    known = {one.name for one in definition.container_definitions or ()}
    for one in given.container_overrides or ():
        if one.name not in known:
            raise client_error(f"Override for container named {one.name} is not a container in the TaskDefinition.")
        if one.cpu is not None and one.cpu < 0:
            raise client_error(f"Invalid 'cpu' setting for container '{one.name}'.")
        for problem in resource_problems(one):
            raise client_error(problem)
        for amount in (one.memory, one.memory_reservation):
            if amount is not None and amount < LEAST_MEMORY:
                raise client_error(
                    f"Invalid setting for container '{one.name}'. Memory must be at least {LEAST_MEMORY} MiB."
                )
    return given


async def accept(
    context: Context, made: Sequence[TaskRecord], compares: Sequence[Compare], writes: Sequence[Write]
) -> bool:
    """Make newly placed tasks durable, all or none; False when what they were placed on has changed meanwhile.

    The hosts count as taken from here on: nothing was waited for since they were chosen.
    """
    records = context.records
    keys = [f"{one.region}/{one.cluster}/{one.id}" for one in made]
    with context.usage.promised(list(zip(keys, made, strict=True))):
        puts = [records.put(records.tasks, one, key) for key, one in zip(keys, made, strict=True)]
        hosts = {(one.region, one.cluster, names.last_part(one.task.container_instance_arn or "")) for one in made}
        unchanged, taken = _hosts_unchanged(context, hosts), _slots(context, hosts)
        result = await records.commit(
            [*unchanged, *(one for one, _ in taken), *compares], [*puts, *(one for _, one in taken), *writes]
        )
    return result.succeeded


def with_gpus(context: Context, made: Sequence[TaskRecord]) -> list[TaskRecord]:
    """The tasks with the GPUs that each of their containers gets, of those that nobody on their host has.

    To be promised before anything is waited for, as the places themselves are.
    """
    given: dict[str, set[str]] = {}
    return [_with_gpus(context, one, given) if one.demand.gpus else one for one in made]


def _with_gpus(context: Context, record: TaskRecord, given: dict[str, set[str]]) -> TaskRecord:
    instance, definition = record.task.container_instance_arn or "", context.records.definition_of(record)
    entry = context.records.instances.get(record.region, record.cluster, names.last_part(instance))
    if entry is None or definition is None:
        return record  # gone since it was chosen: the condition on the host lets none of these tasks through
    mine = given.setdefault(instance, set())
    have = entry.value.instance.registered_resources or ()
    hand = iter(free_gpus(have, context.usage.of(instance).gpus | mine))
    own = {one.name: one for one in (record.task.overrides or ecs.TaskOverride()).container_overrides or ()}
    counts = {one.name: gpus_of(one, own.get(one.name)) for one in definition.definition.container_definitions or ()}
    containers = []
    for container in record.task.containers or ():
        ids = tuple(islice(hand, counts.get(container.name, 0)))
        mine.update(ids)
        containers.append(msgspec.structs.replace(container, gpu_ids=ids or None))
    task = msgspec.structs.replace(record.task, containers=tuple(containers))
    return msgspec.structs.replace(record, task=task)


def _hosts_unchanged(context: Context, hosts: Iterable[tuple[str, str, str]]) -> list[Compare]:
    """No task is written onto a host that is going: whoever deregisters it would not see the task."""
    table = context.records.instances
    return [context.records.unchanged(table, table.get(*key), *key) for key in hosts]


def _slots(context: Context, hosts: Iterable[tuple[str, str, str]]) -> list[tuple[Compare, Write]]:
    """No room is given twice: another replica that placed something there meanwhile has changed the host's slot."""
    records, table = context.records, context.records.slots
    if not context.replica:
        return []  # what this control plane promised is known to all its requests
    mine = SlotRecord(replica=context.replica)
    return [(records.unchanged(table, table.get(*key), *key), records.put(table, mine, *key)) for key in hosts]


def record_of(context: Context, call: Call, order: Order, instance: str) -> TaskRecord:
    cluster, definition, overrides, wanted, request, _ = order
    demand = wanted.demand
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
        group=wanted.group,
        health_status="UNKNOWN",
        launch_type=getattr(request, "launch_type", None) or "EC2",
        overrides=overrides,
        platform_version=getattr(request, "platform_version", None),
        ephemeral_storage=overrides.ephemeral_storage or definition.definition.ephemeral_storage,
        started_by=request.started_by,
        tags=_tags(order),
        version=1,
    )
    if task.launch_type == fargate.LAUNCH_TYPE:
        task = providers.on_fargate(task, task.platform_version)
    return TaskRecord(
        region=call.region, cluster=cluster, id=task_id, task=task, demand=demand, account=context.account
    )


def _tags(order: Order) -> tuple[ecs.Tag, ...]:
    request = order.request
    inherited = order.definition.tags if request.propagate_tags == "TASK_DEFINITION" else ()
    managed = bool(request.enable_ecs_managed_tags)
    return tagging.of_task(request.tags, inherited, managed=managed, cluster=order.cluster)


def _failure(refusal: Refusal) -> ecs.Failure:
    return ecs.Failure(arn=refusal.arn, reason=str(refusal.why), detail=refusal.detail or None)


def find(context: Context, call: Call, cluster: str, text: str | None) -> Entry[TaskRecord] | None:
    member = names.parse_task(text or "")
    if member is None:
        return None
    same_cluster(member.cluster, cluster)
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
    service = ""
    if request.service_name:
        member = names.parse_service(request.service_name)
        if member is None or context.records.services.get(call.region, cluster, member.id) is None:
            raise ServiceNotFoundException("Service not found.")
        service = member.id
    wanted = request.desired_status or "RUNNING"
    instance = ""
    if request.container_instance:
        member = names.parse_instance(request.container_instance)
        known = member and context.records.instances.get(call.region, cluster, member.id)
        if not known:
            raise invalid("The referenced container instance was not found.")
        instance = known.value.arn
    keys = []
    for key, entry in context.records.tasks.under(call.region, cluster):
        task = entry.value.task
        definition = names.parse_definition(task.task_definition_arn or "")
        if (
            task.desired_status == wanted
            and (not instance or task.container_instance_arn == instance)
            and (not request.family or (definition and definition.family == request.family))
            and (not service or entry.value.service == service)
            and (not request.started_by or task.started_by == request.started_by)
            and (not request.launch_type or task.launch_type == request.launch_type)
        ):
            keys.append(key)
    chosen, token = page(keys, request.next_token, request.max_results)
    rows = (context.records.tasks.get(key) for key in chosen)
    return ecs.ListTasksResponse(task_arns=tuple(row.value.arn for row in rows if row), next_token=token)


_REFUSED = {
    "volumeConfigurations": "there is no Amazon EBS here; use a volume with a path of the host.",
    "enableExecuteCommand": "no agent here can execute commands in a container; leave it out or say false.",
    "overrides.inferenceAcceleratorOverrides": "there are no inference accelerators here; leave it out.",
    "overrides.containerOverrides.resourceRequirements.sharingStrategy": "a GPU has one container here; leave it out.",
}
_ACCEPTED = {"referenceId": "it is for AWS's own services, and nothing shows it"}
FIELDS: dict[str, Fields] = {
    "RunTask": Fields(accepted=_ACCEPTED, refused=_REFUSED),
    "StartTask": Fields(accepted=_ACCEPTED, refused=_REFUSED),
    "ListTasks": Fields(refused={"daemonName": "there are no Daemons of managed instances here; leave it out."}),
}

OPERATIONS: dict[str, Operation] = {
    "RunTask": run,
    "StartTask": start,
    "StopTask": stop,
    "DescribeTasks": describe,
    "ListTasks": listing,
}
