"""Becoming a container instance: what this host offers, and the call that makes it a member.

Only what this agent does is advertised, so that a task which needs more is placed elsewhere or refused by name. Every
attribute that was sent must come back. A refusal is final: the agent stands down; what may pass is tried again.
"""

from __future__ import annotations

import logging
import os
import platform
import uuid
from collections.abc import Mapping

import msgspec

from sexton.agent.abilities import Abilities
from sexton.agent.checkpoint import Checkpoint, Self
from sexton.agent.standdown import StandDown
from sexton.cloud.client import EcsClient
from sexton.cloud.credentials import NoCredentials
from sexton.cloud.instance import Identity
from sexton.cloud.transient import RetryPolicy, is_transient, retrying
from sexton.core import names
from sexton.core.resources import CPU_PER_CORE, GPU
from sexton.host.gpus import NONE as NO_GPUS
from sexton.host.gpus import Gpus
from sexton.kit.retry import Backoff
from sexton.runtime.contract import EngineInfo
from sexton.settings import Settings
from sexton.wire import ecs_agent as ecs
from sexton.wire import network
from sexton.wire.errors import ClientException, EcsError

log = logging.getLogger(__name__)

_C = "com.amazonaws.ecs.capability."
_E = "ecs.capability."

# Engine API versions that have an attribute: nothing later than 1.32, and these were never given one.
_LAST_NAMED = (1, 32)
_UNNAMED = frozenset({(1, 26), (1, 27), (1, 31)})

# What every host does, whatever its engine is.
_ALWAYS = (
    "full-sync",
    "container-ordering",
    "container-restart-policy",
    "network.container-port-range",
    "private-registry-authentication.secretsmanager",
    "secrets.ssm.environment-variables",
    "secrets.ssm.bootstrap.log-driver",
    "secrets.asm.environment-variables",
    "secrets.asm.bootstrap.log-driver",
    "ecr-endpoint",
    "env-files.s3",
    "efs",
)

# A control plane that is starting up is worth a short wait, one that stays away a long one.
REGISTER_BACKOFF = Backoff(first=0.2, cap=60.0)


def attributes(
    settings: Settings,
    engine: EngineInfo,
    *,
    task_limits: bool,
    endpoint: bool = False,
    endpoint_of_host: bool = False,
    networks: Abilities = Abilities(),  # noqa: B008 - a value
    gpus: Gpus = NO_GPUS,
) -> tuple[ecs.Attribute, ...]:
    """What this host advertises. ``endpoint``: tasks reach the agent, ``endpoint_of_host``: those in the host's own
    network do too."""
    offered = [_E + word for word in _ALWAYS]
    if not settings.disable_health_checks and any(_version(one) >= (1, 24) for one in engine.api_versions):
        offered.append(_E + "container-health-check")
    offered += [_C + "ecr-auth", _E + "execution-role-ecr-pull"]
    offered += sorted({_E + "docker-plugin." + one.replace(":", ".") for one in ("local", *engine.volume_drivers)})
    offered += [_E + word for word in settings.volume_plugins]
    for switch, name in (
        (settings.selinux, _C + "selinux"),
        (settings.apparmor, _C + "apparmor"),
        (settings.external, _E + "external"),
    ):
        if switch:
            offered.append(name)
    if not settings.disable_privileged:
        offered.append(_C + "privileged-container")
    for version in engine.api_versions:
        number = _version(version)
        if (1, 17) <= number <= _LAST_NAMED and number not in _UNNAMED:
            offered.append(f"{_C}docker-remote-api.{version}")
    offered += [
        _C + "logging-driver." + driver
        for driver in settings.logging_drivers
        if driver == "none" or driver in engine.log_drivers
    ]
    if endpoint and not settings.external:
        offered.append(_E + "fault-injection")
    if endpoint and settings.task_roles:
        offered.append(_C + "task-iam-role")
    if endpoint_of_host and settings.task_roles_host:
        offered.append(_C + "task-iam-role-network-host")
    if _C + "logging-driver.awslogs" in offered:
        offered.append(_E + "execution-role-awslogs")
    if task_limits:
        offered += [_E + "task-cpu-mem-limit", _E + "increased-task-cpu-limit"]
    if networks.interfaces:
        offered.append(_E + "task-eni")
        if settings.awsvpc_block_imds:
            offered.append(_E + "task-eni-block-instance-metadata")
    if gpus.ids and gpus.driver:
        offered.append(f"{_E}nvidia-driver-version.{gpus.driver}")
    facts = {
        "ecs.os-type": "linux",
        "ecs.os-family": "LINUX",
        "ecs.os-type-detailed": settings.os_family,
        "ecs.cpu-architecture": {"x86_64": "x86_64", "aarch64": "arm64"}.get(platform.machine(), platform.machine()),
    }
    if networks.interfaces and settings.backend:  # Amazon's control plane knows none of ours
        facts[network.CAPABILITY] = network.VERSION
        if networks.tunnels and settings.network_address:
            facts[network.ADDRESS] = settings.network_address
    if gpus.ids and gpus.driver:
        facts[_E + "gpu-driver-version"] = gpus.driver
    return tuple(ecs.Attribute(name=name) for name in offered) + tuple(
        ecs.Attribute(name=name, value=value) for name, value in facts.items()
    )


def _version(text: str) -> tuple[int, int]:
    major, _, minor = text.partition(".")
    return int(major), int(minor)


def resources(settings: Settings, memory_mib: int) -> tuple[ecs.Resource, ...]:
    """This host's capacity, and the ports that are taken."""
    left = memory_mib - settings.reserved_memory
    if left <= 0:
        raise StandDown(
            f"cannot offer memory: ECS_RESERVED_MEMORY is {settings.reserved_memory} MiB of {memory_mib} MiB",
            "Lower it and start again",
        )

    def ports(numbers: tuple[int, ...]) -> tuple[str, ...]:
        return tuple(str(port) for port in numbers)

    return (
        ecs.Resource(name="CPU", type="INTEGER", integer_value=(os.cpu_count() or 1) * CPU_PER_CORE),
        ecs.Resource(name="MEMORY", type="INTEGER", integer_value=left),
        ecs.Resource(name="PORTS", type="STRINGSET", string_set_value=ports(settings.reserved_ports)),
        ecs.Resource(name="PORTS_UDP", type="STRINGSET", string_set_value=ports(settings.reserved_ports_udp)),
    )


async def register(
    client: EcsClient,
    checkpoint: Checkpoint,
    settings: Settings,
    offered: tuple[ecs.Attribute, ...],
    capacity: tuple[ecs.Resource, ...],
    who: Identity = Identity(),  # noqa: B008 - a value
    more_tags: Mapping[str, str] = {},
    gpus: Gpus = NO_GPUS,
) -> str:
    """Register or re-register; the container instance's ARN, remembered before it is returned."""
    known = checkpoint.self
    _check_memory(known, settings)
    first = not known.instance_arn
    custom = tuple(ecs.Attribute(name=name, value=value) for name, value in settings.instance_attributes.items())
    request = ecs.RegisterContainerInstanceRequest(
        cluster=settings.cluster,
        container_instance_arn=known.instance_arn or None,
        instance_identity_document=who.document,
        instance_identity_document_signature=who.signature,
        attributes=offered + (custom if first else ()),
        total_resources=capacity,
        platform_devices=tuple(ecs.PlatformDevice(id=one, type=GPU) for one in gpus.ids) or None,
        tags=tuple(ecs.Tag(key=key, value=value) for key, value in {**more_tags, **settings.instance_tags}.items())
        or None,
        client_token=str(uuid.uuid4()),
    )
    answer = await _call(client, request, settings)
    instance = answer.container_instance or ecs.ContainerInstance()
    missing = _not_echoed(request.attributes or (), instance.attributes or ())
    if missing:
        raise StandDown(
            f"the control plane did not take these attributes: {', '.join(missing)}",
            "It is not compatible with this agent; use another",
        )
    arn = instance.container_instance_arn or ""
    await checkpoint.become(
        msgspec.structs.replace(
            known,
            cluster=settings.cluster,
            region=settings.region,
            backend=settings.backend,
            instance_arn=arn,
            ec2_instance_id=who.instance_id or known.ec2_instance_id,
        )
    )
    log.info("registered", extra={"instance": arn, "cluster": settings.cluster, "again": not first})
    return arn


def _check_memory(known: Self, settings: Settings) -> None:
    if known.cluster and names.parse_cluster(known.cluster) != names.parse_cluster(settings.cluster):
        raise StandDown(
            f"Data mismatch; saved cluster '{known.cluster}' does not match configured cluster '{settings.cluster}'",
            f"Set ECS_CLUSTER back, or remove the agent's state in {settings.data_dir} to join the new cluster",
        )


async def _call(
    client: EcsClient, request: ecs.RegisterContainerInstanceRequest, settings: Settings
) -> ecs.RegisterContainerInstanceResponse:
    async def attempt() -> ecs.RegisterContainerInstanceResponse:
        return await client.call("RegisterContainerInstance", request, ecs.RegisterContainerInstanceResponse)

    policy = RetryPolicy(REGISTER_BACKOFF)
    try:
        try:
            return await retrying(attempt, policy, what="RegisterContainerInstance", transient=_passes)
        except ClientException as error:
            # Whoever names no cluster gets the default one, made when it is needed.
            if settings.cluster != names.DEFAULT_CLUSTER or error.message != "Cluster not found.":
                raise
            make = ecs.CreateClusterRequest(cluster_name=names.DEFAULT_CLUSTER)
            await retrying(lambda: client.call("CreateCluster", make), policy, what="CreateCluster", transient=_passes)
            return await retrying(attempt, policy, what="RegisterContainerInstance", transient=_passes)
    except NoCredentials as error:
        raise StandDown(
            str(error), "Give the agent credentials, or disable it on hosts that are not part of a cluster"
        ) from None
    except EcsError as error:
        raise StandDown(
            f"the control plane refused to register this host in cluster {settings.cluster}: {error}",
            "Correct the cluster, the credentials or their permissions, and start the agent again",
        ) from None


def _passes(error: Exception) -> bool:
    return is_transient(error) or (isinstance(error, EcsError) and error.code == "LimitExceededException")


def _not_echoed(sent: tuple[ecs.Attribute, ...], echoed: tuple[ecs.Attribute, ...]) -> list[str]:
    back = {one.name: one.value or "" for one in echoed}
    return sorted(one.name or "" for one in sent if back.get(one.name) != (one.value or ""))
