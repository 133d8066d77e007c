"""What a host remembers of a task, in sentences: what happened to it and around it, and what it waits for.

Events of the agent's log become sentences here; the log itself keeps its constant words. Pure: records arrive as an
event and its facts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec


class Note(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that happened, and how often in a row."""

    at: float
    text: str
    times: int = 1


class Evidence(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything that one host can say."""

    since: float = 0.0  # when the agent's memory begins
    waiting: tuple[str, ...] = ()  # what it waits for now
    notes: tuple[Note, ...] = ()  # of the task
    host: tuple[Note, ...] = ()  # of everything around it


# Sentences for events that name a task; a fact in braces must be there, or the event's own words are used.
_OF_TASK = {
    "task accepted": "this host took it in",
    "task rejected": "this host cannot run it: {reason}",
    "task waits for resources": "it waits for resources of this host: {lacking}",
    "task has its resources": "it has its resources, after {waited_seconds} s",
    "container waits": "container {container} waits for {for}, until that is {until}",
    "step waits for the engine": "'{step}' of container {container} got no answer and is tried again: {reason}",
    "step failed": "'{step}' of container {container} failed inside the agent, which is a fault of Sexton's",
    "task is to stop": "it was told to stop: {reason}",
    "container ended and is started again": "container {container} ended and is started again by its restart policy",
    "container ended and stays so": "container {container} ended and its restart policy leaves it so: {why}",
    "container health changed": "the health check of container {container} says {is}",
    "container was touched by somebody else": "somebody else did this to container {container}: {what}",
    "container runs after its end and is stopped": "somebody started container {container} after its end",
    "engine lost sight of a container": "the engine died while it started container {container} and lost sight of it",
    "start without an answer": "the engine gave no answer to the start of container {container}: {reason}",
    "stop failed": "container {container} could not be stopped: {reason}",
    "lost processes killed": "{processes} processes that the engine had lost were killed",
    "task cgroup is still in use": "its cgroup cannot be removed yet",
    "out of memory": "in container {container} the kernel killed {victim} (pid {pid}), which held {resident_mib} MiB: "
    "{why}",
    "values fetched": "secrets and files of container {container} were fetched",
    "report refused for good": "the control plane does not take its report of {status}: {reason}",
}
_OF_HOST = {
    "engine events broke off": "the container engine went away: {reason}",
    "engine events arrive again": "the container engine is back",
    "container engine answers": "the agent started, and the container engine answered",
    "waiting for the container engine": "the agent started, and the container engine did not answer: {reason}",
    "connected": "the agent connected to the control plane",
    "disconnected": "the agent's connection to the control plane ended",
    "cannot connect": "the agent cannot connect to the control plane: {reason}",
    "health of the engine changed": "the container engine is {is}: {why}",
    "pull began": "the pull of {image} began, attempt {attempt}",
    "pull waits for its turn": "the pull of {image} waits for its turn",
    "pull failed": "the pull of {image} failed, attempt {attempt}: {reason}",
    "pull ended": "the pull of {image} ended after {seconds} s",
}


def of_task(event: str, facts: Mapping[str, Any]) -> str:
    """A sentence for an event of one task; empty for what is told better elsewhere."""
    match event:
        case "task changed":
            reason = f", because {facts['reason']}" if facts.get("reason") else ""
            return f"the task became {facts.get('is')}{reason}"
        case "container changed":
            end = ""
            if facts.get("is") == "STOPPED":
                code = facts.get("exit_code")
                end = f" with exit code {code}" if code not in (None, "None") else " without an exit code"
                end += f": {facts['reason']}" if facts.get("reason") else ""
            return f"container {facts.get('container')} became {facts.get('is')}{end}"
    return _filled(_OF_TASK, event, facts, without=("task",))


def of_host(event: str, facts: Mapping[str, Any]) -> str:
    """A sentence for an event that concerns the whole host."""
    return _filled(_OF_HOST, event, facts)


def is_of_host(event: str) -> bool:
    return event in _OF_HOST


def _filled(words: Mapping[str, str], event: str, facts: Mapping[str, Any], without: tuple[str, ...] = ()) -> str:
    template = words.get(event)
    if template is not None:
        try:
            return template.format_map(facts)
        except (KeyError, IndexError, ValueError):
            pass
    told = ", ".join(f"{key} {value}" for key, value in facts.items() if key not in without)
    return f"{event} ({told})" if told else event
