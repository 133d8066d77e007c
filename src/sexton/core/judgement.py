"""What becomes of a packet between two addresses, and which rules say so.

This is the ruleset's meaning without the kernel: ``sexton net why`` answers from it, and tests compare it with what the
kernel does. A packet here is the first of a flow; all later ones, in both directions, share its fate for as long as
the rules stay (see ``core/ruleset.py``). A side that is on another host is judged there, which is said, not guessed.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import NamedTuple

from sexton.core.grouprules import Allowed, Vpc, addresses, allowed
from sexton.wire.network import Interface, Rule

EGRESS, INGRESS = "egress", "ingress"
# What an interface reaches whatever its groups say: the host's own services for tasks.
UNJUDGED = ipaddress.IPv4Network("169.254.0.0/16")


class Packet(NamedTuple):
    """The first packet of a flow. The port of ICMP is its type and code (``grouprules.icmp``)."""

    source: str
    destination: str
    protocol: int
    port: int = 0


class Matched(NamedTuple):
    """A rule that allows the packet, and the group that has it."""

    group: str
    rule: str


class Side(NamedTuple):
    """What the groups of one of the two interfaces say. Without rules it is refused."""

    direction: str
    interface: Interface
    rules: tuple[Matched, ...]

    @property
    def passes(self) -> bool:
        return bool(self.rules)


class Judgement(NamedTuple):
    """The sides that are judged on this host, and the interfaces whose side another host judges."""

    sides: tuple[Side, ...]
    elsewhere: tuple[Interface, ...]

    @property
    def passes(self) -> bool:
        """Whether nothing on this host refuses it."""
        return all(side.passes for side in self.sides)


def judge(vpc: Vpc, packet: Packet) -> Judgement:
    """What this host does with a packet."""
    sides: list[Side] = []
    elsewhere: list[Interface] = []
    ends = ((EGRESS, packet.source, packet.destination), (INGRESS, packet.destination, packet.source))
    for direction, own, peer in ends:
        interface = holder(vpc, own)
        if interface is None or (direction == EGRESS and _unjudged(peer)):
            continue
        if interface.host:
            elsewhere.append(interface)
        else:
            sides.append(Side(direction, interface, tuple(_matching(vpc, interface, direction, peer, packet))))
    return Judgement(tuple(sides), tuple(elsewhere))


def holder(vpc: Vpc, address: str) -> Interface | None:
    """The interface with this address."""
    wanted = ipaddress.ip_address(address)
    return next(
        (one for one in vpc.interfaces if any(ipaddress.ip_address(each) == wanted for each in addresses(one))), None
    )


def _unjudged(address: str) -> bool:
    return ipaddress.ip_address(address) in UNJUDGED


def _matching(vpc: Vpc, interface: Interface, direction: str, peer: str, packet: Packet) -> Iterable[Matched]:
    other = holder(vpc, peer)
    for group_id in sorted(set(interface.groups)):
        group = vpc.groups.get(group_id)
        rules: tuple[Rule, ...] = () if group is None else (group.egress if direction == EGRESS else group.ingress)
        for rule in map(allowed, rules):
            if rule.covers(packet.protocol, packet.port) and _is_peer(rule, peer, other):
                yield Matched(group_id, rule.rule)


def _is_peer(rule: Allowed, address: str, holder: Interface | None) -> bool:
    if rule.block is not None:
        return ipaddress.ip_address(address) in rule.block
    return holder is not None and rule.group in holder.groups
