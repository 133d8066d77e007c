"""Faults of the network that a task asks for: what its request says, and the rules that make them.

    network-blackhole-port   packets to one port, coming in or going out, are dropped
    network-packet-loss      of what goes to some addresses, so many of a hundred packets are dropped
    network-latency          what goes to some addresses is late

Every fault is a table of the packet filter in the task's own network, named after the agent, the task and the fault, so
that a fault that runs is the table that is there: nothing else has to be remembered, and what a killed agent left is
found by its name. Packets to the agent's own endpoint are never touched, or a task could not end what it began.
Latency needs a queue besides, since no rule can hold a packet back: rules mark what is to be late.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple

ENDPOINT = "169.254.170.2"
MOST_PORT = 65535
MOST_MILLISECONDS = 3_600_000
"""An hour: what is later than that is lost."""
MOST_SOURCES = 1000
PREFIX = "sexton-fault-"

# The queue of late packets has this number, which says whose it is, and the packets that belong there this mark.
QUEUE = "5e78:"
LATE = "5e78:1"


class Kind(StrEnum):
    BLACKHOLE = "network-blackhole-port"
    LATENCY = "network-latency"
    LOSS = "network-packet-loss"


class Fault(NamedTuple):
    """One fault as a request describes it."""

    kind: Kind
    port: int = 0
    protocol: str = ""
    traffic: str = ""
    delay: int = 0  # milliseconds
    jitter: int = 0
    percent: int = 0  # packets that are lost
    flows: int = 100  # of a hundred connections, so many are hit
    sources: tuple[str, ...] = ()  # addresses that are hit
    spared: tuple[str, ...] = ()  # addresses that are not

    @property
    def name(self) -> str:
        """What tells it from other faults of a task."""
        match self.kind:
            case Kind.BLACKHOLE:
                return f"{self.traffic}-{self.protocol}-{self.port}"
            case Kind.LATENCY:
                return "latency"
            case _:
                return "loss"


class BadFault(ValueError):  # noqa: N818 - an answer for the task
    """The request says what cannot be; the message is the answer's."""


def read(kind: Kind, given: Mapping[str, Any] | None, *, start: bool) -> Fault:
    """A request's body as a fault. To end or ask about one its port is enough, or nothing."""
    if kind is Kind.BLACKHOLE:
        return _blackhole(_present(given))
    if not start:
        return Fault(kind)
    body = _present(given)
    if kind is Kind.LATENCY:
        delay = _number(body, "DelayMilliseconds", 0, MOST_MILLISECONDS)
        jitter = _number(body, "JitterMilliseconds", 0, MOST_MILLISECONDS)
        if not delay and not jitter:
            raise BadFault("required either DelayMilliseconds or JitterMilliseconds to be non-zero")
        return Fault(kind, delay=delay, jitter=jitter, **_whom(body))
    return Fault(kind, percent=_number(body, "LossPercent", 1, 100), **_whom(body))


def _present(given: Mapping[str, Any] | None) -> Mapping[str, Any]:
    if given is None:
        raise BadFault("required request body is missing")
    return given


def _blackhole(body: Mapping[str, Any]) -> Fault:
    return Fault(
        Kind.BLACKHOLE,
        port=_number(body, "Port", 1, MOST_PORT),
        protocol=_word(body, "Protocol", ("tcp", "udp")),
        traffic=_word(body, "TrafficType", ("ingress", "egress")),
        spared=_addresses(body, "SourcesToFilter"),
    )


def _whom(body: Mapping[str, Any]) -> dict[str, Any]:
    sources = _addresses(body, "Sources")
    if not sources:
        raise BadFault("required parameter Sources is missing")
    flows = 100 if body.get("FlowsPercent") is None else _number(body, "FlowsPercent", 1, 100)
    return {"sources": sources, "spared": _addresses(body, "SourcesToFilter"), "flows": flows}


def _number(body: Mapping[str, Any], name: str, least: int, most: int) -> int:
    value = body.get(name)
    if value is None:
        raise BadFault(f"required parameter {name} is missing")
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise BadFault(f"invalid value {_shown(value)} for parameter {name}")
    return value


def _word(body: Mapping[str, Any], name: str, known: tuple[str, ...]) -> str:
    value = body.get(name)
    if value in (None, ""):
        raise BadFault(f"required parameter {name} is missing")
    if value not in known:
        raise BadFault(f"invalid value {_shown(value)} for parameter {name}")
    return str(value)


def _addresses(body: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """Addresses and blocks in the form in which the packet filter takes them; none of them twice."""
    given = body.get(name)
    if given is None:
        return ()
    if not isinstance(given, list) or len(given) > MOST_SOURCES:
        raise BadFault(f"invalid value {_shown(given)} for parameter {name}")
    found = []
    for one in given:
        try:
            if not isinstance(one, str):
                raise ValueError(one)
            network = ipaddress.ip_network(one, strict=False)
        except ValueError:
            raise BadFault(f"invalid value {_shown(one)} for parameter {name}") from None
        found.append(network)
    four = ipaddress.collapse_addresses([one for one in found if one.version == 4])
    six = ipaddress.collapse_addresses([one for one in found if one.version == 6])
    return tuple(str(one) for one in (*four, *six))


def _shown(value: object) -> str:
    return str(value)[:100]


class Place(NamedTuple):
    """Whose faults these are, as names of tables say it."""

    agent: str  # twelve digits that follow from the agent's data directory
    task_id: str


def table(place: Place, fault: Fault) -> str:
    return f"{PREFIX}{place.agent}-{place.task_id}-{fault.name}"


def mine(agent: str, listed: str) -> dict[str, str]:
    """Tables of this agent in a list of tables, as the filter shows it, with the id of each one's task."""
    found = {}
    for line in listed.splitlines():
        _, _, name = line.partition(" ")
        family, _, bare = name.partition(" ")
        if bare.startswith(f"{PREFIX}{agent}-"):
            found[f"{family} {bare}"] = bare[len(PREFIX) + len(agent) + 1 :].partition("-")[0]
    return found


def family(fault: Fault) -> str:
    """The family of a fault's table: a drop on the way out must look like one of the network, so it is made at the
    interface; one that blocks a port looks like a firewall."""
    return "inet" if fault.kind is Kind.BLACKHOLE else "netdev"


def rules(place: Place, fault: Fault, interfaces: tuple[str, ...]) -> str:
    """One transaction that begins a fault; one that runs is made anew."""
    whole = f"{family(fault)} {table(place, fault)}"
    body = _blackhole_chain(fault) if fault.kind is Kind.BLACKHOLE else _egress_chain(fault, interfaces)
    return "\n".join([f"table {whole}", f"delete table {whole}", f"table {whole} {{", *body, "}", ""])


def removal(place: Place, fault: Fault) -> str:
    """One transaction after which a fault is gone, whether or not it ran."""
    return removal_of(f"{family(fault)} {table(place, fault)}")


def removal_of(whole: str) -> str:
    return f"table {whole}\ndelete table {whole}\n"


def _blackhole_chain(fault: Fault) -> list[str]:
    hook, side = ("input", "saddr") if fault.traffic == "ingress" else ("output", "daddr")
    return [
        f"chain faults {{\ntype filter hook {hook} priority -5; policy accept;",
        f"ct original ip daddr {ENDPOINT} accept",
        *_for_each(fault.spared, side, "accept"),
        f"{fault.protocol} dport {fault.port} counter drop",
        "}",
    ]


def _egress_chain(fault: Fault, interfaces: tuple[str, ...]) -> list[str]:
    """At each interface. What goes to the endpoint stays on the host and never comes by here, except where it is led
    through a bridge."""
    if fault.kind is Kind.LOSS:
        some = f"numgen random mod 100 < {fault.percent} " if fault.percent < 100 else ""
        verdict = f"{some}counter drop"
    else:
        verdict = f"counter meta priority set {LATE}"
    lines = []
    for number, interface in enumerate(interfaces):
        lines += [
            f'chain faults{number} {{\ntype filter hook egress device "{interface}" priority 0; policy accept;',
            f"ip daddr {ENDPOINT} accept",
            *_for_each(fault.spared, "daddr", "accept"),
        ]
        for version, block in _by_version(fault.sources):
            hit = f"{version} daddr {block}"
            if fault.flows < 100:
                hit += f" jhash {version} saddr . {version} daddr . @th,0,32 mod 100 seed 0x5e78 < {fault.flows}"
            lines.append(f"{hit} {verdict}")
        lines.append("}")
    return lines


def _for_each(addresses: tuple[str, ...], side: str, verdict: str) -> list[str]:
    return [f"{version} {side} {block} {verdict}" for version, block in _by_version(addresses)]


def _by_version(addresses: tuple[str, ...]) -> list[tuple[str, str]]:
    """Addresses as one set for each version of the protocol; a set of the filter cannot hold everything there is."""
    found = []
    for version, everything in (("ip", "0.0.0.0/0"), ("ip6", "::/0")):
        blocks = [one for one in addresses if (":" in one) == (version == "ip6")]
        if everything in blocks:
            found.append((version, everything))
        elif blocks:
            found.append((version, "{ " + ", ".join(blocks) + " }"))
    return found


def queue(fault: Fault, interface: str) -> tuple[tuple[str, ...], ...]:
    """Commands of ``tc`` that give an interface a queue in which marked packets are late, and no others."""
    late = f"{fault.delay}ms"
    root = ("qdisc", "add", "dev", interface, "root", "handle", QUEUE, "htb", "default", "0", "direct_qlen", "1000")
    leaf = ("class", "add", "dev", interface, "parent", QUEUE, "classid", LATE, "htb", "rate", "100gbit")
    netem = ("netem", "delay", late, *((f"{fault.jitter}ms",) if fault.jitter else ()), "limit", "100000")
    return root, leaf, ("qdisc", "add", "dev", interface, "parent", LATE, *netem)


def no_queue(interface: str) -> tuple[str, ...]:
    """The command that takes it away again."""
    return ("qdisc", "del", "dev", interface, "root", "handle", QUEUE)
