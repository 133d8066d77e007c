"""What a control plane of ours tells an agent of ours about networks: no part of Amazon's protocol.

Amazon's control plane plugs interfaces into hosts and enforces security groups in its own fabric, so it has no words
for either. Ours has one message, sent over ACS to agents that registered ``CAPABILITY``: the whole state that a host
needs, or what has changed of the state that this connection said last. Whoever does not have that one refuses the
change and is told the whole. The interface of a task is in the task's payload as usual, with ``PROTOCOL`` as its
association protocol; its id finds it here. The state that names an interface is sent before the payload that needs it.
"""

from __future__ import annotations

from msgspec import Struct

from sexton.wire.scalars import Int64

# Attribute of a container instance whose agent makes interfaces itself; its value is the version of these words.
CAPABILITY = "sexton.capability.network"
VERSION = "2"
# From this version on an agent takes changes; others are told the whole each time.
CHANGES = 2
# Attribute with the address at which other hosts reach this one for traffic between tasks.
ADDRESS = "sexton.network.address"
# Association protocol of an interface that the agent makes itself.
PROTOCOL = "sexton"
# What such an agent reports of a task of which nothing runs any more, until its interface is gone.
DEPROVISIONING = "DEPROVISIONING"


class Rule(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """One thing that is allowed: to or from exactly one of ``cidr`` and ``group``.

    ``protocol`` is ``-1`` for all, a name (tcp, udp, icmp, icmpv6), or a number. For ICMP the ports are type and
    code, and -1 is any of them.
    """

    id: str
    protocol: str
    from_port: int = -1
    to_port: int = -1
    cidr: str = ""
    group: str = ""


class Group(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A security group: what is not allowed by any group of an interface is dropped."""

    id: str
    name: str = ""
    vpc: str = ""
    ingress: tuple[Rule, ...] = ()
    egress: tuple[Rule, ...] = ()


class Subnet(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A pool of addresses, one broadcast domain over all hosts. ``vni`` tells subnets apart between hosts.

    The gateway has the same address, and a host of its own, on every host.
    """

    id: str
    vpc: str
    cidr: str
    gateway: str
    vni: int
    ipv6_cidr: str = ""
    ipv6_gateway: str = ""


class Interface(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """An interface of a task, here or on another host. ``host`` is the other host's address, empty for one here."""

    id: str
    subnet: str
    mac: str
    ipv4: str
    ipv6: str = ""
    groups: tuple[str, ...] = ()
    task_arn: str = ""
    host: str = ""


class SextonNetworkMessage(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """All of it, for one container instance: its own interfaces, those that share a VPC with them, their subnets, and
    the groups of its own. Acknowledged by ``AckRequest`` once it is in force. With ``since`` it is only what differs
    from the state that was sent with this message id, and ``gone`` are the ids of what is not there any more."""

    message_id: str | None = None
    cluster_arn: str | None = None
    container_instance_arn: str | None = None
    revision: Int64 = 0
    since: str = ""
    gone: tuple[str, ...] = ()
    subnets: tuple[Subnet, ...] = ()
    groups: tuple[Group, ...] = ()
    interfaces: tuple[Interface, ...] = ()
