"""Task sets as the scheduler's shell and the API see them.

The scheduler keeps for a task set what it keeps for a deployment, so starting tasks, failing and waiting work in one
way for both. Which of the two an id means is decided here; everything else asks for the state of an id.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from sexton.control.records import ServiceRecord, TaskSetRecord
from sexton.core.deployment import Counts, Deployment
from sexton.core.serviceview import Decision
from sexton.wire import ecs


def state_of(record: ServiceRecord, crew: str) -> Deployment | None:
    """What the scheduler keeps of the deployment or task set with this id."""
    states = (*record.deployments, *(one.scaled.state for one in record.task_sets))
    return next((one for one in states if one.id == crew), None)


def with_state(record: ServiceRecord, state: Deployment) -> ServiceRecord:
    """The service with this state in the place of its deployment's or task set's own."""
    return msgspec.structs.replace(
        record,
        deployments=tuple(state if one.id == state.id else one for one in record.deployments),
        task_sets=tuple(
            msgspec.structs.replace(one, scaled=msgspec.structs.replace(one.scaled, state=state))
            if one.id == state.id
            else one
            for one in record.task_sets
        ),
    )


def decided(record: ServiceRecord, decision: Decision, now: float) -> tuple[TaskSetRecord, ...]:
    """The service's task sets once a decision is carried out."""
    changed = {one.state.id: one for one in decision.task_sets}
    after = []
    for one in record.task_sets:
        if one.id in decision.task_sets_gone or decision.ended:
            continue
        scaled = changed.get(one.id)
        if scaled is not None:
            shown = one.shown
            if scaled.stability != shown.stability_status:
                shown = msgspec.structs.replace(
                    shown, stability_status=str(scaled.stability), stability_status_at=now, updated_at=now
                )
            one = msgspec.structs.replace(one, scaled=scaled, shown=shown)
        after.append(one)
    return tuple(after)


def shown(record: ServiceRecord, held: Mapping[str, Counts], *, tags: bool) -> tuple[ecs.TaskSet, ...]:
    """The task sets as the API shows them, with the tasks that they have now."""
    return tuple(_counted(one, held.get(one.id, Counts(0, 0)), tags=tags) for one in record.task_sets)


def _counted(one: TaskSetRecord, held: Counts, *, tags: bool) -> ecs.TaskSet:
    return msgspec.structs.replace(
        one.shown,
        computed_desired_count=one.scaled.state.desired,
        running_count=held.running,
        pending_count=held.pending,
        tags=one.shown.tags or () if tags else None,
    )
