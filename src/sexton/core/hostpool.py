"""What a host has for its tasks: who holds how much of it, and what keeps a task from getting its share.

The agent admits with the figures it registered, counted as the control plane counts them. A task holds its share from
its admission to its end, by its ARN, so that asking twice changes nothing. A task that does not fit waits alone: others
that fit pass it by.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from sexton.core import gpus
from sexton.core.render import MIB
from sexton.core.resources import CPU_PER_CORE, NOTHING, Resources, lacking, total
from sexton.wire import acs_task


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """What one task takes, or what a host has."""

    amount: Resources = NOTHING
    gpus: frozenset[str] = frozenset()


def share_of(task: acs_task.Task) -> Share:
    """The task's own cpu and memory when given, else the sum over its containers; its fixed ports and its GPUs."""
    containers = task.containers or ()
    cpu = round(task.cpu * CPU_PER_CORE) if task.cpu else sum(one.cpu or 0 for one in containers)
    memory = task.memory or sum(_memory(one) for one in containers)
    ports: dict[str, set[int]] = {"tcp": set(), "udp": set()}
    for container in containers:
        for mapping in container.port_mappings or ():
            port = _host_port(mapping, task.network_mode)
            if port:
                ports.setdefault(mapping.protocol or "tcp", set()).add(port)
    amount = Resources(cpu=cpu, memory=memory, tcp=frozenset(ports["tcp"]), udp=frozenset(ports["udp"]))
    return Share(amount=amount, gpus=gpus.of_task(task))


def _memory(container: acs_task.Container) -> int:
    """A reservation, which only the engine's own settings carry, comes before the hard limit."""
    text = container.docker_config.host_config if container.docker_config else None
    try:
        given = msgspec.json.decode(text or "{}", type=dict[str, object] | None) or {}
    except (msgspec.MsgspecError, RecursionError):
        given = {}  # said where the container is made
    reservation = given.get("MemoryReservation")
    if isinstance(reservation, int) and reservation > 0:
        return reservation // MIB
    return container.memory or 0


def _host_port(mapping: acs_task.PortMapping, mode: str | None) -> int:
    if mode in ("awsvpc", "none"):
        return 0
    if mode == "host":
        return mapping.host_port or mapping.container_port or 0
    return mapping.host_port or 0


class Pool(msgspec.Struct, frozen=True, kw_only=True):
    """A host's resources. ``reserved`` holds ports that no task gets."""

    capacity: Share
    reserved: Resources = NOTHING
    held: Mapping[str, Share] = {}

    def lacking(self, share: Share) -> tuple[str, ...]:
        """What keeps a share from fitting now, in the words ECS uses for it; empty when it fits."""
        used = total(one.amount for one in self.held.values())
        left = Resources(cpu=self.capacity.amount.cpu - used.cpu, memory=self.capacity.amount.memory - used.memory)
        ports = Resources(tcp=used.tcp | self.reserved.tcp, udp=used.udp | self.reserved.udp)
        found = lacking(left, ports, share.amount)
        taken = frozenset[str]().union(*(one.gpus for one in self.held.values()))
        return (*found, "RESOURCE:GPU") if share.gpus & taken else found

    def unknown(self, share: Share) -> frozenset[str]:
        """GPUs that this host never had: no waiting brings them."""
        return share.gpus - self.capacity.gpus

    def hold(self, arn: str, share: Share) -> Pool:
        return msgspec.structs.replace(self, held={**self.held, arn: share})

    def release(self, arn: str) -> Pool:
        return msgspec.structs.replace(self, held={name: one for name, one in self.held.items() if name != arn})
