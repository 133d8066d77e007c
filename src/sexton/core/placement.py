"""Which host runs a task: filter, then score.

Input is what is known of every host at this moment; output is the chosen one, or for each host why not. The first
reason of a host is the one a person can act on, so the filters run from "cannot be reached" to "is full".
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import StrEnum

import msgspec

from sexton.core import resources
from sexton.core.resources import Resources


class Why(StrEnum):
    """Why a host was passed over, in the words of the API's ``failures``."""

    AGENT = "AGENT"  # its agent is not connected
    INACTIVE = "INACTIVE"  # it is draining or going away
    ATTRIBUTE = "ATTRIBUTE"  # it lacks something the task needs
    CPU = "RESOURCE:CPU"
    MEMORY = "RESOURCE:MEMORY"
    PORTS = "RESOURCE:PORTS"


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """One container instance as placement sees it."""

    arn: str
    active: bool
    connected: bool
    attributes: frozenset[str]
    capacity: Resources
    used_ports: Resources
    used: Resources
    tasks: int

    @property
    def left(self) -> Resources:
        return Resources(cpu=self.capacity.cpu - self.used.cpu, memory=self.capacity.memory - self.used.memory)


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """Why one host cannot take the task; ``detail`` names the attribute where that is the reason."""

    arn: str
    why: Why
    detail: str = ""


def refuse(host: Host, demand: Resources, required: Collection[str]) -> Refusal | None:
    """Why this host cannot take the task, or None."""
    if not host.active:
        return Refusal(arn=host.arn, why=Why.INACTIVE)
    if not host.connected:
        return Refusal(arn=host.arn, why=Why.AGENT)
    missing = sorted(set(required) - host.attributes)
    if missing:
        return Refusal(arn=host.arn, why=Why.ATTRIBUTE, detail=", ".join(missing))
    taken = resources.add(host.used_ports, host.used)
    short = resources.lacking(host.left, taken, demand)
    return Refusal(arn=host.arn, why=Why(short[0])) if short else None


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


def occupy(host: Host, demand: Resources) -> Host:
    """The host once the task is on it."""
    return msgspec.structs.replace(host, used=resources.add(host.used, demand), tasks=host.tasks + 1)
