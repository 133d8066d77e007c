"""Why a task is where it is: the chain of causes in sentences, from its record, its definition and its host's memory.

Each sentence carries its evidence (a time, a code, the engine's own words); the last part says what to try next. Only
what is known is said, and what is not known is called so.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator

import msgspec

from sexton.core.evidence import Evidence
from sexton.wire import ecs

# What happens this long after a task's end may still belong to it.
AFTER_SECONDS = 5.0


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to "why": a headline, the chain of causes in order, and what to try."""

    headline: str
    causes: tuple[str, ...]
    next_steps: tuple[str, ...]
    on_host: tuple[str, ...] = ()  # what its host remembers, in order
    reason: str = ""  # all of it in one sentence


def explain(
    task: ecs.Task,
    definition: ecs.TaskDefinition | None,
    instance: ecs.ContainerInstance | None,
    now: float,
    evidence: Evidence | None = None,
) -> Explanation:
    """Explain a task in any state; with what its host remembers where that could be asked."""
    waiting = evidence.waiting if evidence is not None and task.last_status != "STOPPED" else ()
    return Explanation(
        headline=_headline(task, now),
        causes=(*_causes(task, definition, instance, now, asked=evidence is not None), *waiting),
        next_steps=tuple(_next_steps(task, definition, instance, evidence)),
        on_host=tuple(_on_host(task, evidence, now)) if evidence is not None else (),
        reason=short(task, evidence),
    )


def short(task: ecs.Task, evidence: Evidence | None = None) -> str:
    """The cause in one sentence, as it stands in a list; nothing for a task that runs as it should."""
    told = next((one.reason for one in task.containers or () if one.reason), None)
    if task.stopped_reason:
        ended = [one for one in task.containers or () if one.exit_code]
        code = f" ({ended[0].name} with exit code {ended[0].exit_code})" if ended else ""
        more = f": {told}" if told and told not in task.stopped_reason else code
        return f"{task.stopped_reason}{more}"
    if task.last_status == "RUNNING" and task.desired_status == "RUNNING":
        return ""
    if evidence is not None and evidence.waiting:
        return evidence.waiting[0]
    return told or ""


def _on_host(task: ecs.Task, evidence: Evidence, now: float) -> Iterator[str]:
    """The notes of the task and of its host in one order; those of the host only from its time."""
    if task.created_at and evidence.since > task.created_at:
        yield f"{_ago(evidence.since, now)}: the agent began; what was before is in its log."
    ends = (task.stopped_at or now) + AFTER_SECONDS
    images = {one.image for one in task.containers or () if one.image}
    around = [one for one in evidence.host if one.at <= ends and _concerns(one.text, images)]
    for note in sorted([*evidence.notes, *around], key=lambda one: one.at):
        times = f" ({note.times} times)" if note.times > 1 else ""
        yield f"{_ago(note.at, now)}: {note.text}{times}."


def _concerns(text: str, images: set[str]) -> bool:
    """A pull concerns those who have its image; everything else on a host concerns everybody."""
    return not text.startswith("the pull of ") or not images or any(image in text for image in images)


def _headline(task: ecs.Task, now: float) -> str:
    status = task.last_status or "UNKNOWN"
    if status == "STOPPED":
        return f"STOPPED {_ago(task.stopped_at, now)}: {task.stopped_reason or 'no reason was given'}"
    if task.desired_status == "STOPPED":
        return f"{status}, stopping since {_ago(task.stopping_at, now)}: {task.stopped_reason or 'no reason was given'}"
    if status == "RUNNING":
        return f"RUNNING since {_ago(task.started_at, now)}"
    return f"{status} since {_ago(task.created_at, now)}"


def _causes(
    task: ecs.Task,
    definition: ecs.TaskDefinition | None,
    instance: ecs.ContainerInstance | None,
    now: float,
    *,
    asked: bool = False,
) -> Iterator[str]:
    who = f" by {task.started_by}" if task.started_by else ""
    name = (task.task_definition_arn or "").rpartition("/")[2]
    yield f"It was asked for{who} {_ago(task.created_at, now)}, from {name}."
    host = (task.container_instance_arn or "").rpartition("/")[2]
    if host:
        # Whoever answered for the host is connected to us, whatever the cluster knows.
        yield f"It was placed on container instance {host}{'' if asked and instance is None else _host(instance)}."
    else:
        yield "It is on no container instance yet."
    if task.pull_started_at:
        yield _pull(task, now)
    if task.started_at:
        yield f"All its containers ran {_after(task.created_at, task.started_at)} after it was asked for."
    elif task.last_status == "STOPPED":
        yield "It never reached RUNNING."
    essential = {one.name for one in (definition.container_definitions if definition else None) or () if one.essential}
    for container in task.containers or ():
        yield from _container(container, container.name in essential)
    if task.stopping_at and task.last_status != "STOPPED":
        yield f"Its end was decided {_ago(task.stopping_at, now)} ({_code(task)}); containers get their time to stop."
    elif task.last_status == "STOPPED":
        took = _after(task.stopping_at, task.stopped_at) if task.stopping_at else "no time"
        yield f"Its end was decided by {_code(task)} and took {took}."


def _host(instance: ecs.ContainerInstance | None) -> str:
    if instance is None:
        return ", which is not registered any more"
    return "" if instance.agent_connected else ", whose agent is not connected now"


def _pull(task: ecs.Task, now: float) -> str:
    if task.pull_stopped_at:
        took = _after(task.pull_started_at, task.pull_stopped_at)
        if any((one.reason or "").startswith("CannotPull") for one in task.containers or ()):
            return f"Its images were looked for during {took}, and not all could be pulled."
        return f"Its images were ready {took} after they were looked for."
    return f"Its images have been pulled since {_ago(task.pull_started_at, now)}."


def _container(container: ecs.Container, essential: bool) -> Iterator[str]:
    kind = "essential container" if essential else "container"
    where = f"The {kind} {container.name}"
    match container.last_status:
        case "STOPPED" if container.exit_code is not None:
            yield f"{where} ended with exit code {container.exit_code}{_meaning(container.exit_code)}."
        case "STOPPED":
            yield f"{where} is stopped and has no exit code: it never ran, or nobody saw its end."
        case "RUNNING":
            yield f"{where} runs."
        case _:
            yield f"{where} has not started yet."
    if container.reason:
        yield f"The engine said of {container.name}: {container.reason}"


def _meaning(code: int) -> str:
    if code > 128:
        try:
            name = signal.Signals(code - 128).name
        except ValueError:
            return ""
        return f", which is what a process killed by {name} leaves"
    return {0: ", which means success", 126: ", a command that cannot be executed", 127: ", an unknown command"}.get(
        code, ""
    )


def _code(task: ecs.Task) -> str:
    words = {
        "UserInitiated": "a StopTask call",
        "EssentialContainerExited": "an essential container that ended",
        "TaskFailedToStart": "a failure to start",
    }
    return words.get(task.stop_code or "", task.stop_code or "nobody known")


def _next_steps(
    task: ecs.Task,
    definition: ecs.TaskDefinition | None,
    instance: ecs.ContainerInstance | None,
    evidence: Evidence | None,
) -> Iterator[str]:
    reasons = " ".join(one.reason or "" for one in task.containers or ()) + (task.stopped_reason or "")
    short = (task.task_arn or "").rpartition("/")[2][:12]
    if "CannotPull" in reasons:
        yield "Check the image's name and tag, and that this host reaches its registry: docker pull IMAGE on the host."
    if "No such image" in reasons:
        yield "The image is not on the host; build or pull it there, or correct the name."
    if "CannotStartContainerError" in reasons:
        yield "Check the command and the entry point: the engine could not execute them in this image."
    if "OutOfMemoryError" in reasons:
        yield "Give the container more memory, or find out what it used: its limit killed it."
    if "port is already allocated" in reasons or "address already in use" in reasons:
        yield "Use host port 0 to get a free one, or stop what holds the port."
    around = [one.text for one in (*evidence.notes, *evidence.host)] if evidence is not None else []
    if any("kernel killed" in one for one in around) and "OutOfMemoryError" not in reasons:
        yield "A process of it was killed for memory: give the container, or the task, more."
    if evidence is not None and task.last_status != "STOPPED":
        if any("for this host to have free" in one for one in evidence.waiting):
            yield "Stop something on that host, give the task less, or add a host."
        if any("may not go on before" in one for one in evidence.waiting):
            yield "Look at the container that is waited for: its health check, its exit code, its log."
        went = [one.text for one in evidence.host if one.text.startswith("the container engine")]
        if went and "went away" in went[-1]:
            yield "See to the container engine on that host; the agent goes on as soon as it answers."
    codes = [one.exit_code for one in task.containers or () if one.exit_code]
    if codes and task.stop_code == "EssentialContainerExited":
        yield f"Read what it wrote: sexton logs {short}"
    if task.last_status not in ("RUNNING", "STOPPED") and instance is not None and not instance.agent_connected:
        yield "Nothing happens until that host's agent is connected: read its log, and run 'sexton doctor' there."


def _ago(then: float | None, now: float) -> str:
    return f"{_span(now - then)} ago" if then else "at an unknown time"


def _after(first: float | None, second: float | None) -> str:
    return _span(second - first) if first and second else "an unknown time"


def _span(seconds: float) -> str:
    if seconds < 1:
        return f"{max(seconds, 0) * 1000:.0f} ms"
    if seconds < 120:
        return f"{seconds:.1f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
