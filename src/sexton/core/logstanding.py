"""How the delivery of log lines stands, as an agent writes it down, and when that is trouble.

The agent writes it beside its spool; the caretaker reads it there. They meet in this file and in nothing else.
"""

from __future__ import annotations

import msgspec

from sexton.core.finding import Evidence, Finding, Severity, size, span

FOLDER = "logspool"
FILE = "standing.json"

# A destination that is away for a moment is nobody's trouble: what waits is on disk.
PATIENCE = 30.0
# One that nobody wrote for so long is of an agent that is gone.
STALE = 120.0


class Waiting(msgspec.Struct, frozen=True):
    """A destination that takes nothing."""

    destination: str
    since: float
    reason: str


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes that wait, lines that found no room, lines that were refused, and who takes nothing."""

    at: float
    held: int = 0
    bound: int = 0
    dropped: int = 0
    refused: int = 0
    waiting: tuple[Waiting, ...] = ()

    @property
    def quiet(self) -> bool:
        return not (self.waiting or self.held)


def judge_logs(found: Standing, now: float, dropped_before: int | None, source: str) -> tuple[Finding, ...]:
    """Do lines of tasks wait, or were some lost since the last look?"""
    findings = []
    for one in found.waiting:
        waited = now - one.since
        if waited < PATIENCE:
            continue
        findings.append(
            Finding(
                fingerprint=f"logs/undelivered/{one.destination}",
                severity=Severity.WARNING,
                title=f"log lines of tasks have not been delivered for {span(waited)}",
                culprit=one.destination,
                evidence=(
                    Evidence("why", one.reason, source),
                    Evidence("waits on disk", f"{size(found.held)} of {size(found.bound)}", source),
                ),
                next_step=(
                    "See that the destination answers, and that the execution role (or the agent) may call "
                    "logs:PutLogEvents there. Until then lines wait; SEXTON_LOG_SPOOL_MB bounds how many."
                ),
            )
        )
    lost = found.dropped - (found.dropped if dropped_before is None else dropped_before)
    if lost > 0:
        findings.append(
            Finding(
                fingerprint="logs/dropped",
                severity=Severity.CRITICAL,
                title=f"{lost:,} log lines of tasks were dropped: the spool is full",
                culprit=found.waiting[0].destination if found.waiting else "the log spool",
                evidence=(
                    Evidence("dropped since the last look", f"{lost:,} lines", source),
                    Evidence("dropped altogether", f"{found.dropped:,} lines", source),
                    Evidence("waits on disk", f"{size(found.held)} of {size(found.bound)}", source),
                ),
                next_step="Give the spool more room (SEXTON_LOG_SPOOL_MB), or have the destination take what waits.",
            )
        )
    return tuple(findings)
