"""Task sets: what runs in a service whose deployments somebody else decides about (the EXTERNAL controller).

They live in their service's record, so whatever is decided about them holds on the condition that nothing about the
service has changed. As for services, these operations only write down what is wanted; the reconciler starts and
stops the tasks. A task set that is deleted drains, and is gone with its last task.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import msgspec

from sexton.control import providers, serviceterms, serviceview, tasksetview
from sexton.control.context import CONFLICT_TRIES, Call, Context, Operation, active_cluster, busy, invalid
from sexton.control.fields import Fields
from sexton.control.ops import services
from sexton.control.records import Entry, ServiceRecord, TaskSetRecord
from sexton.core import names, tagging, taskset
from sexton.store.contract import Compare, Write
from sexton.wire import ecs
from sexton.wire.errors import LimitExceededException, TaskSetNotFoundException

# As many as ECS lets a service have at once.
MOST_TASK_SETS = 5

Shown = ecs.TaskSet


def _external(context: Context, call: Call, cluster: str, service: str | None) -> Entry[ServiceRecord]:
    """The service that a request names, which must be active and have task sets at all."""
    entry = services.active(context, call, cluster, service)
    if not serviceterms.external(entry.value.service):
        raise invalid("Task sets are only supported for services with the EXTERNAL deployment controller.")
    return entry


def _named(record: ServiceRecord, text: str | None) -> TaskSetRecord:
    found = names.parse_task_set(text or "")
    one = next((one for one in record.task_sets if one.id == found), None)
    if one is None:
        raise TaskSetNotFoundException("The specified task set was not found. Specify a valid task set and try again.")
    return one


def _shown(context: Context, record: ServiceRecord, task_set: str, *, tags: bool = True) -> Shown:
    held = serviceview.counted(context, record)
    found = tasksetview.shown(record, held, tags=tags)
    return next(one for one in found if one.id == task_set)


def _scale(given: ecs.Scale | None) -> ecs.Scale:
    """How much of the service's desired count the task set is to hold; all of it when nothing is said."""
    value = 100.0 if given is None or given.value is None else given.value
    if not 0 <= value <= 100:
        raise invalid("The scale of a task set must be between 0 and 100 PERCENT.")
    return ecs.Scale(value=value, unit=str(ecs.ScaleUnit.PERCENT))


async def create(context: Context, call: Call, request: ecs.CreateTaskSetRequest) -> ecs.CreateTaskSetResponse:
    if request.client_token is not None and not 1 <= len(request.client_token) <= 36:
        raise invalid("clientToken must have 1 to 36 characters.")
    if problem := tagging.problem(request.tags):
        raise invalid(problem)
    scale = _scale(request.scale)
    plain = msgspec.structs.replace(request, client_token=None, cluster=None)
    fingerprint = hashlib.sha256(msgspec.json.encode(plain)).hexdigest()
    for _ in range(CONFLICT_TRIES):
        home = active_cluster(context, call, request.cluster)
        entry = _external(context, call, home.value.name, request.service)
        record = entry.value
        if request.client_token:
            before = next((one for one in record.task_sets if one.token == request.client_token), None)
            if before is not None and before.fingerprint != fingerprint:
                raise invalid("Creation of task set was not idempotent.")
            if before is not None:
                return ecs.CreateTaskSetResponse(task_set=_shown(context, record, before.id))
        if len(record.task_sets) >= MOST_TASK_SETS:
            raise LimitExceededException(f"A service can have at most {MOST_TASK_SETS} task sets.")
        made, writes = _made(context, call, request, home.value.cluster, record, scale)
        made = msgspec.structs.replace(made, token=request.client_token or "", fingerprint=fingerprint)
        after = msgspec.structs.replace(record, task_sets=(*record.task_sets, made))
        # A cluster that loses a provider must not be the one this was decided from.
        unchanged = context.records.unchanged(context.records.clusters, home, call.region, home.value.name)
        if written := await _write(context, entry, after, writes, [unchanged]):
            return ecs.CreateTaskSetResponse(task_set=_shown(context, written.value, made.id))
    raise busy(f"service {request.service}")


def _made(
    context: Context,
    call: Call,
    request: ecs.CreateTaskSetRequest,
    home: ecs.Cluster,
    record: ServiceRecord,
    scale: ecs.Scale,
) -> tuple[TaskSetRecord, list[Write]]:
    service, records = record.service, context.records
    of = serviceterms.definition(context, call, request.task_definition).definition
    launch_type = request.launch_type or (None if request.capacity_provider_strategy else service.launch_type)
    strategy = serviceterms.capacity_strategy(context, home, of, launch_type, request.capacity_provider_strategy)
    platform = providers.platform(of, launch_type, strategy, request.platform_version)
    network = serviceterms.check_network(context, call, request.network_configuration, of, platform.family)
    resolved = msgspec.structs.replace(
        service,
        task_definition=of.task_definition_arn,
        network_configuration=network,
        capacity_provider_strategy=strategy or None,
        launch_type=None if strategy else launch_type or str(ecs.LaunchType.EC2),
        platform_version=platform.version,
        platform_family=platform.family,
    )
    serviceterms.check_placement(msgspec.structs.replace(record, service=resolved), of)
    revision = serviceterms.new_revision(context, call, resolved, of, record.cluster)
    revision_arn = revision.service_revision_arn or ""
    task_set_id = f"ecs-svc/{serviceterms.number(context)}"
    scaled = taskset.begin(
        set_id=task_set_id,
        revision=revision_arn,
        desired=service.desired_count or 0,
        scale_percent=scale.value or 0.0,
        now=call.now,
    )
    shown = Shown(
        id=task_set_id,
        task_set_arn=names.task_set_arn(context.place(call), record.cluster, record.name, task_set_id),
        service_arn=service.service_arn,
        cluster_arn=service.cluster_arn,
        external_id=request.external_id,
        status="ACTIVE",
        task_definition=of.task_definition_arn,
        created_at=call.now,
        updated_at=call.now,
        launch_type=resolved.launch_type,
        capacity_provider_strategy=resolved.capacity_provider_strategy,
        platform_version=platform.version,
        platform_family=platform.family,
        network_configuration=network,
        load_balancers=(),
        service_registries=(),
        scale=scale,
        stability_status=str(ecs.StabilityStatus.STABILIZING),
        stability_status_at=call.now,
        tags=request.tags or (),
    )
    where = (record.region, record.cluster, record.name, names.last_part(revision_arn))
    return TaskSetRecord(shown=shown, scaled=scaled), [records.put(records.service_revisions, revision, *where)]


async def _write(
    context: Context,
    entry: Entry[ServiceRecord],
    after: ServiceRecord,
    writes: Sequence[Write] = (),
    compares: Sequence[Compare] = (),
) -> Entry[ServiceRecord] | None:
    table, where = context.records.services, (after.region, after.cluster, after.name)
    unchanged = context.records.unchanged(table, entry, *where)
    return await services.write(context, after, [unchanged, *compares], writes)


def _with(record: ServiceRecord, *changed: TaskSetRecord) -> ServiceRecord:
    by_id = {one.id: one for one in changed}
    return msgspec.structs.replace(record, task_sets=tuple(by_id.get(one.id, one) for one in record.task_sets))


async def update(context: Context, call: Call, request: ecs.UpdateTaskSetRequest) -> ecs.UpdateTaskSetResponse:
    cluster = active_cluster(context, call, request.cluster).value.name
    if request.scale is None:
        raise invalid("Scale must be specified.")
    scale = _scale(request.scale)
    for _ in range(CONFLICT_TRIES):
        entry = _external(context, call, cluster, request.service)
        one = _named(entry.value, request.task_set)
        if one.scaled.draining:
            raise invalid("The task set is DRAINING and cannot be scaled.")
        if one.shown.scale == scale:
            return ecs.UpdateTaskSetResponse(task_set=_shown(context, entry.value, one.id))
        desired = taskset.computed(entry.value.service.desired_count or 0, scale.value or 0.0)
        even = desired == one.scaled.state.desired
        stability = one.shown.stability_status if even else str(ecs.StabilityStatus.STABILIZING)
        changed = msgspec.structs.replace(
            one,
            shown=msgspec.structs.replace(
                one.shown,
                scale=scale,
                updated_at=call.now,
                stability_status=stability,
                stability_status_at=one.shown.stability_status_at if even else call.now,
            ),
            scaled=msgspec.structs.replace(
                one.scaled,
                scale_percent=scale.value or 0.0,
                stability=stability or "",
                state=msgspec.structs.replace(one.scaled.state, desired=desired, updated_at=call.now),
            ),
        )
        if written := await _write(context, entry, _with(entry.value, changed)):
            return ecs.UpdateTaskSetResponse(task_set=_shown(context, written.value, one.id))
    raise busy(f"task set {request.task_set}")


async def make_primary(
    context: Context, call: Call, request: ecs.UpdateServicePrimaryTaskSetRequest
) -> ecs.UpdateServicePrimaryTaskSetResponse:
    """The label moves; what the task set says becomes what the service says."""
    cluster = active_cluster(context, call, request.cluster).value.name
    for _ in range(CONFLICT_TRIES):
        entry = _external(context, call, cluster, request.service)
        record = entry.value
        one = _named(record, request.primary_task_set)
        if one.scaled.draining:
            raise invalid("The task set is DRAINING and cannot become the primary task set.")
        if one.shown.status == "PRIMARY":
            return ecs.UpdateServicePrimaryTaskSetResponse(task_set=_shown(context, record, one.id))
        relabelled = [
            msgspec.structs.replace(
                each,
                shown=msgspec.structs.replace(
                    each.shown, status="PRIMARY" if each.id == one.id else "ACTIVE", updated_at=call.now
                ),
            )
            for each in record.task_sets
            if each.id == one.id or each.shown.status == "PRIMARY"
        ]
        service = msgspec.structs.replace(
            record.service,
            task_definition=one.shown.task_definition,
            launch_type=one.shown.launch_type,
            capacity_provider_strategy=one.shown.capacity_provider_strategy,
            network_configuration=one.shown.network_configuration,
            platform_version=one.shown.platform_version,
            platform_family=one.shown.platform_family,
        )
        after = msgspec.structs.replace(_with(record, *relabelled), service=service)
        if written := await _write(context, entry, after):
            return ecs.UpdateServicePrimaryTaskSetResponse(task_set=_shown(context, written.value, one.id))
    raise busy(f"service {request.service}")


async def delete(context: Context, call: Call, request: ecs.DeleteTaskSetRequest) -> ecs.DeleteTaskSetResponse:
    cluster = active_cluster(context, call, request.cluster).value.name
    for _ in range(CONFLICT_TRIES):
        entry = _external(context, call, cluster, request.service)
        one = _named(entry.value, request.task_set)
        if one.scaled.draining:
            return ecs.DeleteTaskSetResponse(task_set=_shown(context, entry.value, one.id))
        if one.scaled.state.desired and not request.force:
            raise invalid("The task set cannot be deleted while it is scaled above 0. Use force to delete it anyway.")
        changed = msgspec.structs.replace(
            one,
            shown=msgspec.structs.replace(one.shown, status="DRAINING", updated_at=call.now),
            scaled=msgspec.structs.replace(one.scaled, draining=True),
        )
        if written := await _write(context, entry, _with(entry.value, changed)):
            return ecs.DeleteTaskSetResponse(task_set=_shown(context, written.value, one.id))
    raise busy(f"task set {request.task_set}")


async def describe(context: Context, call: Call, request: ecs.DescribeTaskSetsRequest) -> ecs.DescribeTaskSetsResponse:
    cluster = active_cluster(context, call, request.cluster).value.name
    record = _external(context, call, cluster, request.service).value
    tags = ecs.TaskSetField.TAGS in (request.include or ())
    found = tasksetview.shown(record, serviceview.counted(context, record), tags=tags)
    if not request.task_sets:
        return ecs.DescribeTaskSetsResponse(task_sets=found, failures=())
    by_id = {one.id or "": one for one in found}
    chosen, failures = [], []
    for text in request.task_sets:
        one = by_id.get(names.parse_task_set(text) or "")
        if one is not None:
            chosen.append(one)
        else:
            arn = (
                text if text.startswith("arn:") else names.task_set_arn(context.place(call), cluster, record.name, text)
            )
            failures.append(ecs.Failure(arn=arn, reason="MISSING"))
    return ecs.DescribeTaskSetsResponse(task_sets=tuple(chosen), failures=tuple(failures))


FIELDS: dict[str, Fields] = {
    "CreateTaskSet": Fields(
        refused={name: serviceterms.REFUSED[name] for name in ("loadBalancers", "serviceRegistries")}
    ),
}

OPERATIONS: dict[str, Operation] = {
    "CreateTaskSet": create,
    "UpdateTaskSet": update,
    "UpdateServicePrimaryTaskSet": make_primary,
    "DeleteTaskSet": delete,
    "DescribeTaskSets": describe,
}
