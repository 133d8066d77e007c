"""All hosts of one cluster, held ready for placing.

In flow hosts as they change: registered, connected, filled, emptied, gone. Out come hosts for tasks. The board keeps
a lane for each kind of task it was asked for lately; a lane is brought up to date with the hosts that changed since
it was last used, so repeating an order costs next to nothing, and a new kind of order one look at every host.

The board decides nothing by time or chance (draws are arguments), and its answers depend only on the hosts as they
are, never on how they came to be so. Nothing survives a restart: whoever holds it puts every host in anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from sexton.core.lane import Lane
from sexton.core.placement import Host, Refusal, Wanted, occupy, refuse, vacate
from sexton.wire.ecs import PlacementStrategyType

# Ranks kept over all lanes, about 150 bytes each: 128 kinds of task on a thousand hosts. A lane that had to go is
# built anew when its kind comes back, at the price of one look at every host.
MOST_RANKS = 128_000
# However many hosts there are, so many kinds of task may take turns.
FEWEST_LANES = 8
# However few hosts there are; lanes nobody uses any more should not be kept for ever.
MOST_LANES = 512


class Placement(NamedTuple):
    """The hosts of the tasks that found one, in order; and, if one did not, why no host could take it."""

    arns: tuple[str, ...]
    refusals: tuple[Refusal, ...] = ()


class Board:
    """Hosts by ARN, and lanes over them."""

    def __init__(self) -> None:
        self._hosts: dict[str, Host] = {}
        # When each host last changed, the latest last; what a lane has not seen is at the end.
        self._changed: dict[str, int] = {}
        self._changes = 0
        # The latest used last.
        self._lanes: dict[Wanted, Lane] = {}

    def __len__(self) -> int:
        return len(self._hosts)

    def __iter__(self) -> Iterator[Host]:
        return iter(self._hosts.values())

    def get(self, arn: str) -> Host | None:
        return self._hosts.get(arn)

    def put(self, host: Host) -> None:
        """The host as it is now, whatever was known of it before."""
        if self._hosts.get(host.arn) == host:
            return
        self._hosts[host.arn] = host
        self._changes += 1
        self._changed.pop(host.arn, None)
        self._changed[host.arn] = self._changes

    def drop(self, arn: str) -> None:
        """The host is no longer of this cluster."""
        if self._hosts.pop(arn, None) is not None:
            del self._changed[arn]
            for lane in self._lanes.values():
                lane.drop(arn)

    def occupy(self, arn: str, wanted: Wanted) -> None:
        """A task goes onto the host."""
        self.put(occupy(self._hosts[arn], wanted.demand, wanted.group))

    def release(self, arn: str, wanted: Wanted) -> None:
        """A task that went onto the host is gone, or did not come after all."""
        host = self._hosts.get(arn)
        if host is not None:
            self.put(vacate(host, wanted.demand, wanted.group))

    def refusal(self, arn: str, wanted: Wanted) -> Refusal | None:
        """Why this one host cannot take the task, or None; for a task whose host was named."""
        return refuse(self._hosts[arn], wanted.demand, wanted.required, wanted.rules, wanted.group)

    def choose(self, wanted: Wanted, draw: float = 0.0) -> str | None:
        """The best host for one task, or None; nothing changes by asking."""
        return self._lane(wanted).best(draw)

    def refusals(self, wanted: Wanted) -> tuple[Refusal, ...]:
        """Why not, for every host that cannot take the task now, by ARN."""
        return self._lane(wanted).refusals()

    def place(self, wanted: Wanted, draws: Sequence[float]) -> Placement:
        """Hosts for as many equal tasks as there are draws (from 0 to below 1), each occupied as it is found.

        Whoever does not keep one in the end releases it, or puts the host as it really is.
        """
        arns: list[str] = []
        for draw in draws:
            arn = self.choose(wanted, draw)
            if arn is None:
                return Placement(tuple(arns), self.refusals(wanted))
            self.occupy(arn, wanted)
            arns.append(arn)
        return Placement(tuple(arns))

    def _most_lanes(self) -> int:
        return max(FEWEST_LANES, min(MOST_LANES, MOST_RANKS // max(1, len(self._hosts))))

    def _lane(self, wanted: Wanted) -> Lane:
        """The lane of this kind of task, up to date."""
        kind = wanted if _grouped(wanted) else msgspec.structs.replace(wanted, group="")
        lane = self._lanes.pop(kind, None)
        if lane is None:
            lane = Lane(kind)
            while len(self._lanes) >= self._most_lanes():
                del self._lanes[next(iter(self._lanes))]
        self._lanes[kind] = lane
        for arn in reversed(self._changed):
            if self._changed[arn] <= lane.seen:
                break
            lane.put(self._hosts[arn])
        lane.seen = self._changes
        return lane


def _grouped(wanted: Wanted) -> bool:
    """Whether it matters which group the task is of; else all groups share a lane."""
    return wanted.rules.distinct or any(one.type is PlacementStrategyType.SPREAD for one in wanted.strategies)
