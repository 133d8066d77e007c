"""The life of a finding: when it opens, whether it still holds, when it closes, and what is worth telling somebody.

Flows in: how one probe's look ended, what is on record, the time. Flows out: the records that change and what is to be
written into their histories. Nothing here reads a clock or a disk; ``care/ledger.py`` keeps what comes out.

    open -> still true -> resolved -> open again ...            muted lies over all of these and silences them

Two rules carry everything else. A finding closes itself when looks that really looked do not see it any more: twice in
a row, because one look can fall between two turns of a loop. And a probe that could not look closes nothing: what it
found stays as it was, and the record says since when nobody could see.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

import msgspec

from sexton.core.finding import Evidence, Finding, Severity, span

# A look may fall between two turns of a loop; the second in a row that sees nothing is believed.
ABSENT_LOOKS = 2
# A finding that opened so often within this time flaps: it is told once, and closes only after a longer quiet.
FLAP_EPISODES = 3
FLAP_WINDOW = 3600.0
FLAP_QUIET = 900.0
# The begins of this many episodes are kept, to tell flapping.
EPISODES_KEPT = 10
# A resolved finding is forgotten after this long; incidents are looked back on for weeks, not for years.
KEEP_RESOLVED = 30 * 86400.0
# So many findings are kept at most. A healthy host has a handful; this bounds memory and disk on the sickest.
RECORDS_KEPT = 500
# So many entries of one finding's history are kept: how it began, and what happened last.
ENTRIES_FIRST = 10
ENTRIES_LAST = 90


class State(StrEnum):
    OPEN = "open"
    STILL_TRUE = "still true"
    RESOLVED = "resolved"
    MUTED = "muted"


class Sight(StrEnum):
    """How a probe's look ended."""

    LOOKED = "looked"
    NOT_PRESENT = "not-present"
    BLIND = "could-not-look"


class Kind(StrEnum):
    """What an entry of the history tells."""

    OPENED = "opened"
    REOPENED = "opened again"
    WORSE = "worse"
    BETTER = "better"
    CULPRIT = "culprit"
    BLIND = "out of sight"
    SEEN_AGAIN = "in sight again"
    RESOLVED = "resolved"
    FLAPPING = "flapping"
    MUTED = "muted"
    UNMUTED = "unmuted"
    PLANNED = "planned"
    REFUSED = "not allowed"
    ACTING = "acting"
    STEP = "step"
    DONE = "done"
    FAILED = "failed"
    PROVED = "proved"


# What somebody who is not looking is told of, unless the finding is muted or flaps.
TOLD = frozenset({Kind.OPENED, Kind.REOPENED, Kind.WORSE, Kind.RESOLVED, Kind.FLAPPING, Kind.DONE, Kind.FAILED})


class Mute(msgspec.Struct, frozen=True, kw_only=True):
    """Silence for a finding: it is kept and shown, but nobody is told and nothing is done. ``until`` None: for ever."""

    since: float
    until: float | None
    who: str
    reason: str = ""


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a finding's history."""

    at: float
    kind: Kind
    says: str
    evidence: tuple[Evidence, ...] = ()
    told: bool = False


class View(msgspec.Struct, frozen=True):
    """The finding as one probe last saw it, how many looks in a row it has missed it since, and whether it can look."""

    finding: Finding
    missed: int = 0
    blind: bool = False


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One finding as the ledger holds it. Several probes may see the same trouble: ``views`` are what those hold that
    have not let go of it, ``finding`` is all of them in one. ``opened`` and ``looks`` belong to the episode that runs
    (or ran last); ``written`` counts the history's entries ever made."""

    finding: Finding
    views: dict[str, View]
    open: bool
    first_seen: float
    last_seen: float
    opened: float
    looks: int = 1
    resolved: float | None = None
    absent_since: float | None = None
    blind_since: float | None = None
    times: int = 1
    episodes: tuple[float, ...] = ()
    flapping: bool = False
    # It was there at the first look of this ledger: when it began, nobody saw.
    beginning_unseen: bool = False
    mute: Mute | None = None
    # The episode (by its begin) for which the history says what a remedy would do, or why none may.
    advised: float | None = None
    written: int = 0

    @property
    def fingerprint(self) -> str:
        return self.finding.fingerprint

    def is_muted(self, now: float) -> bool:
        return self.mute is not None and (self.mute.until is None or now < self.mute.until)

    def state(self, now: float) -> State:
        if not self.open:
            return State.RESOLVED
        if self.is_muted(now):
            return State.MUTED
        return State.OPEN if self.looks <= 1 else State.STILL_TRUE


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """How one probe's look ended. ``sure``: what it does not see is not there, and closes at once (a watcher tells the
    whole of what it holds true; a look after a remedy is made to see just that). ``first``: this ledger's first one."""

    probe: str
    sight: Sight
    findings: tuple[Finding, ...] = ()
    reason: str = ""
    first: bool = False
    sure: bool = False


class Delivery(msgspec.Struct, frozen=True):
    """One event on its way to somebody: its id, and the record and the entry as they were when it happened."""

    id: str
    record: Record
    entry: Entry


class Eye(msgspec.Struct, frozen=True, kw_only=True):
    """How a probe's last look ended, and since when it ends so."""

    probe: str
    sight: Sight
    says: str
    since: float
    next_step: str = ""


class Changed(msgspec.Struct, frozen=True):
    """A record's new value and what its history gains. An entry's number is ``record.written`` less those after it."""

    record: Record
    entries: tuple[Entry, ...] = ()


def file_look(records: Mapping[str, Record], look: Look, now: float) -> tuple[Changed, ...]:
    """What one look changes in the ledger."""
    mine = [record for record in records.values() if record.open and look.probe in record.views]
    if look.sight is Sight.BLIND:
        return tuple(_out_of_sight(record, look, now) for record in mine if not record.views[look.probe].blind)
    seen: dict[str, Finding] = {finding.fingerprint: finding for finding in look.findings}
    changes: list[Changed] = []
    for fingerprint, finding in seen.items():
        record = records.get(fingerprint)
        if record is None:
            changes.append(_opened(finding, look, now))
        elif not record.open:
            changes.append(_opened_again(record, finding, look.probe, now))
        else:
            changes.append(_still_true(record, finding, look.probe, now))
    changes += [_missed(record, look, now) for record in mine if record.fingerprint not in seen]
    return tuple(changes)


def _entry(record: Record, now: float, kind: Kind, says: str, evidence: tuple[Evidence, ...] = ()) -> Entry:
    told = kind in TOLD and not record.is_muted(now) and (not record.flapping or kind is Kind.FLAPPING)
    return Entry(at=now, kind=kind, says=says, evidence=evidence, told=told)


def written(record: Record, *entries: Entry) -> Changed:
    """The record with these entries added to its history."""
    return Changed(msgspec.structs.replace(record, written=record.written + len(entries)), entries)


def _opened(finding: Finding, look: Look, now: float) -> Changed:
    record = Record(
        finding=finding,
        views={look.probe: View(finding)},
        open=True,
        first_seen=now,
        last_seen=now,
        opened=now,
        episodes=(now,),
        beginning_unseen=look.first,
    )
    return written(record, _entry(record, now, Kind.OPENED, finding.title, finding.evidence))


def _opened_again(record: Record, finding: Finding, probe: str, now: float) -> Changed:
    episodes = (*record.episodes, now)[-EPISODES_KEPT:]
    flapping = sum(1 for begun in episodes if now - begun <= FLAP_WINDOW) >= FLAP_EPISODES
    quiet = now - record.resolved if record.resolved is not None else 0.0
    again = msgspec.structs.replace(
        record,
        finding=finding,
        views={probe: View(finding)},
        open=True,
        opened=now,
        last_seen=now,
        looks=1,
        resolved=None,
        absent_since=None,
        blind_since=None,
        times=record.times + 1,
        episodes=episodes,
        flapping=flapping,
        beginning_unseen=False,
    )
    entries = [_entry(again, now, Kind.REOPENED, f"{finding.title}, {_ago(quiet)} after it closed", finding.evidence)]
    if flapping:
        says = (
            f"it comes and goes: {FLAP_EPISODES} times within {span(FLAP_WINDOW)}; from here on it closes only after "
            f"{span(FLAP_QUIET)} without it, and nobody is told in between"
        )
        entries.append(_entry(again, now, Kind.FLAPPING, says))
    return written(again, *entries)


def _still_true(record: Record, finding: Finding, probe: str, now: float) -> Changed:
    was = record.finding
    views = {**record.views, probe: View(finding)}
    seen = merged(views)
    again = msgspec.structs.replace(
        record,
        finding=seen,
        views=views,
        last_seen=now,
        looks=record.looks + 1,
        absent_since=None,
        blind_since=None,
    )
    entries = []
    if record.blind_since is not None:
        blind = _ago(now - record.blind_since)
        entries.append(_entry(again, now, Kind.SEEN_AGAIN, f"after {blind} it can be looked at again, and still holds"))
    if seen.severity is not was.severity:
        kind = Kind.WORSE if seen.severity is Severity.CRITICAL else Kind.BETTER
        entries.append(_entry(again, now, kind, f"now {seen.severity}: {seen.title}", seen.evidence))
    if _names(seen.culprit) != _names(was.culprit):
        entries.append(_entry(again, now, Kind.CULPRIT, f"culprit now: {seen.culprit}"))
    return written(again, *entries)


def merged(views: Mapping[str, View]) -> Finding:
    """What several probes hold of one trouble as one finding: the first one's words, the evidence of all, the worst
    severity. There is at least one."""
    held = [view.finding for view in views.values()]
    evidence = {item.what: item for finding in reversed(held) for item in finding.evidence}
    worst = Severity.CRITICAL if any(one.severity is Severity.CRITICAL for one in held) else Severity.WARNING
    ordered = {item.what: item for item in (*held[0].evidence, *evidence.values())}
    return msgspec.structs.replace(held[0], severity=worst, evidence=tuple(ordered.values()))


def _names(culprit: str) -> str:
    """A culprit without figures: shares move at every look and tell nothing new."""
    return "".join(char for char in culprit if not char.isdigit())


def _missed(record: Record, look: Look, now: float) -> Changed:
    """One of its probes did not see it this time. It closes when the last of them has let go."""
    since = record.absent_since if record.absent_since is not None else now
    view = msgspec.structs.replace(record.views[look.probe], missed=record.views[look.probe].missed + 1, blind=False)
    lets_go = look.sure or look.sight is Sight.NOT_PRESENT or view.missed >= ABSENT_LOOKS
    if record.flapping and not look.sure:
        lets_go = now - since >= FLAP_QUIET
    others = {probe: other for probe, other in record.views.items() if probe != look.probe}
    if not lets_go or others:
        views = others if lets_go else {**record.views, look.probe: view}
        finding = merged(views)
        absent = since if all(one.missed for one in views.values()) else None
        return Changed(
            msgspec.structs.replace(record, finding=finding, views=views, absent_since=absent, blind_since=None)
        )
    why = (
        f"the host has no such thing any more: {look.reason}"
        if look.sight is Sight.NOT_PRESENT
        else "it does not hold any more"
    )
    closed = msgspec.structs.replace(
        record, views={}, open=False, resolved=now, flapping=False, absent_since=since, blind_since=None
    )
    # Whether somebody is told is decided by how it was while it was open.
    entry = _entry(record, now, Kind.RESOLVED, f"{why}; it was last seen {_ago(now - record.last_seen)} ago")
    return written(closed, entry)


def _out_of_sight(record: Record, look: Look, now: float) -> Changed:
    """One of its probes cannot look any more. It is out of sight when none of them can."""
    views = {**record.views, look.probe: msgspec.structs.replace(record.views[look.probe], blind=True)}
    if not all(view.blind for view in views.values()):
        return Changed(msgspec.structs.replace(record, views=views))
    blind = msgspec.structs.replace(record, views=views, blind_since=now)
    says = f"it cannot be looked at: {look.reason}; whether it still holds is not known"
    return written(blind, _entry(blind, now, Kind.BLIND, says))


def _ago(seconds: float) -> str:
    return span(max(0.0, seconds))


def muted(record: Record, mute: Mute) -> Changed:
    """Silence this finding."""
    how_long = "until it is unmuted" if mute.until is None else f"for {_ago(mute.until - mute.since)}"
    why = f": {mute.reason}" if mute.reason else ""
    silent = msgspec.structs.replace(record, mute=mute)
    return written(silent, _entry(silent, mute.since, Kind.MUTED, f"{how_long}, by {mute.who}{why}"))


def unmuted(record: Record, now: float, why: str) -> Changed:
    """End this finding's silence."""
    heard = msgspec.structs.replace(record, mute=None)
    return written(heard, _entry(heard, now, Kind.UNMUTED, why))


def mutes_over(records: Iterable[Record], now: float) -> tuple[Changed, ...]:
    """Mutes whose time is over."""
    return tuple(
        unmuted(record, now, "its time was over")
        for record in records
        if record.mute is not None and not record.is_muted(now)
    )


def orphans(records: Iterable[Record], probes: frozenset[str], now: float) -> tuple[Changed, ...]:
    """Open findings that only probes hold which this version no longer has: nobody will ever see whether they hold."""
    closed = []
    for record in records:
        if record.open and not probes.intersection(record.views):
            shut = msgspec.structs.replace(record, views={}, open=False, resolved=now, flapping=False)
            gone = ", ".join(sorted(record.views)) or "its probe"
            says = f"no probe of this version looks for it ({gone} is gone); whether it holds is not known"
            closed.append(written(shut, _entry(record, now, Kind.RESOLVED, says)))
    return tuple(closed)


def forgotten(records: Iterable[Record], now: float) -> tuple[str, ...]:
    """Fingerprints of the findings that are kept no longer: long resolved, or more than a ledger holds."""
    everything = list(records)
    old = {
        record.fingerprint
        for record in everything
        if not record.open and record.resolved is not None and now - record.resolved > KEEP_RESOLVED
    }
    rest = [record for record in everything if record.fingerprint not in old]
    surplus = len(rest) - RECORDS_KEPT
    if surplus > 0:
        rest.sort(key=lambda record: (record.open, record.last_seen, record.fingerprint))
        old |= {record.fingerprint for record in rest[:surplus]}
    return tuple(sorted(old))


def dropped_entries(before: int, after: int) -> tuple[int, ...]:
    """Numbers of the history's entries that make room when it grows from so many ever written to so many."""
    return tuple(number - ENTRIES_LAST for number in range(before, after) if number - ENTRIES_LAST >= ENTRIES_FIRST)
