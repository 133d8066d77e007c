"""A service's records as others see them: as the decision's view, and as the API shows them.

Everything is computed from records when somebody asks: counts never disagree with the tasks, and a decision never
works on something that is not in the store.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from sexton.control import tasksetview
from sexton.control.context import Context
from sexton.control.records import Entry, ServiceRecord, TaskRecord, revision_key
from sexton.core import capabilities, fargate, names, strategy
from sexton.core.constraint import of_request as rules_of
from sexton.core.deployment import Counts, Deployment, counts
from sexton.core.pace import Pace
from sexton.core.placement import Host, Refusal, Wanted, Why, refuse, vacate
from sexton.core.resources import demand_of
from sexton.core.rollout import over
from sexton.core.servicetask import ServiceTask, seen
from sexton.core.serviceview import DaemonHost, ServiceView, Terms, terms
from sexton.wire import ecs
from sexton.wire.ecs import ServiceField

# Ended tasks that one decision takes into account, so that its transaction stays small; the rest comes next.
MOST_ENDED = 40
# Why a host is none that a DAEMON service should have a task on, whatever else is there now.
_NOT_MEANT = frozenset((Why.INACTIVE, Why.ATTRIBUTE, Why.MEMBER_OF))

NO_OVERRIDES = ecs.TaskOverride(container_overrides=(), inference_accelerator_overrides=())


def group_of(service: str) -> str:
    """The group of a service's tasks."""
    return f"service:{service}"


def key_of(record: ServiceRecord) -> str:
    return f"{record.region}/{record.cluster}/{record.name}"


def revision_of(context: Context, record: ServiceRecord, arn: str) -> ecs.ServiceRevision | None:
    """A revision of this service."""
    entry = context.records.service_revisions.get(record.region, record.cluster, record.name, names.last_part(arn))
    return entry.value if entry else None


def current_revision(context: Context, record: ServiceRecord) -> ecs.ServiceRevision:
    """What the PRIMARY deployment brings; empty for a service of task sets."""
    primary = record.deployments[0].revision if record.deployments else ""
    return revision_of(context, record, primary) or ecs.ServiceRevision()


def rollout_of(context: Context, record: ServiceRecord) -> Entry[ecs.ServiceDeployment] | None:
    """The latest service deployment."""
    where = (record.region, record.cluster, record.name, record.rollout)
    return context.records.service_deployments.get(*where) if record.rollout else None


def wanted(record: ServiceRecord, definition: ecs.TaskDefinition) -> Wanted:
    """What a task of this service asks of its host; ``RuleError`` if its constraints cannot be followed."""
    service = record.service
    daemon = service.scheduling_strategy == ecs.SchedulingStrategy.DAEMON
    chosen = strategy.of_request(service.placement_strategy)
    return Wanted(
        demand=demand_of(definition, NO_OVERRIDES),
        required=capabilities.of_host(definition),
        group=group_of(record.name),
        rules=rules_of(service.placement_constraints, definition.placement_constraints),
        strategies=() if daemon else chosen or strategy.SERVICE_DEFAULT,
    )


def definition_of(context: Context, record: ServiceRecord, revision: str) -> ecs.TaskDefinition | None:
    """The task definition that a revision brings; None once it has been removed."""
    found = revision_of(context, record, revision)
    name = names.parse_definition(found.task_definition or "") if found else None
    entry = name and context.records.definitions.get(record.region, name.family, revision_key(name.revision))
    return entry.value.definition if entry else None


def view(context: Context, entry: Entry[ServiceRecord], pace: Pace, room_since: float) -> ServiceView:
    """The service at this moment, for ``core.service.decide``."""
    record = entry.value
    asked = terms(record.service)
    rollout = rollout_of(context, record)
    needs = _wanted_now(context, record) if asked.daemon or asked.rebalancing else None
    hosts = _daemon_hosts(context, record, needs) if asked.daemon and needs else ()
    return ServiceView(
        name=record.name,
        terms=asked,
        deployments=record.deployments,
        tasks=_tasks(context, record, asked, {host.arn for host in hosts}),
        rollout=rollout.value if rollout and not over(rollout.value) else None,
        deleting=record.service.status == "DRAINING",
        hosts=hosts,
        zones=_zones(context, record, needs) if asked.rebalancing and needs else (),
        room_since=room_since,
        task_sets=tuple(one.scaled for one in record.task_sets),
        memory=record.memory,
        pace=pace,
    )


def _wanted_now(context: Context, record: ServiceRecord) -> Wanted | None:
    """What a new task asks of its host."""
    first = record.deployments[0] if record.deployments else None
    definition = definition_of(context, record, first.revision) if first else None
    return wanted(record, definition) if definition else None


def _tasks(context: Context, record: ServiceRecord, asked: Terms, hosts: Collection[str]) -> tuple[ServiceTask, ...]:
    entries = context.service_tasks.of(key_of(record))
    live = [one.value for one in entries if not one.value.stopped]
    ended = sorted(
        (one.value for one in entries if one.value.stopped and not one.value.accounted),
        key=lambda one: (one.task.stopped_at or 0.0, one.id),
    )
    return tuple(_seen(context, one, asked, hosts) for one in (*live, *ended[:MOST_ENDED]))


def _seen(context: Context, record: TaskRecord, asked: Terms, hosts: Collection[str]) -> ServiceTask:
    arn = record.task.container_instance_arn or ""
    instance = context.records.instances.get(record.region, record.cluster, names.last_part(arn))
    leaving = instance is None or instance.value.instance.status != "ACTIVE" or (asked.daemon and arn not in hosts)
    return seen(
        record.task,
        checked=_checked(context, record),
        healthy_at=record.healthy_at,
        leaving=leaving,
        protected_until=record.protected_until,
    )


def _checked(context: Context, record: TaskRecord) -> bool:
    """Whether a health check says how the task is; without one it proves itself by running."""
    if not any(one.health_status for one in record.task.containers or ()):
        return False
    definition = context.records.definition_of(record)
    containers = definition.definition.container_definitions if definition else None
    return any(one.health_check is not None and one.essential is not False for one in containers or ())


def _daemon_hosts(context: Context, record: ServiceRecord, needs: Wanted) -> tuple[DaemonHost, ...]:
    """The hosts that should have a task; one is ready if it had room without the service's own task there."""
    own: dict[str, list[TaskRecord]] = {}
    for one in context.service_tasks.of(key_of(record)):
        if not one.value.stopped:
            own.setdefault(one.value.task.container_instance_arn or "", []).append(one.value)
    found = []
    for host in context.scheduler.hosts(record.region, record.cluster):
        refusal = _refusal(host, needs, own.get(host.arn, []))
        if refusal is None or refusal.why not in _NOT_MEANT:
            found.append(DaemonHost(host.arn, ready=refusal is None))
    return tuple(found)


def _refusal(host: Host, needs: Wanted, own: Collection[TaskRecord]) -> Refusal | None:
    for one in own:
        host = vacate(host, one.demand, needs.group if one.task.desired_status != "STOPPED" else "")
    if not host.connected:  # out of reach for a moment is no reason to take a task away
        reachable = refuse(msgspec.structs.replace(host, connected=True), needs.demand, needs.required, needs.rules)
        if reachable is not None and reachable.why in _NOT_MEANT:
            return reachable
    return refuse(host, needs.demand, needs.required, needs.rules, needs.group)


def _zones(context: Context, record: ServiceRecord, needs: Wanted) -> tuple[str, ...]:
    """Where a task could be placed now."""
    hosts = context.scheduler.hosts(record.region, record.cluster)
    zones = {
        host.values.get("ecs.availability-zone", "")
        for host in hosts
        if refuse(host, needs.demand, needs.required, needs.rules, needs.group) is None
    }
    return tuple(sorted(zones - {""}))


def counted(context: Context, record: ServiceRecord) -> Mapping[str, Counts]:
    """The tasks of each deployment."""
    by_deployment: dict[str, list[ServiceTask]] = {one.id: [] for one in record.deployments}
    for entry in context.service_tasks.of(key_of(record)):
        task = seen(entry.value.task, checked=False)
        by_deployment.setdefault(task.deployment, []).append(task)
    return {name: counts(tasks) for name, tasks in by_deployment.items()}


def shown(
    context: Context, entry: Entry[ServiceRecord], include: Collection[str] = frozenset((ServiceField.TAGS,))
) -> ecs.Service:
    """The service as the API shows it."""
    record = entry.value
    held = counted(context, record)
    deployments = tuple(_deployment(context, record, one, held[one.id]) for one in record.deployments)
    revisions = tuple(
        ecs.ServiceCurrentRevisionSummary(
            arn=one.revision,
            requested_task_count=one.desired,
            running_task_count=held[one.id].running,
            pending_task_count=held[one.id].pending,
        )
        for one in record.deployments
        if one.status == "PRIMARY" or any(held[one.id])
    )
    rollout = rollout_of(context, record)
    return msgspec.structs.replace(
        record.service,
        desired_count=_desired(record),
        running_count=sum(one.running for one in held.values()),
        pending_count=sum(one.pending for one in held.values()),
        deployments=deployments,
        task_sets=tasksetview.shown(record, held, tags=ServiceField.TAGS in include) if record.task_sets else None,
        events=record.events,
        current_service_deployment=rollout.value.service_deployment_arn if rollout else None,
        current_service_revisions=revisions or None,
        tags=record.service.tags or () if ServiceField.TAGS in include else None,
    )


def _desired(record: ServiceRecord) -> int:
    """A DAEMON service wants what its hosts are; the deployment knows how many those are."""
    if record.service.scheduling_strategy == ecs.SchedulingStrategy.DAEMON and record.deployments:
        return record.deployments[0].desired
    return record.service.desired_count or 0


def _deployment(context: Context, record: ServiceRecord, one: Deployment, held: Counts) -> ecs.Deployment:
    revision = revision_of(context, record, one.revision) or ecs.ServiceRevision()
    return ecs.Deployment(
        id=one.id,
        status=str(one.status),
        task_definition=revision.task_definition,
        desired_count=one.desired,
        pending_count=held.pending,
        running_count=held.running,
        failed_tasks=one.failed_tasks,
        created_at=one.created_at,
        updated_at=one.updated_at,
        capacity_provider_strategy=revision.capacity_provider_strategy,
        launch_type=revision.launch_type,
        platform_version=fargate.shown(revision.platform_version),
        platform_family=revision.platform_family,
        network_configuration=revision.network_configuration,
        rollout_state=str(one.rollout),
        rollout_state_reason=one.reason,
    )
