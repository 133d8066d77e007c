"""What the control plane keeps of networks: VPCs, subnets, security groups with their rules, interfaces.

An interface's key is its address (region, subnet, IPv4 address), so that no address can be given twice whoever writes;
its MAC and IPv6 address follow from it or are as good as unique. Whoever makes something inside something else writes
a ``UseRecord`` for the outer one in the same transaction; whoever deletes the outer one does so on the condition that
this has not changed since it looked inside and found nothing.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

Tags = dict[str, str]


class Associated(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A block of addresses that belongs to something, under an id of its own."""

    id: str
    cidr: str


class VpcRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    region: str
    id: str
    cidrs: tuple[Associated, ...]  # the first is the one it was made with
    cidrs6: tuple[Associated, ...] = ()
    default: bool = False
    dns_support: bool = True
    dns_hostnames: bool = False
    usage_metrics: bool = False
    tags: Tags = {}


class SubnetRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    region: str
    id: str
    vpc: str
    cidr: str
    zone: str
    vni: int  # tells subnets apart between hosts
    cidr6: Associated | None = None
    default: bool = False
    public_address: bool = False
    ipv6_on_creation: bool = False
    dns64: bool = False
    hostname_type: str = "ip-name"
    a_record: bool = False
    aaaa_record: bool = False
    tags: Tags = {}


class RuleRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that a group allows, to or from one of a block and a group."""

    id: str
    protocol: str
    from_port: int = -1
    to_port: int = -1
    cidr: str = ""
    cidr6: str = ""
    group: str = ""
    description: str = ""
    tags: Tags = {}

    @property
    def meaning(self) -> tuple[str, int, int, str]:
        """What it allows: two rules of one direction of a group with the same meaning are one."""
        return self.protocol, self.from_port, self.to_port, self.cidr or self.cidr6 or self.group


class GroupRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    region: str
    id: str
    vpc: str
    name: str
    description: str
    ingress: tuple[RuleRecord, ...] = ()
    egress: tuple[RuleRecord, ...] = ()
    tags: Tags = {}


class InterfaceRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An interface of a task, or an address that somebody holds for later."""

    region: str
    id: str
    vpc: str
    subnet: str
    ipv4: str
    mac: str
    ipv6: str = ""
    groups: tuple[str, ...] = ()
    description: str = ""
    task: str = ""  # the ARN of the task that it belongs to, which made it and with which it goes
    instance: str = ""  # the ARN of the container instance that the task is on
    attachment: str = ""
    source_check: bool = True
    made_at: float = 0.0
    token: str = ""  # of the request that made it, so that its repetition does nothing
    tags: Tags = {}


class UseRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Changes whenever something begins to use what its key names."""

    by: str


class Kind(NamedTuple):
    """A kind of resource: how its ids begin, and how EC2 names it."""

    prefix: str
    type: str
    missing: str  # the error code for an id that is not known
    words: str


VPC = Kind("vpc", "vpc", "InvalidVpcID.NotFound", "vpc ID")
SUBNET = Kind("subnet", "subnet", "InvalidSubnetID.NotFound", "subnet ID")
GROUP = Kind("sg", "security-group", "InvalidGroup.NotFound", "security group")
RULE = Kind("sgr", "security-group-rule", "InvalidSecurityGroupRuleId.NotFound", "security group rule ID")
INTERFACE = Kind("eni", "network-interface", "InvalidNetworkInterfaceID.NotFound", "networkInterface ID")
KINDS = (VPC, SUBNET, GROUP, RULE, INTERFACE)
