"""Moving tasks of a steady REPLICA service between zones, so that no zone holds two more than another.

A move starts first and stops afterwards: so many tasks beyond the desired count are started in the emptiest zone, and
once they are healthy ``replica`` stops as many in the fullest. It needs a maximum above the desired count, and yields
to everything else: to a deployment, to a task that is lost, to protection. A move that does not come to its end is
given up and not tried again for a while. What is under way is in the service's ``Memory``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from sexton.core import servicewords as words
from sexton.core import verdict
from sexton.core.crew import Crew
from sexton.core.deployment import Bounds
from sexton.core.pace import Pace
from sexton.core.serviceview import Memory, Rebalance, Terms
from sexton.core.speech import Speech


def _held(primary: Crew, zones: Sequence[str]) -> Counter[str]:
    """Tasks by zone, empty zones included; tasks of no known zone are not counted."""
    held = Counter(dict.fromkeys(zones, 0))
    held.update(task.zone for task in primary.good if task.zone)
    return held


def _wanted(primary: Crew, zones: Sequence[str], room: int, now: float) -> tuple[str, int]:
    """The zone to fill and the tasks to move there; none when the service is as even as it can be."""
    held = _held(primary, zones)
    movable = Counter(task.zone for task in primary.good if task.zone and task.protected_until <= now)
    if len(held) < 2 or not zones:
        return "", 0
    emptiest = min(zones, key=lambda zone: (held[zone], zone))
    fullest = max(movable, key=lambda zone: (held[zone], zone), default=emptiest)
    moves = (held[fullest] - held[emptiest]) // 2
    return emptiest, min(moves, room, movable[fullest])


def next_move(
    service: str,
    crews: Sequence[Crew],
    terms: Terms,
    zones: Sequence[str],
    limits: Bounds,
    current: Rebalance | None,
    speech: Speech,
    pace: Pace,
    now: float,
) -> Rebalance | None:
    """The move that is to be under way from now on."""
    primary = crews[0]
    if current is not None and current.extra:
        if len(primary.good) >= terms.desired + current.extra:
            return None  # they are there: replica takes the surplus from where most are
        lost = not terms.rebalancing or not primary.state.completed or len(crews) > 1
        if lost or now >= current.since + pace.rebalance_patience:
            return Rebalance(since=now)
        return current
    if current is not None and now < current.since + pace.rebalance_patience:
        return current
    if not (terms.rebalancing and verdict.steady(crews, terms.desired)):
        return None
    zone, moves = _wanted(primary, zones, limits.maximum - terms.desired, now)
    if moves > 0:
        speech.lasts("unbalanced", words.unbalanced(service, _held(primary, zones)))
        return Rebalance(zone=zone, extra=moves, since=now)
    if speech.lasted("unbalanced"):
        speech.say(words.balanced(service, _held(primary, zones)))
    return None


def refused(memory: Memory, now: float) -> Memory:
    """The memory once a start that named a zone found no room there; the shell stores it and says ``unplaced``.

    The deployment is none the worse for it: ``breaker.not_placed`` is not for these.
    """
    return Memory(said=memory.said, rebalance=Rebalance(since=now))
