"""Container instances: registration by agents, and what clients see and change of them.

Every attribute an agent sends comes back unchanged, since agents check that. Remaining resources and counts are
computed from the tasks, never stored. An instance that is deregistered by force leaves its tasks to nobody: they are
marked stopped, and its agent is told that it is inactive when it calls again.
"""

from __future__ import annotations

import asyncio
import hashlib

import msgspec

from sexton.control import authority
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
)
from sexton.control.fields import Fields
from sexton.control.records import Entry, InstanceRecord, TaskRecord
from sexton.core import capacity, lifecycle, names, query, resources, tagging
from sexton.core.lifecycle import StopCode
from sexton.core.query import Query, QueryError
from sexton.wire import ecs
from sexton.wire.errors import UNREADABLE

MOST_DESCRIBED = 100
MOST_UPDATED = 10
# What the real service adds by itself; there is one zone on one machine.
ZONE_ATTRIBUTE = "ecs.availability-zone"


def shown(
    context: Context, entry: Entry[InstanceRecord], *, tags: bool = False, health: bool = False
) -> ecs.ContainerInstance:
    """The instance as the API shows it."""
    record = entry.value
    used = context.usage.of(record.arn)
    return msgspec.structs.replace(
        record.instance,
        remaining_resources=resources.remaining(record.instance.registered_resources or (), used.resources, used.gpus),
        running_tasks_count=used.running,
        pending_tasks_count=used.pending,
        capacity_provider_name=capacity.provider_of(record.instance.attributes) or None,
        tags=record.instance.tags or () if tags else (),
        health_status=record.instance.health_status if health else None,
    )


def find(context: Context, call: Call, cluster: str, text: str | None) -> Entry[InstanceRecord] | None:
    member = names.parse_instance(text or "")
    if member is None:
        return None
    same_cluster(member.cluster, cluster)
    return context.records.instances.get(call.region, cluster, member.id)


async def register(
    context: Context, call: Call, request: ecs.RegisterContainerInstanceRequest
) -> ecs.RegisterContainerInstanceResponse:
    records = context.records
    if problem := tagging.problem(request.tags):
        raise invalid(problem)
    if context.identity is not None:
        await context.identity.check(
            request.instance_identity_document, request.instance_identity_document_signature, call.region
        )
    for _ in range(CONFLICT_TRIES):
        home = active_cluster(context, call, request.cluster)
        cluster = home.value.name
        if request.container_instance_arn:
            before = find(context, call, cluster, request.container_instance_arn)
            if before is None:
                raise client_error("The specified container instance is not registered in this cluster; register anew.")
            instance_id = names.last_part(before.value.arn)
        else:
            instance_id = _instance_id(context, call, cluster, request.client_token)
            before = records.instances.get(call.region, cluster, instance_id)
        place = context.place(call)
        instance = ecs.ContainerInstance(
            container_instance_arn=names.instance_arn(place, cluster, instance_id),
            ec2_instance_id=_ec2_id(request.instance_identity_document),
            status=before.value.instance.status if before else "ACTIVE",
            version=(before.value.instance.version or 0) + 1 if before else 1,
            version_info=request.version_info or ecs.VersionInfo(),
            agent_connected=bool(before and before.value.instance.agent_connected),
            attributes=_attributes(request, before, f"{call.region}a"),
            registered_resources=resources.with_devices(request.total_resources or (), request.platform_devices or ()),
            registered_at=before.value.instance.registered_at if before else call.now,
            attachments=(),
            tags=request.tags or (before.value.instance.tags if before else ()),
        )
        replica = before.value.replica if before else ""
        record = InstanceRecord(region=call.region, cluster=cluster, instance=instance, replica=replica)
        where = (call.region, cluster, instance_id)
        # The cluster is part of the condition, so that none is deleted while an instance comes in.
        bound, binds = authority.binding(context, call, record.arn, exists=before is not None)
        unchanged = [
            records.unchanged(records.clusters, home, call.region, cluster),
            records.unchanged(records.instances, before, *where),
            *bound,
        ]
        result = await records.commit(unchanged, [records.put(records.instances, record, *where), *binds])
        entry = records.instances.get(*where)
        if result.succeeded and entry is not None:
            return ecs.RegisterContainerInstanceResponse(container_instance=shown(context, entry, tags=True))
    raise busy(f"cluster {request.cluster}")


def _instance_id(context: Context, call: Call, cluster: str, token: str | None) -> str:
    """A new id; from a client token always the same, so that a registration sent again makes no second instance."""
    if not token:
        return context.new_id()
    return hashlib.sha256(f"{call.region}\n{cluster}\n{token}".encode()).hexdigest()[:32]


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


def _ec2_id(document: str | None) -> str:
    """The instance's own id from its identity document; agents outside EC2 send an empty one, and have no such id."""
    try:
        fields = msgspec.json.decode(document or "{}", type=dict[str, msgspec.Raw])
        return msgspec.json.decode(fields["instanceId"], type=str)
    except (*UNREADABLE, KeyError):
        return ""


async def deregister(
    context: Context, call: Call, request: ecs.DeregisterContainerInstanceRequest
) -> ecs.DeregisterContainerInstanceResponse:
    cluster = active_cluster(context, call, request.cluster).value.name
    records = context.records
    for _ in range(CONFLICT_TRIES):
        entry = find(context, call, cluster, request.container_instance)
        if entry is None:
            raise invalid("The referenced container instance was not found.")
        if records.tasks.group(entry.value.arn) and not request.force:
            raise invalid("Found running tasks on the instance.")
        where = (call.region, cluster, names.last_part(entry.value.arn))
        result = await records.commit(
            [records.unchanged(records.instances, entry, *where)],
            [records.delete(records.instances, *where), records.delete(records.slots, *where)],
        )
        if result.succeeded:
            left = shown(context, entry)
            await abandon(context, call.now)
            return ecs.DeregisterContainerInstanceResponse(
                container_instance=msgspec.structs.replace(left, status="INACTIVE", agent_connected=False)
            )
    raise busy(f"container instance {request.container_instance}")


async def abandon(context: Context, now: float) -> int:
    """End every task whose container instance is gone, since nobody is left to report its end; returns how many.

    Placement never writes a task onto an instance that is gone, so this finds all there will ever be. It is repeated
    by retention, should the process die between the removal of an instance and this.
    """
    records = context.records
    done = 0
    while orphans := _orphans(context):
        ends = []
        for entry in orphans:
            record = entry.value
            task = lifecycle.stop(record.task, StopCode.USER, "Container instance deregistered forcibly by user.", now)
            ended = msgspec.structs.replace(record, task=lifecycle.never_started(task, now))
            where = (record.region, record.cluster, record.id)
            unchanged = records.unchanged(records.tasks, entry, *where)
            ends.append(records.commit([unchanged], [records.put(records.tasks, ended, *where)]))
        # One that conflicts has just been reported about by its agent; it is looked at again.
        done += sum(one.succeeded for one in await asyncio.gather(*ends))
    return done


def _orphans(context: Context) -> list[Entry[TaskRecord]]:
    found = []
    for arn in context.records.tasks.groups():
        present = context.records.tasks.group(arn)
        record = present[0].value
        if context.records.instances.get(record.region, record.cluster, names.last_part(arn)) is None:
            found += present
    return found


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


def _query(filter_text: str | None) -> Query | None:
    """A filter in the cluster query language, or the API's error for one that cannot be read."""
    if not filter_text:
        return None
    try:
        return query.read(filter_text)
    except QueryError as error:
        raise invalid(f"Invalid filter: {error}") from None


async def listing(
    context: Context, call: Call, request: ecs.ListContainerInstancesRequest
) -> ecs.ListContainerInstancesResponse:
    cluster = active_cluster(context, call, request.cluster).value.name
    asked = _query(request.filter)
    rows = {
        names.last_part(one.value.arn): one.value.arn
        for one in context.records.instances.group(f"{call.region}/{cluster}")
        if (request.status is None or one.value.instance.status == request.status)
        and (asked is None or asked.matches(context.scheduler.host(one)))
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
    given = request.container_instances or ()
    if not 1 <= len(given) <= MOST_UPDATED:
        raise invalid(f"Container instances must be between 1 and {MOST_UPDATED}.")
    changed, failures = [], []
    for text in given:
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


FIELDS: dict[str, Fields] = {
    "RegisterContainerInstance": Fields(
        accepted={
            "instanceIdentityDocumentSignature": "the document is believed unsigned",
            "platformDevices": "nothing is placed by devices yet",
        }
    ),
}


OPERATIONS: dict[str, Operation] = {
    "RegisterContainerInstance": register,
    "DeregisterContainerInstance": deregister,
    "DescribeContainerInstances": describe,
    "ListContainerInstances": listing,
    "UpdateContainerInstancesState": update_state,
}
