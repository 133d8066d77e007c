"""What a request may ask of a service: checked, completed with ECS's defaults, and refused by name where not served.

Nothing is accepted and then left out: a load balancer that nobody balances would be worse than none.
"""

from __future__ import annotations

import msgspec

from sexton.control import providers, serviceview
from sexton.control.context import Call, Context, invalid, unsupported
from sexton.control.ops import taskdefs
from sexton.control.records import DefinitionRecord, ServiceRecord
from sexton.core import names
from sexton.core.constraint import RuleError
from sexton.wire import ecs
from sexton.wire.ecs import DeploymentStrategy, SchedulingStrategy

Request = ecs.CreateServiceRequest | ecs.UpdateServiceRequest

MOST_DESIRED = 5000

_UNSERVED = {
    "load_balancers": "loadBalancers",
    "service_registries": "serviceRegistries",
    "volume_configurations": "volumeConfigurations",
    "vpc_lattice_configurations": "vpcLatticeConfigurations",
    "gateway_connectors": "gatewayConnectors",
    "monitoring": "monitoring",
    "enable_execute_command": "enableExecuteCommand",
}
_UNSERVED_DEPLOYMENT = {
    "lifecycle_hooks": "lifecycleHooks",
    "bake_time_in_minutes": "bakeTimeInMinutes",
    "linear_configuration": "linearConfiguration",
    "canary_configuration": "canaryConfiguration",
    "early_success_criteria": "earlySuccessCriteria",
}


def refuse_unserved(request: Request) -> None:
    """The API's error for what this control plane does not do, by its name in the request."""
    for field, name in _UNSERVED.items():
        if getattr(request, field, None):
            raise _unserved(name)
    connect = request.service_connect_configuration
    if connect is not None and connect.enabled is not False:
        raise _unserved("serviceConnectConfiguration")
    controller = request.deployment_controller
    if controller is not None and controller.type not in (None, ecs.DeploymentControllerType.ECS):
        raise _unserved(f"deploymentController {controller.type}")
    if getattr(request, "launch_type", None) == ecs.LaunchType.FARGATE:
        raise unsupported("launchType FARGATE is not supported by this control plane yet; use EC2 or EXTERNAL.")
    if request.platform_version:
        raise invalid("The platform version must be null when specifying an EC2 launch type.")
    given = request.deployment_configuration
    if given is None:
        return
    for field, name in _UNSERVED_DEPLOYMENT.items():
        if getattr(given, field, None):
            raise _unserved(f"deploymentConfiguration.{name}")
    if given.strategy not in (None, DeploymentStrategy.ROLLING):
        raise _unserved(f"deploymentConfiguration.strategy {given.strategy}")
    if given.alarms is not None and (given.alarms.enable or given.alarms.alarm_names):
        raise _unserved("deploymentConfiguration.alarms")


def _unserved(name: str) -> Exception:
    return unsupported(f"{name} is not supported by this control plane yet; leave it out.")


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
    return taskdefs.active(context, call, given)


def check_network(configuration: ecs.NetworkConfiguration | None, of: ecs.TaskDefinition) -> None:
    awsvpc = of.network_mode == "awsvpc"
    if awsvpc and configuration is None:
        raise invalid("Network Configuration must be provided when networkMode 'awsvpc' is specified.")
    if configuration is not None and not awsvpc:
        raise invalid("Network Configuration is not valid for the given networkMode of this task definition.")


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
