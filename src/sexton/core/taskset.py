"""EXTERNAL services: somebody else decides what runs; this keeps every task set at its share of the desired count.

Each task set is reconciled alone, by the same rules as a REPLICA service with one revision and ECS's default bounds,
which matter when a host drains. Which task set is PRIMARY is a label for whoever shifts traffic: nothing here reads
it. A DRAINING task set holds nothing, and is gone once its last task has ended.

``ScaledSet.state`` is the durable part, the same value that a deployment keeps: failures, back-off, desired count.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from sexton.core import breaker, replica
from sexton.core import servicewords as words
from sexton.core.crew import Crew, crews, ended, strays
from sexton.core.deployment import Deployment, bounds, counts
from sexton.core.pace import Pace
from sexton.core.servicetask import ServiceTask
from sexton.core.serviceview import Decision, Memory, ScaledSet, ServiceView, StartTasks, StopTasks
from sexton.core.speech import UNPLACED, Speech
from sexton.core.waiting import next_look, reasons
from sexton.wire import ecs

Stability = ecs.StabilityStatus

# ECS lets nobody choose these for an EXTERNAL service; they bound how its tasks leave a draining host.
MINIMUM_PERCENT, MAXIMUM_PERCENT = 100, 200


def computed(desired: int, scale_percent: float) -> int:
    """A task set's share of the desired count, rounded up. The inner rounding keeps 30 % of 10 from being 4."""
    return math.ceil(round(desired * scale_percent / 100, 6))


def begin(*, set_id: str, revision: str, desired: int, scale_percent: float, now: float) -> ScaledSet:
    """A new task set. ``desired`` is the service's."""
    share = computed(desired, scale_percent)
    state = Deployment(id=set_id, revision=revision, created_at=now, updated_at=now, desired=share)
    return ScaledSet(state=state, scale_percent=scale_percent)


def decide(view: ServiceView, now: float) -> Decision:
    """What to do for every task set."""
    speech = Speech(view.memory.said, view.pace, now)
    starts: list[StartTasks] = []
    stops: list[StopTasks] = []
    changed: list[ScaledSet] = []
    gone: list[str] = []
    every: list[Crew] = []
    why: list[str] = []
    by_set: dict[str, list[ServiceTask]] = {one.state.id: [] for one in view.task_sets}
    for task in view.tasks:
        if task.deployment in by_set:
            by_set[task.deployment].append(task)
    still = True
    for one in view.task_sets:
        tasks = by_set[one.state.id]
        target = 0 if one.draining else computed(view.terms.desired, one.scale_percent)
        after, crew, plan = _reconcile(view, one, tasks, target, now)
        every.append(crew)
        if one.draining and not crew.present:
            gone.append(one.state.id)
            continue
        _speak(view.name, one, after, plan, speech, view.pace)
        if after != one:
            changed.append(after)
        still = still and after.stability == Stability.STEADY_STATE
        starts += plan.starts
        stops += plan.stops
        why += reasons(plan, [crew], bounds(target, MINIMUM_PERCENT, MAXIMUM_PERCENT), now)
    if not any(crew.state.unplaced_at for crew in every):
        speech.lasted(UNPLACED)
    speech.lasting("steady", words.steady(view.name) if still and view.task_sets else None)
    memory = Memory(said=speech.said)
    return Decision(
        starts=tuple(starts),
        stops=(*stops, *strays(by_set, view.tasks)),
        task_sets=tuple(changed),
        task_sets_gone=tuple(gone),
        memory=memory if memory != view.memory else None,
        accounted=ended(view.tasks),
        events=tuple(speech.events),
        next_look_at=next_look(view, every, speech.next_at, None, now),
        why=tuple(why),
        counts={one.state.id: counts(by_set[one.state.id]) for one in view.task_sets},
    )


def _reconcile(
    view: ServiceView, one: ScaledSet, tasks: Sequence[ServiceTask], target: int, now: float
) -> tuple[ScaledSet, Crew, replica.Plan]:
    state = breaker.account(one.state, tasks, reset_on_healthy=True, pace=view.pace, now=now)
    state = msgspec.structs.replace(state, desired=target)
    (crew,) = crews([state], tasks, pace=view.pace, grace=view.terms.grace, now=now)
    plan = replica.plan(
        [crew], target, bounds(target, MINIMUM_PERCENT, MAXIMUM_PERCENT), now=now, room_since=view.room_since
    )
    for task in plan.bad:
        state = breaker.failure(state, task, pace=view.pace, now=now)
    even = len(crew.good) == crew.live == target and not one.draining
    stability = Stability.STEADY_STATE if even else Stability.STABILIZING
    return msgspec.structs.replace(one, state=state, stability=stability), crew, plan


def _speak(service: str, before: ScaledSet, after: ScaledSet, plan: replica.Plan, speech: Speech, pace: Pace) -> None:
    name = after.state.id
    if after.state.desired != before.state.desired:
        speech.say(words.recomputed(service, name, after.state.desired))
    for task in plan.bad:
        speech.say(words.unhealthy(service, task.id))
    for stop in plan.stops:
        speech.say(words.stopped(service, stop.tasks, task_set=name))
    if after.stability == Stability.STEADY_STATE and before.stability != after.stability:
        speech.say(words.set_steady(service, name))
    failing = after.state.strikes >= pace.impaired_after
    speech.lasting(f"impaired {name}", words.impaired(service, task_set=name) if failing else None)
    held = plan.held.get(name, 0)
    speech.lasting(f"protected {name}", words.protected(service, name, held) if held else None)
