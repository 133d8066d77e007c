"""From the volumes of a payload to what the engine mounts: a path of the host, or a volume with a driver.

A volume of task scope gets a name that follows from the task, as its containers do: an interrupted creation is found
again, and everybody can compute what has to be removed. Volumes of shared scope keep the name they were given and
outlive every task. What this kind of host cannot mount is ``BadVolume``, with the error's name on the wire.

    host, with a path         bind mount of the path
    host, without a path      the engine's own kind of volume, task scope
    docker, scope task        the given driver, task scope
    docker, scope shared      the given name, made if missing where that was asked for
    efs                       NFS mount options, or the volume plugin where the host has it; task scope
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping

import msgspec

from sexton.wire import acs_task

EFS_PLUGIN = "amazon-ecs-volume-plugin"
EFS_PLUGIN_CAPABILITY = "efsAuth"
# What Amazon recommends for mounting its file systems over NFS.
NFS_OPTIONS = "nfsvers=4.1,rsize=1048576,wsize=1048576,hard,timeo=600,retrans=2,noresvport"

_KINDS = ("host", "docker", "efs")
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_.-]")


class BadVolume(Exception):  # noqa: N818 - becomes the reason of a task
    """A volume that cannot be had; the message begins with the error's name on the wire."""


class Mountable(msgspec.Struct, frozen=True, kw_only=True):
    """What stands for a volume of a task in the engine: ``path``, or a volume called ``name``."""

    path: str = ""
    name: str = ""
    driver: str = "local"
    options: Mapping[str, str] = {}
    labels: Mapping[str, str] = {}
    shared: bool = False  # outlives the task
    must_exist: bool = False  # made by somebody else or not at all


class Where(msgspec.Struct, frozen=True, kw_only=True):
    """What a rendering depends on beside the task: region, the suffix of its host names, what plugins can do."""

    region: str = ""
    suffix: str = "amazonaws.com"
    capabilities: tuple[str, ...] = ()


def mountable(task: acs_task.Task, volume: acs_task.Volume, where: Where) -> Mountable:
    """How a volume is mounted."""
    match volume.type or "host":
        case "host":
            path = _path(volume)
            return Mountable(path=path) if path else Mountable(name=task_volume_name(task, volume))
        case "docker":
            return _docker(task, volume)
        case "efs":
            return _efs(task, volume, where)
        case _:
            raise _unserved(volume)


def task_volume_name(task: acs_task.Task, volume: acs_task.Volume) -> str:
    """The engine's name for a volume of one task."""
    tail = hashlib.sha256(f"{task.arn}\nvolume\n{volume.name}".encode()).hexdigest()[:20]
    plain = _NOT_IN_A_NAME.sub("", volume.name or "")
    return f"ecs-{task.family}-{task.version}-{plain}-{tail}"


def source_of(task: acs_task.Task, container: acs_task.Container, name: str | None) -> str:
    """What a mount point of a container binds: a path or the name of a volume."""
    for volume in task.volumes or ():
        if volume.name == name:
            return _path(volume) or _engine_name(task, volume)
    raise BadVolume(f"InvalidVolumeError: volume {name} of container {container.name} is not among the task's volumes")


def mounted(task: acs_task.Task, container: acs_task.Container) -> tuple[acs_task.Volume, ...]:
    """The volumes of a task that a container mounts, each once."""
    wanted = {one.source_volume for one in container.mount_points or ()}
    return tuple(one for one in task.volumes or () if one.name in wanted)


def of_task_scope(task: acs_task.Task) -> tuple[str, ...]:
    """Names of the engine's volumes that go with the task."""
    names = []
    for volume in task.volumes or ():
        given = volume.docker_volume_configuration
        shared = volume.type == "docker" and given is not None and given.scope == "shared"
        if (volume.type or "host") in _KINDS and not shared and not _path(volume):
            names.append(task_volume_name(task, volume))
    return tuple(names)


def _path(volume: acs_task.Volume) -> str:
    """The path of the host that a volume is, if it is one."""
    return (volume.host.source_path or "") if volume.host and (volume.type or "host") == "host" else ""


def _engine_name(task: acs_task.Task, volume: acs_task.Volume) -> str:
    if (volume.type or "host") not in _KINDS:
        raise _unserved(volume)
    given = volume.docker_volume_configuration
    if volume.type == "docker" and given is not None and given.scope == "shared":
        return volume.name or ""
    return task_volume_name(task, volume)


def _unserved(volume: acs_task.Volume) -> BadVolume:
    return BadVolume(f"InvalidVolumeError: volume {volume.name} is of type {volume.type}, which is not served here")


def unlike(wanted: Mountable, driver: str, options: Mapping[str, str], labels: Mapping[str, str]) -> str:
    """In what an existing volume differs from the one that was asked for, or nothing."""
    for what, there, asked in (
        ("driver", driver, wanted.driver),
        ("options", dict(options), dict(wanted.options)),
        ("labels", dict(labels), dict(wanted.labels)),
    ):
        if there != asked:
            return f"its {what} are {there}, not {asked}" if what != "driver" else f"its driver is {there}, not {asked}"
    return ""


def _docker(task: acs_task.Task, volume: acs_task.Volume) -> Mountable:
    given = volume.docker_volume_configuration or acs_task.DockerVolumeConfiguration()
    options, labels = given.driver_opts or {}, given.labels or {}
    driver = given.driver or "local"
    if given.scope == "shared":
        return Mountable(
            name=volume.name or "",
            driver=driver,
            options=options,
            labels=labels,
            shared=True,
            must_exist=not given.autoprovision,
        )
    if given.autoprovision:
        raise BadVolume(
            f"InvalidVolumeError: volume {volume.name} has task scope, so it is always made and autoprovision is false"
        )
    return Mountable(name=task_volume_name(task, volume), driver=driver, options=options, labels=labels)


def _efs(task: acs_task.Task, volume: acs_task.Volume, where: Where) -> Mountable:
    given = volume.efs_volume_configuration or acs_task.EFSVolumeConfiguration()
    auth = given.authorization_config or acs_task.EFSAuthorizationConfig()
    if not given.file_system_id:
        raise BadVolume(f"InvalidVolumeError: volume {volume.name} names no file system")
    name = task_volume_name(task, volume)
    root = given.root_directory or "/"
    encrypted = (given.transit_encryption or "").upper() == "ENABLED"
    if EFS_PLUGIN_CAPABILITY in where.capabilities:
        options = []
        if encrypted:
            options.append("tls")
        if given.transit_encryption_port:
            options.append(f"tlsport={given.transit_encryption_port}")
        if (auth.iam or "").upper() == "ENABLED":
            role = task.role_credentials.credentials_id if task.role_credentials else ""
            options += ["iam", f"awscredsuri=/v2/credentials/{role}"]
        if auth.access_point_id:
            options.append(f"accesspoint={auth.access_point_id}")
        device = given.file_system_id if root == "/" else f"{given.file_system_id}:{root}"
        return Mountable(
            name=name, driver=EFS_PLUGIN, options={"type": "efs", "device": device, "o": ",".join(options)}
        )
    if encrypted or auth.access_point_id or (auth.iam or "").upper() == "ENABLED":
        raise BadVolume(
            f"InvalidVolumeError: volume {volume.name} asks for encryption, IAM or an access point, which needs the "
            f"volume plugin; install it and put {EFS_PLUGIN_CAPABILITY} into ECS_VOLUME_PLUGIN_CAPABILITIES"
        )
    address = f"{given.file_system_id}.efs.{where.region}.{where.suffix}"
    return Mountable(name=name, options={"type": "nfs", "device": f":{root}", "o": f"addr={address},{NFS_OPTIONS}"})
