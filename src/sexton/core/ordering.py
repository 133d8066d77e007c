"""Which of a task's containers have to wait for which others: before they are made, and before they are stopped.

An edge says that one container depends on another: from ``dependsOn`` with its condition, from ``volumesFrom`` (the
source must have been made) and from ``links`` (the target must have been started). A container is made only once all
its edges are satisfied, and stopped only once everything that depends on it is over. What can never be satisfied any
more is said as an event that ends the waiting container, so that nothing waits for ever; a task whose edges run in a
circle is refused before it begins.

Pure: a task, what is known of it and the time go in; the steps that may be taken now, the ends that follow from the
edges, and who waits for whom come out.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from sexton.core import task as core
from sexton.core.task import ContainerStatus, DesiredTask, Event, Happened, KnownContainer, KnownTask, Move, Step
from sexton.wire import acs_task

# What a shell gives a process that was told to end; the exit code of a container whose dependency failed.
DEPENDENCY_FAILED = 143
# Whoever waits is looked at again this soon, whatever events may have been lost.
LOOK_SECONDS = 5.0


class Condition(StrEnum):
    """What has to be true of the other container. CREATE is the agent's own."""

    CREATE = "CREATE"
    START = "START"
    COMPLETE = "COMPLETE"
    SUCCESS = "SUCCESS"
    HEALTHY = "HEALTHY"


# A dependency's startTimeout bounds the wait for these; having been started is no matter of time.
_TIMED = frozenset({Condition.COMPLETE, Condition.SUCCESS, Condition.HEALTHY})


class Edge(NamedTuple):
    """``container`` waits until ``condition`` is true of ``on``."""

    container: str
    on: str
    condition: Condition


class Outlook(NamedTuple):
    """``waits`` holds the first unsatisfied edge of each container that may not move."""

    moves: tuple[Move, ...]
    ends: tuple[Event, ...]
    waits: tuple[Edge, ...]


def link_parts(link: str) -> tuple[str, str]:
    """The target of a link and the name under which it is seen."""
    target, _, alias = link.partition(":")
    return target, alias or target


def edges(task: acs_task.Task) -> tuple[Edge, ...]:
    """Every edge of a task; an unknown condition is a ValueError."""
    found: list[Edge] = []
    for one in task.containers or ():
        name = one.name or ""
        found += [
            Edge(name, wait.container_name or "", Condition(wait.condition or "")) for wait in one.depends_on or ()
        ]
        found += [Edge(name, source.source_container or "", Condition.CREATE) for source in one.volumes_from or ()]
        found += [Edge(name, link_parts(link)[0], Condition.START) for link in one.links or ()]
    return tuple(dict.fromkeys(found))


def resolvable(task: acs_task.Task) -> bool:
    """Whether there is an order in which every container can be started."""
    containers = {one.name or "": one for one in task.containers or ()}
    try:
        every = edges(task)
    except ValueError:
        return False
    for edge in every:
        target = containers.get(edge.on)
        if target is None or (edge.condition is Condition.HEALTHY and target.health_check_type != "docker"):
            return False
    waits = {name: {edge.on for edge in every if edge.container == name} for name in containers}
    while waits:
        free = [name for name, needs in waits.items() if not needs & waits.keys()]
        if not free:
            return False
        for name in free:
            del waits[name]
    return True


def outlook(
    desired: DesiredTask, known: KnownTask, ages: Mapping[str, float], now: float, *, upfront: bool = False
) -> Outlook:
    """What may be done now. ``ages`` are seconds since the first start of each container, counted by a clock that
    nobody sets; ``upfront``: images are pulled without waiting for other containers."""
    moves = core.plan(desired, known)
    if not moves:
        return Outlook((), (), ())
    try:
        every = edges(desired.task)
    except ValueError:  # refused at its acceptance by this version; what an older one left may only end
        every = ()
    if not every:
        return Outlook(moves, (), ())
    if core.ends(desired, known):
        return _stopping(known, moves, every)
    return _starting(desired.task, known, moves, every, ages, now, upfront=upfront)


def _stopping(known: KnownTask, moves: tuple[Move, ...], every: tuple[Edge, ...]) -> Outlook:
    live = {one.name for one in known.containers if one.status is not ContainerStatus.STOPPED}
    held = {edge.on: edge for edge in every if edge.container in live and edge.container != edge.on}
    free = tuple(move for move in moves if move.container not in held)
    if not free:  # a circle that nothing here made: better out of order than never
        return Outlook(moves, (), ())
    return Outlook(free, (), tuple(held[move.container] for move in moves if move.container in held))


def _starting(
    task: acs_task.Task,
    known: KnownTask,
    moves: tuple[Move, ...],
    every: tuple[Edge, ...],
    ages: Mapping[str, float],
    now: float,
    *,
    upfront: bool,
) -> Outlook:
    gated = {Step.CREATE} if upfront else {Step.PULL, Step.CREATE}
    timeouts = {one.name or "": one.start_timeout for one in task.containers or ()}
    by_name = {one.name: one for one in known.containers}
    free: list[Move] = []
    over: list[Event] = []
    waits: list[Edge] = []
    for move in moves:
        open_edges = [edge for edge in every if edge.container == move.container and not _satisfied(edge, by_name)]
        failed = next((text for edge in open_edges if (text := _hopeless(edge, by_name, timeouts, ages))), "")
        if failed and by_name[move.container].status.rank < ContainerStatus.CREATED.rank:
            over.append(
                Event(
                    container=move.container,
                    happened=Happened.GAVE_UP,
                    time=now,
                    exit_code=DEPENDENCY_FAILED,
                    error=f"CannotStartContainerError: dependency graph: {failed}",
                )
            )
        elif open_edges and move.step in gated:
            waits.append(open_edges[0])
        else:
            free.append(move)
    return Outlook(tuple(free), tuple(over), tuple(waits))


def _satisfied(edge: Edge, containers: Mapping[str, KnownContainer]) -> bool:
    on = containers.get(edge.on)
    if on is None:
        return False
    match edge.condition:
        case Condition.CREATE:
            return on.status.rank >= ContainerStatus.CREATED.rank and bool(on.runtime_id)
        case Condition.START:
            return on.status is ContainerStatus.RUNNING or (on.status is ContainerStatus.STOPPED and _started(on))
        case Condition.COMPLETE:
            return on.status is ContainerStatus.STOPPED and _started(on) and on.exit_code is not None
        case Condition.SUCCESS:
            return on.status is ContainerStatus.STOPPED and _started(on) and on.exit_code == 0
        case Condition.HEALTHY:
            return on.status is ContainerStatus.RUNNING and on.health is not None and on.health.status == "HEALTHY"


def _started(one: KnownContainer) -> bool:
    return bool(one.started_at)


def _hopeless(
    edge: Edge,
    containers: Mapping[str, KnownContainer],
    timeouts: Mapping[str, int | None],
    ages: Mapping[str, float],
) -> str:
    """Why an unsatisfied edge will never be satisfied, or nothing."""
    on = containers.get(edge.on)
    if on is None:
        return f"{edge.container} waits for {edge.on}, which is no container of this task"
    if on.status is not ContainerStatus.STOPPED:
        limit = timeouts.get(edge.on)
        if limit and edge.condition in _TIMED and ages.get(edge.on, 0.0) >= limit:
            return (
                f"{edge.container} waited for {edge.on} to be {edge.condition}, "
                f"which has timed out: its startTimeout is {limit} s"
            )
        return ""
    if not _started(on):
        return f"{edge.container} waits for {edge.on}, which will never start"
    if edge.condition is Condition.SUCCESS:
        return f"{edge.container} waits for the success of {edge.on}, which ended with exit code {on.exit_code}"
    if edge.condition is Condition.COMPLETE:
        return f"{edge.container} waits for the end of {edge.on}, which ended without an exit code"
    if edge.condition is Condition.HEALTHY:
        return f"{edge.container} waits for {edge.on} to be healthy, which ended before"
    return f"{edge.container} waits for {edge.on}, which is gone"
