"""ECS services as decisions: a service at one moment goes in, what to do about it comes out.

    ServiceView --decide--> Decision --applied by the shell--> records, tasks --> the next ServiceView

There is no clock, no randomness and no memory of its own here; the same view at the same time gives the same
decision, so any control plane may make it, and make it again. A decision is small: it goes as far as it can without
waiting, and the shell decides anew when a task changes, when a record changes, and at ``next_look_at``.

What the shell does with a ``Decision``, in this order:

1. ``stores``: write ``deployments``, ``rollout``, ``task_sets`` and ``memory``, delete ``inactive`` and
   ``task_sets_gone``, append ``events``, mark the tasks in ``accounted`` as counted (they are not shown again), set
   the service INACTIVE if ``ended``, and with a ``rollback`` take over the revision it names. One transaction, on the
   condition that the records are as they were when the view was made.
2. ``stops``: the tasks' desired status becomes STOPPED, with the reason given. May be the same transaction.
3. ``starts``: place and create the tasks (``started_by`` is the deployment's id, the group ``service:NAME``). Then
   say ``servicewords.started`` for those placed, and store ``breaker.placed`` of the deployment; if any was refused
   store ``breaker.not_placed`` instead, and what ``speech.unplaced`` makes of the memory and of
   ``servicewords.unplaced``. A refused start that named a zone only changes the memory (``rebalance.refused``).

Since decisions count what is there, a crash between the steps costs nothing: what is missing is decided again. What
survives a restart is in the values that ``stores`` covers.

Around it: ``deployment.begin`` when an update needs a new deployment (``deployment.needs_deployment`` says whether it
does; end the ongoing record with ``rollout.supersede``), ``rollout.request_stop`` for StopServiceDeployment,
``taskset.begin`` for CreateTaskSet. CODE_DEPLOY services are refused where they would be created.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from sexton.core import breaker, perhost, rebalance, replica, taskset, verdict
from sexton.core import rollout as rollouts
from sexton.core import servicewords as words
from sexton.core.crew import Crew, crews, ended, scaling, strays
from sexton.core.deployment import Bounds, Deployment, bounds, candidate, counts, primary_first
from sexton.core.replica import Extra, Plan
from sexton.core.servicetask import ServiceTask, Stage
from sexton.core.serviceview import Decision, Memory, Rebalance, ServiceView, StopTasks, StopWhy
from sexton.core.speech import UNPLACED, Speech
from sexton.core.waiting import next_look, reasons


def decide(view: ServiceView, now: float) -> Decision:
    """What to do about this service now."""
    if view.deleting:
        return _wind_down(view)
    if view.terms.external:
        return taskset.decide(view, now)
    if not view.deployments:
        return Decision(stops=strays((), view.tasks), why=("The service has no deployment.",))
    return _reconcile(view, now)


def _reconcile(view: ServiceView, now: float) -> Decision:
    terms = view.terms
    target = len(view.hosts) if terms.daemon else terms.desired
    limits = bounds(target, terms.minimum_percent, terms.maximum_percent)
    speech = Speech(view.memory.said, view.pace, now)
    by_deployment = _by_deployment(view)

    judged = verdict.judge(
        view.name, _accounted(view, by_deployment, now), view.rollout, terms.breaker, target, speech, now
    )
    deployments = _grown(judged.deployments, target)
    found = crews(deployments, view.tasks, pace=view.pace, grace=terms.grace, now=now)

    move = view.memory.rebalance
    if not terms.daemon:
        move = rebalance.next_move(view.name, found, terms, view.zones, limits, move, speech, view.pace, now)
    plan = _planned(view, found, target, limits, move, now)

    primary, *others = (_after(one, plan, view, now) for one in deployments)
    rollout = judged.rollout
    if judged.rollback is None:  # a rollback that finds everything in place is still seen to be under way for a moment
        primary, rollout = verdict.finish(view.name, primary, found, rollout, target, speech, now)
    if rollout is not None:
        rollout = rollouts.watched(rollout, primary, terms.breaker, target)
    found[0] = found[0]._replace(state=primary)
    kept, inactive = _kept(primary, others, found[1:])

    _speak(view, found, plan, target, speech)
    memory = Memory(said=speech.said, rebalance=move)
    before = {one.id: one for one in view.deployments}
    return Decision(
        starts=plan.starts,
        stops=plan.stops + strays(by_deployment, view.tasks),
        deployments=tuple(one for one in (primary, *kept) if before.get(one.id) != one),
        inactive=inactive,
        rollback=judged.rollback,
        rollout=rollout if rollout != view.rollout else None,
        memory=memory if memory != view.memory else None,
        accounted=ended(view.tasks),
        events=tuple(speech.events),
        next_look_at=next_look(view, found, speech.next_at, move, now),
        why=tuple(reasons(plan, found, limits, now)),
        counts={one.id: counts(by_deployment[one.id]) for one in deployments},
    )


def _by_deployment(view: ServiceView) -> dict[str, list[ServiceTask]]:
    """The tasks of each deployment, in the order of the deployments."""
    found: dict[str, list[ServiceTask]] = {one.id: [] for one in view.deployments}
    for task in view.tasks:
        if task.deployment in found:
            found[task.deployment].append(task)
    return found


def _accounted(view: ServiceView, by_deployment: dict[str, list[ServiceTask]], now: float) -> tuple[Deployment, ...]:
    """The deployments, PRIMARY first, with what their tasks have done since they were last looked at."""
    reset = view.terms.breaker.reset_on_healthy
    return primary_first(
        [
            breaker.account(one, by_deployment[one.id], reset_on_healthy=reset, pace=view.pace, now=now)
            for one in view.deployments
        ]
    )


def _grown(deployments: Sequence[Deployment], target: int) -> list[Deployment]:
    """A service that grows during a deployment grows in what serves it as well: the new revision may never start."""
    primary, *others = deployments
    back = candidate(others)
    more = target - primary.desired
    if back is None or more <= 0 or primary.completed:
        return [primary, *others]
    grown = msgspec.structs.replace(back, desired=back.desired + more)
    return [primary, *(grown if one.id == back.id else one for one in others)]


def _planned(
    view: ServiceView, found: Sequence[Crew], target: int, limits: Bounds, move: Rebalance | None, now: float
) -> Plan:
    if view.terms.daemon:
        return perhost.plan(found, view.hosts, limits.minimum, now=now, room_since=view.room_since)
    moved = view.memory.rebalance is not None and view.memory.rebalance.extra > 0 and move is None
    return replica.plan(
        found,
        target,
        limits,
        now=now,
        room_since=view.room_since,
        extra=Extra(move.extra, move.zone) if move else replica.NO_EXTRA,
        surplus_why=StopWhy.REBALANCING if moved else StopWhy.SCALING,
    )


def _after(deployment: Deployment, plan: Plan, view: ServiceView, now: float) -> Deployment:
    """The deployment once the plan is carried out; what was stopped as unhealthy has failed."""
    for task in plan.bad:
        if task.deployment == deployment.id:
            deployment = breaker.failure(deployment, task, pace=view.pace, now=now)
    desired = plan.desired.get(deployment.id, deployment.desired)
    return deployment if desired == deployment.desired else msgspec.structs.replace(deployment, desired=desired)


def _kept(
    primary: Deployment, others: Sequence[Deployment], found: Sequence[Crew]
) -> tuple[tuple[Deployment, ...], tuple[str, ...]]:
    """The older deployments to keep, and the ids of those to forget: they hold nothing, and nothing goes back there."""
    back = None if primary.completed else candidate(others)
    kept = []
    inactive = []
    for one, crew in zip(others, found, strict=True):
        if crew.present or (back is not None and one.id == back.id):
            kept.append(one)
        else:
            inactive.append(one.id)
    return tuple(kept), tuple(inactive)


def _speak(view: ServiceView, found: Sequence[Crew], plan: Plan, target: int, speech: Speech) -> None:
    for task in plan.bad:
        speech.say(words.unhealthy(view.name, task.id))
    zones = {task.id: task.zone for task in found[0].good}
    for stop in plan.stops:
        if stop.why != StopWhy.REBALANCING:
            speech.say(words.stopped(view.name, stop.tasks))
            continue
        for zone in sorted({zones.get(task, "") for task in stop.tasks}):
            speech.say(
                words.stopped_for_balance(view.name, [task for task in stop.tasks if zones.get(task, "") == zone], zone)
            )
    failing = found[0].state.strikes >= view.pace.impaired_after
    speech.lasting("impaired", words.impaired(view.name) if failing else None)
    if not any(crew.state.unplaced_at for crew in found):
        speech.lasted(UNPLACED)
    for crew in found:
        held = plan.held.get(crew.state.id, 0)
        text = words.protected(view.name, crew.state.id, held) if held else None
        speech.lasting(f"protected {crew.state.id}", text)
    speech.lasting("stuck", words.stuck(view.name) if plan.stuck and not plan.held else None)
    speech.lasting("steady", words.steady(view.name) if verdict.steady(found, target) else None)


def _wind_down(view: ServiceView) -> Decision:
    """A service that is being deleted stops everything, and is gone when nothing is there any more."""
    by_deployment: dict[str, list[str]] = {}
    present = 0
    for task in sorted(view.tasks, key=lambda one: (one.created_at, one.id)):
        present += task.stage != Stage.STOPPED
        if task.live:
            by_deployment.setdefault(task.deployment, []).append(task.id)
    stops = tuple(
        StopTasks(deployment, tuple(tasks), StopWhy.DELETING, scaling(deployment))
        for deployment, tasks in by_deployment.items()
    )
    return Decision(
        stops=stops,
        accounted=ended(view.tasks),
        events=tuple(words.stopped(view.name, stop.tasks) for stop in stops),
        ended=present == 0,
        why=(f"{present} tasks are still ending.",) if present else (),
    )
