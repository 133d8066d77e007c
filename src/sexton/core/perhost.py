"""DAEMON services: one task on every host that meets the constraints, exchanged host by host.

There is never a second task beside the first on one host, so a new revision always takes the place of the old one:
the old task stops, and once it has ended the new one starts. How many hosts may be without a healthy task at a time
follows from the minimum percentage of the hosts; ECS's default for it is 0, all at once.

A host that is gone from the list (draining, or no longer meeting a constraint) loses its task and gets no other.
"""

from __future__ import annotations

from collections.abc import Sequence

from sexton.core.breaker import may_start
from sexton.core.crew import Crew, Stops
from sexton.core.replica import Plan
from sexton.core.servicetask import ServiceTask
from sexton.core.serviceview import DaemonHost, StartTasks, StopWhy


def plan(crews: Sequence[Crew], hosts: Sequence[DaemonHost], minimum: int, *, now: float, room_since: float) -> Plan:
    """The next move of a DAEMON service whose first crew is the PRIMARY's."""
    primary = crews[0]
    stops = Stops(crews, minimum, now)
    wanted = {host.arn: host for host in hosts}
    taken = {task.host for crew in crews for tasks in _all(crew) for task in tasks}
    keeper = _keepers(primary)

    for crew in crews:
        for tasks in (crew.bad, crew.leaving_poor, crew.fresh, crew.leaving_good, crew.good):
            misplaced = [task for task in tasks if task.leaving or task.host not in wanted]
            _stop(stops, crew, tasks, misplaced, StopWhy.LEAVING)
        if crew is primary:
            doubled = {task.id for tasks in (crew.fresh, crew.good) for task in tasks if keeper[task.host] != task.id}
            for tasks in (crew.fresh, crew.good):
                _stop(stops, crew, tasks, [task for task in tasks if task.id in doubled], StopWhy.SCALING)
    for crew in crews:
        stops.take(crew, crew.bad, len(crew.bad), StopWhy.UNHEALTHY, crew.bad)

    starting = may_start(primary.state, room_since, now)
    for crew in crews[1:]:
        for tasks in (crew.leaving_poor, crew.fresh, crew.leaving_good, crew.good):
            # Where the PRIMARY runs already the older task goes; elsewhere it makes way, if anything may come.
            here = [task for task in tasks if task.host in keeper]
            if starting:
                here += [task for task in tasks if task.host in wanted and wanted[task.host].ready]
            _stop(stops, crew, tasks, here, StopWhy.SCALING)

    free = [arn for arn, host in wanted.items() if host.ready and arn not in taken]
    starts = tuple(StartTasks(primary.state.id, 1, host=arn) for arn in sorted(free)) if starting else ()
    moving = starts or len(stops) or any(crew.stopping or crew.fresh for crew in crews)
    behind = sum(crew.live for crew in crews[1:])
    return Plan(
        starts=starts,
        stops=stops.result(),
        bad=tuple(stops.bad),
        desired={crew.state.id: len(wanted) if crew is primary else crew.live for crew in crews},
        held=stops.held,
        stuck=bool(behind) and not moving and not primary.state.frozen,
        waiting=0 if primary.state.frozen else len(free) - len(starts),
    )


def _all(crew: Crew) -> tuple[list[ServiceTask], ...]:
    return crew.good, crew.fresh, crew.bad, crew.leaving_good, crew.leaving_poor, crew.stopping


def _keepers(primary: Crew) -> dict[str, str]:
    """The one task to keep on each host: a healthy one if there is one, else the oldest."""
    keeper: dict[str, str] = {}
    for tasks in (primary.good, primary.fresh):
        for task in sorted(tasks, key=lambda one: (one.created_at, one.id)):
            keeper.setdefault(task.host, task.id)
    return keeper


def _stop(stops: Stops, crew: Crew, group: list[ServiceTask], tasks: list[ServiceTask], why: StopWhy) -> None:
    healthy = group is crew.good or group is crew.leaving_good
    for task in tasks:
        stops.take_one(crew, task, why, healthy=healthy)
