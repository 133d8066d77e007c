"""The calls that only agents make: where to connect, and what became of tasks.

Reports arrive at least once; one that says nothing new is acknowledged without a write.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from sexton.control.context import CONFLICT_TRIES, Call, Context, Operation, active_cluster, busy, invalid
from sexton.control.fields import Fields
from sexton.control.ops import instances, tasks
from sexton.control.records import TaskRecord
from sexton.core import lifecycle
from sexton.wire import ecs


async def discover(
    context: Context, call: Call, request: ecs.DiscoverPollEndpointRequest
) -> ecs.DiscoverPollEndpointResponse:
    cluster = active_cluster(context, call, request.cluster).value.name
    if request.container_instance and instances.find(context, call, cluster, request.container_instance) is None:
        raise invalid("The referenced container instance was not found.")
    return ecs.DiscoverPollEndpointResponse(
        endpoint=f"{context.endpoint}/acs/",
        telemetry_endpoint=f"{context.endpoint}/tcs/",
        service_connect_endpoint=f"{context.endpoint}/sc/",
    )


async def submit_task(
    context: Context, call: Call, request: ecs.SubmitTaskStateChangeRequest
) -> ecs.SubmitTaskStateChangeResponse:
    await _apply(context, call, request)
    return ecs.SubmitTaskStateChangeResponse(acknowledgment=context.new_id())


async def submit_container(
    context: Context, call: Call, request: ecs.SubmitContainerStateChangeRequest
) -> ecs.SubmitContainerStateChangeResponse:
    change = ecs.ContainerStateChange(
        container_name=request.container_name,
        runtime_id=request.runtime_id,
        status=request.status,
        exit_code=request.exit_code,
        reason=request.reason,
        network_bindings=request.network_bindings,
    )
    whole = ecs.SubmitTaskStateChangeRequest(cluster=request.cluster, task=request.task, containers=(change,))
    await _apply(context, call, whole)
    return ecs.SubmitContainerStateChangeResponse(acknowledgment=context.new_id())


async def submit_attachments(
    context: Context, call: Call, request: ecs.SubmitAttachmentStateChangesRequest
) -> ecs.SubmitAttachmentStateChangesResponse:
    """Nothing here attaches anything to an instance or a volume to a task; agents still expect their answer."""
    active_cluster(context, call, request.cluster)
    return ecs.SubmitAttachmentStateChangesResponse(acknowledgment=context.new_id())


async def keep_health(
    context: Context, call: Call, cluster: str, instance_arn: str, arn: str, words: Mapping[str, str]
) -> None:
    """What the health checks of a task's containers say, from the agent that runs it; a stranger's word is nothing."""

    def change(record: TaskRecord) -> ecs.Task:
        if record.task.container_instance_arn != instance_arn:
            return record.task
        return lifecycle.health(record.task, words, _essential(context, call, record))

    if tasks.find(context, call, cluster, arn) is not None:
        await _change(context, call, cluster, arn, change)


async def _apply(context: Context, call: Call, request: ecs.SubmitTaskStateChangeRequest) -> None:
    cluster = active_cluster(context, call, request.cluster).value.name

    def change(record: TaskRecord) -> ecs.Task:
        return lifecycle.report(record.task, request, _essential(context, call, record), call.now)

    await _change(context, call, cluster, request.task, change)


async def _change(
    context: Context, call: Call, cluster: str, arn: str | None, change: Callable[[TaskRecord], ecs.Task]
) -> None:
    """Write what becomes of a task, unless that is what it is already."""
    records = context.records
    for _ in range(CONFLICT_TRIES):
        entry = tasks.find(context, call, cluster, arn)
        if entry is None:
            raise invalid("The referenced task was not found.")
        task = change(entry.value)
        if task == entry.value.task:
            return
        record = msgspec.structs.replace(entry.value, task=task)
        if task.health_status == "HEALTHY" and not record.healthy_at:
            record = msgspec.structs.replace(record, healthy_at=call.now)
        where = (record.region, record.cluster, record.id)
        result = await records.commit(
            [records.unchanged(records.tasks, entry, *where)], [records.put(records.tasks, record, *where)]
        )
        if result.succeeded:
            return
    raise busy(f"task {arn}")


def _essential(context: Context, call: Call, record: TaskRecord) -> frozenset[str]:
    definition = context.records.definition_of(record)
    containers = definition.definition.container_definitions if definition else None
    return frozenset(one.name or "" for one in containers or () if one.essential is not False)


FIELDS: dict[str, Fields] = {
    "DiscoverPollEndpoint": Fields(accepted={"zoneId": "the endpoint is the same in every zone"}),
    "SubmitAttachmentStateChanges": Fields(
        accepted={"attachments": "only tasks have interfaces here, and those are reported with the task"}
    ),
    "SubmitTaskStateChange": Fields(accepted={"managedAgents": "no managed agent is ever asked for"}),
}


OPERATIONS: dict[str, Operation] = {
    "DiscoverPollEndpoint": discover,
    "SubmitTaskStateChange": submit_task,
    "SubmitContainerStateChange": submit_container,
    "SubmitAttachmentStateChanges": submit_attachments,
}
