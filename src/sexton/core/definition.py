"""Whether a task definition makes sense, and the form in which it is kept.

``check`` gives the first problem as a sentence, in ECS's own words where they are known; ``normalise`` fills in the
defaults that ECS shows back, so that what a client reads later is what it would read from ECS.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from sexton.core import containerrules, fargate
from sexton.core.resources import number
from sexton.wire import ecs

_NAME = re.compile(r"[A-Za-z0-9_-]{1,255}\Z")
# The engine refuses to start a container with less.
LEAST_MEMORY = 6
_MODES = ("bridge", "host", "awsvpc", "none")


def check(request: ecs.RegisterTaskDefinitionRequest) -> str | None:
    """The first problem of a definition, or None."""
    return next(_problems(request), None)


def _problems(request: ecs.RegisterTaskDefinitionRequest) -> Iterator[str]:
    if not request.family or not _NAME.match(request.family):
        yield (
            "Invalid family name. Up to 255 letters (uppercase and lowercase), numbers, underscores, "
            "and hyphens are allowed."
        )
    containers = request.container_definitions or ()
    if not containers:
        yield "Container list cannot be empty."
    if request.network_mode and request.network_mode not in _MODES:
        yield f"Invalid network mode {request.network_mode}: it must be one of {', '.join(_MODES)}."
    for value, what, other_unit in ((request.cpu, "cpu", "gb"), (request.memory, "memory", "vcpu")):
        if value and (not number(value) or other_unit in value.lower()):
            yield f"Invalid '{what}' setting for task: {value}"
    seen: set[str] = set()
    for container in containers:
        yield from _container_problems(container, request)
        if container.name in seen:
            yield f"Container name '{container.name}' is used more than once in this task definition."
        seen.add(container.name or "")
    if not any(one.essential is not False for one in containers):
        yield "A task definition must contain at least one essential container."
    yield from containerrules.volume_problems(request.volumes or ())
    volumes = {one.name for one in request.volumes or ()}
    if len(volumes) != len(request.volumes or ()):
        yield "Volume names must be unique in a task definition."
    for container in containers:
        for mount in container.mount_points or ():
            if mount.source_volume not in volumes:
                yield f"Unknown volume '{mount.source_volume}'."
            if not mount.container_path:
                yield f"Invalid 'containerPath' setting for volume '{mount.source_volume}'."
        for source in container.volumes_from or ():
            if source.source_container not in seen or source.source_container == container.name:
                yield f"Unknown container '{source.source_container}' in volumesFrom of '{container.name}'."
        for dependency in container.depends_on or ():
            if dependency.container_name not in seen or dependency.container_name == container.name:
                yield f"Unknown container '{dependency.container_name}' in dependsOn of '{container.name}'."
    yield from containerrules.together(containers, request.network_mode)
    yield from _cycles(containers)
    yield from _launch_types(request)


def _launch_types(request: ecs.RegisterTaskDefinitionRequest) -> Iterator[str]:
    """Why a definition cannot be used with the launch types that it says it must be usable with."""
    required = request.requires_compatibilities or ()
    if ecs.Compatibility.FARGATE in required:
        yield from fargate.problems(request)
    elif request.ephemeral_storage is not None and not fargate.fits(request):
        yield "ephemeralStorage is only supported for task definitions that are compatible with Fargate."
    if ecs.Compatibility.EXTERNAL in required and request.network_mode == "awsvpc":
        yield "The launch type EXTERNAL does not support the network mode awsvpc."


def _container_problems(
    container: ecs.ContainerDefinition, request: ecs.RegisterTaskDefinitionRequest
) -> Iterator[str]:
    if not container.name:
        yield "Container.name should not be null or empty."
    elif not _NAME.match(container.name):
        yield f"Invalid container name '{container.name}': letters, numbers, underscores and hyphens are allowed."
    if not container.image:
        yield "Container.image should not be null or empty."
    soft, hard = container.memory_reservation, container.memory
    if not (soft or hard or request.memory):
        yield (
            f"Invalid setting for container '{container.name}'. "
            "At least one of 'memory' or 'memoryReservation' must be specified."
        )
    for amount in (soft, hard):
        if amount is not None and amount < LEAST_MEMORY:
            yield (f"Invalid setting for container '{container.name}'. Memory must be at least {LEAST_MEMORY} MiB.")
    if soft and hard and soft > hard:
        yield f"Invalid setting for container '{container.name}'. 'memoryReservation' must be less than 'memory'."
    if container.cpu is not None and container.cpu < 0:
        yield f"Invalid 'cpu' setting for container '{container.name}'."
    task_memory = number(request.memory)
    if task_memory and hard and hard > task_memory:
        yield f"Invalid setting for container '{container.name}'. 'memory' must not exceed the task's memory."
    for mapping in container.port_mappings or ():
        yield from _port_problems(container, mapping, request.network_mode)
    yield from containerrules.problems(container, request.network_mode)


def _port_problems(
    container: ecs.ContainerDefinition, mapping: ecs.PortMapping, network_mode: str | None
) -> Iterator[str]:
    if mapping.container_port is None and not mapping.container_port_range:
        yield f"Invalid 'containerPort' setting for container '{container.name}'."
    for port in (mapping.container_port, mapping.host_port):
        if port is not None and not 0 <= port <= 65535:
            yield f"Invalid port {port} in container '{container.name}': ports go from 0 to 65535."
    if mapping.protocol not in (None, "tcp", "udp"):
        yield f"Invalid 'protocol' setting for container '{container.name}': it must be tcp or udp."
    if network_mode in ("host", "awsvpc") and mapping.host_port and mapping.host_port != mapping.container_port:
        yield (f"When networkMode={network_mode}, the host ports and container ports in port mappings must match.")


def _cycles(containers: tuple[ecs.ContainerDefinition, ...]) -> Iterator[str]:
    if not any(one.depends_on for one in containers):
        return
    waits = {one.name or "": {dep.container_name or "" for dep in one.depends_on or ()} for one in containers}
    while waits:
        free = [name for name, needs in waits.items() if not needs & waits.keys()]
        if not free:
            yield f"Containers wait for each other in a circle: {', '.join(sorted(waits))}."
            return
        for name in free:
            del waits[name]


# What ECS shows of a health check that does not say it.
_INTERVAL, _TIMEOUT, _RETRIES = 30, 5, 3


def normalise(container: ecs.ContainerDefinition, network_mode: str | None = None) -> ecs.ContainerDefinition:
    """The container definition as ECS shows it back."""
    own_ports = network_mode in ("host", "awsvpc")  # a port of the container is the same port of what it runs on
    mappings = tuple(
        msgspec.structs.replace(
            one, protocol=one.protocol or "tcp", host_port=one.host_port or (one.container_port if own_ports else 0)
        )
        if one.container_port is not None
        else msgspec.structs.replace(one, protocol=one.protocol or "tcp")
        for one in container.port_mappings or ()
    )
    check = container.health_check
    if check is not None:
        check = msgspec.structs.replace(
            check,
            interval=_INTERVAL if check.interval is None else check.interval,
            timeout=_TIMEOUT if check.timeout is None else check.timeout,
            retries=_RETRIES if check.retries is None else check.retries,
        )
    return msgspec.structs.replace(
        container,
        cpu=container.cpu or 0,
        essential=container.essential is not False,
        port_mappings=mappings,
        environment=container.environment or (),
        mount_points=container.mount_points or (),
        volumes_from=container.volumes_from or (),
        system_controls=container.system_controls or (),
        health_check=check,
    )


def compatibilities(request: ecs.RegisterTaskDefinitionRequest) -> tuple[str, ...]:
    """The launch types a definition can be used with."""
    if request.network_mode == "awsvpc":
        return ("EC2", "FARGATE") if fargate.fits(request) else ("EC2",)
    return ("EXTERNAL", "EC2")
