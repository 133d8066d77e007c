"""Services: create, update, delete, describe, list.

These operations only write down what is wanted: a service, a new deployment of it with its revision, a new count.
The reconciler (``control/services``) sees the change and does the rest. Every write is conditional on the service
being what was read, so an update that another one overtook is decided again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import msgspec

from sexton.control import providers, serviceterms, serviceview
from sexton.control.context import (
    CONFLICT_TRIES,
    Call,
    Context,
    Operation,
    active_cluster,
    busy,
    invalid,
    page,
    same_cluster,
)
from sexton.control.fields import Fields
from sexton.control.records import Entry, ServiceRecord
from sexton.control.serviceterms import AUTO
from sexton.core import deployment as deployments
from sexton.core import names, rollout, tagging
from sexton.core.fargate import NO_PLATFORM
from sexton.store.contract import Compare, Write
from sexton.wire import ecs
from sexton.wire.ecs import DeploymentControllerType as Controller
from sexton.wire.ecs import SchedulingStrategy
from sexton.wire.errors import ServiceNotActiveException, ServiceNotFoundException

MOST_DESCRIBED = 10
MOST_LISTED = 100
LISTED = 10

DELETED = "Service deployment stopped because the service was deleted."


async def create(context: Context, call: Call, request: ecs.CreateServiceRequest) -> ecs.CreateServiceResponse:
    name = request.service_name or ""
    if names.parse_service(name) != names.Member("", name):
        raise invalid(
            "Service name is invalid. Up to 255 letters (uppercase and lowercase), numbers, underscores, and hyphens "
            "are allowed."
        )
    if request.client_token is not None and not 1 <= len(request.client_token) <= 36:
        raise invalid("clientToken must have 1 to 36 characters.")
    if problem := tagging.problem(request.tags):
        raise invalid(problem)
    fingerprint = _fingerprint(request)
    for _ in range(CONFLICT_TRIES):
        home = active_cluster(context, call, request.cluster)
        where = (call.region, home.value.name, name)
        before = context.records.services.get(*where)
        if before is not None and not before.value.ended_at:
            return ecs.CreateServiceResponse(service=_repeated(context, before, fingerprint))
        record, of = _made(context, call, request, home.value.cluster, fingerprint)
        writes: list[Write] = []
        if of is not None:
            record, writes = _begun(context, call, record, of)
        compares = [
            context.records.unchanged(context.records.services, before, *where),
            # A cluster is deleted only without services.
            context.records.unchanged(context.records.clusters, home, call.region, home.value.name),
        ]
        if entry := await write(context, record, compares, writes):
            return ecs.CreateServiceResponse(service=serviceview.shown(context, entry))
    raise busy(f"service {name}")


def _fingerprint(request: ecs.CreateServiceRequest) -> str:
    plain = msgspec.structs.replace(request, client_token=None, cluster=None)
    return hashlib.sha256(msgspec.json.encode(plain)).hexdigest()


def _repeated(context: Context, entry: Entry[ServiceRecord], fingerprint: str) -> ecs.Service:
    """The answer to a request that was sent again, which does nothing again."""
    if entry.value.service.status == "DRAINING":
        raise invalid("Unable to Start a service that is still Draining.")
    if entry.value.fingerprint != fingerprint:
        raise invalid("Creation of service was not idempotent.")
    return serviceview.shown(context, entry)


def _made(
    context: Context, call: Call, request: ecs.CreateServiceRequest, home: ecs.Cluster, fingerprint: str
) -> tuple[ServiceRecord, ecs.TaskDefinition | None]:
    """The service as it is wanted, without a deployment; and its task definition, which task sets bring otherwise."""
    cluster, place = home.cluster_name or "", context.place(call)
    daemon = request.scheduling_strategy == SchedulingStrategy.DAEMON
    controller = (request.deployment_controller or ecs.DeploymentController()).type or Controller.ECS
    external = controller == Controller.EXTERNAL
    desired = serviceterms.desired_count(request.desired_count, daemon=daemon)
    if desired is None and not daemon and not external:
        raise invalid("Desired count must be specified for the REPLICA scheduling strategy.")
    of = None
    strategy: tuple[ecs.CapacityProviderStrategyItem, ...] = ()
    platform = NO_PLATFORM
    network = None
    if external:
        serviceterms.refuse_of_task_sets(request)
    else:
        of = serviceterms.definition(context, call, request.task_definition).definition
        strategy = serviceterms.capacity_strategy(
            context, home, of, request.launch_type, request.capacity_provider_strategy
        )
        platform = providers.platform(of, request.launch_type, strategy, request.platform_version)
        network = serviceterms.check_network(context, call, request.network_configuration, of, platform.family)
    if strategy and daemon:
        raise invalid("The daemon scheduling strategy does not support capacity provider strategies.")
    configuration = serviceterms.deployment_configuration(request.deployment_configuration, None, daemon=daemon)
    service = ecs.Service(
        service_arn=names.service_arn(place, cluster, request.service_name or ""),
        service_name=request.service_name,
        cluster_arn=names.cluster_arn(place, cluster),
        load_balancers=(),
        service_registries=(),
        status="ACTIVE",
        desired_count=desired or 0,
        launch_type=None if strategy else request.launch_type or ecs.LaunchType.EC2,
        capacity_provider_strategy=strategy or None,
        platform_version=platform.version,
        platform_family=platform.family,
        task_definition=of.task_definition_arn if of else None,
        deployment_configuration=configuration,
        role_arn=request.role,
        created_at=call.now,
        placement_constraints=request.placement_constraints or (),
        placement_strategy=request.placement_strategy or (),
        network_configuration=network,
        health_check_grace_period_seconds=serviceterms.grace(request.health_check_grace_period_seconds),
        scheduling_strategy=str(SchedulingStrategy.DAEMON if daemon else SchedulingStrategy.REPLICA),
        deployment_controller=ecs.DeploymentController(type=str(controller)),
        tags=request.tags or (),
        created_by=context.principal(call),
        enable_ecs_managed_tags=bool(request.enable_ecs_managed_tags),
        propagate_tags=request.propagate_tags or str(ecs.PropagateTags.NONE),
        enable_execute_command=False,
    )
    service = serviceterms.rebalanced(service, request.availability_zone_rebalancing, AUTO)
    record = ServiceRecord(region=call.region, cluster=cluster, service=service, fingerprint=fingerprint)
    serviceterms.check_placement(record, of or ecs.TaskDefinition())
    return record, of


def _begun(
    context: Context, call: Call, record: ServiceRecord, of: ecs.TaskDefinition
) -> tuple[ServiceRecord, list[Write]]:
    """The service with a new deployment of what it says now; and the writes of its revision and deployment records."""
    service, records = record.service, context.records
    revision = serviceterms.new_revision(context, call, service, of, record.cluster)
    arn = revision.service_revision_arn or ""
    desired = service.desired_count or 0
    after = deployments.begin(
        record.deployments,
        deployment_id=f"ecs-svc/{serviceterms.number(context)}",
        revision=arn,
        desired=desired,
        now=call.now,
    )
    sources = tuple(
        ecs.ServiceRevisionSummary(arn=one.revision, requested_task_count=one.desired) for one in record.deployments
    )
    rollout_id = context.new_id()[:22]
    begun = ecs.ServiceDeployment(
        service_deployment_arn=names.service_deployment_arn(
            context.place(call), record.cluster, record.name, rollout_id
        ),
        service_arn=service.service_arn,
        cluster_arn=service.cluster_arn,
        created_at=call.now,
        updated_at=call.now,
        source_service_revisions=sources,
        target_service_revision=ecs.ServiceRevisionSummary(arn=arn, requested_task_count=desired),
        status=str(ecs.ServiceDeploymentStatus.PENDING),
        deployment_configuration=service.deployment_configuration,
    )
    where = (record.region, record.cluster, record.name)
    writes: list[Write] = [
        records.put(records.service_revisions, revision, *where, names.last_part(arn)),
        records.put(records.service_deployments, begun, *where, rollout_id),
    ]
    ongoing = serviceview.rollout_of(context, record)
    ended = rollout.supersede(ongoing.value, call.now) if ongoing else None
    if ended is not None:
        writes.append(records.put(records.service_deployments, ended, *where, record.rollout))
    return msgspec.structs.replace(record, deployments=after, rollout=rollout_id), writes


async def write(
    context: Context, record: ServiceRecord, compares: Sequence[Compare], writes: Sequence[Write]
) -> Entry[ServiceRecord] | None:
    """The service once all of it is durable; None when something has changed meanwhile."""
    table, where = context.records.services, (record.region, record.cluster, record.name)
    result = await context.records.commit(compares, [context.records.put(table, record, *where), *writes])
    return table.get(*where) if result.succeeded else None


def find(context: Context, call: Call, cluster: str, text: str | None) -> Entry[ServiceRecord] | None:
    """The service that a request names, also one that is INACTIVE."""
    member = names.parse_service(text or "")
    if member is None:
        return None
    same_cluster(member.cluster, cluster)
    return context.records.services.get(call.region, cluster, member.id)


def active(context: Context, call: Call, cluster: str, text: str | None) -> Entry[ServiceRecord]:
    """The service that a request names, which must exist and be ACTIVE."""
    entry = find(context, call, cluster, text)
    if entry is None:
        raise ServiceNotFoundException("Service not found.")
    if entry.value.service.status != "ACTIVE":
        raise ServiceNotActiveException("Service was not ACTIVE.")
    return entry


async def update(context: Context, call: Call, request: ecs.UpdateServiceRequest) -> ecs.UpdateServiceResponse:
    home = active_cluster(context, call, request.cluster)
    records = context.records
    for _ in range(CONFLICT_TRIES):
        entry = active(context, call, home.value.name, request.service)
        record = entry.value
        serviceterms.check_controller(record.service, request)
        current = serviceview.current_revision(context, record)
        # A removed or inactive definition goes on serving; only a new deployment needs an active one.
        named = request.task_definition or (record.service.task_definition if request.force_new_deployment else None)
        of = serviceterms.definition(context, call, named).definition if named else None
        resolved = msgspec.structs.replace(request, task_definition=of.task_definition_arn if of else None)
        after = _updated(context, record, resolved, home.value.cluster, of)
        writes: list[Write] = []
        where = (record.region, record.cluster, record.name)
        compares = [records.unchanged(records.services, entry, *where)]
        moved = (after.service.capacity_provider_strategy, after.service.platform_version) != (
            record.service.capacity_provider_strategy,
            record.service.platform_version,
        )
        if not serviceterms.external(record.service) and (moved or deployments.needs_deployment(current, resolved)):
            of = of or serviceterms.definition(context, call, after.service.task_definition).definition
            network = serviceterms.check_network(
                context, call, after.service.network_configuration, of, after.service.platform_family
            )
            after = msgspec.structs.replace(
                after, service=serviceterms.changed(after.service, network_configuration=network)
            )
            ongoing = serviceview.rollout_of(context, record)
            if record.rollout:
                compares.append(records.unchanged(records.service_deployments, ongoing, *where, record.rollout))
            after, writes = _begun(context, call, after, of)
        if after == record:
            return ecs.UpdateServiceResponse(service=serviceview.shown(context, entry))
        if written := await write(context, after, compares, writes):
            return ecs.UpdateServiceResponse(service=serviceview.shown(context, written))
    raise busy(f"service {request.service}")


def _updated(
    context: Context,
    record: ServiceRecord,
    request: ecs.UpdateServiceRequest,
    home: ecs.Cluster,
    of: ecs.TaskDefinition | None,
) -> ServiceRecord:
    """The service with what the request says; what it does not speak of stays."""
    before = record.service
    daemon = before.scheduling_strategy == SchedulingStrategy.DAEMON
    current = serviceview.current_revision(context, record).service_revision_arn or ""
    of = of or serviceview.definition_of(context, record, current) or ecs.TaskDefinition()
    strategy = None
    if request.capacity_provider_strategy is not None:
        if daemon:
            raise invalid("The daemon scheduling strategy does not support capacity provider strategies.")
        strategy = serviceterms.capacity_strategy(context, home, of, None, request.capacity_provider_strategy)
    service = serviceterms.changed(
        before,
        desired_count=serviceterms.desired_count(request.desired_count, daemon=daemon),
        task_definition=request.task_definition,
        deployment_configuration=serviceterms.deployment_configuration(
            request.deployment_configuration, before.deployment_configuration, daemon=daemon
        ),
        network_configuration=request.network_configuration,
        placement_constraints=request.placement_constraints,
        placement_strategy=request.placement_strategy,
        enable_ecs_managed_tags=request.enable_ecs_managed_tags,
        propagate_tags=request.propagate_tags,
    )
    if request.health_check_grace_period_seconds is not None:
        period = serviceterms.grace(request.health_check_grace_period_seconds)
        service = serviceterms.changed(service, health_check_grace_period_seconds=period)
    if strategy is not None:
        service = msgspec.structs.replace(
            service,
            capacity_provider_strategy=strategy or None,
            launch_type=None if strategy else before.launch_type or str(ecs.LaunchType.EC2),
        )
    if not serviceterms.external(service) and (
        request.platform_version or request.task_definition or request.capacity_provider_strategy is not None
    ):
        platform = providers.platform(
            of,
            service.launch_type,
            service.capacity_provider_strategy,
            request.platform_version or (before.platform_version if strategy is None else None),
        )
        service = msgspec.structs.replace(service, platform_version=platform.version, platform_family=platform.family)
    service = serviceterms.rebalanced(
        service, request.availability_zone_rebalancing, before.availability_zone_rebalancing or ""
    )
    after = msgspec.structs.replace(record, service=service)
    serviceterms.check_placement(after, of)
    return after


async def delete(context: Context, call: Call, request: ecs.DeleteServiceRequest) -> ecs.DeleteServiceResponse:
    cluster = active_cluster(context, call, request.cluster).value.name
    records = context.records
    for _ in range(CONFLICT_TRIES):
        entry = find(context, call, cluster, request.service)
        if entry is None or entry.value.ended_at:
            raise ServiceNotFoundException("Service not found.")
        record = entry.value
        if record.service.status == "DRAINING":
            return ecs.DeleteServiceResponse(service=serviceview.shown(context, entry))
        daemon = record.service.scheduling_strategy == SchedulingStrategy.DAEMON
        if record.service.desired_count and not (request.force or daemon):
            raise invalid("The service cannot be stopped while it is scaled above 0.")
        if record.task_sets and not request.force:
            raise invalid("The service cannot be stopped while it has task sets.")
        where = (record.region, record.cluster, record.name)
        compares = [records.unchanged(records.services, entry, *where)]
        writes: list[Write] = []
        ongoing = serviceview.rollout_of(context, record)
        if ongoing is not None and not rollout.over(ongoing.value):
            ended = rollout.moved(ongoing.value, rollout.Status.STOPPED, call.now, DELETED)
            compares.append(records.unchanged(records.service_deployments, ongoing, *where, record.rollout))
            writes.append(records.put(records.service_deployments, ended, *where, record.rollout))
        draining = msgspec.structs.replace(record.service, status="DRAINING", desired_count=0)
        after = msgspec.structs.replace(record, service=draining)
        if written := await write(context, after, compares, writes):
            return ecs.DeleteServiceResponse(service=serviceview.shown(context, written))
    raise busy(f"service {request.service}")


async def describe(context: Context, call: Call, request: ecs.DescribeServicesRequest) -> ecs.DescribeServicesResponse:
    cluster = active_cluster(context, call, request.cluster).value.name
    given = request.services or ()
    if not given:
        raise invalid("Services cannot be empty.")
    if len(given) > MOST_DESCRIBED:
        raise invalid(f"Services cannot have more than {MOST_DESCRIBED} entries.")
    include = set(request.include or ())
    found, failures = [], []
    for text in given:
        entry = find(context, call, cluster, text)
        if entry is None:
            arn = text if text.startswith("arn:") else names.service_arn(context.place(call), cluster, text)
            failures.append(ecs.Failure(arn=arn, reason="MISSING"))
        else:
            found.append(serviceview.shown(context, entry, include))
    return ecs.DescribeServicesResponse(services=tuple(found), failures=tuple(failures))


async def listing(context: Context, call: Call, request: ecs.ListServicesRequest) -> ecs.ListServicesResponse:
    cluster = active_cluster(context, call, request.cluster).value.name
    keys = []
    for key, entry in context.records.services.under(call.region, cluster):
        service = entry.value.service
        if (
            service.status != "INACTIVE"
            and (not request.launch_type or service.launch_type == request.launch_type)
            and (not request.scheduling_strategy or service.scheduling_strategy == request.scheduling_strategy)
            # Nothing here belongs to a service of AWS's own.
            and request.resource_management_type in (None, ecs.ResourceManagementType.CUSTOMER)
        ):
            keys.append(key)
    chosen, token = page(keys, request.next_token, request.max_results or LISTED, MOST_LISTED)
    rows = (context.records.services.get(key) for key in chosen)
    return ecs.ListServicesResponse(service_arns=tuple(row.value.arn for row in rows if row), next_token=token)


async def listing_by_namespace(
    context: Context, call: Call, request: ecs.ListServicesByNamespaceRequest
) -> ecs.ListServicesByNamespaceResponse:
    """No service here is in a namespace of Cloud Map, so a namespace has none."""
    if not request.namespace:
        raise invalid("Namespace cannot be empty.")
    page([], request.next_token, request.max_results or LISTED, MOST_LISTED)
    return ecs.ListServicesByNamespaceResponse(service_arns=())


FIELDS: dict[str, Fields] = {
    "CreateService": Fields(
        accepted=serviceterms.ACCEPTED
        | {
            "role": "kept and shown; it is for load balancers",
            "clientToken": "a service's name alone makes a request safe to repeat",
        },
        refused=serviceterms.REFUSED,
    ),
    "UpdateService": Fields(accepted=serviceterms.ACCEPTED, refused=serviceterms.REFUSED),
    "ListServicesByNamespace": Fields(
        accepted={"maxResults": "there is nothing to list", "nextToken": "there is nothing to list"}
    ),
}

OPERATIONS: dict[str, Operation] = {
    "CreateService": create,
    "UpdateService": update,
    "DeleteService": delete,
    "DescribeServices": describe,
    "ListServices": listing,
    "ListServicesByNamespace": listing_by_namespace,
}
