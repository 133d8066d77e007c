"""What a service is waiting for, in sentences; and when to look at it again though nothing has happened.

Every wait has a reason. The sentences are for ``sexton why`` and the console; they are made from the plan that was
just decided and from nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence

from sexton.core.crew import Crew
from sexton.core.deployment import Bounds
from sexton.core.replica import Plan
from sexton.core.servicetask import changes_at
from sexton.core.serviceview import Rebalance, ServiceView


def _tasks(count: int) -> str:
    return "1 task" if count == 1 else f"{count} tasks"


def reasons(plan: Plan, crews: Sequence[Crew], limits: Bounds, now: float) -> list[str]:
    """Why the service is not done, the first crew being the PRIMARY's."""
    state = crews[0].state
    said = []
    if state.frozen:
        said.append(f"Deployment {state.id} has failed and starts nothing any more: {state.reason}")
    if plan.waiting > 0:
        many = _tasks(plan.waiting)
        if state.unplaced_at:
            said.append(f"{many} of {state.id} found no room on any host for {now - state.unplaced_at:.0f} s.")
        elif now < state.not_before:
            said.append(
                f"{many} of {state.id} will be started in {state.not_before - now:.0f} s: "
                f"{state.strikes} starts in a row have failed."
            )
        else:
            said.append(f"{many} of {state.id} wait for others to end: at most {limits.maximum} may exist at once.")
    fresh = sum(len(crew.fresh) for crew in crews)
    if fresh:
        said.append(f"{_tasks(fresh)} not healthy yet; at least {limits.minimum} must stay healthy.")
    stopping = sum(len(crew.stopping) for crew in crews)
    if stopping:
        said.append(f"{_tasks(stopping)} stopping.")
    held = sum(plan.held.values())
    if held:
        said.append(f"{_tasks(held)} protected from being stopped.")
    if plan.stuck and not held:
        said.append(
            f"Nothing may be started or stopped: at most {limits.maximum} tasks may exist and at least "
            f"{limits.minimum} must stay healthy."
        )
    return said


def next_look(
    view: ServiceView, crews: Sequence[Crew], say_at: float | None, move: Rebalance | None, now: float
) -> float | None:
    """The next moment at which time alone changes something."""
    moments = [say_at]
    for crew in crews:
        moments.append(crew.state.not_before)
        for tasks in (crew.good, crew.fresh, crew.bad, crew.leaving_good, crew.leaving_poor):
            moments += [changes_at(task, view.pace, view.terms.grace, now) for task in tasks]
    if move is not None:
        moments.append(move.since + view.pace.rebalance_patience)
    return min((moment for moment in moments if moment is not None and moment > now), default=None)
