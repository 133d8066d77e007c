"""The security groups of a host's tasks as one nftables table, for the namespace that routes a VPC's packets.

Every packet of a flow is judged by the addresses and ports of the flow's first one, which connection tracking knows
(``ct original``): replies need no rule, and a rule that goes stops what it had allowed with the next packet. Two base
chains see each packet that is forwarded. ``egress`` judges flows that an interface here began, ``ingress`` those that
an interface here receives; a flow between two of them passes both, and what neither knows is judged on other hosts.

Whatever there is much of is a lookup::

    address of the interface -> its groups -> (per group) members of a source group -> ports
                                                          most specific block of the peer -> ports, and the next wider

so a packet costs the same with ten rules or a thousand. A rule's id is the comment of what counts its packets. Chains
and sets with fixed content carry a digest of it in their names; a change of groups leaves all others as they are.
"""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Iterable, Mapping, Sequence

from sexton.core.grouprules import ALL, ICMP, ICMP6, TCP, UDP, Allowed, Vpc, allowed
from sexton.core.intervals import Span, pieces
from sexton.core.judgement import EGRESS, INGRESS, UNJUDGED
from sexton.core.nftables import Chain, Set, Table
from sexton.wire.network import Group, Interface

FAMILIES = (4, 6)
_WORD = {4: "ip", 6: "ip6"}
_TYPE = {4: "ipv4_addr", 6: "ipv6_addr"}
# Where connection tracking keeps the port of these, and where it cannot, where the packet has it.
_PORT_OF = {
    TCP: "meta l4proto tcp ct original proto-dst",
    UDP: "meta l4proto udp ct original proto-dst",
    ICMP: "meta l4proto icmp th sport",
    ICMP6: "meta l4proto ipv6-icmp th sport",
}
_ERRORS = "meta l4proto { icmp, ipv6-icmp }"


def table(name: str, vpc: Vpc, devices: Mapping[str, str], *, tunnel: str = "", uplink: str = "") -> Table:
    """The table of one VPC. ``devices`` are the interfaces' by id; what comes from any other device is dropped,
    except from the tunnel to other hosts and from the uplink to the world outside."""
    build = _Build()
    here = vpc.here()
    _only_own_addresses(build, vpc, devices, tunnel, uplink)
    for direction in (EGRESS, INGRESS):
        for family in FAMILIES:
            _judged_interfaces(build, vpc, here, direction, family)
        build.chain(direction, _hook(direction), header="type filter hook forward priority filter; policy accept;")
    return Table(name, tuple(build.sets.values()), tuple(build.chains.values()))


class _Build:
    """Objects in the order in which they can be made: what is referred to comes first."""

    def __init__(self) -> None:
        self.sets: dict[str, Set] = {}
        self.chains: dict[str, Chain] = {}

    def set(self, name: str, kind: str, elements: Mapping[str, str], *, flags: str = "", counted: bool = False) -> None:
        self.sets[name] = Set(name, kind, dict(elements), flags, counted)

    def chain(self, name: str, lines: Iterable[str], header: str = "") -> None:
        self.chains[name] = Chain(name, tuple(lines), header)

    def ranges(self, prefix: str, kind: str, elements: Mapping[str, str], *, counted: bool = False) -> str:
        """A set of ranges, which is made anew rather than changed."""
        name = f"{prefix}.{_digest(elements.items())}"
        self.set(name, kind, elements, flags="interval", counted=counted)
        return name


def _hook(direction: str) -> list[str]:
    end = "saddr" if direction == EGRESS else "daddr"
    lines = [
        'ct state invalid counter drop comment "invalid"',
        f"ct state related {_ERRORS} accept",
        f"ct direction reply {_ERRORS} accept",
    ]
    if direction == EGRESS:
        lines.append(f"ct original ip daddr {UNJUDGED} accept")
    for family in FAMILIES:
        own = f"ct original {_WORD[family]} {end}"
        lines.append(f"{own} vmap @{direction}{family}")
        lines.append(f"{own} @refused-{direction}{family} drop")
    return lines


def _judged_interfaces(build: _Build, vpc: Vpc, here: Sequence[Interface], direction: str, family: int) -> None:
    judged: dict[str, str] = {}
    refused: dict[str, str] = {}
    for one in here:
        own = one.ipv4 if family == 4 else one.ipv6
        if own:
            judged[own] = f"jump {_groups_together(build, vpc, sorted(set(one.groups)), direction, family)}"
            refused[own] = f'comment "{one.id}"'
    build.set(f"{direction}{family}", f"{_TYPE[family]} : verdict", judged)
    build.set(f"refused-{direction}{family}", _TYPE[family], refused, counted=True)


def _groups_together(build: _Build, vpc: Vpc, groups: Sequence[str], direction: str, family: int) -> str:
    """The chain that knows what any of these groups allows, shared by all interfaces that have the same ones."""
    chains = [_one_group(build, vpc, vpc.groups[each], direction, family) for each in groups if each in vpc.groups]
    if len(chains) == 1:
        return chains[0]
    name = f"{direction}{family}.{_digest(chains)}"
    build.chain(name, (f"jump {each}" for each in chains))
    return name


def _one_group(build: _Build, vpc: Vpc, group: Group, direction: str, family: int) -> str:
    name = f"{group.id}.{direction}{family}"
    if name in build.chains:
        return name
    rules = [allowed(one) for one in (group.egress if direction == EGRESS else group.ingress)]
    peer = f"ct original {_WORD[family]} {'daddr' if direction == EGRESS else 'saddr'}"
    lines = []
    for source in sorted({one.group for one in rules if one.group}):
        members = _members(build, vpc, source, family)
        ports = _ports(build, name, [one for one in rules if one.group == source])
        lines.append(f"{peer} @{members} jump {ports}")
    blocks = _blocks(build, name, rules, family)
    if blocks:
        lines.append(f"{peer} vmap @{blocks}")
    build.chain(name, lines)
    return name


def _members(build: _Build, vpc: Vpc, group: str, family: int) -> str:
    name = f"{group}.members{family}"
    if name not in build.sets:
        members = vpc.members(group)
        build.set(name, _TYPE[family], {each: "" for one in members if (each := one.ipv4 if family == 4 else one.ipv6)})
    return name


def _blocks(build: _Build, name: str, rules: Sequence[Allowed], family: int) -> str:
    """The map from a peer's address to the chain of the most specific block that has rules; empty without any."""
    found: dict[ipaddress.IPv4Network | ipaddress.IPv6Network, list[Allowed]] = {}
    for one in rules:
        if one.block is not None and one.block.version == family:
            found.setdefault(one.block, []).append(one)
    if not found:
        return ""
    chains: dict[str, str] = {}
    wide_first = sorted(found, key=lambda block: (block.prefixlen, int(block.network_address)))
    for block in wide_first:
        wider = next(
            (
                each
                for bits in range(block.prefixlen - 1, -1, -1)
                if str(each := block.supernet(new_prefix=bits)) in chains
            ),
            None,
        )
        chains[str(block)] = _ports(build, name, found[block], f"goto {chains[str(wider)]}" if wider else "")
    spans = [
        Span(int(block.network_address), int(block.broadcast_address), chains[str(block)])
        for block in reversed(wide_first)
    ]
    address = ipaddress.IPv4Address if family == 4 else ipaddress.IPv6Address
    elements = {_range(str(address(one.first)), str(address(one.last))): f"goto {one.owner}" for one in pieces(spans)}
    return build.ranges(f"{name}.blocks", f"{_TYPE[family]} : verdict", elements)


def _ports(build: _Build, prefix: str, rules: Sequence[Allowed], otherwise: str = "") -> str:
    """The chain that accepts what these rules of one peer allow, and leads on otherwise."""
    lines = [f'counter accept comment "{one.rule}"' for one in rules if one.protocol == ALL][:1]
    if not lines:
        for protocol, where in _PORT_OF.items():
            spans = [Span(one.first, one.last, one.rule) for one in rules if one.protocol == protocol]
            if spans:
                elements = {_range(one.first, one.last): f'comment "{one.owner}"' for one in pieces(spans)}
                lines.append(
                    f"{where} @{build.ranges(f'{prefix}.{protocol}', 'inet_service', elements, counted=True)} accept"
                )
        others = {one.protocol: one.rule for one in reversed(rules) if one.protocol not in _PORT_OF}
        lines += [f'meta l4proto {number} counter accept comment "{rule}"' for number, rule in sorted(others.items())]
        lines += [otherwise] * bool(otherwise)
    name = f"{prefix}.ports.{_digest(lines)}"
    build.chain(name, lines)
    return name


def _only_own_addresses(build: _Build, vpc: Vpc, devices: Mapping[str, str], tunnel: str, uplink: str) -> None:
    """Drop what comes with an address that its sender does not have. ARP and neighbour discovery need no rule: a
    router's neighbours are written down, and it learns none."""
    here = [(devices[one.id], one) for one in vpc.here() if one.id in devices]
    far = [one for one in vpc.interfaces if one.host]
    build.set("own-devices", "ifname", {f'"{device}"': f'comment "{one.id}"' for device, one in here}, counted=True)
    build.set(
        "own4", "ifname . ether_addr . ipv4_addr", {f'"{device}" . {one.mac} . {one.ipv4}': "" for device, one in here}
    )
    build.set(
        "own6",
        "ifname . ether_addr . ipv6_addr",
        {f'"{device}" . {one.mac} . {one.ipv6}': "" for device, one in here if one.ipv6},
    )
    build.set("far4", "ipv4_addr", {one.ipv4: "" for one in far})
    build.set("far6", "ipv6_addr", {one.ipv6: "" for one in far if one.ipv6})
    lines = [
        'iifname "lo" accept',
        "iifname . ether saddr . ip saddr @own4 accept",
        "iifname . ether saddr . ip6 saddr @own6 accept",
        # Neighbour discovery: link-local, so never forwarded.
        "ip6 saddr { ::, fe80::/10 } icmpv6 type { nd-router-solicit, nd-neighbor-solicit, nd-neighbor-advert } accept",
        "iifname @own-devices drop",
    ]
    if tunnel:
        lines += [f'iifname "{tunnel}" ip saddr @far4 accept', f'iifname "{tunnel}" ip6 saddr @far6 accept']
    if uplink:
        for block in vpc.blocks():
            lines.append(
                f'iifname "{uplink}" {"ip6" if ":" in block else "ip"} saddr {block} counter drop comment "outside"'
            )
        lines.append(f'iifname "{uplink}" accept')
    lines.append('counter drop comment "stranger"')
    build.chain("prerouting", lines, header="type filter hook prerouting priority raw; policy drop;")


def _range(first: object, last: object) -> str:
    return str(first) if first == last else f"{first}-{last}"


def _digest(parts: Iterable[object]) -> str:
    return hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()[:10]
