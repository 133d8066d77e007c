"""From a task definition and its overrides to the payload an agent is sent.

The settings that an engine takes verbatim travel as two JSON texts in the Docker Engine API's own shape. What an
agent computes by itself (environment, ports, mounts, memory, names) is left out of them, since they are laid over
what it computed.
"""

from __future__ import annotations

from typing import Any

import msgspec

from sexton.core import awslogs, names, sourced
from sexton.core.resources import CPU_PER_CORE, MIB, number
from sexton.wire import acs_task, ecs

NANOSECONDS = 1_000_000_000
# The oldest engine API that knows every field used here.
DOCKER_API = "1.25"
# What containers are told of where they run. ECS tells those of external hosts nothing.
EXECUTION_ENV = "AWS_EXECUTION_ENV"
EXECUTION = {"EC2": "AWS_ECS_EC2", "FARGATE": "AWS_ECS_FARGATE"}
# Tasks of a service have this before its name as their group.
SERVICE_GROUP = "service:"


def payload(
    task: ecs.Task,
    definition: ecs.TaskDefinition,
    account: str,
    interfaces: tuple[acs_task.ElasticNetworkInterface, ...] | None = None,
    *,
    log_endpoint: str = "",
) -> acs_task.Task:
    """The payload of one task, with the desired status its record has. ``log_endpoint`` is where its lines go by the
    driver awslogs, unless its definition says; nothing means AWS."""
    overrides = task.overrides or ecs.TaskOverride()
    own = {one.name: one for one in overrides.container_overrides or ()}
    arns = {one.name: one.container_arn for one in task.containers or ()}
    cpu = number(overrides.cpu or definition.cpu)
    parts = (task.task_arn or "").split(":")
    region = parts[3] if len(parts) > 3 else ""
    launch_type = task.launch_type or "EC2"
    told = {EXECUTION_ENV: EXECUTION[launch_type]} if launch_type in EXECUTION else {}
    return acs_task.Task(
        arn=task.task_arn,
        task_cluster_arn=task.cluster_arn,
        family=definition.family,
        version=str(definition.revision),
        desired_status="STOPPED" if task.desired_status == "STOPPED" else "RUNNING",
        containers=tuple(
            _container(
                one,
                own.get(one.name),
                told,
                definition,
                arns.get(one.name),
                region,
                _log(one, task.task_arn, log_endpoint),
                bool(overrides.execution_role_arn or definition.execution_role_arn),
            )
            for one in definition.container_definitions or ()
        ),
        volumes=tuple(_volume(one) for one in definition.volumes or ()),
        overrides="{}",
        task_definition_account_id=account,
        group=task.group,
        service_name=(task.group or "").removeprefix(SERVICE_GROUP)
        if (task.group or "").startswith(SERVICE_GROUP)
        else None,
        zone=task.availability_zone,
        network_mode=definition.network_mode or "bridge",
        cpu=cpu / CPU_PER_CORE if cpu else None,
        memory=number(overrides.memory or definition.memory),
        pid_mode=definition.pid_mode,
        ipc_mode=definition.ipc_mode,
        launch_type=launch_type,
        elastic_network_interfaces=interfaces,
        enable_fault_injection=definition.enable_fault_injection or None,
        associations=_gpus(task),
    )


def _gpus(task: ecs.Task) -> tuple[acs_task.Association, ...] | None:
    """The devices that were chosen with the task's place."""
    return (
        tuple(
            acs_task.Association(
                name=device,
                type="gpu",
                content=acs_task.AssociationContent(encoding="identity", value=""),
                containers=(one.name or "",),
            )
            for one in task.containers or ()
            for device in one.gpu_ids or ()
        )
        or None
    )


def _container(
    one: ecs.ContainerDefinition,
    own: ecs.ContainerOverride | None,
    told: dict[str, str],
    definition: ecs.TaskDefinition,
    arn: str | None,
    region: str,
    log: dict[str, Any] | None,
    execution_role: bool,
) -> acs_task.Container:
    own = own or ecs.ContainerOverride()
    environment = told | {pair.name or "": pair.value or "" for pair in one.environment or ()}
    environment.update({pair.name or "": pair.value or "" for pair in own.environment or ()})
    command = {"command": list(own.command)} if own.command is not None else {}
    memory = own.memory or one.memory
    files = own.environment_files if own.environment_files is not None else one.environment_files
    return acs_task.Container(
        name=one.name,
        image=one.image,
        command=one.command,
        entry_point=one.entry_point,
        environment=environment,
        essential=one.essential is not False,
        cpu=own.cpu if own.cpu is not None else one.cpu,
        memory=memory,
        links=one.links or (),
        port_mappings=tuple(_port(mapping) for mapping in one.port_mappings or ()),
        mount_points=tuple(
            acs_task.MountPoint(
                source_volume=mount.source_volume, container_path=mount.container_path, read_only=bool(mount.read_only)
            )
            for mount in one.mount_points or ()
        ),
        volumes_from=tuple(
            acs_task.VolumeFrom(source_container=source.source_container, read_only=bool(source.read_only))
            for source in one.volumes_from or ()
        ),
        docker_config=acs_task.DockerConfig(
            version=DOCKER_API,
            config=_text(_config(one)),
            host_config=_text(_host_config(one, own, definition, memory) | ({"LogConfig": log} if log else {})),
        ),
        overrides=_text(command),
        environment_files=tuple(
            acs_task.EnvironmentFile(value=file.value, type=file.type or "s3") for file in files or ()
        )
        or None,
        secrets=sourced.secrets(one, region),
        registry_authentication=sourced.registry(one, definition, region),
        health_check_type="docker" if one.health_check else None,
        logs_auth_strategy=awslogs.EXECUTION_ROLE if log and log["Type"] == awslogs.DRIVER and execution_role else None,
        depends_on=tuple(
            acs_task.ContainerDependency(container_name=wait.container_name, condition=wait.condition)
            for wait in one.depends_on or ()
        ),
        start_timeout=one.start_timeout,
        stop_timeout=one.stop_timeout,
        restart_policy=_restart(one.restart_policy),
        container_arn=arn,
    )


def _log(one: ecs.ContainerDefinition, task_arn: str | None, endpoint: str) -> dict[str, Any] | None:
    """How a container logs, in the engine's words."""
    if one.log_configuration is None:
        return None
    driver, options = one.log_configuration.log_driver, one.log_configuration.options or {}
    if driver == awslogs.DRIVER:
        options = awslogs.rendered(options, one.name or "", names.last_part(task_arn or ""), endpoint)
    return {"Type": driver, "Config": options}


def _port(mapping: ecs.PortMapping) -> acs_task.PortMapping:
    return acs_task.PortMapping(
        container_port=mapping.container_port,
        host_port=mapping.host_port,
        container_port_range=mapping.container_port_range,
        protocol=mapping.protocol or "tcp",
    )


def _restart(policy: ecs.ContainerRestartPolicy | None) -> acs_task.RestartPolicy | None:
    if policy is None:
        return None
    return acs_task.RestartPolicy(
        enabled=policy.enabled,
        ignored_exit_codes=policy.ignored_exit_codes,
        restart_attempt_period=policy.restart_attempt_period or 300,
    )


def _volume(volume: ecs.Volume) -> acs_task.Volume:
    if volume.docker_volume_configuration:
        given = volume.docker_volume_configuration
        return acs_task.Volume(
            name=volume.name,
            type="docker",
            docker_volume_configuration=acs_task.DockerVolumeConfiguration(
                scope=given.scope or "task",
                autoprovision=bool(given.autoprovision),
                driver=given.driver or "local",
                driver_opts=given.driver_opts,
                labels=given.labels,
            ),
        )
    if volume.efs_volume_configuration:
        return sourced.efs(volume)
    path = volume.host.source_path if volume.host else None
    return acs_task.Volume(name=volume.name, type="host", host=acs_task.HostVolume(source_path=path))


def _config(one: ecs.ContainerDefinition) -> dict[str, Any]:
    """The part of the engine's ``Config`` that only the definition knows."""
    config: dict[str, Any] = {
        "User": one.user,
        "WorkingDir": one.working_directory,
        "Hostname": one.hostname,
        "OpenStdin": one.interactive,
        "Tty": one.pseudo_terminal,
        "Labels": one.docker_labels,
        "NetworkDisabled": one.disable_networking,
    }
    if one.health_check:
        check = one.health_check
        config["Healthcheck"] = {
            "Test": list(check.command or ()),
            "Interval": (check.interval or 30) * NANOSECONDS,
            "Timeout": (check.timeout or 5) * NANOSECONDS,
            "Retries": check.retries or 3,
            "StartPeriod": (check.start_period or 0) * NANOSECONDS,
        }
    return _present(config)


def _host_config(
    one: ecs.ContainerDefinition, own: ecs.ContainerOverride, definition: ecs.TaskDefinition, memory: int | None
) -> dict[str, Any]:
    """The part of the engine's ``HostConfig`` that only the definition knows."""
    reservation = own.memory_reservation or one.memory_reservation
    config: dict[str, Any] = {
        "NetworkMode": definition.network_mode or "bridge",
        "Privileged": one.privileged,
        "ReadonlyRootfs": one.readonly_root_filesystem,
        "Dns": one.dns_servers,
        "DnsSearch": one.dns_search_domains,
        "ExtraHosts": [f"{entry.hostname}:{entry.ip_address}" for entry in one.extra_hosts or ()],
        "SecurityOpt": one.docker_security_options,
        "Ulimits": [
            {"Name": limit.name, "Soft": limit.soft_limit, "Hard": limit.hard_limit} for limit in one.ulimits or ()
        ],
        "Sysctls": {control.namespace: control.value for control in one.system_controls or ()},
        "MemoryReservation": reservation * MIB if reservation else None,
    }
    if one.linux_parameters:
        config.update(_linux(one.linux_parameters, memory))
    return _present(config)


def _linux(given: ecs.LinuxParameters, memory: int | None) -> dict[str, Any]:
    capabilities = given.capabilities or ecs.KernelCapabilities()
    swap = None
    if given.max_swap is not None and memory:
        swap = (memory + given.max_swap) * MIB
    return {
        "CapAdd": capabilities.add,
        "CapDrop": capabilities.drop,
        "Devices": [
            {
                "PathOnHost": device.host_path,
                "PathInContainer": device.container_path or device.host_path,
                "CgroupPermissions": "".join(word[0] for word in device.permissions or ("read", "write", "mknod")),
            }
            for device in given.devices or ()
        ],
        "Init": given.init_process_enabled,
        "ShmSize": given.shared_memory_size * MIB if given.shared_memory_size else None,
        "Tmpfs": {
            mount.container_path: ",".join((f"size={mount.size}m", *(mount.mount_options or ())))
            for mount in given.tmpfs or ()
        },
        "MemorySwap": swap,
        "MemorySwappiness": given.swappiness,
    }


def _present(config: dict[str, Any]) -> dict[str, Any]:
    """Without what was not said: an absent key leaves the agent's own value alone, an empty one would not."""
    return {key: value for key, value in config.items() if value not in (None, (), [], {}, "")}


def _text(value: dict[str, Any]) -> str:
    return msgspec.json.encode(value).decode()


def containers_of(
    definition: ecs.TaskDefinition, place: names.Place, cluster: str, task_id: str, ids: tuple[str, ...]
) -> tuple[ecs.Container, ...]:
    """The containers of a task that has just been accepted, as the API shows them."""
    arn = names.task_arn(place, cluster, task_id)
    return tuple(
        ecs.Container(
            container_arn=names.container_arn(place, cluster, task_id, container_id),
            task_arn=arn,
            name=one.name,
            image=one.image,
            last_status="PENDING",
            network_interfaces=(),
            health_status="UNKNOWN" if one.health_check else None,
            cpu=str(one.cpu or 0),
            memory=str(one.memory) if one.memory else None,
            memory_reservation=str(one.memory_reservation) if one.memory_reservation else None,
        )
        for one, container_id in zip(definition.container_definitions or (), ids, strict=True)
    )
