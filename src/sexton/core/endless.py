"""Can a service restart for ever? And what does each turn leave behind? Told from its settings alone.

systemd ends a loop only when more starts than its burst fall into its interval. A delay that keeps the starts further
apart makes the limit unreachable: the loop then turns until somebody notices.
"""

from __future__ import annotations

import posixpath
import re
from enum import StrEnum

import msgspec

from sexton.core.installed import Defaults, Unit
from sexton.core.unitfile import EXEC_ALL, Command, commands, seconds

# Programs that make a container for whoever runs them, and the words that make them do it.
CONTAINER_CLIENTS = frozenset({"docker", "podman", "ctr", "nerdctl", "crictl", "runc", "crun", "docker-compose"})
CONTAINER_VERBS = frozenset({"run", "create", "start", "up", "runp"})
CONTAINER_LAUNCHERS = frozenset({"amazon-ecs-init", "systemd-nspawn"})
_SHELLS = frozenset({"sh", "bash", "dash", "ash", "zsh"})


class Endless(StrEnum):
    NO = "no"  # it is not restarted
    LIMITED = "limited"  # its start limit can end it
    FOREVER = "for ever"


class Loop(msgspec.Struct, frozen=True):
    """Whether it can, and why."""

    endless: Endless
    why: str


class Leak(msgspec.Struct, frozen=True):
    """What each turn leaves: a container, and the host's paths it writes to."""

    client: str
    host_paths: tuple[str, ...]
    where: str

    @property
    def says(self) -> str:
        paths = f", which writes to {', '.join(self.host_paths)} of the host" if self.host_paths else ""
        return f"each turn makes a container with {self.client}{paths} ({self.where})"


def never_trips(delay: float, interval: float, burst: int) -> bool:
    """Is this start limit off, or out of reach because starts are further apart than it counts?"""
    return interval <= 0 or burst <= 0 or burst * delay >= interval


def can_loop(unit: Unit, defaults: Defaults) -> Loop:
    """The static verdict on one unit."""
    settings = unit.settings
    policy = settings.value("Service", "Restart", "no")
    if unit.name.rpartition(".")[2] != "service" or policy == "no":
        return Loop(Endless.NO, "it is not restarted (Restart=no)")
    delay = _or(seconds(settings.value("Service", "RestartSec")), defaults.restart_sec)
    limit = settings.last("Unit", "StartLimitIntervalSec", "StartLimitInterval") or settings.last(
        "Service", "StartLimitInterval", "StartLimitIntervalSec"
    )
    interval = defaults.limit_interval if limit is None else _or(seconds(limit.value), defaults.limit_interval)
    most = settings.last("Unit", "StartLimitBurst") or settings.last("Service", "StartLimitBurst")
    burst = int(most.value) if most is not None and most.value.isdecimal() else defaults.limit_burst
    says = f"Restart={policy}, RestartSec={delay:g} s, {burst} starts in {interval:g} s"
    kept = settings.value("Service", "RestartPreventExitStatus")
    excepted = f"; not after status {kept}" if kept else ""
    if interval <= 0 or burst <= 0:
        return Loop(Endless.FOREVER, f"{says}: the start limit is off{excepted}")
    if never_trips(delay, interval, burst):
        least = f"{burst} restarts take at least {burst * delay:g} s"
        return Loop(Endless.FOREVER, f"{says}: {least}, so the limit never trips{excepted}")
    return Loop(Endless.LIMITED, f"{says}: the limit ends a fast loop{excepted}")


def _or(value: float | None, otherwise: float) -> float:
    return otherwise if value is None else value


def leaks(unit: Unit) -> tuple[Leak, ...]:
    """The commands that make a container at each turn."""
    found: dict[Leak, None] = {}
    for command in commands(unit.settings, EXEC_ALL):
        if command.directive.key in ("ExecStop", "ExecStopPost", "ExecReload"):
            continue
        for words in _simple_commands(command):
            leak = _leak(words, f"{command.directive.key}= in {command.directive.source}:{command.directive.line}")
            if leak is not None:
                found[leak] = None
    return tuple(found)


def _simple_commands(command: Command) -> list[list[str]]:
    """The command itself, or those of the shell text it hands over."""
    words = list(command.words)
    base = posixpath.basename(words[0])
    if base in _SHELLS and "-c" in words[1:-1]:
        text = words[words.index("-c", 1) + 1]
        return [part.split() for part in re.split(r"[;&|\n]+|\b(?:do|then|exec|else)\b", text) if part.split()]
    return [words]


def _leak(words: list[str], where: str) -> Leak | None:
    base = posixpath.basename(words[0])
    if base in ("env", "nice", "ionice", "timeout", "sudo") and len(words) > 1:
        rest = [word for word in words[1:] if "=" not in word and not word.startswith("-") and not word[:1].isdigit()]
        return _leak(rest, where) if rest else None
    if base in CONTAINER_LAUNCHERS:
        return Leak(base, (), where)
    if base not in CONTAINER_CLIENTS or not CONTAINER_VERBS & set(words[1:]):
        return None
    return Leak(base, tuple(dict.fromkeys(_host_paths(words))), where)


def _host_paths(words: list[str]) -> list[str]:
    """Paths of the host that a container gets."""
    found = []
    for at, word in enumerate(words):
        flag, equals, value = word.partition("=")
        if flag in ("-v", "--volume", "--mount"):
            given = value if equals else words[at + 1] if at + 1 < len(words) else ""
            if flag == "--mount":
                parts = dict(part.partition("=")[::2] for part in ([given] if "," not in given else given.split(",")))
                given = parts.get("source", parts.get("src", ""))
            path = given.partition(":")[0].strip("'\"")
            if path.startswith("/"):
                found.append(path)
    return found
