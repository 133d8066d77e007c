"""What this host can say of one task: the record as the control plane would have it, what it waits for, what happened.

The command line puts it together with the control plane's own record; where that cannot be asked, as with a cluster of
Amazon's and keys that may not look, this alone is an answer.
"""

from __future__ import annotations

import time

import msgspec

from sexton.agent.history import History
from sexton.agent.runner import Runner
from sexton.core.evidence import Evidence
from sexton.core.task import ContainerStatus, KnownContainer, TaskStatus
from sexton.wire import ecs

# What happened so shortly before a task came may be why it fared as it did.
BEFORE_SECONDS = 60.0


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to ``GET /why``."""

    task: ecs.Task
    evidence: Evidence


def answer(runner: Runner, history: History, instance_arn: str, cluster: str, now: float | None = None) -> Answer:
    """Everything that is known here."""
    when = time.time() if now is None else now
    return Answer(
        task=_record(runner, instance_arn, cluster),
        evidence=Evidence(
            since=history.since,
            waiting=tuple(_waiting(runner, when)),
            notes=history.of(runner.arn),
            host=history.host(runner.known.received_at - BEFORE_SECONDS),
        ),
    )


def _waiting(runner: Runner, now: float) -> list[str]:
    said = []
    if runner.waiting is not None:
        lacking = ", ".join(runner.waiting.lacking)
        said.append(f"It has waited {now - runner.waiting.since:.0f} s for this host to have free: {lacking}.")
    said += [f"Container {edge.container} may not go on before {edge.on} is {edge.condition}." for edge in runner.waits]
    said += [
        f"Container {container} has been in step '{work.step.__name__}' for {now - work.since:.1f} s."
        for container, work in runner.under_way().items()
    ]
    known = runner.known
    if known.status in (TaskStatus.RUNNING, TaskStatus.STOPPED) and known.sent.rank < known.status.rank:
        said.append(f"The control plane has not taken the report yet that it is {known.status}.")
    return said


def _record(runner: Runner, instance_arn: str, cluster: str) -> ecs.Task:
    known, task = runner.known, runner.desired.task
    wanted_stopped = runner.desired.stopped or known.stop
    status = str(known.status) if known.status in (TaskStatus.RUNNING, TaskStatus.STOPPED) else "PENDING"
    return ecs.Task(
        task_arn=runner.arn,
        cluster_arn=cluster,
        container_instance_arn=instance_arn,
        task_definition_arn=f"task-definition/{task.family}:{task.version}",
        last_status=status,
        desired_status="STOPPED" if wanted_stopped else "RUNNING",
        stopped_reason=known.reason or None,
        created_at=known.received_at or None,
        started_at=max((one.started_at for one in known.containers), default=0.0) or None,
        pull_started_at=known.pull_started_at or None,
        pull_stopped_at=known.pull_stopped_at or None,
        execution_stopped_at=known.execution_stopped_at or None,
        stopping_at=known.execution_stopped_at or None,
        stopped_at=known.stopped_at or None,
        containers=tuple(_container(one) for one in known.containers),
    )


def _container(one: KnownContainer) -> ecs.Container:
    told = one.status in (ContainerStatus.RUNNING, ContainerStatus.STOPPED)
    return ecs.Container(
        name=one.name,
        last_status=str(one.status) if told else "PENDING",
        exit_code=one.exit_code,
        reason=one.reason or None,
        runtime_id=one.runtime_id or None,
    )
