"""A finding told as an incident: what is wrong, who did it, what happened in which order, what is not known.

Flows in: the finding's record and history, actions, the other findings, what each probe could see. Flows out: links of
a chain, each an answer with its evidence or the word unknown with the reason; and the events in order. A link is never
guessed: where the evidence for it is missing, the chain says so, and what would close the gap.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from sexton.core.action import Action, Outcome
from sexton.core.finding import Evidence, span
from sexton.core.ledger import Entry, Eye, Record, Sight, State

# How a finding says that it knows no culprit.
_NOT_KNOWN = ("not known", "unknown")
# Evidence that tells where a culprit comes from, by the first words of what it is about.
_ORIGIN = ("asked for by", "unit shipped by", "shipped by", "package", "image", "unit file", "triggered by", "makes")


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """One question of the chain. ``known`` is False where the answer is missing; then it says why."""

    question: str
    known: bool
    answer: str
    evidence: tuple[Evidence, ...] = ()


class Incident(msgspec.Struct, frozen=True, kw_only=True):
    """``unknown`` repeats the missing links in sentences, and what could not be seen besides."""

    record: Record
    state: State
    links: tuple[Link, ...]
    history: tuple[Entry, ...]
    actions: tuple[Action, ...]
    unknown: tuple[str, ...]


def tell_incident(
    record: Record,
    history: Sequence[Entry],
    actions: Iterable[Action],
    others: Iterable[Record],
    eyes: Iterable[Eye],
    now: float,
) -> Incident:
    """Everything on record about one finding."""
    mine = tuple(action for action in actions if action.plan.fingerprint == record.fingerprint)
    related = [other for other in others if other.fingerprint != record.fingerprint and _linked(record, other)]
    links = (
        Link(question="what is wrong", known=True, answer=record.finding.title, evidence=record.finding.evidence),
        _since(record, now),
        _culprit(record),
        _origin(record),
        _connection(record, related, now),
        _done(mine),
        _over(record, now),
    )
    unknown = [f"{link.question}: {link.answer}" for link in links if not link.known]
    unknown += [
        f"what {eye.probe} would have told: it could not look for {span(max(0.0, now - eye.since))}: {eye.says}"
        for eye in eyes
        if eye.sight is Sight.BLIND
    ]
    return Incident(
        record=record,
        state=record.state(now),
        links=links,
        history=tuple(history),
        actions=mine,
        unknown=tuple(unknown),
    )


def _since(record: Record, now: float) -> Link:
    told = tuple(item for item in record.finding.evidence if item.what == "since")
    until = now if record.resolved is None else record.resolved
    seen = f"seen for {span(max(0.0, until - record.opened))}"
    again = f", {record.times} times in all" if record.times > 1 else ""
    if told:
        return Link(question="since when", known=True, answer=f"{told[0].value}; {seen}{again}", evidence=told)
    if record.beginning_unseen:
        return Link(
            question="since when",
            known=False,
            answer=f"unknown; it was there at the caretaker's first look, and is {seen} since",
        )
    return Link(question="since when", known=True, answer=f"{seen}{again}")


def _culprit(record: Record) -> Link:
    culprit = record.finding.culprit
    if culprit.startswith(_NOT_KNOWN) or not culprit:
        return Link(question="who does it", known=False, answer=culprit or "unknown")
    made = tuple(item for item in record.finding.evidence if item.what.startswith("made by"))
    return Link(question="who does it", known=True, answer=culprit, evidence=made)


def _origin(record: Record) -> Link:
    told = tuple(item for item in record.finding.evidence if item.what.startswith(_ORIGIN))
    if told:
        answer = "; ".join(f"{item.what}: {item.value}" for item in told)
        return Link(question="where that comes from", known=True, answer=answer, evidence=told)
    return Link(
        question="where that comes from",
        known=False,
        answer="unknown; nothing on record says which package, image or unit brought it",
    )


def _connection(record: Record, related: Sequence[Record], now: float) -> Link:
    if related:
        says = "; ".join(f"{one.fingerprint} ({one.state(now)}): {one.finding.title}" for one in related)
        return Link(question="what it hangs together with", known=True, answer=says)
    return Link(
        question="what it hangs together with",
        known=False,
        answer="unknown; no other finding on record names the same culprit",
    )


def _linked(one: Record, other: Record) -> bool:
    """Does either name the other's subject as its culprit or in its evidence?"""
    return _names(one, other) or _names(other, one)


def _names(one: Record, other: Record) -> bool:
    subject = other.fingerprint.partition("/")[2]
    if len(subject) < 3 or subject == "zombies":
        return False
    texts = (one.finding.culprit, *(f"{item.what} {item.value}" for item in one.finding.evidence))
    return any(subject in text for text in texts)


def _done(actions: Sequence[Action]) -> Link:
    if not actions:
        return Link(question="what was done", known=True, answer="nothing by the caretaker")
    words = {
        Outcome.RUNNING: "under way",
        Outcome.DONE: "done and proved",
        Outcome.NO_EFFECT: "done, without the effect",
        Outcome.FAILED: "failed",
        Outcome.INTERRUPTED: "interrupted",
    }
    says = "; ".join(f"{one.plan.remedy} by {one.who}: {words[one.outcome]}, {one.says}" for one in actions)
    return Link(question="what was done", known=True, answer=says)


def _over(record: Record, now: float) -> Link:
    if not record.open and record.resolved is not None:
        return Link(question="is it over", known=True, answer=f"yes, for {span(max(0.0, now - record.resolved))}")
    if record.blind_since is not None:
        blind = span(max(0.0, now - record.blind_since))
        return Link(question="is it over", known=False, answer=f"unknown; nobody could look for {blind}")
    return Link(question="is it over", known=True, answer=f"no, last seen {span(max(0.0, now - record.last_seen))} ago")
