"""Container instances: registration by agents, and what clients see and change of them.

Every attribute an agent sends comes back unchanged, since agents check that. Remaining resources and counts are
computed from the tasks, never stored. An instance that is deregistered by force leaves its tasks to nobody: they are
marked stopped, and its agent is told that it is inactive when it calls again.
"""

from __future__ import annotations

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
)
from sexton.control.records import Entry, InstanceRecord, TaskRecord
from sexton.core import lifecycle, names, resources
from sexton.core.lifecycle import StopCode
from sexton.wire import ecs

MOST_DESCRIBED = 100
# What the real service adds by itself; there is one zone on one machine.
ZONE_ATTRIBUTE = "ecs.availability-zone"


def shown(
    context: Context, entry: Entry[InstanceRecord], *, tags: bool = False, health: bool = False
) -> ecs.ContainerInstance:
    """The instance as the API shows it."""
    record = entry.value
    running = pending = 0
    demands = []
    for one in context.records.tasks.group(record.arn):
        if not one.value.stopped:
            demands.append(one.value.demand)
            running += one.value.task.last_status == "RUNNING"
            pending += one.value.task.last_status != "RUNNING"
    return msgspec.structs.replace(
        record.instance,
        remaining_resources=resources.remaining(record.instance.registered_resources or (), resources.total(demands)),
        running_tasks_count=running,
        pending_tasks_count=pending,
        tags=record.instance.tags or () if tags else (),
        health_status=record.instance.health_status if health else None,
    )


def find(context: Context, call: Call, cluster: str, text: str | None) -> Entry[InstanceRecord] | None:
    member = names.parse_instance(text or "")
    if member is None or member.cluster not in ("", cluster):
        return None
    return context.records.instances.get(call.region, cluster, member.id)


async def register(
    context: Context, call: Call, request: ecs.RegisterContainerInstanceRequest
) -> ecs.RegisterContainerInstanceResponse:
    cluster = active_cluster(context, call, request.cluster).value.name
    records = context.records
    instance_id = context.new_id()
    before: Entry[InstanceRecord] | None = None
    for _ in range(CONFLICT_TRIES):
        if request.container_instance_arn:
            before = find(context, call, cluster, request.container_instance_arn)
            if before is None:
                raise client_error("The specified container instance is not registered in this cluster; register anew.")
            instance_id = names.last_part(before.value.arn)
        place = context.place(call)
        instance = ecs.ContainerInstance(
            container_instance_arn=names.instance_arn(place, cluster, instance_id),
            ec2_instance_id=_ec2_id(request.instance_identity_document),
            status=before.value.instance.status if before else "ACTIVE",
            version=(before.value.instance.version or 0) + 1 if before else 1,
            version_info=request.version_info or ecs.VersionInfo(),
            agent_connected=bool(before and before.value.instance.agent_connected),
            attributes=_attributes(request, before, f"{call.region}a"),
            registered_resources=request.total_resources or (),
            registered_at=before.value.instance.registered_at if before else call.now,
            attachments=(),
            tags=request.tags or (before.value.instance.tags if before else ()),
        )
        record = InstanceRecord(region=call.region, cluster=cluster, instance=instance)
        where = (call.region, cluster, instance_id)
        result = await records.commit(
            [records.unchanged(records.instances, before, *where)], [records.put(records.instances, record, *where)]
        )
        entry = records.instances.get(*where)
        if result.succeeded and entry is not None:
            return ecs.RegisterContainerInstanceResponse(container_instance=shown(context, entry, tags=True))
    raise busy(f"container instance {instance_id}")


def _attributes(
    request: ecs.RegisterContainerInstanceRequest, before: Entry[InstanceRecord] | None, zone: str
) -> tuple[ecs.Attribute, ...]:
    """The agent's attributes; a re-registration keeps custom ones, which agents send only once."""
    sent = request.attributes or ()
    sent_names = {one.name for one in sent}
    kept = tuple(
        one
        for one in (before.value.instance.attributes if before else None) or ()
        if one.name not in sent_names and not (one.name or "").startswith(("ecs.", "com.amazonaws.ecs."))
    )
    own = () if ZONE_ATTRIBUTE in sent_names else (ecs.Attribute(name=ZONE_ATTRIBUTE, value=zone),)
    return sent + kept + own


def _ec2_id(document: str | None) -> str | None:
    """The instance's own id from its identity document; agents outside EC2 send an empty one."""
    try:
        fields = msgspec.json.decode(document or "{}", type=dict[str, msgspec.Raw])
        return msgspec.json.decode(fields["instanceId"], type=str)
    except (msgspec.MsgspecError, KeyError, RecursionError, UnicodeError):
        return None


async def deregister(
    context: Context, call: Call, request: ecs.DeregisterContainerInstanceRequest
) -> ecs.DeregisterContainerInstanceResponse:
    cluster = active_cluster(context, call, request.cluster).value.name
    records = context.records
    for _ in range(CONFLICT_TRIES):
        entry = find(context, call, cluster, request.container_instance)
        if entry is None:
            raise invalid("The referenced container instance was not found.")
        left = [one for one in records.tasks.group(entry.value.arn) if not one.value.stopped]
        if left and not request.force:
            raise invalid("Found running tasks on the instance.")
        where = (call.region, cluster, names.last_part(entry.value.arn))
        compares = [records.unchanged(records.instances, entry, *where)]
        writes: list[object] = [records.delete(records.instances, *where)]
        for one in left:
            key = (one.value.region, one.value.cluster, one.value.id)
            compares.append(records.unchanged(records.tasks, one, *key))
            writes.append(records.put(records.tasks, _abandoned(one.value, call.now), *key))
        result = await records.commit(compares, writes)  # type: ignore[arg-type]
        if result.succeeded:
            instance = msgspec.structs.replace(shown(context, entry), status="INACTIVE", agent_connected=False)
            return ecs.DeregisterContainerInstanceResponse(container_instance=instance)
    raise busy(f"container instance {request.container_instance}")


def _abandoned(record: TaskRecord, now: float) -> TaskRecord:
    task = lifecycle.stop(record.task, StopCode.USER, "Container instance deregistered forcibly by user.", now)
    return msgspec.structs.replace(record, task=lifecycle.never_started(task, now))


async def describe(
    context: Context, call: Call, request: ecs.DescribeContainerInstancesRequest
) -> ecs.DescribeContainerInstancesResponse:
    cluster = active_cluster(context, call, request.cluster).value.name
    given = request.container_instances or ()
    if not given:
        raise invalid("Container instances cannot be empty.")
    if len(given) > MOST_DESCRIBED:
        raise invalid(f"Container instances cannot have more than {MOST_DESCRIBED} entries.")
    include = set(request.include or ())
    found, failures = [], []
    for text in given:
        entry = find(context, call, cluster, text)
        if entry is None:
            arn = text if text.startswith("arn:") else names.instance_arn(context.place(call), cluster, text)
            failures.append(ecs.Failure(arn=arn, reason="MISSING"))
        else:
            health = "CONTAINER_INSTANCE_HEALTH" in include
            found.append(shown(context, entry, tags="TAGS" in include, health=health))
    return ecs.DescribeContainerInstancesResponse(container_instances=tuple(found), failures=tuple(failures))


async def listing(
    context: Context, call: Call, request: ecs.ListContainerInstancesRequest
) -> ecs.ListContainerInstancesResponse:
    cluster = active_cluster(context, call, request.cluster).value.name
    if request.filter:
        raise invalid("Filter expressions are not supported by this control plane yet; leave the filter out.")
    rows = {
        names.last_part(one.value.arn): one.value.arn
        for one in context.records.instances.group(f"{call.region}/{cluster}")
        if request.status is None or one.value.instance.status == request.status
    }
    chosen, token = page(sorted(rows), request.next_token, request.max_results)
    return ecs.ListContainerInstancesResponse(
        container_instance_arns=tuple(rows[key] for key in chosen), next_token=token
    )


async def update_state(
    context: Context, call: Call, request: ecs.UpdateContainerInstancesStateRequest
) -> ecs.UpdateContainerInstancesStateResponse:
    cluster = active_cluster(context, call, request.cluster).value.name
    if request.status not in ("ACTIVE", "DRAINING"):
        raise invalid("Container instance status must be ACTIVE or DRAINING.")
    changed, failures = [], []
    for text in request.container_instances or ():
        entry = await change(context, call, cluster, text, status=request.status)
        if entry is None:
            failures.append(ecs.Failure(arn=text, reason="MISSING"))
        else:
            changed.append(shown(context, entry))
    return ecs.UpdateContainerInstancesStateResponse(container_instances=tuple(changed), failures=tuple(failures))


async def change(
    context: Context, call: Call, cluster: str, text: str, **fields: object
) -> Entry[InstanceRecord] | None:
    """Set fields of an instance; None when there is none."""
    records = context.records
    for _ in range(CONFLICT_TRIES):
        entry = find(context, call, cluster, text)
        if entry is None:
            return None
        instance = entry.value.instance
        if all(getattr(instance, name) == value for name, value in fields.items()):
            return entry
        instance = msgspec.structs.replace(instance, version=(instance.version or 0) + 1, **fields)
        where = (call.region, cluster, names.last_part(entry.value.arn))
        result = await records.commit(
            [records.unchanged(records.instances, entry, *where)],
            [records.put(records.instances, msgspec.structs.replace(entry.value, instance=instance), *where)],
        )
        if result.succeeded:
            return records.instances.get(*where)
    raise busy(f"container instance {text}")


OPERATIONS: dict[str, Operation] = {
    "RegisterContainerInstance": register,
    "DeregisterContainerInstance": deregister,
    "DescribeContainerInstances": describe,
    "ListContainerInstances": listing,
    "UpdateContainerInstancesState": update_state,
}
