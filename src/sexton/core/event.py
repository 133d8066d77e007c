"""State changes in the shape that EventBridge gives them: what is an event, and how one reads.

In flow a record before and after a change; out flow the events that the change is, and later, when somebody reads
one, its whole text. What of a task is worth an event is its version: it counts up with every change that the API
shows. A service's events come from what it says of itself, a deployment's from its rollout state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import msgspec

from sexton.core.deployment import Deployment, RolloutState
from sexton.core.servicewords import PROBLEMS
from sexton.wire import ecs


class Kind(StrEnum):
    """The detail-type of an event."""

    TASK = "ECS Task State Change"
    INSTANCE = "ECS Container Instance State Change"
    SERVICE = "ECS Service Action"
    DEPLOYMENT = "ECS Deployment State Change"


Detail = dict[str, Any]

# Sentences of a service that ECS sends as events; the others are in the service's own list only.
_SPOKEN: tuple[tuple[str, str, str], ...] = (
    ("has reached a steady state", "INFO", "SERVICE_STEADY_STATE"),
    ("updated state to STEADY_STATE", "INFO", "TASKSET_STEADY_STATE"),
    ("unable to consistently start tasks", "WARN", "SERVICE_TASK_START_IMPAIRED"),
    ("unable to place a task", "ERROR", "SERVICE_TASK_PLACEMENT_FAILURE"),
)

_ROLLOUT: Mapping[str, tuple[str, str, str]] = {
    RolloutState.IN_PROGRESS: ("INFO", "SERVICE_DEPLOYMENT_IN_PROGRESS", "in progress"),
    RolloutState.COMPLETED: ("INFO", "SERVICE_DEPLOYMENT_COMPLETED", "completed"),
    RolloutState.FAILED: ("ERROR", "SERVICE_DEPLOYMENT_FAILED", "failed"),
}


def moment(seconds: float) -> str:
    """A time as events write it, to the millisecond."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _second(seconds: float) -> str:
    return datetime.fromtimestamp(int(seconds), UTC).isoformat().replace("+00:00", "Z")


def task_changed(before: ecs.Task | None, after: ecs.Task) -> bool:
    return before is None or before.version != after.version


def instance_changed(before: ecs.ContainerInstance | None, after: ecs.ContainerInstance) -> bool:
    return before is None or before.version != after.version


def task_detail(task: ecs.Task, at: float) -> Detail:
    """A task as it was at that moment. Its tags are not in it, as in ECS."""
    detail = _plain(msgspec.structs.replace(task, tags=None))
    return detail | {"updatedAt": moment(at)}


def instance_detail(instance: ecs.ContainerInstance, at: float) -> Detail:
    """A container instance, whose remaining resources the caller has filled in."""
    detail = _plain(msgspec.structs.replace(instance, tags=None))
    return detail | {"updatedAt": moment(at)}


def spoken(texts: Sequence[str], cluster_arn: str, at: float) -> list[Detail]:
    """The events among what a service has said, oldest first."""
    found = []
    for text in texts:
        for phrase, kind, name in _SPOKEN:
            if phrase in text:
                detail: Detail = {"eventType": kind, "eventName": name, "clusterArn": cluster_arn}
                reason = next((word for word, said in PROBLEMS.items() if said in text), "")
                if reason:
                    detail["reason"] = reason
                found.append(detail | {"createdAt": moment(at)})
                break
    return found


def desired_count_changed(before: ecs.Service, after: ecs.Service, at: float) -> list[Detail]:
    if (before.desired_count or 0) == (after.desired_count or 0):
        return []
    return [
        {
            "eventType": "INFO",
            "eventName": "SERVICE_DESIRED_COUNT_UPDATED",
            "clusterArn": after.cluster_arn or "",
            "desiredCount": after.desired_count or 0,
            "createdAt": moment(at),
        }
    ]


def rollouts(before: Sequence[Deployment], after: Sequence[Deployment], at: float) -> list[Detail]:
    """What became of a service's deployments."""
    known = {one.id: one.rollout for one in before}
    found = []
    for one in after:
        if known.get(one.id) == one.rollout:
            continue
        kind, name, word = _ROLLOUT[one.rollout]
        found.append(
            {
                "eventType": kind,
                "eventName": name,
                "deploymentId": one.id,
                "updatedAt": moment(at),
                "reason": one.reason or f"ECS deployment {one.id} {word}.",
            }
        )
    return found


def envelope(
    *, event_id: str, kind: str, account: str, at: float, region: str, resources: Sequence[str], detail: Detail
) -> Detail:
    """The whole event."""
    return {
        "version": "0",
        "id": event_id,
        "detail-type": kind,
        "source": "aws.ecs",
        "account": account,
        "time": _second(at),
        "region": region,
        "resources": list(resources),
        "detail": detail,
    }


def _plain(value: msgspec.Struct) -> Detail:
    """The value as JSON has it, with times as text."""
    plain: Detail = _timed(msgspec.to_builtins(value))
    return plain


def _timed(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: moment(one) if key.endswith("At") and isinstance(one, float | int) else _timed(one)
            for key, one in value.items()
        }
    if isinstance(value, list | tuple):
        return [_timed(one) for one in value]
    return value
