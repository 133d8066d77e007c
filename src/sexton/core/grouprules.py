"""The rules of security groups in numbers: which protocol, which span of ports, which peers.

Type and code of ICMP are one number here, as they are two neighbouring bytes where other protocols have a port; so a
type with any code is a span like a range of ports. The ruleset and its model both read rules through this module.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import NamedTuple

from sexton.wire.network import Group, Interface, Rule, SextonNetworkMessage, Subnet

ALL = -1
ICMP, TCP, UDP, ICMP6 = 1, 6, 17, 58
WITH_PORTS = (TCP, UDP, ICMP, ICMP6)
LAST = 65535

_NUMBERS = {"-1": ALL, "icmp": ICMP, "tcp": TCP, "udp": UDP, "icmpv6": ICMP6}
_NAMES = {number: name for name, number in _NUMBERS.items()}

Block = ipaddress.IPv4Network | ipaddress.IPv6Network
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class Allowed(NamedTuple):
    """What one rule allows. ``block`` is None when the peers are the members of ``group``."""

    rule: str
    protocol: int
    first: int
    last: int
    block: Block | None
    group: str

    def covers(self, protocol: int, port: int) -> bool:
        return self.protocol == ALL or (self.protocol == protocol and self.first <= port <= self.last)


def allowed(rule: Rule) -> Allowed:
    """A rule in numbers."""
    protocol = number(rule.protocol)
    first, last = _span(protocol, rule.from_port, rule.to_port)
    block = ipaddress.ip_network(rule.cidr) if rule.cidr else None
    return Allowed(rule.id, protocol, first, last, block, rule.group)


def number(protocol: str) -> int:
    """A protocol's number, -1 for all."""
    word = protocol.lower()
    return _NUMBERS[word] if word in _NUMBERS else int(word)


def name(protocol: int) -> str:
    """A protocol as rules name it."""
    return _NAMES.get(protocol, str(protocol))


def icmp(kind: int, code: int = 0) -> int:
    """Type and code of ICMP as the number that takes the place of a port."""
    return kind * 256 + code


def _span(protocol: int, first: int, last: int) -> tuple[int, int]:
    if protocol not in WITH_PORTS or first == -1:
        return 0, LAST
    if protocol in (ICMP, ICMP6):
        return (icmp(first), icmp(first, 255)) if last == -1 else (icmp(first, last), icmp(first, last))
    return first, last


class Vpc(NamedTuple):
    """What a message says of one VPC."""

    subnets: dict[str, Subnet]
    groups: dict[str, Group]
    interfaces: tuple[Interface, ...]

    def here(self) -> list[Interface]:
        return [one for one in self.interfaces if not one.host]

    def members(self, group: str) -> list[Interface]:
        """Who is in a group, on every host."""
        return [one for one in self.interfaces if group in one.groups]

    def blocks(self) -> list[str]:
        """The blocks of addresses of its subnets."""
        return [block for one in self.subnets.values() for block in (one.cidr, one.ipv6_cidr) if block]


def vpcs(state: SextonNetworkMessage) -> list[str]:
    """The VPCs that a message speaks of."""
    return sorted({one.vpc for one in state.subnets})


def vpc(state: SextonNetworkMessage, vpc_id: str) -> Vpc:
    """What a message says of one of them."""
    subnets = {one.id: one for one in state.subnets if one.vpc == vpc_id}
    groups = {one.id: one for one in state.groups if one.vpc in (vpc_id, "")}
    return Vpc(subnets, groups, tuple(one for one in state.interfaces if one.subnet in subnets))


def addresses(interface: Interface) -> Iterable[str]:
    """What an interface is reached at."""
    return (interface.ipv4, interface.ipv6) if interface.ipv6 else (interface.ipv4,)
