"""The live tasks of each deployment, sorted by what they are good for; and the ledger of what is to be stopped.

Every scheduling strategy works on these two: ``Crew`` says what there is, ``Stops`` collects what must go. ``Stops``
alone guards the promises that hold for all of them: a healthy task goes only while more than the minimum are healthy,
and one that runs only while more than the minimum run (newer ones count for it once they are healthy), a protected
task stays, and no task is chosen twice.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from sexton.core import scalein
from sexton.core.deployment import Deployment
from sexton.core.pace import Pace
from sexton.core.servicetask import ServiceTask, Stage, Standing, serving, standing
from sexton.core.serviceview import StopTasks, StopWhy

UNHEALTHY = "Task failed container health checks"


class Crew(NamedTuple):
    """A deployment and its tasks that have not ended."""

    state: Deployment
    good: list[ServiceTask]
    fresh: list[ServiceTask]
    bad: list[ServiceTask]
    leaving_good: list[ServiceTask]  # healthy, on a host that is going away
    leaving_poor: list[ServiceTask]
    stopping: list[ServiceTask]

    @property
    def staying(self) -> int:
        """Tasks that count towards what the deployment should hold."""
        return len(self.good) + len(self.fresh)

    @property
    def live(self) -> int:
        return self.staying + len(self.bad) + len(self.leaving_good) + len(self.leaving_poor)

    @property
    def present(self) -> int:
        return self.live + len(self.stopping)

    @property
    def healthy(self) -> int:
        return len(self.good) + len(self.leaving_good)


def crews(
    deployments: Sequence[Deployment], tasks: Iterable[ServiceTask], *, pace: Pace, grace: float, now: float
) -> list[Crew]:
    """One crew per deployment, in their order. The tasks are sorted, so that the order of a listing decides nothing."""
    found = [Crew(one, [], [], [], [], [], []) for one in deployments]
    by_id = {crew.state.id: crew for crew in found}
    for task in sorted(tasks, key=lambda one: (one.created_at, one.id)):
        crew = by_id.get(task.deployment)
        if task.stage == Stage.STOPPED or crew is None:
            continue
        if task.stage == Stage.STOPPING:
            crew.stopping.append(task)
            continue
        match standing(task, pace, grace, now):
            case Standing.GOOD:
                (crew.leaving_good if task.leaving else crew.good).append(task)
            case Standing.FRESH:
                (crew.leaving_poor if task.leaving else crew.fresh).append(task)
            case Standing.BAD:
                (crew.leaving_poor if task.leaving else crew.bad).append(task)
    return found


class Stops:
    """The tasks chosen to be stopped in one decision. Lives only while the decision is made."""

    def __init__(self, crews: Sequence[Crew], minimum: int, now: float) -> None:
        self.spare = max(0, sum(crew.healthy for crew in crews) - minimum)  # healthy tasks that may still go
        # Tasks that run and have yet to prove themselves serve as well: whoever waited only until all of them ran
        # and then changes the service must not lose them for nothing. How many of each deployment may still go:
        self._unproven_spare = _unproven_spare(crews, minimum)
        self._protected: dict[str, set[str]] = {}  # tasks that would have gone, by deployment
        self._now = now
        self._chosen: set[str] = set()
        self._lists: dict[tuple[str, StopWhy], list[str]] = {}
        self.bad: list[ServiceTask] = []  # those stopped because they are unhealthy

    def __len__(self) -> int:
        return len(self._chosen)

    def left(self, tasks: Sequence[ServiceTask]) -> int:
        """How many of these stay."""
        return sum(task.id not in self._chosen for task in tasks)

    def take(
        self, crew: Crew, tasks: Sequence[ServiceTask], count: int, why: StopWhy, among: Iterable[ServiceTask]
    ) -> int:
        """Choose up to ``count`` of these so that ``among`` stays evenly spread; returns how many were chosen."""
        if count <= 0 or not tasks:
            return 0
        healthy = tasks is crew.good or tasks is crew.leaving_good
        taken = 0
        for task in scalein.evenly(tasks, among):
            if taken >= count:
                break
            taken += self.take_one(crew, task, why, healthy=healthy)
        return taken

    def take_one(self, crew: Crew, task: ServiceTask, why: StopWhy, *, healthy: bool) -> bool:
        """Choose this task if it may go; returns whether it was chosen."""
        if task.id in self._chosen or (healthy and not self.spare):
            return False
        unproven = not healthy and serving(task)
        if unproven and self._unproven_spare[crew.state.id] <= 0:
            return False
        # Protection is from scaling and deployments; an unhealthy task is replaced all the same.
        if task.protected_until > self._now and why != StopWhy.UNHEALTHY:
            self._protected.setdefault(crew.state.id, set()).add(task.id)
            return False
        self._chosen.add(task.id)
        self._lists.setdefault((crew.state.id, why), []).append(task.id)
        if why == StopWhy.UNHEALTHY:
            self.bad.append(task)
        if healthy:
            self.spare -= 1
        if healthy or unproven:
            self._one_less(crew, healthy=healthy)
        return True

    def _one_less(self, crew: Crew, *, healthy: bool) -> None:
        """A task that serves goes: a healthy one is missed by all deployments, another by its own and newer ones."""
        for deployment in self._unproven_spare:
            self._unproven_spare[deployment] -= 1
            if deployment == crew.state.id and not healthy:
                break

    @property
    def held(self) -> dict[str, int]:
        """How many protected tasks stood in the way, by deployment."""
        return {deployment: len(tasks) for deployment, tasks in self._protected.items()}

    def result(self) -> tuple[StopTasks, ...]:
        return tuple(
            StopTasks(deployment, tuple(tasks), why, UNHEALTHY if why == StopWhy.UNHEALTHY else scaling(deployment))
            for (deployment, why), tasks in self._lists.items()
        )


def _unproven_spare(crews: Sequence[Crew], minimum: int) -> dict[str, int]:
    """How many tasks of each deployment may go that run and are not healthy yet; from the newest to the oldest.

    Such a task is made up for by those of its own or an older deployment that run, and by whatever is healthy. What
    runs of a newer deployment is no replacement before it is healthy: the new revision may be about to fail.
    """
    found = {}
    count = sum(crew.healthy for crew in crews)
    for crew in reversed(crews):
        count += sum(serving(task) for task in (*crew.fresh, *crew.leaving_poor))
        found[crew.state.id] = count - minimum
    return dict(reversed(found.items()))


def ended(tasks: Iterable[ServiceTask]) -> tuple[str, ...]:
    """The ids of the tasks that have ended."""
    return tuple(sorted(task.id for task in tasks if task.stage == Stage.STOPPED))


def strays(known: Collection[str], tasks: Iterable[ServiceTask]) -> tuple[StopTasks, ...]:
    """Stops for live tasks that belong to nothing known: whoever started them has been forgotten meanwhile."""
    found: dict[str, list[str]] = {}
    for task in tasks:
        if task.live and task.deployment not in known:
            found.setdefault(task.deployment, []).append(task.id)
    return tuple(
        StopTasks(deployment, tuple(sorted(found[deployment])), StopWhy.SCALING, scaling(deployment))
        for deployment in sorted(found)
    )


def scaling(deployment: str) -> str:
    """The reason of a task that its service no longer needs."""
    return f"Scaling activity initiated by (deployment {deployment})"
