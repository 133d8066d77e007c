"""Capacity providers as arithmetic: what a strategy allows, and how it divides tasks.

A strategy is a list of providers, each with a base (so many tasks at least, before anything else) and a weight (its
part of the rest). In come a strategy and a number of tasks, out comes how many each provider gets. The rest is
divided by largest remainder: everybody gets the whole part of what is due, and what is left over goes to those who
lack most of a whole one, the earlier in the strategy first. So equal input always gives the equal answer, and no
provider is ever a whole task away from its due.

Which hosts belong to a provider is said by an attribute of the host; see ``docs/capacity.md``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from sexton.wire import ecs

# The API's own limits, of a strategy and of the providers of one cluster.
MOST_PROVIDERS = 20
# A container instance with this attribute belongs to the provider that it names.
PROVIDER_ATTRIBUTE = "sexton.capacity-provider"


class Fargate(StrEnum):
    """The providers that exist without being made. Here they stand for every host of the cluster."""

    ON_DEMAND = "FARGATE"
    SPOT = "FARGATE_SPOT"


FARGATE = frozenset(map(str, Fargate))


class Share(NamedTuple):
    """One provider of a strategy."""

    provider: str
    base: int = 0
    weight: int = 0


def of_request(given: Sequence[ecs.CapacityProviderStrategyItem] | None) -> tuple[Share, ...]:
    return tuple(Share(one.capacity_provider or "", one.base or 0, one.weight or 0) for one in given or ())


def shown(strategy: Sequence[Share]) -> tuple[ecs.CapacityProviderStrategyItem, ...]:
    """A strategy as the API shows it, with the defaults filled in."""
    return tuple(
        ecs.CapacityProviderStrategyItem(capacity_provider=one.provider, base=one.base, weight=one.weight)
        for one in strategy
    )


def problem(strategy: Sequence[Share], members: Collection[str]) -> str:
    """Why this cannot be a strategy of a cluster with these providers; empty when it can."""
    named = [one.provider for one in strategy]
    if len(named) > MOST_PROVIDERS:
        return f"A capacity provider strategy can contain a maximum of {MOST_PROVIDERS} capacity providers."
    if len(set(named)) < len(named):
        return "A capacity provider strategy cannot contain the same capacity provider more than once."
    if not set(named) <= set(members):
        return (
            "The specified capacity provider strategy cannot contain a capacity provider that is not associated "
            "with the cluster. Associate the capacity provider with the cluster and try again."
        )
    if len({one in FARGATE for one in named}) > 1:
        return (
            "A capacity provider strategy cannot contain a mix of capacity providers using Auto Scaling groups and "
            "Fargate providers. Specify one or the other and try again."
        )
    if sum(one.base > 0 for one in strategy) > 1:
        return "Only one capacity provider in a capacity provider strategy can have a base defined."
    return ""


def usable(strategy: Sequence[Share]) -> bool:
    """Whether tasks can be started through a strategy at all: one without any weight cannot take the second."""
    return any(one.weight for one in strategy)


def divide(strategy: Sequence[Share], total: int) -> dict[str, int]:
    """How many of ``total`` tasks each provider gets, in the order of the strategy; ``usable`` must hold."""
    parts = {}
    left = total
    for one in strategy:
        parts[one.provider] = min(one.base, left)
        left -= parts[one.provider]
    weights = sum(one.weight for one in strategy)
    for one in strategy:
        parts[one.provider] += left * one.weight // weights
    over = total - sum(parts.values())
    by_remainder = sorted(strategy, key=lambda one: -(left * one.weight % weights))  # stable: the earlier goes first
    for one in by_remainder[:over]:
        parts[one.provider] += 1
    return parts


def assign(strategy: Sequence[Share], present: Mapping[str, int], more: int) -> tuple[str, ...]:
    """Through which providers to start ``more`` tasks when ``present`` of the same kind exist, one after the other.

    Each goes where most is lacking of the division that all of them together should have. Tasks that exist through
    providers outside the strategy count for nobody.
    """
    counts = {one.provider: present.get(one.provider, 0) for one in strategy}
    due = divide(strategy, sum(counts.values()) + more)
    chosen = []
    for _ in range(more):
        # There always is somebody who lacks one: the dues add up to more than the counts until the last is placed.
        provider = max(counts, key=lambda one: due[one] - counts[one])
        counts[provider] += 1
        chosen.append(provider)
    return tuple(chosen)


def provider_of(attributes: Sequence[ecs.Attribute] | None) -> str:
    """The provider that a container instance says it belongs to; empty when none."""
    return next((one.value or "" for one in attributes or () if one.name == PROVIDER_ATTRIBUTE), "")
