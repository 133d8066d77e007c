"""Which tasks to stop first, so that what stays is spread evenly.

ECS documents the order by place: from the zone with most tasks of the service, there from the host with most. Before
that, what is worth least goes: the unhealthy, then those that have not started, then those that have not settled.
Among equals the youngest goes, because connections and caches are older elsewhere (ECS documents no rule for that).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from sexton.core.servicetask import ServiceTask


def evenly(tasks: Sequence[ServiceTask], among: Iterable[ServiceTask]) -> list[ServiceTask]:
    """The tasks in the order to stop them. ``among``: all tasks that count for the spread, these included.

    Equal to choosing one at a time from the fullest zone and host, but sorted once: every task is ranked by what its
    host, and then its zone, would still hold when its turn comes.
    """
    on_host: Counter[str] = Counter()
    in_zone: Counter[str] = Counter()
    for task in among:
        on_host[task.host] += 1
        in_zone[task.zone] += 1
    youngest = sorted(tasks, key=lambda task: (-task.created_at, task.id))
    ranked = []
    for task in youngest:
        ranked.append((-on_host[task.host], task))
        on_host[task.host] -= 1
    # The sort is stable: within one rank the youngest stays first.
    ranked.sort(key=lambda pair: pair[0])
    ordered = []
    for host_rank, task in ranked:
        ordered.append((-in_zone[task.zone], host_rank, task))
        in_zone[task.zone] -= 1
    ordered.sort(key=lambda entry: entry[:2])
    return [task for _, _, task in ordered]
