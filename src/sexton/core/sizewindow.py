"""What one definition needed over a stretch of time: digests of CPU and memory, what its quota took, who was killed.

A window is about a task as a whole (no container's name), about one of its containers, or about the host (no family).
Windows last a day; a longer time is several of them put together, so that what is long past can be forgotten. They
are the rows in which the agent keeps this history, and what ``core.advice`` judges.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from sexton.core.digest import Digest, merged
from sexton.core.reserved import Reserved

Subject = tuple[str, str, str]


class Window(msgspec.Struct, kw_only=True, omit_defaults=True):
    """CPU in units, memory in KiB. ``varied``: not all tasks of it were given the same figures."""

    family: str = ""
    revision: str = ""
    container: str = ""
    reserved: Reserved = Reserved()
    varied: bool = False
    first: float = 0.0
    last: float = 0.0
    seconds: float = 0.0
    cpu: Digest = msgspec.field(default_factory=Digest)
    memory: Digest = msgspec.field(default_factory=Digest)
    periods: int = 0
    throttled: int = 0
    throttled_seconds: float = 0.0
    oom_kills: int = 0
    steal_seconds: float = 0.0

    @property
    def subject(self) -> Subject:
        return self.family, self.revision, self.container


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """How a figure was spread: in units of CPU or in MiB."""

    mean: float
    p50: float
    p95: float
    p99: float
    max: float


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """All windows of one subject: what the agent answers, and what is judged."""

    family: str = ""
    revision: str = ""
    container: str = ""
    reserved: Reserved = Reserved()
    varied: bool = False
    first: float = 0.0
    last: float = 0.0
    seconds: float = 0.0
    samples: int = 0
    cpu: Spread | None = None
    memory: Spread | None = None
    periods: int = 0
    throttled: int = 0
    throttled_seconds: float = 0.0
    oom_kills: int = 0
    steal_seconds: float = 0.0


def measured(windows: Iterable[Window]) -> list[Measured]:
    """By subject, the host first."""
    groups: dict[Subject, list[Window]] = {}
    for one in windows:
        groups.setdefault(one.subject, []).append(one)
    return [_whole(groups[subject]) for subject in sorted(groups, key=_order)]


def _order(subject: Subject) -> tuple[str, int, str, str]:
    family, revision, container = subject
    return family, int(revision) if revision.isdecimal() else 0, revision, container


def _whole(parts: list[Window]) -> Measured:
    newest = max(parts, key=lambda one: one.last)
    cpu, memory = merged(one.cpu for one in parts), merged(one.memory for one in parts)
    return Measured(
        family=newest.family,
        revision=newest.revision,
        container=newest.container,
        reserved=newest.reserved,
        varied=any(one.varied or one.reserved != newest.reserved for one in parts),
        first=min(one.first for one in parts),
        last=newest.last,
        seconds=sum(one.seconds for one in parts),
        samples=cpu.count,
        cpu=_spread(cpu, 1.0),
        memory=_spread(memory, 1024.0),
        periods=sum(one.periods for one in parts),
        throttled=sum(one.throttled for one in parts),
        throttled_seconds=sum(one.throttled_seconds for one in parts),
        oom_kills=sum(one.oom_kills for one in parts),
        steal_seconds=sum(one.steal_seconds for one in parts),
    )


def _spread(digest: Digest, unit: float) -> Spread | None:
    if not digest.count:
        return None
    mean, p50, p95, p99, most = (
        round(value / unit, 1)
        for value in (
            digest.mean,
            digest.quantile(0.5),
            digest.quantile(0.95),
            digest.quantile(0.99),
            digest.most,
        )
    )
    return Spread(mean=mean, p50=p50, p95=p95, p99=p99, max=most)
