"""The contract of a probe and of a watcher: what they are told, what they declare, and the three ways a look can end.

A probe reads one part of the host and says what it found there. It declares what it reads and what that costs, so
that the report can show both. Whatever happens, its look ends as one of three values: it looked (with findings or
without), the host has no such thing, or it could not look. The last is never mistaken for health.

Figures are plain numbers by name; the round keeps them, and hands them back at the next look as ``Before``.

A probe looks once, when asked; a watcher keeps its eyes open (an event stream, signals) and tells an outcome each time
what it knows has changed. What it tells is always the whole of what it holds true at that moment, like a look's: a
finding that is not in it any more has ended. It sleeps while nothing happens. When it can watch no longer it tells
why and returns; whoever runs it starts it again after a while, and cancels it to end it. Only a daemon has watchers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from sexton.core.finding import Finding


class Before(msgspec.Struct, frozen=True):
    """The figures this probe gave at an earlier look of the same boot, and how many seconds ago that was."""

    seconds: float
    figures: Mapping[str, int]


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """What a probe is told: where the host is, what time it is, what it saw before. ``keep`` is a directory in which
    a watcher may keep what must survive a restart, each in files of its own name; None: it keeps nothing. ``data_dir``
    is where this host's agent has its own, as far as is known."""

    root: Path
    docker_host: str
    now: float
    uptime: float | None
    before: Before | None = None
    keep: Path | None = None
    data_dir: Path | None = None


class Looked(msgspec.Struct, frozen=True, kw_only=True):
    says: str
    findings: tuple[Finding, ...] = ()
    figures: Mapping[str, int] = {}


class NotPresent(msgspec.Struct, frozen=True):
    reason: str


class CouldNotLook(msgspec.Struct, frozen=True):
    reason: str
    next_step: str


Outcome = Looked | NotPresent | CouldNotLook


class Probe(NamedTuple):
    """``every`` is how many seconds lie between two looks of a daemon."""

    name: str
    reads: tuple[str, ...]
    cost: str
    look: Callable[[Scene], Awaitable[Outcome]]
    every: float = 60.0


Tell = Callable[[Outcome], None]
"""Hands an outcome over at once; it never blocks and never raises."""


class Watcher(NamedTuple):
    """Its name is never also a probe's. ``watch`` returns only after it has told why it cannot go on."""

    name: str
    reads: tuple[str, ...]
    cost: str
    watch: Callable[[Scene, Tell], Awaitable[None]]
