"""What a task is told of itself, from what was asked for, what is known, and what the engine shows of its containers.

Versions 2 and 3 say the same; version 4 says more of the same, in the same shapes. Statuses are the words of the
agent's own table. Containers that were made come first, in the order of the task definition; version 4 goes on with
those whose image is there.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from sexton.core import portmap
from sexton.core.enginebody import LEAST_SHARES, engine_name
from sexton.core.sight import UNSEEN, Place, Sight
from sexton.core.task import ContainerStatus, DesiredTask, KnownContainer, KnownTask, ends
from sexton.wire import acs_task, metadata

# Length of an IPv6 subnet, which no message names: the service has no others.
_IPV6_SUBNET = 64


def task(
    desired: DesiredTask, known: KnownTask, sights: Mapping[str, Sight], place: Place, *, version: int = 4
) -> metadata.Task:
    """The whole task; ``sights`` by the container's id in the engine."""
    asked = desired.task
    made = [one for one in known.containers if one.runtime_id]
    if version >= 4:
        made += [one for one in known.containers if one.status is ContainerStatus.PULLED and not one.runtime_id]
    view = metadata.Task(
        cluster=place.cluster,
        task_arn=desired.arn,
        family=asked.family or "",
        revision=asked.version or "",
        desired_status=_desired(desired, known),
        known_status=str(known.status),
        containers=tuple(
            container(desired, known, one, sights.get(one.runtime_id, UNSEEN), version=version) for one in made
        ),
        limits=_task_limits(asked),
        pull_started_at=stamp(known.pull_started_at),
        pull_stopped_at=stamp(known.pull_stopped_at),
        execution_stopped_at=stamp(known.execution_stopped_at),
        availability_zone=place.zone,
    )
    if version < 4:
        return view
    return msgspec.structs.replace(
        view,
        launch_type=asked.launch_type or "",
        vpc_id=place.vpc,
        service_name=asked.service_name or "",
        fault_injection_enabled=bool(asked.enable_fault_injection),
        availability_zone_id=place.zone_id,
    )


def container(
    desired: DesiredTask, known: KnownTask, one: KnownContainer, sight: Sight, *, version: int = 4
) -> metadata.Container:
    """One container."""
    asked = next(each for each in desired.task.containers or () if each.name == one.name)
    own = desired.task.network_mode == "awsvpc"
    view = metadata.Container(
        docker_id=one.runtime_id,
        name=one.name,
        docker_name=engine_name(desired.task, one.name) if one.runtime_id else "",
        image=asked.image or "",
        image_id=sight.image_id,
        ports=_ports(one, own=own, version=version),
        labels=dict(sight.labels),
        desired_status=_desired(desired, known),
        known_status=str(one.status),
        exit_code=one.exit_code,
        limits=metadata.Limits(cpu=max(asked.cpu or 0, LEAST_SHARES), memory=asked.memory or 0),
        created_at=stamp(one.created_at),
        started_at=stamp(one.started_at),
        finished_at=stamp(one.finished_at),
        type="NORMAL",
        networks=networks(desired.task, sight, version=version) if one.runtime_id or own else (),
        health=_health(asked, one),
        volumes=tuple(
            metadata.Volume(docker_name=name, source=source, destination=at) for name, source, at in sight.mounts
        ),
    )
    if version < 4:
        return view
    driver, options = logging_of(asked)
    return msgspec.structs.replace(
        view,
        log_driver=driver,
        log_options=options,
        container_arn=asked.container_arn or "",
        restart_count=one.restarts if asked.restart_policy and asked.restart_policy.enabled else None,
    )


def file(
    desired: DesiredTask, one: KnownContainer, sight: Sight, place: Place, instance_arn: str, *, ready: bool
) -> metadata.File:
    """The metadata file of a container, before its start or after it."""
    asked = next(each for each in desired.task.containers or () if each.name == one.name)
    first = metadata.File(
        cluster=place.cluster,
        container_instance_arn=instance_arn,
        task_arn=desired.arn,
        task_definition_family=desired.task.family or "",
        task_definition_revision=desired.task.version or "",
        container_name=one.name,
        availability_zone=place.zone,
        host_private_ipv4=place.private_ipv4,
        host_public_ipv4=place.public_ipv4,
    )
    if not ready:
        return first
    return msgspec.structs.replace(
        first,
        container_id=one.runtime_id,
        docker_container_name=engine_name(desired.task, one.name),
        image_id=sight.image_id,
        image_name=asked.image or "",
        port_mappings=tuple(_file_ports(one)),
        networks=networks(desired.task, sight, version=3),
        metadata_file_status="READY",
    )


def stamp(seconds: float) -> str:
    """A moment as Amazon's agent writes it: UTC, no zero at the end of a fraction; nothing for one that never was."""
    if not seconds:
        return ""
    text = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")
    return text.rstrip("0").rstrip(".") + "Z"


def _desired(desired: DesiredTask, known: KnownTask) -> str:
    return "STOPPED" if ends(desired, known) else "RUNNING"


def _task_limits(asked: acs_task.Task) -> metadata.Limits | None:
    if not asked.cpu and not asked.memory:
        return None
    cpu = int(asked.cpu) if asked.cpu and asked.cpu == int(asked.cpu) else asked.cpu
    return metadata.Limits(cpu=cpu or None, memory=asked.memory or None)


def _ports(one: KnownContainer, *, own: bool, version: int) -> tuple[metadata.Port, ...]:
    addresses = {(port.container_port, port.protocol): port.bind_ip for port in one.bindings}
    return tuple(
        metadata.Port(
            container_port=inside,
            protocol=protocol,
            host_port=inside if own else outside,
            host_ip=addresses.get((inside, protocol), "") if version >= 4 else "",
        )
        for inside, outside, protocol in portmap.each(one.bindings)
    )


def _file_ports(one: KnownContainer) -> list[metadata.FilePort]:
    return [
        metadata.FilePort(
            container_port=0 if port.span else port.container_port,
            container_port_range=f"{port.container_port}-{port.container_port + port.span - 1}" if port.span else "",
            host_port=port.host_port,
            bind_ip=port.bind_ip,
            protocol=port.protocol,
        )
        for port in one.bindings
    ]


def networks(asked: acs_task.Task, sight: Sight, *, version: int) -> tuple[metadata.Network, ...]:
    """The networks that a container is in."""
    if asked.network_mode == "awsvpc":
        return tuple(_interface(one, version) for one in (asked.elastic_network_interfaces or ())[:1])
    return tuple(
        # Amazon's agent has an empty address where there is none, as in host mode.
        metadata.Network(network_mode=name, ipv4_addresses=(ipv4,), ipv6_addresses=(ipv6,) if ipv6 else ())
        for name, ipv4, ipv6 in sight.networks
    )


def _interface(one: acs_task.ElasticNetworkInterface, version: int) -> metadata.Network:
    ipv4 = tuple(each.private_address for each in one.ipv4_addresses or () if each.private_address)
    ipv6 = tuple(each.address for each in one.ipv6_addresses or () if each.address)
    view = metadata.Network(network_mode="awsvpc", ipv4_addresses=ipv4, ipv6_addresses=ipv6)
    if version < 4:
        return view
    return msgspec.structs.replace(
        view,
        attachment_index=0,
        mac_address=one.mac_address or "",
        ipv4_subnet=_subnet(one.subnet_gateway_ipv4_address or ""),
        ipv6_subnet=_subnet(f"{ipv6[0]}/{_IPV6_SUBNET}") if ipv6 else "",
        domain_name_servers=one.domain_name_servers or (),
        domain_name_search_list=one.domain_name or (),
        private_dns_name=one.private_dns_name or "",
        gateway_ipv4=one.subnet_gateway_ipv4_address or "",
        gateway_ipv6=(one.subnet_gateway_ipv6_address or "") if not ipv4 else "",
    )


def _subnet(address: str) -> str:
    """The subnet that an address with its length is in."""
    try:
        return str(ipaddress.ip_interface(address).network) if address else ""
    except ValueError:
        return ""


def _health(asked: acs_task.Container, one: KnownContainer) -> metadata.Health | None:
    if asked.health_check_type != "docker":
        return None
    if one.health is None or one.health.status == "UNKNOWN":
        return metadata.Health()
    return metadata.Health(
        status=one.health.status,
        status_since=stamp(one.health.since),
        exit_code=one.health.exit_code or 0,
        output=one.health.output,
    )


def logging_of(asked: acs_task.Container) -> tuple[str, dict[str, str]]:
    """The log driver and its options as the payload has them, without what was fetched for them."""
    text = asked.docker_config.host_config if asked.docker_config else None
    try:
        config: Any = msgspec.json.decode(text or "{}", type=dict[str, Any]).get("LogConfig") or {}
        options = config.get("Config") or {}
        return str(config.get("Type") or ""), {str(key): str(value) for key, value in options.items()}
    except (msgspec.MsgspecError, AttributeError, RecursionError):
        return "", {}
