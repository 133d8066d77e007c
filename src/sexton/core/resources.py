"""CPU, memory, ports and GPUs of a host: what a task asks for, what is left, what does not fit.

The control plane places with these figures and the agent admits with them, so both count in one way. A host's
remaining resources are never stored: they are its registered ones less the demands of its tasks, and so they
always add up.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

from sexton.wire import ecs_agent

if TYPE_CHECKING:
    from sexton.wire import ecs

CPU_PER_CORE = 1024
MIB = 1024 * 1024
# The name of the resource, and the type of a requirement and of a device.
GPU = "GPU"
# A figure as the API carries it in text; longer ones are no amounts of any host.
_FIGURE = re.compile(r"\s*(?:([0-9]{1,12})|([0-9]{0,6}\.?[0-9]{1,6})\s*(?:vcpu|gb))\s*", re.IGNORECASE)
_PORT = re.compile(r"[0-9]{1,5}")


class Resources(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An amount: CPU units (1024 a core), MiB of memory, host ports, GPUs."""

    cpu: int = 0
    memory: int = 0
    tcp: frozenset[int] = frozenset()
    udp: frozenset[int] = frozenset()
    gpus: int = 0


NOTHING = Resources()


def lacking(left: Resources, taken_ports: Resources, demand: Resources) -> tuple[str, ...]:
    """What keeps the demand from fitting, in the words ECS uses for it; empty when it fits."""
    reasons = []
    if demand.cpu > left.cpu:
        reasons.append("RESOURCE:CPU")
    if demand.memory > left.memory:
        reasons.append("RESOURCE:MEMORY")
    if demand.tcp & taken_ports.tcp or demand.udp & taken_ports.udp:
        reasons.append("RESOURCE:PORTS")
    if demand.gpus > left.gpus:
        reasons.append("RESOURCE:GPU")
    return tuple(reasons)


def add(one: Resources, other: Resources) -> Resources:
    return Resources(
        cpu=one.cpu + other.cpu,
        memory=one.memory + other.memory,
        tcp=one.tcp | other.tcp,
        udp=one.udp | other.udp,
        gpus=one.gpus + other.gpus,
    )


def total(parts: Iterable[Resources]) -> Resources:
    """The sum of all parts."""
    cpu = memory = gpus = 0
    tcp: set[int] = set()
    udp: set[int] = set()
    for part in parts:
        cpu += part.cpu
        memory += part.memory
        gpus += part.gpus
        tcp |= part.tcp
        udp |= part.udp
    return Resources(cpu=cpu, memory=memory, tcp=frozenset(tcp), udp=frozenset(udp), gpus=gpus)


def demand_of(definition: ecs.TaskDefinition, overrides: ecs.TaskOverride | None) -> Resources:
    """What one task of this definition takes of its host.

    The task's own cpu and memory count when they are given, else the sum over its containers, with a container's
    reservation before its hard limit. Only fixed host ports are demanded; a port chosen at start is never short.
    """
    task_cpu = number((overrides and overrides.cpu) or definition.cpu)
    task_memory = number((overrides and overrides.memory) or definition.memory)
    by_name = {one.name: one for one in (overrides.container_overrides if overrides else None) or ()}
    cpu = memory = gpus = 0
    tcp: set[int] = set()
    udp: set[int] = set()
    for container in definition.container_definitions or ():
        own = by_name.get(container.name)
        cpu += (own.cpu if own and own.cpu is not None else container.cpu) or 0
        reservation = own.memory_reservation if own and own.memory_reservation else container.memory_reservation
        limit = own.memory if own and own.memory else container.memory
        memory += reservation or limit or 0
        gpus += gpus_of(container, own)
        for mapping in container.port_mappings or ():
            port = host_port(mapping, definition.network_mode)
            if port:
                (udp if mapping.protocol == "udp" else tcp).add(port)
    return Resources(
        cpu=task_cpu if task_cpu is not None else cpu,
        memory=task_memory if task_memory is not None else memory,
        tcp=frozenset(tcp),
        udp=frozenset(udp),
        gpus=gpus,
    )


def gpus_of(container: ecs.ContainerDefinition, own: ecs.ContainerOverride | None = None) -> int:
    """How many GPUs a container is given; what is asked for at launch stands instead of what the definition says."""
    given = own.resource_requirements if own and own.resource_requirements is not None else None
    needs = given if given is not None else container.resource_requirements
    return sum(number(one.value) or 0 for one in needs or () if one.type == GPU)


def host_port(mapping: ecs.PortMapping, network_mode: str | None) -> int:
    """The fixed port of the host that a mapping takes, 0 when it takes none or a dynamic one."""
    if network_mode == "host":
        return mapping.host_port or mapping.container_port or 0
    return 0 if network_mode in ("awsvpc", "none") else mapping.host_port or 0


def number(text: str | None) -> int | None:
    """A whole number that the API carries as text, such as a task's cpu; None when absent or malformed.

    CPU may be written as vCPUs ("1 vCPU", ".5 vcpu") and memory as gigabytes ("2 GB"), as in the console.
    """
    found = _FIGURE.fullmatch(text or "")
    if found is None:
        return None
    return int(found[1]) if found[1] else round(float(found[2]) * CPU_PER_CORE)


def registered(resources: Sequence[ecs.Resource]) -> tuple[Resources, Resources]:
    """A host's capacity, and the ports it already uses, from its registration."""
    by_name = {one.name: one for one in resources}

    def amount(name: str) -> int:
        one = by_name.get(name)
        return (one.integer_value or one.long_value or 0) if one else 0

    def ports(name: str) -> frozenset[int]:
        one = by_name.get(name)
        return frozenset(int(port) for port in (one.string_set_value or () if one else ()) if _PORT.fullmatch(port))

    devices = by_name.get(GPU)
    gpus = len(frozenset((devices.string_set_value if devices else None) or ()))
    capacity = Resources(cpu=amount("CPU"), memory=amount("MEMORY"), gpus=gpus)
    return capacity, Resources(tcp=ports("PORTS"), udp=ports("PORTS_UDP"))


def with_devices(resources: Sequence[ecs.Resource], devices: Sequence[ecs.PlatformDevice]) -> tuple[ecs.Resource, ...]:
    """A registration's resources with the GPUs that it names beside them; as the API shows both."""
    ids = tuple(dict.fromkeys(one.id for one in devices if one.type == GPU and one.id))
    if not ids:
        return tuple(resources)
    others = tuple(one for one in resources if one.name != GPU)
    return (*others, ecs_agent.Resource(name=GPU, type="STRINGSET", string_set_value=ids))


def free_gpus(resources: Sequence[ecs.Resource], taken: Collection[str]) -> tuple[str, ...]:
    """The ids of a host's GPUs that no task has, in the order of the registration."""
    named = next((one.string_set_value or () for one in resources if one.name == GPU), ())
    return tuple(one for one in named if one not in taken)


def remaining(
    resources: Sequence[ecs.Resource], used: Resources, taken_gpus: Collection[str] = ()
) -> tuple[ecs.Resource, ...]:
    """The registration's own list with the used amounts taken out (ports: put in), as the API shows it."""
    result = []
    for one in resources:
        match one.name:
            case "CPU":
                left = msgspec.structs.replace(one, integer_value=(one.integer_value or 0) - used.cpu)
            case "MEMORY":
                left = msgspec.structs.replace(one, integer_value=(one.integer_value or 0) - used.memory)
            case "PORTS" | "PORTS_UDP":
                more = used.tcp if one.name == "PORTS" else used.udp
                before = one.string_set_value or ()
                extra = tuple(str(port) for port in sorted(more) if str(port) not in before)
                left = msgspec.structs.replace(one, string_set_value=before + extra)
            case "GPU":
                left = msgspec.structs.replace(one, string_set_value=free_gpus((one,), taken_gpus))
            case _:
                left = one
        result.append(left)
    return tuple(result)
