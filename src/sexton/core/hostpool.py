"""What a host has for its tasks: who holds how much of it, and what keeps a task from getting its share.

The agent admits with the figures it registered, counted as the control plane counts them. A task holds its share from
its admission to its end, by its ARN, so that asking twice changes nothing. A task that does not fit waits alone: others
that fit pass it by.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from sexton.core import gpus
from sexton.core.reserved import of_task
from sexton.core.resources import NOTHING, Resources, lacking, total
from sexton.wire import acs_task


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """What one task takes, or what a host has."""

    amount: Resources = NOTHING
    gpus: frozenset[str] = frozenset()


def share_of(task: acs_task.Task) -> Share:
    """The task's own cpu and memory when given, else the sum over its containers; its fixed ports and its GPUs."""
    containers = task.containers or ()
    reserved = of_task(task)
    ports: dict[str, set[int]] = {"tcp": set(), "udp": set()}
    for container in containers:
        for mapping in container.port_mappings or ():
            port = _host_port(mapping, task.network_mode)
            if port:
                ports.setdefault(mapping.protocol or "tcp", set()).add(port)
    amount = Resources(
        cpu=reserved.cpu, memory=reserved.memory, tcp=frozenset(ports["tcp"]), udp=frozenset(ports["udp"])
    )
    return Share(amount=amount, gpus=gpus.of_task(task))


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
