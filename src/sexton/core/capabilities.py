"""What a task definition needs of a host, as the attributes an agent advertises.

An agent advertises only what it does; placement matches the two lists. So a definition that asks for more than any
host can do is refused when it is run, with the missing attribute's name, instead of being half done.
"""

from __future__ import annotations

from collections.abc import Iterator

from sexton.core.resources import GPU, number
from sexton.wire import ecs, network

_C = "com.amazonaws.ecs.capability."
_E = "ecs.capability."


def required(definition: ecs.TaskDefinition | ecs.RegisterTaskDefinitionRequest) -> tuple[str, ...]:
    """Attribute names, sorted, without repeats."""
    names = set(_of_task(definition))
    for container in definition.container_definitions or ():
        names.update(_of_container(container, bool(definition.execution_role_arn)))
    return tuple(sorted(names))


def undeliverable(definition: ecs.TaskDefinition) -> tuple[str, ...]:
    """What a definition asks for that no payload of this control plane carries yet, by the API's names.

    Attributes cannot say it: another agent may well advertise the ability, and would then run the task without.
    """
    asked: dict[str, object] = {
        "proxyConfiguration": definition.proxy_configuration,
        "inferenceAccelerators": definition.inference_accelerators,
    }
    for volume in definition.volumes or ():
        asked["configuredAtLaunch"] = asked.get("configuredAtLaunch") or volume.configured_at_launch
    for container in definition.container_definitions or ():
        for name, value in (
            ("firelensConfiguration", container.firelens_configuration),
            ("credentialSpecs", container.credential_specs),
            (
                "resourceRequirements InferenceAccelerator",
                [one for one in container.resource_requirements or () if one.type != GPU],
            ),
        ):
            asked[name] = asked.get(name) or value
    return tuple(sorted(name for name, value in asked.items() if value))


def of_host(definition: ecs.TaskDefinition) -> frozenset[str]:
    """What a host must offer for a definition's tasks here: what the definition shows that it requires, and that its
    agent makes interfaces itself, since nothing here could plug one into it."""
    needs = {one.name or "" for one in definition.requires_attributes or ()}
    if definition.network_mode == "awsvpc":
        needs.add(network.CAPABILITY)
    return frozenset(needs)


# What a security option of the engine's needs of the host.
_SECURITY = {"label": "selinux", "apparmor": "apparmor"}
# CPU units of a task above which an agent must say that it knows such large ones: ten processors.
_LARGE_CPU = 10240
ENVIRONMENT_FILES = _E + "env-files.s3"


def of_task_role(network_mode: str | None) -> Iterator[str]:
    """What a host must offer to a task with a role of its own."""
    yield _C + "task-iam-role"
    if network_mode == "host":
        yield _C + "task-iam-role-network-host"


def _of_task(definition: ecs.TaskDefinition | ecs.RegisterTaskDefinitionRequest) -> Iterator[str]:
    if definition.network_mode == "awsvpc":
        yield _E + "task-eni"
    if definition.task_role_arn:
        yield from of_task_role(definition.network_mode)
    if definition.cpu or definition.memory:
        yield _E + "task-cpu-mem-limit"
    if (number(definition.cpu) or 0) > _LARGE_CPU:
        yield _E + "increased-task-cpu-limit"
    if "task" in (definition.pid_mode, definition.ipc_mode):  # the host's own namespaces need nothing special
        yield _E + "pid-ipc-namespace-sharing"
    if definition.proxy_configuration:
        yield _E + "aws-appmesh"
    if definition.inference_accelerators:
        yield _E + "task-eia"
    if definition.enable_fault_injection:
        yield _E + "fault-injection"
    for volume in definition.volumes or ():
        if volume.docker_volume_configuration:
            yield _E + "docker-plugin." + (volume.docker_volume_configuration.driver or "local").replace(":", ".")
        elif volume.efs_volume_configuration:
            settings = volume.efs_volume_configuration
            yield _E + ("efsAuth" if settings.transit_encryption == "ENABLED" else "efs")
        elif volume.fsx_windows_file_server_volume_configuration:
            yield _E + "fsxWindowsFileServer"
        elif volume.configured_at_launch:
            yield _E + "storage.ebs-task-volume-attach"
        elif not (volume.host and volume.host.source_path):
            yield _E + "docker-plugin.local"


def _of_container(container: ecs.ContainerDefinition, execution_role: bool) -> Iterator[str]:
    if container.privileged:
        yield _C + "privileged-container"
    for option in container.docker_security_options or ():
        word = option.partition(":")[0]
        if word in _SECURITY:
            yield _C + _SECURITY[word]
    if container.log_configuration and container.log_configuration.log_driver:
        driver = container.log_configuration.log_driver
        yield _C + "logging-driver." + driver
        if driver == "awslogs" and execution_role:
            yield _E + "execution-role-awslogs"
        for secret in container.log_configuration.secret_options or ():
            yield f"{_E}secrets.{_source(secret)}.bootstrap.log-driver"
    if container.health_check:
        yield _E + "container-health-check"
    if container.depends_on or container.links or container.volumes_from:
        yield _E + "container-ordering"
    if container.restart_policy and container.restart_policy.enabled:
        yield _E + "container-restart-policy"
    if container.repository_credentials:
        yield _E + "private-registry-authentication.secretsmanager"
    if container.environment_files:
        yield ENVIRONMENT_FILES
    if container.firelens_configuration:
        yield _E + "firelens." + (container.firelens_configuration.type or "fluentd")
    if container.credential_specs:
        yield _E + "gmsa"
    for secret in container.secrets or ():
        yield f"{_E}secrets.{_source(secret)}.environment-variables"
    for mapping in container.port_mappings or ():
        if mapping.container_port_range:
            yield _E + "network.container-port-range"
    for need in container.resource_requirements or ():
        if need.type != GPU:  # those are counted, as memory is
            yield _E + "task-eia"
    image = container.image or ""
    if ".dkr.ecr" in image:
        yield _C + "ecr-auth"
        if execution_role:
            yield _E + "execution-role-ecr-pull"
    yield _C + "docker-remote-api." + _engine_api(container)


def _source(secret: ecs.Secret) -> str:
    return "asm" if ":secretsmanager:" in (secret.value_from or "") else "ssm"


def _engine_api(container: ecs.ContainerDefinition) -> str:
    """The oldest engine API that knows everything the container asks of the engine."""
    if container.linux_parameters and container.linux_parameters.init_process_enabled:
        return "1.25"
    return "1.24" if container.health_check else "1.18"
