"""From a container of a payload to the create request of a container engine.

The agent's own part comes first (image, command, environment, ports, mounts, limits, labels), then the payload's two
JSON texts are laid over it: scalars and lists replace, objects merge. Labels are put on last, since they say whose
the container is. Everything that depends on the moment (chosen ports, the task's cgroup) is an argument.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from sexton.core import gpus, injection, ordering, portmap, volumes
from sexton.core.injection import NOTHING, Values
from sexton.core.resources import MIB
from sexton.core.task import Binding
from sexton.core.volumes import BadVolume
from sexton.wire import acs_task

LABEL = "com.amazonaws.ecs."
# Ours: the ECS labels prove nothing, since other tools set them as well.
INSTANCE_LABEL = "dev.sexton.container-instance"

LEAST_MEMORY = 4 * MIB
LEAST_SHARES = 2
MOST_SHARES = 262144
LOG_BUFFER = "10m"

_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9-]")


class Sourced(NamedTuple):
    """What comes from elsewhere than the payload: fetched values, the host's region, names the image sets itself."""

    values: Values = NOTHING
    region: str = ""
    image_variables: tuple[str, ...] = ()


UNSOURCED = Sourced()


class BadPayload(Exception):  # noqa: N818 - becomes the reason of a task
    """The payload asks for what cannot be made; the message begins with the error's name on the wire."""


def engine_name(task: acs_task.Task, container: str) -> str:
    """The name of the container in the engine.

    It follows from the task's ARN, so that a creation that was interrupted anywhere is found again without anything
    having been written down before.
    """
    tail = hashlib.sha256(f"{task.arn}\n{container}".encode()).hexdigest()[:20]
    plain = _NOT_IN_A_NAME.sub("", container)
    return f"ecs-{task.family}-{task.version}-{plain}-{tail}"


def labels(task: acs_task.Task, container: str, cluster: str, instance_arn: str) -> dict[str, str]:
    return {
        LABEL + "task-arn": task.arn or "",
        LABEL + "container-name": container,
        LABEL + "task-definition-family": task.family or "",
        LABEL + "task-definition-version": task.version or "",
        LABEL + "cluster": cluster,
        INSTANCE_LABEL: instance_arn,
    }


def create_body(
    task: acs_task.Task,
    container: acs_task.Container,
    *,
    labels: Mapping[str, str],
    bindings: tuple[Binding, ...],
    cgroup_parent: str,
    nvidia_runtime: str = "nvidia",
    inherited_memory: int = 0,
    sourced: Sourced = UNSOURCED,
    told: Mapping[str, str] = {},
    more_binds: tuple[str, ...] = (),
    joins: str = "",
) -> dict[str, Any]:
    """The engine's create request. What the agent has ``told`` a container wins over its own environment. ``joins``:
    the container whose network it shares, whatever the payload says."""
    environment = (
        injection.environment(
            container.environment or {}, sourced.values, region=sourced.region, image_variables=sourced.image_variables
        )
        | gpus.environment(task, container)
        | dict(told)
    )
    body: dict[str, Any] = {
        "Image": container.image,
        "Env": [f"{name}={value}" for name, value in environment.items()],
        "HostConfig": _host_config(task, container, bindings, cgroup_parent, inherited_memory, more_binds)
        | gpus.host_config(task, container, environment, nvidia_runtime),
    }
    command = _command(container)
    if command:
        body["Cmd"] = list(command)
    if container.entry_point:
        body["Entrypoint"] = list(container.entry_point)
    if bindings:
        body["ExposedPorts"] = {f"{port}/{protocol}": {} for port, _, protocol in portmap.each(bindings)}
    given = container.docker_config or acs_task.DockerConfig()
    _lay_over(body, _object(given.config, "DockerClientConfigError", container))
    for part in ("HostConfig", "Labels"):
        if not isinstance(body.setdefault(part, {}), dict):
            raise BadPayload(f"DockerClientConfigError: {part} of container {container.name} is no object")
    _lay_over(body["HostConfig"], _object(given.host_config, "HostConfigError", container))
    _bound_log_buffer(body["HostConfig"])
    _log_secrets(body["HostConfig"], sourced.values.log_options)
    if container.health_check_type == "docker" and not body.get("Healthcheck"):
        raise BadPayload(f"DockerClientConfigError: container {container.name} has no health check to run")
    body["Labels"] = {**body["Labels"], **labels}
    if joins:
        body["HostConfig"]["NetworkMode"] = f"container:{joins}"
        for part in ("Hostname", "ExposedPorts"):  # an engine refuses these of one that has another's network
            body.pop(part, None)
    return body


def _bound_log_buffer(host_config: dict[str, Any]) -> None:
    """A log that must not block gets the buffer that Amazon's agent gives it; the engine's own holds a tenth."""
    log = host_config.get("LogConfig")
    options = log.get("Config") if isinstance(log, dict) else None
    if isinstance(options, dict) and options.get("mode") == "non-blocking":
        options.setdefault("max-buffer-size", LOG_BUFFER)


def _log_secrets(host_config: dict[str, Any], secrets: Mapping[str, str]) -> None:
    """Options of the log driver that nobody may read in the payload."""
    log = host_config.get("LogConfig")
    if secrets and isinstance(log, dict):
        log["Config"] = {**(log.get("Config") or {}), **secrets}


def _host_config(
    task: acs_task.Task,
    container: acs_task.Container,
    bindings: tuple[Binding, ...],
    cgroup_parent: str,
    inherited_memory: int,
    more_binds: tuple[str, ...],
) -> dict[str, Any]:
    ports: dict[str, list[dict[str, str]]] = {}
    for port, host_port, protocol in portmap.each(bindings):
        ports.setdefault(f"{port}/{protocol}", []).append({"HostPort": str(host_port)})
    config: dict[str, Any] = {
        "NetworkMode": task.network_mode or "bridge",
        "CpuShares": min(max(container.cpu or 0, LEAST_SHARES), MOST_SHARES),
        "Binds": [*_binds(task, container), *more_binds],
        "PortBindings": ports,
    }
    memory = container.memory or inherited_memory
    if memory:
        config["Memory"] = max(memory * MIB, LEAST_MEMORY)
    if cgroup_parent:
        config["CgroupParent"] = cgroup_parent
    if container.links:
        parts = [ordering.link_parts(link) for link in container.links]
        config["Links"] = [f"{engine_name(task, target)}:{alias}" for target, alias in parts]
    if container.volumes_from:
        config["VolumesFrom"] = [
            engine_name(task, one.source_container or "") + (":ro" if one.read_only else "")
            for one in container.volumes_from
        ]
    if task.pid_mode == "host":
        config["PidMode"] = "host"
    if task.ipc_mode in ("host", "none"):
        config["IpcMode"] = task.ipc_mode
    return config


def _command(container: acs_task.Container) -> tuple[str, ...] | None:
    """The command, with the only override that a payload may carry."""
    given = container.overrides
    if isinstance(given, str):
        given = _object(given, "HostConfigError", container)
    if not given:
        return container.command
    command = given.get("command")
    if set(given) - {"command"} or not (command is None or isinstance(command, list | tuple)):
        raise BadPayload(f"HostConfigError: container {container.name} has overrides other than a command")
    return tuple(str(word) for word in command) if command is not None else container.command


def _binds(task: acs_task.Task, container: acs_task.Container) -> list[str]:
    binds = []
    for mount in container.mount_points or ():
        try:
            source = volumes.source_of(task, container, mount.source_volume)
        except BadVolume as error:
            raise BadPayload(str(error)) from None
        binds.append(f"{source}:{mount.container_path}" + (":ro" if mount.read_only else ""))
    return binds


def _object(text: str | None, error: str, container: acs_task.Container) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(text or "{}", type=dict[str, Any] | None)
    except (msgspec.MsgspecError, RecursionError) as problem:
        raise BadPayload(f"{error}: cannot read the settings of container {container.name}: {problem}") from None
    return value or {}


def _lay_over(base: dict[str, Any], more: Mapping[str, Any]) -> None:
    for key, value in more.items():
        present = base.get(key)
        if value is None:
            continue  # null says nothing, as it does to Amazon's agent
        if isinstance(present, dict) and isinstance(value, dict):
            _lay_over(present, value)
        else:
            base[key] = value
