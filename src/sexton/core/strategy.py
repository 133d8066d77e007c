"""Placement strategies: which of the hosts that can take a task should.

Strategies are tried in their order: the first keeps the hosts it likes best, the next chooses among those, and so
on. Where the last one still leaves several, a host with fewer tasks wins, then one with more memory left (after
binpack: one that is already used, so that no fresh host is opened), then the lesser ARN, so that equal input always
gives the equal answer. Without a strategy, that last rule alone decides.

``Ranking`` turns this into numbers that an index can hold. What a strategy says of a host depends on that host alone
(its remaining memory, the group's tasks on it), except for a spread over an attribute, which depends on the group's
tasks on *all* hosts with that attribute's value. So hosts are kept in buckets by those values, inside a bucket by
their own numbers, and the two are only put together for the best host of each bucket.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

import msgspec

from sexton.core.constraint import RuleError
from sexton.core.query_tree import ATTRIBUTE
from sexton.core.resources import Resources
from sexton.wire import ecs
from sexton.wire.ecs import PlacementStrategyType

# The API's own limit.
MOST_STRATEGIES = 5
INSTANCE = "instanceId"
ZONE = "attribute:ecs.availability-zone"
_SAME_AS_INSTANCE = ("instanceid", "host")
_PACKED = ("cpu", "memory")


class Strategy(msgspec.Struct, frozen=True):
    """One strategy; ``field`` is ``cpu``, ``memory``, ``instanceId``, ``attribute:NAME`` or, for random, empty."""

    type: PlacementStrategyType
    field: str = ""


# What ECS does for a service that names no strategy.
SERVICE_DEFAULT = (Strategy(PlacementStrategyType.SPREAD, ZONE),)


def of_request(given: Sequence[ecs.PlacementStrategy] | None) -> tuple[Strategy, ...]:
    """The strategies of a request, or ``RuleError``."""
    if len(given or ()) > MOST_STRATEGIES:
        raise RuleError(f"cannot use more than {MOST_STRATEGIES} placement strategies")
    return tuple(_strategy(one, f"placementStrategy[{index}]") for index, one in enumerate(given or ()))


def _strategy(given: ecs.PlacementStrategy, where: str) -> Strategy:
    field = given.field or ""
    match given.type:
        case PlacementStrategyType.RANDOM:
            return Strategy(PlacementStrategyType.RANDOM)  # the API lets it carry a field, without a meaning
        case PlacementStrategyType.BINPACK:
            if field.lower() not in _PACKED:
                raise RuleError(f"cannot use {where}: binpack needs the field cpu or memory, not '{field}'")
            return Strategy(PlacementStrategyType.BINPACK, field.lower())
        case PlacementStrategyType.SPREAD:
            if field.lower() in _SAME_AS_INSTANCE:
                return Strategy(PlacementStrategyType.SPREAD, INSTANCE)
            if not field.startswith(ATTRIBUTE) or field == ATTRIBUTE:
                raise RuleError(f"cannot use {where}: spread needs instanceId, host or attribute:NAME, not '{field}'")
            return Strategy(PlacementStrategyType.SPREAD, field)
    raise RuleError(f"cannot use {where}: type must be random, spread or binpack, not '{given.type or ''}'")


class Rankable(Protocol):
    """What of a host decides its rank."""

    @property
    def capacity(self) -> Resources: ...
    @property
    def used(self) -> Resources: ...
    @property
    def tasks(self) -> int: ...


Rank = tuple[int, ...]
_Measure = Callable[[Rankable, int], int]


class _Place(NamedTuple):
    """Where one number of a full rank comes from: the host's own rank, or its bucket's totals."""

    bucket: bool
    at: int


class Ranking:
    """Strategies as numbers; the least is the best.

    ``attributes`` are those spread over, in order; ``random`` tells whether chance decides between equal hosts.
    """

    __slots__ = ("_measures", "_places", "attributes", "random")

    def __init__(self, strategies: Sequence[Strategy]) -> None:
        self.attributes: tuple[str, ...] = ()
        self.random = False
        self._measures: list[_Measure] = []
        self._places: list[_Place] = []
        packs = False
        for one in dict.fromkeys(strategies):
            if one.type is PlacementStrategyType.RANDOM:
                self.random = True
                return  # chance leaves nothing to decide
            if one.type is PlacementStrategyType.BINPACK:
                packs = True
                self._measure(_cpu_left if one.field == "cpu" else _memory_left)
                continue
            if one.field == INSTANCE:
                self._measure(_of_group)
            else:
                self._places.append(_Place(True, len(self.attributes)))
                self.attributes += (one.field.removeprefix(ATTRIBUTE),)
        if packs:
            self._measure(_most_tasks)
        else:
            self._measure(_fewest_tasks)
            self._measure(_most_memory)

    def _measure(self, measure: _Measure) -> None:
        self._places.append(_Place(False, len(self._measures)))
        self._measures.append(measure)

    def own(self, host: Rankable, of_group: int) -> Rank:
        """The numbers of the host itself; ``of_group`` counts the group's tasks on it."""
        return tuple([measure(host, of_group) for measure in self._measures])

    def full(self, totals: Sequence[int], own: Rank) -> Rank:
        """The whole rank, with the group's tasks over the hosts that share each attribute."""
        return tuple(self._full(totals, own)) if totals else own

    def _full(self, totals: Sequence[int], own: Rank) -> Iterator[int]:
        for place in self._places:
            yield totals[place.at] if place.bucket else own[place.at]


def _cpu_left(host: Rankable, _: int) -> int:
    return host.capacity.cpu - host.used.cpu


def _memory_left(host: Rankable, _: int) -> int:
    return host.capacity.memory - host.used.memory


def _of_group(_: Rankable, of_group: int) -> int:
    return of_group


def _fewest_tasks(host: Rankable, _: int) -> int:
    return host.tasks


def _most_tasks(host: Rankable, _: int) -> int:
    return -host.tasks


def _most_memory(host: Rankable, _: int) -> int:
    return host.used.memory - host.capacity.memory
