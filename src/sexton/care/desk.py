"""What people ask the caretaker, and its answers as values.

One desk stands in front of one ledger: in the daemon, behind its socket; or in the command that was typed, when no
daemon runs. Both answer in the same shapes, so the command line cannot tell them apart but by ``daemon``.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable

import msgspec

from sexton import __version__
from sexton.care.acting import Actor, NoRemedy, Proposal
from sexton.care.ledger import Ledger
from sexton.care.snapshot import Snapshot
from sexton.core.action import Action, Did, Outcome
from sexton.core.finding import Evidence, Severity
from sexton.core.incident import Incident, tell_incident
from sexton.core.ledger import Eye, Mute, Record, Sight, State

JSON_SCHEMA = 1


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One finding. Times are seconds since the epoch."""

    fingerprint: str
    state: State
    severity: Severity
    title: str
    culprit: str
    first_seen: float
    last_seen: float
    opened: float
    resolved: float | None
    times: int
    flapping: bool
    out_of_sight_since: float | None
    mute: Mute | None
    probes: tuple[str, ...]
    evidence: tuple[Evidence, ...]
    next_step: str


class Findings(msgspec.Struct, frozen=True, kw_only=True):
    """``daemon``: a caretaker runs, so this is how it stands now; else it is what the last one knew."""

    schema: int = JSON_SCHEMA
    at: float
    daemon: bool
    findings: tuple[Row, ...]
    resolved: int
    eyes: tuple[Eye, ...]

    @property
    def exit_code(self) -> int:
        """As ``sexton doctor``'s: 0 nothing is wrong, 1 something is, 2 nobody can say."""
        if any(row.state in (State.OPEN, State.STILL_TRUE) for row in self.findings):
            return 1
        looked = any(eye.sight is Sight.LOOKED for eye in self.eyes)
        blind = any(eye.sight is Sight.BLIND for eye in self.eyes)
        return 0 if self.daemon and looked and not blind else 2


class Health(msgspec.Struct, frozen=True, kw_only=True):
    version: str
    rounds: int
    says: str
    policy: str
    cpu_seconds: float
    eyes: tuple[Eye, ...]


class Proposals(msgspec.Struct, frozen=True, kw_only=True):
    """What could be done about a finding, and in whose policy that is judged."""

    fingerprint: str
    title: str
    policy: str
    proposals: tuple[Proposal, ...]


class FixLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of a remedy's work: a step that was done, or at last how it ended."""

    step: str = ""
    says: str = ""
    outcome: Outcome | None = None
    undo: tuple[str, ...] = ()
    error: str = ""


def row_of(record: Record, now: float) -> Row:
    finding = record.finding
    return Row(
        fingerprint=finding.fingerprint,
        state=record.state(now),
        severity=finding.severity,
        title=finding.title,
        culprit=finding.culprit,
        first_seen=record.first_seen,
        last_seen=record.last_seen,
        opened=record.opened,
        resolved=record.resolved,
        times=record.times,
        flapping=record.flapping,
        out_of_sight_since=record.blind_since,
        mute=record.mute if record.is_muted(now) else None,
        probes=tuple(sorted(record.views)),
        evidence=finding.evidence,
        next_step=finding.next_step,
    )


class Desk:
    """Answers for one ledger."""

    def __init__(self, ledger: Ledger, actor: Actor, snapshot: Callable[[], Snapshot] | None = None) -> None:
        self._ledger = ledger
        self._actor = actor
        self._snapshot = snapshot

    def health(self) -> Health:
        seen = self._snapshot() if self._snapshot is not None else None
        return Health(
            version=__version__,
            rounds=0 if seen is None else seen.rounds,
            says="" if seen is None else seen.says,
            policy=self._actor.policy.source,
            cpu_seconds=0.0 if seen is None else seen.cpu_seconds,
            eyes=self._ledger.eyes,
        )

    def metrics(self) -> bytes:
        from sexton.care.exports.metrics import render

        assert self._snapshot is not None  # only a daemon publishes
        return render(self._snapshot())

    def findings(self, *, all_: bool) -> Findings:
        now = time.time()
        records = self._ledger.records
        return Findings(
            at=now,
            daemon=self._snapshot is not None,
            findings=tuple(row_of(record, now) for record in records if all_ or record.open),
            resolved=sum(1 for record in records if not record.open),
            eyes=self._ledger.eyes,
        )

    async def incident(self, fingerprint: str) -> Incident:
        """LookupError when there is no such finding; so below."""
        record = self._ledger.find(fingerprint)
        history = await self._ledger.history(record.fingerprint)
        return tell_incident(
            record, history, self._ledger.actions, self._ledger.records, self._ledger.eyes, time.time()
        )

    async def mute(self, fingerprint: str, seconds: float | None, who: str, reason: str) -> Row:
        now = time.time()
        until = None if seconds is None else now + seconds
        return row_of(await self._ledger.mute(fingerprint, Mute(since=now, until=until, who=who, reason=reason)), now)

    async def unmute(self, fingerprint: str, who: str) -> Row:
        now = time.time()
        return row_of(await self._ledger.unmute(fingerprint, who, now), now)

    async def proposals(self, fingerprint: str) -> Proposals:
        record = self._ledger.find(fingerprint)
        return Proposals(
            fingerprint=record.fingerprint,
            title=record.finding.title,
            policy=self._actor.policy.source,
            proposals=await self._actor.propose(record, time.time()),
        )

    async def fix(self, fingerprint: str, remedy: str, who: str, why: str) -> AsyncIterator[FixLine]:
        """Do it; each step as it is done, and at last the end."""
        record = self._ledger.find(fingerprint)
        try:
            async for told in self._actor.fix(record, remedy, who, why):
                if isinstance(told, Did):
                    yield FixLine(step=told.key, says=told.says)
                elif isinstance(told, Action):
                    yield FixLine(says=told.says, outcome=told.outcome, undo=told.plan.undo)
        except NoRemedy as error:
            yield FixLine(error=str(error))
