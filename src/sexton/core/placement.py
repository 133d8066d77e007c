"""Which host runs a task: filter, then score.

Input is what is known of every host at this moment; output is the chosen one, or for each host why not. The first
reason of a host is the one a person can act on, so the filters run from "cannot be reached" over "is not meant" to
"is full", and each says in a sentence what is missing. ``board`` does the same for many tasks at a time.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum

import msgspec

from sexton.core import resources
from sexton.core.constraint import ANYWHERE, Rules
from sexton.core.query import Subject
from sexton.core.resources import Resources
from sexton.core.strategy import Strategy


class Why(StrEnum):
    """Why a host was passed over, in the words of the API's ``failures``."""

    AGENT = "AGENT"  # its agent is not connected
    INACTIVE = "INACTIVE"  # it is draining or going away
    ATTRIBUTE = "ATTRIBUTE"  # it lacks something the task needs
    MEMBER_OF = "MemberOf placement constraint unsatisfied."
    DISTINCT = "DistinctInstance placement constraint unsatisfied."
    CPU = "RESOURCE:CPU"
    MEMORY = "RESOURCE:MEMORY"
    PORTS = "RESOURCE:PORTS"
    INTERFACE = "RESOURCE:ENI"  # no subnet has an address left for it
    GPU = "RESOURCE:GPU"


class Host(Subject, frozen=True, kw_only=True, gc=False):
    """One container instance as placement sees it: what expressions may ask, and what is taken of it."""

    arn: str
    active: bool
    capacity: Resources
    used_ports: Resources
    used: Resources
    tasks: int

    @property
    def left(self) -> Resources:
        have, used = self.capacity, self.used
        return Resources(cpu=have.cpu - used.cpu, memory=have.memory - used.memory, gpus=have.gpus - used.gpus)


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """A task that needs a host: what it takes, what the host must offer and be, and which hosts it likes best."""

    demand: Resources
    required: frozenset[str] = frozenset()
    group: str = ""
    rules: Rules = ANYWHERE
    strategies: tuple[Strategy, ...] = ()


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """Why one host cannot take the task; ``detail`` says in a sentence what is missing."""

    arn: str
    why: Why
    detail: str = ""


def refuse(
    host: Host, demand: Resources, required: Collection[str], rules: Rules = ANYWHERE, group: str = ""
) -> Refusal | None:
    """Why this host cannot take the task, or None."""
    if not host.active:
        return Refusal(arn=host.arn, why=Why.INACTIVE, detail="it is draining or going away")
    if not host.connected:
        return Refusal(arn=host.arn, why=Why.AGENT, detail="its agent is not connected")
    if not host.attributes.issuperset(required):
        missing = sorted(set(required) - host.attributes)
        return Refusal(arn=host.arn, why=Why.ATTRIBUTE, detail="it lacks " + ", ".join(missing))
    if rules.queries:
        unmet = rules.unmet(host)
        if unmet:
            return Refusal(arn=host.arn, why=Why.MEMBER_OF, detail=f"does not match: {unmet}")
    if rules.distinct and host.groups.get(group):
        return Refusal(arn=host.arn, why=Why.DISTINCT, detail=f"a task of group {group} is on it already")
    return _short(host, demand)


def _short(host: Host, demand: Resources) -> Refusal | None:
    """What there is too little of."""
    left = host.left
    if demand.cpu <= left.cpu and demand.memory <= left.memory and not (demand.tcp or demand.udp or demand.gpus):
        return None
    taken = resources.add(host.used_ports, host.used)
    short = resources.lacking(left, taken, demand)
    if not short:
        return None
    sentences = []
    for what in map(Why, short):
        if what is Why.CPU:
            sentences.append(f"needs {demand.cpu} CPU units, {left.cpu} left")
        elif what is Why.MEMORY:
            sentences.append(f"needs {demand.memory} MiB, {left.memory} MiB left")
        elif what is Why.GPU:
            sentences.append(f"needs {demand.gpus} GPUs, {left.gpus} left")
        else:
            ports = [f"{port}/tcp" for port in sorted(demand.tcp & taken.tcp)]
            ports += [f"{port}/udp" for port in sorted(demand.udp & taken.udp)]
            sentences.append(f"needs ports that are taken: {', '.join(ports)}")
    return Refusal(arn=host.arn, why=Why(short[0]), detail="; ".join(sentences))


def choose(
    hosts: Sequence[Host], demand: Resources, required: Collection[str]
) -> tuple[Host | None, tuple[Refusal, ...]]:
    """The best host, or None with a reason for every host.

    Without a strategy tasks spread: fewest tasks first, then most memory left, then the ARN, so that equal input
    always gives the equal answer.
    """
    refusals = []
    fitting = []
    for host in hosts:
        refusal = refuse(host, demand, required)
        if refusal is None:
            fitting.append(host)
        else:
            refusals.append(refusal)
    if not fitting:
        return None, tuple(refusals)
    return min(fitting, key=lambda host: (host.tasks, -host.left.memory, host.arn)), ()


def occupy(host: Host, demand: Resources, group: str = "") -> Host:
    """The host once the task is on it."""
    return msgspec.structs.replace(
        host,
        used=resources.add(host.used, demand),
        tasks=host.tasks + 1,
        groups=_counted(host.groups, group, 1),
    )


def vacate(host: Host, demand: Resources, group: str = "") -> Host:
    """The host once the task is gone from it."""
    used = Resources(
        cpu=host.used.cpu - demand.cpu,
        memory=host.used.memory - demand.memory,
        tcp=host.used.tcp - demand.tcp,
        udp=host.used.udp - demand.udp,
        gpus=host.used.gpus - demand.gpus,
    )
    return msgspec.structs.replace(
        host,
        used=used,
        tasks=host.tasks - 1,
        groups=_counted(host.groups, group, -1),
    )


def _counted(groups: Mapping[str, int], group: str, change: int) -> Mapping[str, int]:
    if not group:
        return groups
    count = groups.get(group, 0) + change
    rest = {name: number for name, number in groups.items() if name != group}
    return rest | {group: count} if count else rest
