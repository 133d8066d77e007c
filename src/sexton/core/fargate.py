"""What Fargate asks of a task definition and a request, so that what is accepted here is accepted there.

Tasks with the launch type FARGATE run on the cluster's own hosts: there is nothing behind them that AWS would bring.
The rules stay, in ECS's words: sizes from the table, network mode awsvpc, platform versions, what a definition must
not ask for because nobody could give it there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from sexton.core.resources import number
from sexton.wire import ecs

LAUNCH_TYPE = "FARGATE"
LATEST = "LATEST"
# What LATEST stands for, and what a task says it runs on.
CURRENT = "1.4.0"
VERSIONS = frozenset(("1.0.0", "1.1.0", "1.2.0", "1.3.0", CURRENT, LATEST))
FAMILY = "Linux"
# GiB that a task has without asking, and between which it may ask.
EPHEMERAL_STORAGE, LEAST_STORAGE, MOST_STORAGE = 20, 21, 200
MOST_STOP_TIMEOUT = 120
LOG_DRIVERS = ("awslogs", "splunk", "awsfirelens")

Definition = ecs.RegisterTaskDefinitionRequest | ecs.TaskDefinition


class Platform(NamedTuple):
    """What a task is shown to run on; nothing for tasks of container instances."""

    version: str | None = None
    family: str | None = None


NO_PLATFORM = Platform()


def _sizes() -> dict[int, frozenset[int]]:
    """The memory, in MiB, that goes with so many CPU units."""
    table = {256: frozenset((512, 1024, 2048))}
    for cpu, least, most, step in (
        (512, 1, 4, 1),
        (1024, 2, 8, 1),
        (2048, 4, 16, 1),
        (4096, 8, 30, 1),
        (8192, 16, 60, 4),
        (16384, 32, 120, 8),
    ):
        table[cpu] = frozenset(gib * 1024 for gib in range(least, most + 1, step))
    return table


SIZES = _sizes()


def sized(cpu: str | None, memory: str | None) -> bool:
    """Whether Fargate has a size like this."""
    return number(memory) in SIZES.get(number(cpu) or 0, frozenset())


def problems(definition: Definition) -> Iterator[str]:
    """Why a definition could not run on Fargate, in ECS's words."""
    if definition.network_mode != "awsvpc":
        yield "Fargate only supports network mode \u2018awsvpc\u2019."
    for value, what in ((definition.cpu, "cpu"), (definition.memory, "memory")):
        if not value:
            yield f"Fargate requires that '{what}' be defined at the task level."
    if definition.cpu and definition.memory and not sized(definition.cpu, definition.memory):
        yield no_size(definition.cpu, definition.memory)
    if definition.placement_constraints:
        yield "Fargate does not support placement constraints in a task definition."
    if definition.pid_mode == "host":
        yield "Fargate does not support pidMode 'host'."
    if definition.ipc_mode:
        yield "Fargate does not support ipcMode."
    storage = definition.ephemeral_storage
    if storage is not None and not LEAST_STORAGE <= (storage.size_in_gib or 0) <= MOST_STORAGE:
        yield f"Invalid ephemeralStorage: sizeInGiB must be between {LEAST_STORAGE} and {MOST_STORAGE}."
    for volume in definition.volumes or ():
        if volume.host and volume.host.source_path:
            yield "host.sourcePath should not be set for volumes in Fargate."
        if volume.docker_volume_configuration:
            yield "Fargate does not support dockerVolumeConfiguration."
    for container in definition.container_definitions or ():
        yield from _container_problems(container, bool(definition.execution_role_arn))


def _container_problems(container: ecs.ContainerDefinition, execution_role: bool) -> Iterator[str]:
    linux = container.linux_parameters or ecs.LinuxParameters()
    for asked, what in (
        (container.privileged, "privileged"),
        (container.docker_security_options, "dockerSecurityOptions"),
        (container.dns_servers, "dnsServers"),
        (container.dns_search_domains, "dnsSearchDomains"),
        (container.extra_hosts, "extraHosts"),
        (linux.devices, "linuxParameters.devices"),
        (linux.shared_memory_size, "linuxParameters.sharedMemorySize"),
        (linux.tmpfs, "linuxParameters.tmpfs"),
        (linux.max_swap, "linuxParameters.maxSwap"),
        (linux.swappiness, "linuxParameters.swappiness"),
        (container.resource_requirements, "resourceRequirements"),
    ):
        if asked:
            yield f"Fargate does not support '{what}' in container '{container.name}'."
    if (container.stop_timeout or 0) > MOST_STOP_TIMEOUT:
        yield f"Invalid 'stopTimeout' for container '{container.name}': on Fargate it is at most {MOST_STOP_TIMEOUT}."
    driver = container.log_configuration.log_driver if container.log_configuration else None
    if driver and driver not in LOG_DRIVERS:
        yield f"Fargate does not support log driver {driver}. Supported log drivers are: {', '.join(LOG_DRIVERS)}."
    if driver == "awslogs" and not execution_role:
        yield "Fargate requires task definition to have execution role ARN to support log driver awslogs."
    if ".dkr.ecr." in (container.image or "") and not execution_role:
        yield "Fargate requires task definition to have execution role ARN to support ECR images."


def shown(version: str | None) -> str | None:
    """The platform version of what runs: LATEST is what it stands for."""
    return CURRENT if version == LATEST else version


def no_size(cpu: str, memory: str) -> str:
    return (
        f"No Fargate configuration exists for given values: {cpu} CPU, {memory} memory. "
        "See the Amazon ECS documentation for the valid values."
    )


def fits(definition: Definition) -> bool:
    """Whether a definition could run on Fargate."""
    return next(problems(definition), None) is None
