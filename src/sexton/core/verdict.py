"""What becomes of the PRIMARY deployment: it goes on, is given up, gives way to an earlier one, or is done.

``judge`` comes first in a decision, on the counts as they stand; ``finish`` comes last, when it is known what every
deployment holds. Both carry the service deployment's record along, so that the two never tell different stories.

A deployment fails through the circuit breaker or a user's request. With rollback, the newest earlier deployment that
had completed becomes PRIMARY again, under its own id, and must come to completion anew; it cannot be what a further
rollback goes to before that. Without rollback, or with nothing to go back to (a first deployment), it stays PRIMARY,
FAILED, and starts nothing any more: what runs goes on running, until an update begins another deployment.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from sexton.core import breaker as breakers
from sexton.core import rollout as rollouts
from sexton.core import servicewords as words
from sexton.core.breaker import Breaker
from sexton.core.crew import Crew
from sexton.core.deployment import Deployment, RolloutState, Status, candidate, primary_first
from sexton.core.serviceview import Rollback
from sexton.core.speech import Speech
from sexton.wire import ecs

TRIPPED = "ECS deployment circuit breaker: tasks failed to start."


class Verdict(NamedTuple):
    deployments: tuple[Deployment, ...]  # PRIMARY first
    rollout: ecs.ServiceDeployment | None
    rollback: Rollback | None


def judge(
    service: str,
    deployments: Sequence[Deployment],
    rollout: ecs.ServiceDeployment | None,
    breaker: Breaker,
    target: int,
    speech: Speech,
    now: float,
) -> Verdict:
    """Whether the PRIMARY deployment goes on."""
    primary, *others = deployments
    if rollout is not None and rollout.status == rollouts.Status.PENDING:
        rollout = rollouts.moved(rollout, rollouts.Status.IN_PROGRESS, now)
    status = rollout.status if rollout is not None else None
    if status == rollouts.Status.STOP_REQUESTED:
        speech.say(words.halted(service, primary.id))
        return _give_up(primary, others, rollout, rollouts.Status.STOPPED, rollouts.ABORTED, rollouts.ABORTED, now)
    asked = status == rollouts.Status.ROLLBACK_REQUESTED
    if not asked and not breakers.tripped(primary, breaker, target):
        return Verdict(tuple(deployments), rollout, None)

    speech.say(words.halted(service, primary.id) if asked else words.failed(service, primary.id))
    reason = rollouts.BY_USER if asked else TRIPPED
    back = candidate(others)
    if asked and back is None:
        # A user may want any earlier one; the breaker only trusts what has proved itself.
        back = next((one for one in others if not one.frozen), None)
    going_back = status == rollouts.Status.ROLLBACK_IN_PROGRESS
    if not (asked or breaker.rollback or going_back):
        return _give_up(primary, others, rollout, rollouts.Status.STOPPED, reason, rollouts.FAILED, now)
    if going_back or back is None:
        missing = rollouts.NOTHING_TO_GO_BACK_TO if asked else rollouts.NO_CANDIDATE
        text = rollouts.AGAIN_FAILED if going_back else missing
        return _give_up(primary, others, rollout, rollouts.Status.ROLLBACK_FAILED, reason, text, now)

    speech.say(words.rolling_back(service, back.id))
    failed = msgspec.structs.replace(
        primary, status=Status.ACTIVE, rollout=RolloutState.FAILED, reason=reason, updated_at=now
    )
    if rollout is not None:
        why = rollouts.BY_USER if asked else rollouts.EXCEEDED
        rollout = rollouts.going_back(rollouts.watched(rollout, failed, breaker, target), back.revision, why, now)
    who = "ECS deployment" if asked else "ECS deployment circuit breaker"
    again = msgspec.structs.replace(
        back,
        status=Status.PRIMARY,
        rollout=RolloutState.IN_PROGRESS,
        reason=f"{who}: rolling back to deploymentId {back.id}.",
        updated_at=now,
        desired=target,
        failed_tasks=0,
        strikes=0,
        struck_at=now,
        not_before=0.0,
        unplaced_at=0.0,
    )
    rest = (failed, *(one for one in others if one.id != back.id))
    return Verdict(primary_first((again, *rest)), rollout, Rollback(primary.id, back.id, back.revision, reason))


def _give_up(
    primary: Deployment,
    others: Sequence[Deployment],
    rollout: ecs.ServiceDeployment | None,
    status: rollouts.Status,
    reason: str,
    text: str,
    now: float,
) -> Verdict:
    failed = msgspec.structs.replace(primary, rollout=RolloutState.FAILED, reason=reason, updated_at=now)
    after = rollouts.moved(rollout, status, now, text) if rollout is not None else None
    return Verdict((failed, *others), after, None)


def done(crews: Sequence[Crew], target: int) -> bool:
    """Whether the PRIMARY serves the whole desired count, and nothing of the earlier ones is there any more."""
    primary, *others = crews
    return len(primary.good) >= target and not any(crew.present for crew in others)


def steady(crews: Sequence[Crew], target: int) -> bool:
    """Whether nothing at all is left to do or to wait for."""
    primary = crews[0]
    return done(crews, target) and primary.state.completed and primary.present == len(primary.good) == target


def finish(
    service: str,
    primary: Deployment,
    crews: Sequence[Crew],
    rollout: ecs.ServiceDeployment | None,
    target: int,
    speech: Speech,
    now: float,
) -> tuple[Deployment, ecs.ServiceDeployment | None]:
    """The PRIMARY deployment and its record, COMPLETED if it is done."""
    if primary.rollout != RolloutState.IN_PROGRESS or not done(crews, target):
        return primary, rollout
    speech.say(words.completed(service, primary.id))
    primary = msgspec.structs.replace(
        primary, rollout=RolloutState.COMPLETED, reason=f"ECS deployment {primary.id} completed.", updated_at=now
    )
    if rollout is not None and not rollouts.over(rollout):
        back = rollout.status in rollouts.GOING_BACK
        rollout = rollouts.moved(
            rollout, rollouts.Status.ROLLBACK_SUCCESSFUL if back else rollouts.Status.SUCCESSFUL, now
        )
    return primary, rollout
