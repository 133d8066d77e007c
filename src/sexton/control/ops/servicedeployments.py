"""Service deployments and service revisions: list, describe, stop.

A service deployment is the record of one attempt to bring a revision out; a revision is what was brought, and never
changes. Both are written by the operations on services and by the reconciler. Stopping one only asks for it: the
reconciler rolls back, or leaves everything as it is and starts nothing more.
"""

from __future__ import annotations

import msgspec

from sexton.control import serviceview
from sexton.control.context import CONFLICT_TRIES, Call, Context, Operation, active_cluster, busy, invalid, page
from sexton.control.fields import Fields
from sexton.control.ops import services
from sexton.control.records import Entry, ServiceRecord
from sexton.core import names, rollout
from sexton.core.names import OfService
from sexton.wire import ecs
from sexton.wire.errors import ConflictException, ServiceDeploymentNotFoundException, ServiceNotFoundException

MOST_DESCRIBED = 20
MOST_LISTED = 100
LISTED = 20
# Far after any time, so that keys with what is left until then sort the newest first.
_END_OF_TIME = 1e11


async def listing(
    context: Context, call: Call, request: ecs.ListServiceDeploymentsRequest
) -> ecs.ListServiceDeploymentsResponse:
    cluster = active_cluster(context, call, request.cluster).value.name
    entry = services.find(context, call, cluster, request.service)
    if entry is None:
        raise ServiceNotFoundException("Service not found.")
    created = request.created_at or ecs.CreatedAt()
    rows = {}
    for _, one in context.records.service_deployments.under(call.region, cluster, entry.value.name):
        found, at = one.value, one.value.created_at or 0.0
        if (
            (not request.status or found.status in request.status)
            and (created.after is None or at > created.after)
            and (created.before is None or at < created.before)
        ):
            rows[f"{_END_OF_TIME - at:019.6f}/{found.service_deployment_arn}"] = found
    chosen, token = page(sorted(rows), request.next_token, request.max_results or LISTED, MOST_LISTED)
    return ecs.ListServiceDeploymentsResponse(
        service_deployments=tuple(_brief(rows[key]) for key in chosen), next_token=token
    )


def _brief(found: ecs.ServiceDeployment) -> ecs.ServiceDeploymentBrief:
    target = found.target_service_revision
    return ecs.ServiceDeploymentBrief(
        service_deployment_arn=found.service_deployment_arn,
        service_arn=found.service_arn,
        cluster_arn=found.cluster_arn,
        started_at=found.started_at,
        created_at=found.created_at,
        finished_at=found.finished_at,
        target_service_revision_arn=target.arn if target else None,
        status=found.status,
        status_reason=found.status_reason,
    )


async def describe(
    context: Context, call: Call, request: ecs.DescribeServiceDeploymentsRequest
) -> ecs.DescribeServiceDeploymentsResponse:
    given = request.service_deployment_arns or ()
    _check_count(len(given), "Service deployment ARNs")
    found, failures = [], []
    for text in given:
        name = names.parse_service_deployment(text)
        entry = name and context.records.service_deployments.get(call.region, *name)
        if name and entry:
            found.append(_shown(context, call, name, entry.value))
        else:
            failures.append(ecs.Failure(arn=text, reason="MISSING"))
    return ecs.DescribeServiceDeploymentsResponse(service_deployments=tuple(found), failures=tuple(failures))


def _check_count(count: int, what: str) -> None:
    if not 1 <= count <= MOST_DESCRIBED:
        raise invalid(f"{what} must be between 1 and {MOST_DESCRIBED}.")


def _shown(context: Context, call: Call, name: OfService, found: ecs.ServiceDeployment) -> ecs.ServiceDeployment:
    """The record with the tasks that its revisions have now."""
    service = context.records.services.get(call.region, name.cluster, name.service)
    counts = _by_revision(context, service) if service else {}

    def counted(one: ecs.ServiceRevisionSummary) -> ecs.ServiceRevisionSummary:
        running, pending = counts.get(one.arn or "", (0, 0))
        return msgspec.structs.replace(one, running_task_count=running, pending_task_count=pending)

    target = found.target_service_revision
    return msgspec.structs.replace(
        found,
        source_service_revisions=tuple(map(counted, found.source_service_revisions or ())),
        target_service_revision=counted(target) if target else None,
    )


def _by_revision(context: Context, service: Entry[ServiceRecord]) -> dict[str, tuple[int, int]]:
    """Running and pending tasks of each revision; a revision may have come by more than one deployment."""
    held = serviceview.counted(context, service.value)
    counts: dict[str, tuple[int, int]] = {}
    for one in service.value.deployments:
        running, pending = counts.get(one.revision, (0, 0))
        counts[one.revision] = running + held[one.id].running, pending + held[one.id].pending
    return counts


async def stop(
    context: Context, call: Call, request: ecs.StopServiceDeploymentRequest
) -> ecs.StopServiceDeploymentResponse:
    records = context.records
    name = names.parse_service_deployment(request.service_deployment_arn or "")
    if name is None:
        raise invalid("The service deployment ARN is invalid. Specify a valid ARN and try again.")
    where = (call.region, *name)
    for _ in range(CONFLICT_TRIES):
        entry = records.service_deployments.get(*where)
        if entry is None:
            raise ServiceDeploymentNotFoundException("Service deployment not found.")
        asked = rollout.request_stop(entry.value, request.stop_type, call.now)
        if asked is None:
            raise ConflictException("The service deployment has ended and can no longer be stopped.")
        answer = ecs.StopServiceDeploymentResponse(service_deployment_arn=entry.value.service_deployment_arn)
        if asked == entry.value:
            return answer
        result = await records.commit(
            [records.unchanged(records.service_deployments, entry, *where)],
            [records.put(records.service_deployments, asked, *where)],
        )
        if result.succeeded:
            return answer
    raise busy(f"service deployment {name.id}")


async def go_on(
    context: Context, call: Call, request: ecs.ContinueServiceDeploymentRequest
) -> ecs.ContinueServiceDeploymentResponse:
    """A deployment pauses at a lifecycle hook, and none here has hooks: there is never anything to go on from."""
    name = names.parse_service_deployment(request.service_deployment_arn or "")
    if name is None:
        raise invalid("The service deployment ARN is invalid. Specify a valid ARN and try again.")
    if context.records.service_deployments.get(call.region, *name) is None:
        raise ServiceDeploymentNotFoundException("Service deployment not found.")
    raise invalid(f"The service deployment is not paused at a lifecycle hook with the ID {request.hook_id}.")


async def describe_revisions(
    context: Context, call: Call, request: ecs.DescribeServiceRevisionsRequest
) -> ecs.DescribeServiceRevisionsResponse:
    given = request.service_revision_arns or ()
    _check_count(len(given), "Service revision ARNs")
    found, failures = [], []
    for text in given:
        name = names.parse_service_revision(text)
        entry = name and context.records.service_revisions.get(call.region, *name)
        if entry:
            found.append(entry.value)
        else:
            failures.append(ecs.Failure(arn=text, reason="MISSING"))
    return ecs.DescribeServiceRevisionsResponse(service_revisions=tuple(found), failures=tuple(failures))


FIELDS: dict[str, Fields] = {
    "ContinueServiceDeployment": Fields(accepted={"action": "there is never anything to go on from"}),
}


OPERATIONS: dict[str, Operation] = {
    "ListServiceDeployments": listing,
    "DescribeServiceDeployments": describe,
    "StopServiceDeployment": stop,
    "ContinueServiceDeployment": go_on,
    "DescribeServiceRevisions": describe_revisions,
}
