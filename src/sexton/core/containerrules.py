"""What one container of a task definition may say, and what it may say together with the others.

Each rule yields sentences, in ECS's own words where they are known. ``core.definition`` asks for all of them and
tells the first. Limits are those that ECS documents for the field.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from sexton.core.resources import GPU, host_port
from sexton.wire import ecs
from sexton.wire.ecs import ContainerCondition

Containers = Sequence[ecs.ContainerDefinition]

# Seconds between two attempts to restart a container.
LEAST_ATTEMPT, MOST_ATTEMPT = 60, 1800
MOST_IGNORED_CODES = 50
# Field, name on the wire, least and most.
_CHECK_LIMITS = (
    ("interval", "interval", 5, 300),
    ("timeout", "timeout", 2, 120),
    ("retries", "retries", 1, 10),
    ("start_period", "startPeriod", 0, 300),
)
_RANGE = re.compile(r"([0-9]{1,5})-([0-9]{1,5})\Z")
_COUNT = re.compile(r"0*[1-9][0-9]{0,2}")
_UNBRIDGED = ("host", "awsvpc", "none")


def problems(container: ecs.ContainerDefinition, network_mode: str | None) -> Iterator[str]:
    """What is wrong with a container by itself, beyond its name, image and memory."""
    yield from _check(container)
    yield from _restart(container)
    yield from _limits(container)
    if container.mount_points:
        yield from _mounts(container)
    if container.secrets:
        yield from _secrets(container)
    if container.resource_requirements:
        yield from resource_problems(container)
    yield from _network(container, network_mode or "bridge")


def _check(container: ecs.ContainerDefinition) -> Iterator[str]:
    check = container.health_check
    if check is None:
        return
    if not check.command:
        yield f"Health check command cannot be empty for container '{container.name}'."
    for field, name, least, most in _CHECK_LIMITS:
        value = getattr(check, field)
        if value is not None and not least <= value <= most:
            yield (
                f"Invalid health check setting for container '{container.name}': {name} must be between {least} and "
                f"{most}."
            )


def _restart(container: ecs.ContainerDefinition) -> Iterator[str]:
    policy = container.restart_policy
    if policy is None:
        return
    period = policy.restart_attempt_period
    if period is not None and not LEAST_ATTEMPT <= period <= MOST_ATTEMPT:
        yield (
            f"Invalid restartPolicy for container '{container.name}': restartAttemptPeriod must be between "
            f"{LEAST_ATTEMPT} and {MOST_ATTEMPT} seconds."
        )
    if len(policy.ignored_exit_codes or ()) > MOST_IGNORED_CODES:
        yield (
            f"Invalid restartPolicy for container '{container.name}': at most {MOST_IGNORED_CODES} ignoredExitCodes "
            "are allowed."
        )


def _limits(container: ecs.ContainerDefinition) -> Iterator[str]:
    seen: set[str] = set()
    for limit in container.ulimits or ():
        if limit.name in seen:
            yield f"Ulimit '{limit.name}' is specified more than once for container '{container.name}'."
        seen.add(limit.name or "")
        soft, hard = limit.soft_limit or 0, limit.hard_limit or 0
        if min(soft, hard) < -1 or (hard != -1 and (soft > hard or soft == -1)):
            yield (
                f"Invalid ulimit '{limit.name}' for container '{container.name}': softLimit must not exceed hardLimit."
            )
    for value, name in ((container.start_timeout, "startTimeout"), (container.stop_timeout, "stopTimeout")):
        if value is not None and value < 0:
            yield f"Invalid '{name}' setting for container '{container.name}': it must not be negative."
    linux = container.linux_parameters
    if linux is not None and linux.swappiness is not None and not 0 <= linux.swappiness <= 100:
        yield f"Invalid 'swappiness' setting for container '{container.name}': it must be between 0 and 100."
    for amount, name in (
        (linux.max_swap if linux else None, "maxSwap"),
        (linux.shared_memory_size if linux else None, "sharedMemorySize"),
    ):
        if amount is not None and amount < 0:
            yield f"Invalid '{name}' setting for container '{container.name}': it must not be negative."


def _mounts(container: ecs.ContainerDefinition) -> Iterator[str]:
    paths = Counter(one.container_path for one in container.mount_points or ())
    for path, count in paths.items():
        if count > 1 and path:
            yield f"Container path '{path}' is mounted more than once in container '{container.name}'."


def _secrets(container: ecs.ContainerDefinition) -> Iterator[str]:
    taken = {one.name for one in container.environment or ()}
    for secret in container.secrets or ():
        if secret.name in taken:
            yield (
                "The secret name must be unique and not shared with any new or existing environment variables set on "
                f"the container, such as '{secret.name}'."
            )
        taken.add(secret.name)


def resource_problems(container: ecs.ContainerDefinition | ecs.ContainerOverride) -> Iterator[str]:
    """What is wrong with the GPUs that a container asks for, in its definition or at its launch."""
    needs = container.resource_requirements or ()
    gpus = [one for one in needs if one.type == GPU]
    if len(gpus) > 1:
        yield f"Resource type 'GPU' is specified more than once for container '{container.name}'."
    for one in gpus:
        if not _COUNT.fullmatch(one.value or ""):
            yield (
                f"Invalid resourceRequirements for container '{container.name}': the value of GPU must be a whole "
                "number of at least 1."
            )


def _network(container: ecs.ContainerDefinition, mode: str) -> Iterator[str]:
    if container.links and mode in _UNBRIDGED:
        yield f"Links are not supported when networkMode={mode}."
    if container.port_mappings and mode == "none":
        yield "Port mappings are not supported when networkMode=none."
    if container.hostname and mode in ("host", "awsvpc"):
        yield f"A hostname is not supported when networkMode={mode}."
    for value, name in (
        (container.dns_servers, "dnsServers"),
        (container.dns_search_domains, "dnsSearchDomains"),
        (container.extra_hosts, "extraHosts"),
    ):
        if value and mode == "awsvpc":
            yield f"{name} is not supported when networkMode=awsvpc."
    names: set[str] = set()
    for mapping in container.port_mappings or ():
        if mapping.container_port_range:
            yield from _port_range(container, mapping, mode)
        if mapping.name in names:
            yield f"Port mapping name '{mapping.name}' is used more than once in container '{container.name}'."
        if mapping.name:
            names.add(mapping.name)


def _port_range(container: ecs.ContainerDefinition, mapping: ecs.PortMapping, mode: str) -> Iterator[str]:
    found = _RANGE.match(mapping.container_port_range or "")
    if not found or not 1 <= int(found[1]) <= int(found[2]) <= 65535:
        yield f"Invalid 'containerPortRange' setting for container '{container.name}': it must be like 8000-8080."
    if mapping.container_port is not None or mapping.host_port:
        yield (
            f"Invalid port mapping for container '{container.name}': 'containerPortRange' cannot be combined with "
            "'containerPort' or 'hostPort'."
        )
    if mode == "host":
        yield "containerPortRange is not supported when networkMode=host."


def together(containers: Containers, network_mode: str | None) -> Iterator[str]:
    """What is wrong between containers: who waits for what, who links to whom, who takes whose port."""
    by_name = {one.name or "": one for one in containers}
    for container in containers:
        yield from _dependencies(container, by_name)
        for link in container.links or ():
            target = link.partition(":")[0]
            if target not in by_name or target == container.name:
                yield f"Unknown container '{target}' in links of '{container.name}'."
    taken = [
        (port, mapping.protocol or "tcp")
        for container in containers
        for mapping in container.port_mappings or ()
        if (port := host_port(mapping, network_mode))
    ]
    if len(set(taken)) < len(taken):
        for (port, protocol), count in Counter(taken).items():
            if count > 1:
                yield f"Host port {port}/{protocol} is used more than once in this task definition."


def _dependencies(container: ecs.ContainerDefinition, by_name: Mapping[str, ecs.ContainerDefinition]) -> Iterator[str]:
    seen: set[str] = set()
    for dependency in container.depends_on or ():
        name = dependency.container_name or ""
        target = by_name.get(name)
        if name in seen:
            yield f"Container '{container.name}' depends on '{name}' more than once."
        seen.add(name)
        if target is None:
            continue  # said elsewhere
        if dependency.condition == ContainerCondition.HEALTHY and target.health_check is None:
            yield (
                f"Container '{container.name}' depends on '{name}' with the condition HEALTHY, "
                f"so container '{name}' must have a health check."
            )
        if dependency.condition in (ContainerCondition.COMPLETE, ContainerCondition.SUCCESS) and (
            target.essential is not False
        ):
            yield (
                f"Container '{container.name}' depends on '{name}' with the condition {dependency.condition}, "
                f"so container '{name}' cannot be essential."
            )


def volume_problems(volumes: Sequence[ecs.Volume]) -> Iterator[str]:
    """What is wrong with the volumes of a task definition."""
    for volume in volumes:
        if not volume.name:
            yield "Volume.name should not be null or empty."
        host = volume.host.source_path if volume.host else None
        kinds = [
            name
            for name, given in (
                ("host", host),
                ("dockerVolumeConfiguration", volume.docker_volume_configuration),
                ("efsVolumeConfiguration", volume.efs_volume_configuration),
                ("fsxWindowsFileServerVolumeConfiguration", volume.fsx_windows_file_server_volume_configuration),
            )
            if given
        ]
        if len(kinds) > 1:
            yield f"Volume '{volume.name}' cannot have more than one of: {', '.join(kinds)}."
        docker = volume.docker_volume_configuration
        if docker is not None and docker.autoprovision is not None and docker.scope != ecs.Scope.SHARED:
            yield f"Volume '{volume.name}': autoprovision is only supported with the scope 'shared'."
