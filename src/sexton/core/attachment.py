"""The interface of a task as the API shows it and as the agent's payload names it.

An attachment goes ATTACHING, ATTACHED (the agent confirmed it, or the task runs), DETACHING (nothing of the task runs
any more, its host takes the interface down), DELETED. It never goes back, and a task that has ended has none that is
not DELETED. A task is PROVISIONING until its attachments are there and DEPROVISIONING while they go.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from sexton.core import addresses, names
from sexton.wire import acs_task, ecs
from sexton.wire.network import PROTOCOL

PROVISIONING = "PROVISIONING"  # of a task
KIND = "ElasticNetworkInterface"
ATTACHING, ATTACHED, DETACHING, DELETED = "ATTACHING", "ATTACHED", "DETACHING", "DELETED"
_ORDER = {word: rank for rank, word in enumerate((ATTACHING, ATTACHED, DETACHING, DELETED))}


class Port(NamedTuple):
    """What is known of a task's interface."""

    attachment: str
    subnet: str
    interface: str
    mac: str
    name: str
    ipv4: str
    ipv6: str = ""


def attached(task: ecs.Task, port: Port) -> ecs.Task:
    """A new task with its interface."""
    details = [
        ("subnetId", port.subnet),
        ("networkInterfaceId", port.interface),
        ("macAddress", port.mac),
        ("privateDnsName", port.name),
        ("privateIPv4Address", port.ipv4),
        ("ipv6Address", port.ipv6),
    ]
    shown = ecs.Attachment(
        id=port.attachment,
        type=KIND,
        status=ATTACHING,
        details=tuple(ecs.KeyValuePair(name=name, value=value) for name, value in details if value),
    )
    interface = ecs.NetworkInterface(
        attachment_id=port.attachment, private_ipv4_address=port.ipv4, ipv6_address=port.ipv6 or None
    )
    containers = tuple(msgspec.structs.replace(one, network_interfaces=(interface,)) for one in task.containers or ())
    return msgspec.structs.replace(task, attachments=(shown,), containers=containers, last_status=PROVISIONING)


def waits(task: ecs.Task) -> bool:
    """Whether something of the task has yet to be attached."""
    return any(one.status == ATTACHING for one in task.attachments or ())


def moved(task: ecs.Task, status: str, only: Sequence[str] | None = None) -> ecs.Task:
    """The task once its attachments (all of them, or those with these ids) have come so far."""
    before = task.attachments or ()
    after = tuple(
        msgspec.structs.replace(one, status=status)
        if (only is None or one.id in only) and _ORDER.get(status, 0) > _ORDER.get(one.status or "", 0)
        else one
        for one in before
    )
    return task if after == before else msgspec.structs.replace(task, attachments=after)


def reported(task: ecs.Task, changes: Sequence[ecs.AttachmentStateChange]) -> ecs.Task:
    """The task after its agent's word on its attachments."""
    confirmed = [names.last_part(one.attachment_arn or "") for one in changes if one.status == ATTACHED]
    return moved(task, ATTACHED, confirmed) if confirmed else task


def in_payload(port: Port, arn: str, cidr: str, cidr6: str) -> acs_task.ElasticNetworkInterface:
    """The interface for an agent that makes it itself."""
    block = ipaddress.IPv4Network(cidr)
    gateway6 = addresses.gateway(ipaddress.IPv6Network(cidr6)) if cidr6 and port.ipv6 else None
    return acs_task.ElasticNetworkInterface(
        mac_address=port.mac,
        ec2_id=port.interface,
        attachment_arn=arn,
        index=0,
        interface_association_protocol=PROTOCOL,
        ipv4_addresses=(acs_task.IPv4Address(private_address=port.ipv4, primary=True),),
        ipv6_addresses=(acs_task.IPv6Address(address=port.ipv6, primary=True),) if port.ipv6 else None,
        private_dns_name=port.name,
        subnet_gateway_ipv4_address=f"{addresses.gateway(block)}/{block.prefixlen}",
        subnet_gateway_ipv6_address=gateway6,
    )
