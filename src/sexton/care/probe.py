"""The contract of a probe: what it is told, what it declares, and the three ways a look can end.

A probe reads one part of the host and says what it found there. It declares what it reads and what that costs, so
that the report can show both. Whatever happens, its look ends as one of three values: it looked (with findings or
without), the host has no such thing, or it could not look. The last is never mistaken for health.

Figures are plain numbers by name; the round keeps them, and hands them back at the next look as ``Before``.
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
    """What a probe is told: where the host is, what time it is, what it saw before."""

    root: Path
    docker_host: str
    now: float
    uptime: float | None
    before: Before | None = None


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
    name: str
    reads: tuple[str, ...]
    cost: str
    look: Callable[[Scene], Awaitable[Outcome]]
