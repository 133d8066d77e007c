"""REPLICA services: so many tasks, wherever there is room; and the rolling exchange of one revision for another.

The PRIMARY deployment should hold the whole desired count, and the older ones what of it the PRIMARY does not yet
serve with healthy tasks. Each decision moves as far towards that as the bounds allow:

- starts never bring the tasks that are there (those still stopping included) above the maximum;
- a stop never takes the healthy ones below the minimum; what was below already is not made worse;
- what runs and is not healthy yet goes only while more than the minimum run, and what is newer than it counts for that
  once it is healthy;
- a replacement comes first and what it replaces goes once it is healthy. Only when there is no room for the
  replacement does something go first: the unhealthy one at a time, then as many healthy ones as the minimum spares;
- a task lost from an older deployment that had completed is replaced by its own revision, so that a new revision that
  does not start takes nothing away from what serves.

Everything is counted from the tasks at hand, so a decision made again before the last one shows is the same one, and
one that finds nothing to do finds nothing again. The cost is that of sorting the service's tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sexton.core.breaker import may_start
from sexton.core.crew import Crew, Stops
from sexton.core.deployment import Bounds
from sexton.core.servicetask import Health, ServiceTask, Stage
from sexton.core.serviceview import StartTasks, StopTasks, StopWhy


class Plan(NamedTuple):
    """What a strategy wants done."""

    starts: tuple[StartTasks, ...]
    stops: tuple[StopTasks, ...]
    bad: tuple[ServiceTask, ...]  # of the stopped, those that are unhealthy: failures of their deployment
    desired: dict[str, int]  # what each deployment should hold from now on
    held: dict[str, int]  # protected tasks that stand in the way
    stuck: bool  # the bounds leave no way to go on
    waiting: int  # tasks that should be started and cannot be yet


class Extra(NamedTuple):
    """Tasks beyond the desired count that a move between zones needs for a while."""

    tasks: int
    zone: str


NO_EXTRA = Extra(0, "")


def plan(
    crews: Sequence[Crew],
    target: int,
    limits: Bounds,
    *,
    now: float,
    room_since: float,
    extra: Extra = NO_EXTRA,
    surplus_why: StopWhy = StopWhy.SCALING,
) -> Plan:
    """The next move of a service whose first crew is the PRIMARY's."""
    return _Round(crews, target, limits, now, room_since, extra).play(surplus_why)


class _Round:
    """One decision in the making."""

    def __init__(
        self, crews: Sequence[Crew], target: int, limits: Bounds, now: float, room_since: float, extra: Extra
    ) -> None:
        self.primary, self.others = crews[0], crews[1:]
        self.crews = crews
        self.target = target
        self.limits = limits
        self.now = now
        self.room_since = room_since
        self.extra = extra
        self.stops = Stops(crews, limits.minimum, now)
        self.among = [task for crew in crews for task in (*crew.good, *crew.fresh)]
        self.goals: dict[str, int] = {}
        self.starts: dict[str, int] = {}

    def play(self, surplus_why: StopWhy) -> Plan:
        self._drop_at_once()
        self._thin_out_others()
        self._set_goals()
        self._start()
        for crew in self.crews:
            self._retire(crew)
        self._thin_out_primary(surplus_why)
        lack = self._make_room()
        moving = self.starts or len(self.stops) or any(crew.stopping or crew.fresh for crew in self.crews)
        return Plan(
            starts=self._started(),
            stops=self.stops.result(),
            bad=tuple(self.stops.bad),
            desired={**self.goals, self.primary.state.id: self.target},
            held=self.stops.held,
            stuck=lack > 0 and not moving and not self.primary.state.unplaced_at,
            waiting=max(0, self.goals[self.primary.state.id] - self.primary.staying) - self._starting(self.primary),
        )

    def _drop_at_once(self) -> None:
        """What nobody waits for: tasks not yet started on a host that goes, sick ones nobody will replace."""
        for crew in self.crews:
            pending = [task for task in crew.leaving_poor if task.stage == Stage.STARTING]
            self.stops.take(crew, pending, len(pending), StopWhy.LEAVING, pending)
            if crew.state.frozen:
                self.stops.take(crew, crew.bad, len(crew.bad), StopWhy.UNHEALTHY, crew.bad)

    def _thin_out_others(self) -> None:
        """Older tasks that the PRIMARY's healthy ones have made superfluous."""
        live = sum(self.stops.left(tasks) for crew in self.others for tasks in _by_worth(crew))
        self._stop_others(live - self._left_to_others())

    def _left_to_others(self) -> int:
        """How much of the desired count the PRIMARY does not serve yet."""
        return max(0, self.target - len(self.primary.good))

    def _ranked(self) -> list[Crew]:
        """The older crews, those that never came to completion first: they serve worst."""
        return sorted(self.others, key=lambda crew: (crew.state.completed, crew.state.created_at))

    def _proven(self) -> list[Crew]:
        """The older crews whose tasks may be expected to become healthy."""
        return [crew for crew in self.others if crew.state.completed]

    def _stop_others(self, count: int, fresh: int | None = None) -> int:
        """Stop so many older tasks, the least useful first; ``fresh`` limits those expected to become healthy."""
        done = 0
        for tier in range(len(_by_worth(self.primary))):
            for crew in self._ranked():
                tasks = _by_worth(crew)[tier]
                most = count - done
                limited = fresh is not None and tasks is crew.fresh and crew.state.completed
                if fresh is not None and limited:
                    most = min(most, fresh)
                why = StopWhy.UNHEALTHY if tasks is crew.bad else StopWhy.SCALING
                taken = self.stops.take(crew, tasks, most, why, self.among)
                if fresh is not None and limited:
                    fresh -= taken
                if crew.state.id in self.goals:
                    self.goals[crew.state.id] = max(0, self.goals[crew.state.id] - taken)
                done += taken
        return done

    def _set_goals(self) -> None:
        state = self.primary.state
        self.goals[state.id] = (
            min(self.target, self.primary.staying) if state.frozen else self.target + self.extra.tasks
        )
        open_ = self._left_to_others()
        for crew in self._ranked():
            staying = self.stops.left(crew.good) + self.stops.left(crew.fresh)
            # Only a revision that has proved itself is started anew; of the others what is there is what there is.
            goal = min(crew.state.desired, open_) if crew.state.completed else staying
            self.goals[crew.state.id] = goal
            open_ = max(0, open_ - goal)

    def _start(self) -> None:
        room = max(0, self.limits.maximum - sum(crew.present for crew in self.crews))
        missing = {crew.state.id: self._missing(crew) for crew in self.crews}
        # What keeps up the minimum comes first, then the new revision, then the rest of the older ones.
        assured = sum(crew.healthy for crew in self.crews) + sum(len(crew.fresh) for crew in self._proven())
        urgent = max(0, self.limits.minimum - assured)
        for crew in self.others:
            count = min(missing[crew.state.id], room, urgent)
            self._add(crew, count)
            room, urgent = room - count, urgent - count
        for crew in self.crews:
            count = min(missing[crew.state.id] - self._starting(crew), room)
            self._add(crew, count)
            room -= count

    def _missing(self, crew: Crew) -> int:
        if not may_start(crew.state, self.room_since, self.now):
            return 0
        return max(0, self.goals[crew.state.id] - self.stops.left(crew.good) - self.stops.left(crew.fresh))

    def _add(self, crew: Crew, count: int) -> None:
        if count > 0:
            self.starts[crew.state.id] = self._starting(crew) + count

    def _starting(self, crew: Crew) -> int:
        return self.starts.get(crew.state.id, 0)

    def _retire(self, crew: Crew) -> None:
        """The sick and the leaving go once healthy replacements make up the goal."""
        leaving = self.stops.left(crew.leaving_poor) + self.stops.left(crew.leaving_good)
        over = self.stops.left(crew.good) + self.stops.left(crew.bad) + leaving - self.goals[crew.state.id]
        over -= self.stops.take(crew, crew.bad, over, StopWhy.UNHEALTHY, self.among)
        over -= self.stops.take(crew, crew.leaving_poor, over, StopWhy.LEAVING, self.among)
        self.stops.take(crew, crew.leaving_good, over, StopWhy.LEAVING, self.among)

    def _thin_out_primary(self, why: StopWhy) -> None:
        crew = self.primary
        over = crew.staying - self.goals[crew.state.id]
        sick = [task for task in crew.fresh if task.health == Health.UNHEALTHY]
        starting = [task for task in crew.fresh if task.stage == Stage.STARTING]
        for tasks in (sick, starting, crew.fresh, crew.good):
            over -= self.stops.take(crew, tasks, over, why, self.among)

    def _make_room(self) -> int:
        """Let something go where its replacement finds no room; returns how many starts still wait for room."""
        crew = self.primary
        state = crew.state
        if state.unplaced_at and not state.frozen and not may_start(state, self.room_since, self.now):
            lack = self.goals[state.id] - crew.staying  # the maximum leaves room, but the cluster has none
        else:
            lack = self._missing(crew) - self._starting(crew)
        coming = len(self.stops) + sum(len(one.stopping) for one in self.crews)
        lack -= coming
        if lack <= 0:
            return 0
        if not coming and crew.bad and not any(one.bad for one in self.others):
            lack -= self.stops.take(crew, crew.bad, 1, StopWhy.UNHEALTHY, self.among)
        lack -= self.stops.take(crew, crew.leaving_poor, lack, StopWhy.LEAVING, self.among)
        lack -= self.stops.take(crew, crew.leaving_good, lack, StopWhy.LEAVING, self.among)
        assured = sum(one.healthy for one in self.crews) + sum(self.stops.left(one.fresh) for one in self._proven())
        lack -= self._stop_others(lack, fresh=max(0, assured - self.limits.minimum))
        return lack

    def _started(self) -> tuple[StartTasks, ...]:
        found = []
        for crew in self.crews:
            count = self._starting(crew)
            replaced = min(count, len(crew.bad))
            moving = min(count, self.extra.tasks) if crew is self.primary else 0
            if count > moving:
                found.append(StartTasks(crew.state.id, count - moving, replaces_unhealthy=replaced))
            if moving:
                found.append(StartTasks(crew.state.id, moving, zone=self.extra.zone))
        return tuple(found)


def _by_worth(crew: Crew) -> tuple[list[ServiceTask], ...]:
    """A crew's live tasks in groups, those first that are worth least."""
    return crew.bad, crew.leaving_poor, crew.fresh, crew.leaving_good, crew.good
