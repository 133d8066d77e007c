"""Networks in words: what an interface is, what its groups allow, and why a packet passes or does not."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from sexton.core import grouprules
from sexton.core.grouprules import ICMP, ICMP6, Vpc, addresses, allowed
from sexton.core.judgement import EGRESS, Judgement, Packet, Side, judge
from sexton.core.names import last_part
from sexton.wire.network import Group, Interface, Rule, SextonNetworkMessage

_PORT = re.compile(r"(?P<host>\[[^\]]*\]|[^:\[\]]+|[0-9a-fA-F:.]+?):(?P<port>[0-9]{1,5})(/(?P<protocol>\w+))?\Z")
_ECHO = {4: grouprules.icmp(8), 6: grouprules.icmp(128)}
_LIMIT = 65535


class NotUnderstood(ValueError):  # noqa: N818 - becomes an answer
    """What was asked cannot be answered; the message begins "cannot"."""


class Target(NamedTuple):
    """The far end of what is asked about, in the words it was given in."""

    who: str
    protocol: int
    port: int


class Why(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Whether a packet passes, and the sentences that say so. ``passes`` is None when another host decides."""

    passes: bool | None
    headline: str
    sentences: tuple[str, ...]
    rules: tuple[str, ...] = ()  # that allow it


def target(text: str) -> Target:
    """``B:port``, with ``/udp`` behind it for UDP, ``B:icmp`` for a ping, or ``B:PROTOCOL`` for its number."""
    found = _PORT.match(text)
    if found:
        protocol = found["protocol"] or "tcp"
        if protocol not in ("tcp", "udp"):
            raise NotUnderstood(f"cannot tell what '{protocol}' is: a port is one of tcp or udp")
        if int(found["port"]) > _LIMIT:
            raise NotUnderstood(f"cannot be a port: {found['port']}")
        return Target(found["host"].strip("[]"), grouprules.number(protocol), int(found["port"]))
    who, _, word = text.rpartition(":")
    if who and word == "icmp":
        return Target(who.strip("[]"), ICMP, 0)
    if who and word.isascii() and word.isdigit():
        return Target(who.strip("[]"), int(word), 0)
    raise NotUnderstood(f"cannot tell the port in '{text}': write B:PORT, B:PORT/udp or B:icmp, with [B] for IPv6")


def why(state: SextonNetworkMessage, source: str, aim: Target) -> Why:
    """What becomes of a packet from one end to the other. NotUnderstood for ends that nobody is."""
    near, far = _end(state, source), _end(state, aim.who)
    if near.interface is None and far.interface is None:
        raise NotUnderstood(f"cannot judge this: neither {source} nor {aim.who} is an interface of a task")
    vpcs = {one.id: one.vpc for one in state.subnets}
    own = [vpcs[one.interface.subnet] for one in (near, far) if one.interface and one.interface.subnet in vpcs]
    if len(set(own)) > 1:
        headline = f"dropped: {own[0]} and {own[1]} are different VPCs, and nothing leads from one to the other"
        return Why(passes=False, headline=headline, sentences=())
    version = _version(near, far)
    protocol, port = aim.protocol, aim.port
    if protocol == ICMP:
        protocol, port = (ICMP6 if version == 6 else ICMP), _ECHO[version]
    packet = Packet(near.address(version), far.address(version), protocol, port)
    vpc = grouprules.vpc(state, own[0])
    return _told(vpc, packet, _judged(vpc, packet))


def _judged(vpc: Vpc, packet: Packet) -> Judgement:
    """As ``judge``, where the groups of both ends may be known, on whichever host they are."""
    everywhere = vpc._replace(
        interfaces=tuple(
            msgspec.structs.replace(one, host="") if set(one.groups) <= vpc.groups.keys() else one
            for one in vpc.interfaces
        )
    )
    return judge(everywhere, packet)


def _told(vpc: Vpc, packet: Packet, found: Judgement) -> Why:
    sentences = [_side(vpc, packet, side) for side in found.sides]
    sentences += [
        f"what reaches {_name(one)} is judged on its host, {one.host}: ask there, or ask the control plane"
        for one in found.elsewhere
    ]
    rules = tuple(matched.rule for side in found.sides for matched in side.rules)
    what = _what(packet.protocol, packet.port, packet.port)
    if not found.passes:
        side = next(side for side in found.sides if not side.passes)
        way = "leaves" if side.direction == EGRESS else "reaches"
        headline = f"dropped: {what} from {packet.source} never {way} {_name(side.interface)}"
        return Why(passes=False, headline=headline, sentences=tuple(sentences), rules=rules)
    headline = f"{what} from {packet.source} to {packet.destination}"
    if found.elsewhere:
        return Why(passes=None, headline=f"undecided here: {headline}", sentences=tuple(sentences), rules=rules)
    return Why(passes=True, headline=f"passes: {headline}", sentences=tuple(sentences), rules=rules)


def _side(vpc: Vpc, packet: Packet, side: Side) -> str:
    out = side.direction == EGRESS
    way, peer = ("out of", packet.destination) if out else ("into", packet.source)
    groups = [vpc.groups[each] for each in sorted(set(side.interface.groups)) if each in vpc.groups]
    if side.passes:
        first = side.rules[0]
        group = vpc.groups[first.group]
        rule = next(one for one in (group.egress if out else group.ingress) if one.id == first.rule)
        more = f", and {len(side.rules) - 1} more" if len(side.rules) > 1 else ""
        return f"{way} {_name(side.interface)}: allowed by {rule.id} of {_group(group)}: {rule_text(rule, out)}{more}"
    count = sum(len(one.egress if out else one.ingress) for one in groups)
    names = ", ".join(map(_group, groups)) or "no group"
    towards = "to" if out else "from"
    return (
        f"{way} {_name(side.interface)}: dropped: none of the {count} {side.direction} rules of {names} allows "
        f"{_what(packet.protocol, packet.port, packet.port)} {towards} {peer}"
    )


def rule_text(rule: Rule, out: bool) -> str:
    """A rule as a person would say it."""
    one = allowed(rule)
    return f"{_what(one.protocol, one.first, one.last)} {'to' if out else 'from'} {rule.cidr or rule.group}"


def _what(protocol: int, first: int, last: int) -> str:
    if protocol == grouprules.ALL:
        return "everything"
    name = grouprules.name(protocol)
    if protocol not in grouprules.WITH_PORTS:
        return f"protocol {name}"
    if (first, last) == (0, _LIMIT):
        return f"all {name}"
    if protocol in (ICMP, ICMP6):
        kind, code = divmod(first, 256)
        return f"{name} type {kind}" + (f" code {code}" if first == last else "")
    return f"{name} {first}" if first == last else f"{name} {first}-{last}"


def _group(group: Group) -> str:
    return f"{group.id} ({group.name})" if group.name else group.id


def _name(one: Interface) -> str:
    task = f"task {last_part(one.task_arn)[:12]}" if one.task_arn else one.id
    return f"{task} ({one.ipv4})"


class _End(NamedTuple):
    interface: Interface | None
    given: str

    def address(self, version: int) -> str:
        if self.interface is None:
            return self.given
        return self.interface.ipv6 if version == 6 else self.interface.ipv4


def _end(state: SextonNetworkMessage, given: str) -> _End:
    """Whom a person means by an address, the id of an interface, or a task's id or the start of it."""
    found = matching(state, given)
    if len(found) > 1:
        raise NotUnderstood(f"cannot tell which of {len(found)} tasks '{given}' is; give more of the id")
    if found:
        return _End(found[0], given)
    try:
        return _End(None, str(ipaddress.ip_address(given)))
    except ValueError:
        raise NotUnderstood(
            f"cannot find '{given}': it is neither an address nor a task or interface that is known here"
        ) from None


def matching(state: SextonNetworkMessage, given: str) -> Sequence[Interface]:
    """The interfaces that a person may mean."""
    try:
        wanted = ipaddress.ip_address(given)
    except ValueError:
        task = last_part(given)
        return [
            one for one in state.interfaces if one.id == given or (task and last_part(one.task_arn).startswith(task))
        ]
    return [one for one in state.interfaces if any(ipaddress.ip_address(each) == wanted for each in addresses(one))]


def _version(near: _End, far: _End) -> int:
    given = [ipaddress.ip_address(one.given).version for one in (near, far) if _is_address(one.given)]
    if len(set(given)) > 1:
        raise NotUnderstood("cannot judge this: one end is an IPv4 address and the other one of IPv6")
    version = given[0] if given else 4
    for one in (near, far):
        if version == 6 and one.interface is not None and not one.interface.ipv6:
            raise NotUnderstood(f"cannot judge this: {_name(one.interface)} has no IPv6 address")
    return version


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
