"""What a request may ask of a service: checked, completed with ECS's defaults, and refused by name where not served.

Nothing is accepted and then left out: a load balancer that nobody balances would be worse than none.
"""

from __future__ import annotations

import msgspec

from sexton.control import providers, serviceview, tasknetwork, taskroles
from sexton.control.context import Call, Context, client_error, invalid
from sexton.control.ops import taskdefs
from sexton.control.records import DefinitionRecord, ServiceRecord
from sexton.core import names
from sexton.core.constraint import RuleError
from sexton.wire import ecs
from sexton.wire.ecs import AvailabilityZoneRebalancing as Rebalancing
from sexton.wire.ecs import DeploymentStrategy, SchedulingStrategy

MOST_DESIRED = 5000

_NOBODY_BALANCES = "there is no load balancer here that would send it anything; leave it out."
# What neither a new nor an updated service may ask for, whoever asks.
REFUSED = {
    "loadBalancers": _NOBODY_BALANCES,
    "serviceRegistries": "there is no Cloud Map here; leave it out.",
    "serviceConnectConfiguration.enabled": "there is no Service Connect here; leave it out.",
    "volumeConfigurations": "there is no Amazon EBS here; use a volume with a path of the host.",
    "vpcLatticeConfigurations": "there is no VPC Lattice here; leave it out.",
    "gatewayConnectors": "there are no Gateways here; leave it out.",
    "monitoring": "there is no CloudWatch here; leave it out.",
    "enableExecuteCommand": "no agent here can execute commands in a container; leave it out or say false.",
    "deploymentController.type=CODE_DEPLOY": "there is no CodeDeploy here; use ECS or EXTERNAL.",
    "deploymentConfiguration.strategy=BLUE_GREEN": "it needs a load balancer; use ROLLING.",
    "deploymentConfiguration.strategy=LINEAR": "it needs a load balancer; use ROLLING.",
    "deploymentConfiguration.strategy=CANARY": "it needs a load balancer; use ROLLING.",
    "deploymentConfiguration.alarms.enable": "there is no CloudWatch here; leave it out or say false.",
    "deploymentConfiguration.lifecycleHooks": "there is no Lambda here; leave it out.",
    "deploymentConfiguration.bakeTimeInMinutes": "nothing is shifted that could bake; leave it out.",
    "deploymentConfiguration.linearConfiguration": "it needs a load balancer; leave it out.",
    "deploymentConfiguration.canaryConfiguration": "it needs a load balancer; leave it out.",
    "deploymentConfiguration.earlySuccessCriteria": "a deployment ends when all of it is in place; leave it out.",
}
ACCEPTED = {
    "deploymentConfiguration.alarms": "alarms that are not enabled are nobody's concern; not shown",
    "serviceConnectConfiguration": "when it is not enabled; not shown",
}


def external(service: ecs.Service) -> bool:
    """Whether somebody else decides about this service's deployments, with task sets."""
    controller = service.deployment_controller
    return controller is not None and controller.type == ecs.DeploymentControllerType.EXTERNAL


# What of a request belongs to the task sets of a service that has them.
_OF_TASK_SETS = {
    "task_definition": "task definition",
    "network_configuration": "network configuration",
    "capacity_provider_strategy": "capacity provider strategy",
    "platform_version": "platform version",
}


def refuse_of_task_sets(request: ecs.CreateServiceRequest | ecs.UpdateServiceRequest) -> None:
    """The API's error for what only a task set says when the controller is EXTERNAL."""
    if getattr(request, "scheduling_strategy", None) == SchedulingStrategy.DAEMON:
        raise invalid("The EXTERNAL deployment controller does not support the DAEMON scheduling strategy.")
    for field, words in _OF_TASK_SETS.items():
        if getattr(request, field, None):
            raise invalid(
                f"A {words} cannot be specified for a service with the EXTERNAL deployment controller. "
                "Specify it for its task sets."
            )


def check_controller(service: ecs.Service, request: ecs.UpdateServiceRequest) -> None:
    """The API's error for an update that the service's deployment controller does not allow."""
    if external(service):
        refuse_of_task_sets(request)
        if request.force_new_deployment:
            raise invalid("Cannot force a new deployment on services with an EXTERNAL deployment controller.")
    asked = request.deployment_controller.type if request.deployment_controller else None
    present = service.deployment_controller.type if service.deployment_controller else None
    if asked and asked != present:
        raise invalid(f"The deployment controller of a service cannot be changed here: it is {present}.")


# Nothing was said about rebalancing, and nothing was decided before.
AUTO = ""
_ZONE = "attribute:ecs.availability-zone"


def rebalanced(service: ecs.Service, given: str | None, before: str) -> ecs.Service:
    """The service with rebalancing as given, as it was, or as ECS decides: where it is possible."""
    problem = _unbalanceable(service)
    if problem and given == Rebalancing.ENABLED:
        raise invalid(problem)
    chosen = given or before or Rebalancing.ENABLED
    if problem:
        chosen = Rebalancing.DISABLED
    return msgspec.structs.replace(service, availability_zone_rebalancing=str(chosen))


def _unbalanceable(service: ecs.Service) -> str:
    """Why a service's tasks cannot be moved between zones."""
    why = "does not support availabilityZoneRebalancing."
    if service.scheduling_strategy == SchedulingStrategy.DAEMON:
        return f"The daemon scheduling strategy {why}"
    if external(service):
        return f"The EXTERNAL deployment controller {why}"
    configuration = service.deployment_configuration
    if configuration is not None and configuration.maximum_percent == 100:
        return f"A maximumPercent of 100 {why}"
    first = next(iter(service.placement_strategy or ()), None)
    if first is not None and not (first.type == "spread" and first.field == _ZONE):
        return f"A placement strategy that does not begin with a spread over {_ZONE} {why}"
    if any(_ZONE in (one.expression or "") for one in service.placement_constraints or ()):
        return f"A placement constraint on {_ZONE} {why}"
    return ""


def deployment_configuration(
    given: ecs.DeploymentConfiguration | None, before: ecs.DeploymentConfiguration | None, *, daemon: bool
) -> ecs.DeploymentConfiguration:
    """The configuration in force: what is given, then what was, then ECS's defaults."""
    least, most = (0, 100) if daemon else (100, 200)
    asked, was = given or ecs.DeploymentConfiguration(), before or ecs.DeploymentConfiguration()
    minimum = _first(asked.minimum_healthy_percent, was.minimum_healthy_percent, least)
    maximum = _first(asked.maximum_percent, was.maximum_percent, most)
    if minimum < 0 or maximum < 0:
        raise invalid("minimumHealthyPercent and maximumPercent must not be negative.")
    if daemon and maximum != most:
        raise invalid("The daemon scheduling strategy only supports a maximumPercent of 100.")
    if not daemon and maximum < 100:
        raise invalid("maximumPercent must be at least 100.")
    if not daemon and minimum >= maximum:
        if (minimum, maximum) == (100, 100):
            raise invalid("Both maximumPercent and minimumHealthyPercent cannot be 100 as this will block deployments.")
        raise invalid("minimumHealthyPercent must be less than maximumPercent.")
    breaker = asked.deployment_circuit_breaker or was.deployment_circuit_breaker
    if breaker is None:
        breaker = ecs.DeploymentCircuitBreaker(enable=False, rollback=False)
    limit = breaker.threshold_configuration
    if limit is not None and limit.value is not None and limit.value < 1:
        raise invalid("The threshold of the deployment circuit breaker must be at least 1.")
    return ecs.DeploymentConfiguration(
        deployment_circuit_breaker=breaker,
        maximum_percent=maximum,
        minimum_healthy_percent=minimum,
        strategy=str(DeploymentStrategy.ROLLING),
        bake_time_in_minutes=0,
    )


def _first(*values: int | None) -> int:
    return next(value for value in values if value is not None)


def desired_count(given: int | None, *, daemon: bool) -> int | None:
    """The count that is asked for, if any; or the API's error."""
    if daemon and given is not None:
        raise invalid("The daemon scheduling strategy does not support a desired count for services. Remove it.")
    if given is not None and not 0 <= given <= MOST_DESIRED:
        raise invalid(f"Desired count must be between 0 and {MOST_DESIRED}.")
    return given


def grace(given: int | None) -> int:
    """The health check grace period; nothing is waited for without one."""
    if given is not None and given < 0:
        raise invalid("healthCheckGracePeriodSeconds must not be negative.")
    return given or 0


def definition(context: Context, call: Call, given: str | None) -> DefinitionRecord:
    """The task definition that a service is to run."""
    if not given:
        raise invalid("TaskDefinition must be specified.")
    found = taskdefs.active(context, call, given)
    if problem := taskroles.problem(context, call.region, found.definition):
        raise client_error(problem)
    return found


def check_network(
    context: Context,
    call: Call,
    configuration: ecs.NetworkConfiguration | None,
    of: ecs.TaskDefinition,
    platform_family: str | None,
) -> ecs.NetworkConfiguration | None:
    """The configuration as the service keeps it, or the API's error."""
    tasknetwork.choose(context, call.region, configuration, of, fargate=bool(platform_family))
    return tasknetwork.completed(configuration)


def check_placement(record: ServiceRecord, of: ecs.TaskDefinition) -> None:
    service = record.service
    if service.scheduling_strategy == SchedulingStrategy.DAEMON and service.placement_strategy:
        raise invalid("The daemon scheduling strategy does not support placement strategies.")
    try:
        serviceview.wanted(record, of)
    except RuleError as error:
        raise invalid(str(error)) from None


def capacity_strategy(
    context: Context,
    cluster: ecs.Cluster,
    of: ecs.TaskDefinition,
    launch_type: str | None,
    given: tuple[ecs.CapacityProviderStrategyItem, ...] | None,
) -> tuple[ecs.CapacityProviderStrategyItem, ...]:
    """The strategy in force, the cluster's own when nothing else is asked for; empty with a launch type."""
    providers.portions(cluster, of, launch_type, given, 1)  # raises what RunTask would
    return tuple(given or (() if launch_type else cluster.default_capacity_provider_strategy) or ())


def new_revision(
    context: Context, call: Call, service: ecs.Service, of: ecs.TaskDefinition, cluster: str
) -> ecs.ServiceRevision:
    """What a deployment is to bring, as it stands from now on."""
    name = service.service_name or ""
    images = tuple(
        ecs.ContainerImage(container_name=one.name, image=one.image) for one in of.container_definitions or ()
    )
    return ecs.ServiceRevision(
        service_revision_arn=names.service_revision_arn(context.place(call), cluster, name, number(context)),
        service_arn=service.service_arn,
        cluster_arn=service.cluster_arn,
        task_definition=of.task_definition_arn,
        capacity_provider_strategy=service.capacity_provider_strategy or None,
        launch_type=service.launch_type,
        platform_version=service.platform_version,
        platform_family=service.platform_family,
        network_configuration=service.network_configuration,
        container_images=images,
        created_at=call.now,
        guard_duty_enabled=False,
    )


def number(context: Context) -> str:
    """An id of nineteen digits, as deployments and revisions have."""
    return f"{int(context.new_id()[:15], 16):019d}"


def changed(service: ecs.Service, **fields: object) -> ecs.Service:
    """The service with those of the fields that say something."""
    return msgspec.structs.replace(service, **{name: value for name, value in fields.items() if value is not None})
