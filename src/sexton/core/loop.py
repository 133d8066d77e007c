"""Loops: things that start, end and start again, told apart from the ordinary coming and going of a busy host.

One detector for everything that has turns. A turn is one life: of a service's process, of a container, of a cgroup. It
says when it began and ended, who asked for it, and whether it failed. Five shapes are told:

    always       systemd restarts it however it ends
    on-failure   systemd restarts it when it fails
    timer        a timer, path or socket starts it, and it fails each time
    by hand      somebody (a person, a script, cron) starts or restarts it again and again
    inside       the unit stays up and its counter stays 0; what it starts inside dies young again and again

Three bad turns in a row make a loop, and one good turn ends it. What counts as bad depends on who asks for the next: a
timer's run is bad when it fails, a run by hand when it fails or is cut short within a minute, an automatically
restarted one when it ended within a minute or failed within ten. Restarts while a package manager works never count
as by hand.

Pure: all times are arguments, in seconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from itertools import pairwise, zip_longest

import msgspec

from sexton.core.finding import (
    HOUR,
    UNIT_SETTLED,
    ZOMBIES_CRITICAL,
    ZOMBIES_WARNING,
    Evidence,
    Finding,
    Severity,
    span,
)

# So many bad turns in a row are a loop; two may be a person trying something twice.
TURNS = 3
# A life that was longer did some work before it ended.
SHORT_LIFE = 60.0
# A loop whose last sign is older than this, and than three of its periods, has ended.
QUIET = 60.0
# One turn a minute or more, for ever: that costs the host something every day.
FAST = 60.0
# Groups that come and go below a service, one after another: their pace may vary by so much and still be a loop's.
STEADY = 2.0
# So many groups that came and went so fast leave room for chance no longer, though nobody knows how their lives ended.
SILENT_TURNS = 20
SILENT_PERIOD = 30.0
# A share of turns whose group was left behind as a zombie; less is the ordinary leftover of any work.
LEAKS = 0.5


class Cause(StrEnum):
    """Who asked for a turn."""

    POLICY = "policy"
    TRIGGER = "trigger"
    HAND = "hand"
    UNKNOWN = "unknown"


class Shape(StrEnum):
    ALWAYS = "always"
    ON_FAILURE = "on-failure"
    TIMER = "timer"
    BY_HAND = "by-hand"
    INSIDE = "inside"


SHAPES = {
    Shape.ALWAYS: "systemd restarts it however it ends",
    Shape.ON_FAILURE: "systemd restarts it each time it fails",
    Shape.TIMER: "it is triggered again and again and fails each time",
    Shape.BY_HAND: "somebody starts it again and again: a person, a script or cron, not systemd",
    Shape.INSIDE: "it loops inside: the unit stays up and systemd's restart counter does not move",
}


class Life(msgspec.Struct, frozen=True, kw_only=True):
    """One turn. ``cut`` says that it ended because somebody stopped or restarted it; ``upgrade`` that a package
    manager was at work when it began; ``left`` that its cgroup is still held by the kernel after its end (None: not
    known)."""

    began: float
    cause: Cause = Cause.UNKNOWN
    ended: float | None = None
    failed: bool = False
    cut: bool = False
    upgrade: bool = False
    left: bool | None = None

    @property
    def length(self) -> float | None:
        return None if self.ended is None else max(0.0, self.ended - self.began)


class Loop(msgspec.Struct, frozen=True, kw_only=True):
    """``turns`` is the run that was seen; ``period`` is from one start to the next, ``last`` the newest sign of it."""

    who: str
    shape: Shape
    turns: int
    period: float
    since: float
    last: float
    endless: bool = True
    left: int | None = None
    # Whether its turns fail or leave something; else it is told by its pace alone, and may be work that succeeds.
    harmful: bool = True

    @property
    def leaks(self) -> bool:
        """Do most turns leave a zombie?"""
        return self.left is not None and self.left >= max(TURNS, LEAKS * self.turns)

    @property
    def per_hour(self) -> float:
        return HOUR / max(self.period, 0.001)


def unit_loop(
    who: str, lives: Sequence[Life], now: float, *, policy: str = "no", endless: bool = True, trigger: str = ""
) -> Loop | None:
    """Does this unit turn in circles? ``lives`` are its newest, in order."""
    run: list[Life] = []
    for life, after in zip_longest(lives, lives[1:]):
        if life.ended is None and after is None:
            break  # under way: neither good nor bad yet
        if _bad(life, after):
            run.append(life)
        else:
            run.clear()
    # Who asked for the start after the newest end is a part of the loop, even while that start is under way.
    if len(run) < TURNS:
        return None
    causes = [life.cause for life in (*run[1:], *([lives[-1]] if lives[-1].ended is None else []))]
    shape = _shape(causes, policy, trigger)
    if shape is None:
        return None
    return _loop(who, shape, run, lives[-1], now, endless=endless if shape is not Shape.BY_HAND else False)


def inner_loop(who: str, lives: Sequence[Life], now: float) -> Loop | None:
    """Does what this unit starts inside itself die young over and over? One after another, at a steady pace; and each
    either failed, or left something behind, or there were so many that chance is ruled out."""
    ended = [life for life in lives if life.ended is not None]
    run: list[Life] = []
    for life in ended:
        length = life.length
        if length is None or length >= SHORT_LIFE or life.upgrade:
            run.clear()
        elif run and run[-1].ended is not None and life.began < run[-1].ended:
            run = [life]  # side by side: work that is spread, not a loop
        else:
            run.append(life)
    if len(run) < TURNS or not _steady(run):
        return None
    found = _loop(who, Shape.INSIDE, run, lives[-1], now, endless=True)
    if found is None or found.leaks or all(life.failed for life in run):
        return found
    if len(run) < SILENT_TURNS or found.period > SILENT_PERIOD:
        return None
    return msgspec.structs.replace(found, harmful=False)


def _bad(life: Life, after: Life | None) -> bool:
    length = 0.0 if life.length is None else life.length
    asked = life.cause if after is None else after.cause
    if asked is Cause.TRIGGER:
        return life.failed
    failed_soon = life.failed and length < UNIT_SETTLED
    if asked is Cause.POLICY:
        return length < SHORT_LIFE or failed_soon
    upgrade = life.upgrade or (after is not None and after.upgrade)
    return not upgrade and (failed_soon or (life.cut and length < SHORT_LIFE))


def _shape(causes: Sequence[Cause], policy: str, trigger: str) -> Shape | None:
    """By most of the starts; None when nobody can say who asked."""
    most = max((Cause.POLICY, Cause.TRIGGER, Cause.HAND), key=lambda cause: causes.count(cause))
    if causes.count(most) * 2 <= len(causes):
        return None
    if most is Cause.POLICY:
        return Shape.ALWAYS if policy in ("always", "on-success") else Shape.ON_FAILURE
    if most is Cause.TRIGGER and trigger:
        return Shape.TIMER
    return Shape.BY_HAND if most is Cause.HAND else Shape.TIMER


def _steady(run: Sequence[Life]) -> bool:
    """Is the time from one start to the next about the same, or does it only grow, as a back-off does?"""
    gaps = [later.began - earlier.began for earlier, later in pairwise(run)]
    if all(later >= earlier * 0.8 for earlier, later in pairwise(gaps)):
        return True
    middle = _median(gaps)
    return sum(1 for gap in gaps if middle / STEADY <= gap <= middle * STEADY) >= 0.8 * len(gaps)


def _loop(who: str, shape: Shape, run: Sequence[Life], newest: Life, now: float, *, endless: bool) -> Loop | None:
    gaps = [later.began - earlier.began for earlier, later in pairwise(run)]
    period = _median(gaps[-16:])
    last = max(run[-1].ended or run[-1].began, newest.began)
    quiet = max(QUIET, 3 * period)
    settled = newest.ended is None and now - newest.began > max(SHORT_LIFE, period if shape is Shape.TIMER else quiet)
    if settled or now - last > quiet:
        return None
    known = [life for life in run if life.left is not None]
    return Loop(
        who=who,
        shape=shape,
        turns=len(run),
        period=period,
        since=run[0].began,
        last=last,
        endless=endless,
        left=sum(1 for life in known if life.left) if known else None,
    )


class Toll(msgspec.Struct, frozen=True, kw_only=True):
    """What a loop costs: zombies of this maker that are left, of how many turns; all zombies of the host."""

    left: int
    turns: int
    zombies: int

    @property
    def each(self) -> float:
        return self.left / max(1, self.turns)


def trouble_in(loop: Loop, toll: Toll, threshold: int) -> float | None:
    """Seconds until the host has this many zombies by this loop alone; None when it never will."""
    an_hour = toll.each * loop.per_hour
    if an_hour <= 0 or toll.zombies >= threshold:
        return None
    return (threshold - toll.zombies) / an_hour * HOUR


def judge_loop(
    loop: Loop, now: float, *, source: str, toll: Toll | None = None, extra: Iterable[Evidence] = (), what: str = ""
) -> Finding:
    """The finding of a loop. ``what`` says what turns, where that is not the culprit itself."""
    evidence = [
        Evidence("shape", SHAPES[loop.shape], source),
        Evidence("turns", f"{loop.turns:,} in a row, one every {span(loop.period)}", source),
        Evidence("since", f"{span(max(0.0, now - loop.since))} ago", source),
    ]
    if toll is not None:
        leak = (
            f"{toll.each:.1f} zombie cgroups ({toll.left:,} are left of {toll.turns:,} turns)"
            if toll.left
            else f"no zombie cgroup ({toll.turns:,} turns)"
        )
        evidence.append(Evidence("each turn leaks", leak, "names of removed cgroups (BPF)"))
        for threshold in (ZOMBIES_WARNING, ZOMBIES_CRITICAL):
            ahead = trouble_in(loop, toll, threshold)
            if ahead is not None:
                evidence.append(Evidence(f"at this pace {threshold:,} zombies", f"in {span(ahead)}", "arithmetic"))
    elif loop.left is not None:
        leak = f"{loop.left:,} of {loop.turns:,} turns left a zombie cgroup"
        evidence.append(Evidence("each turn leaks", leak, "cgroup tracepoints"))
    evidence += extra
    if not loop.harmful:
        unknown = "not known: nothing is left behind, and nobody tells how they ended"
        evidence.append(Evidence("do its turns fail", unknown, source))
    fast = loop.per_hour >= FAST and loop.endless and loop.harmful
    verb = {
        Shape.TIMER: "fails each time it is triggered",
        Shape.BY_HAND: "is started again and again, by hand or by a script",
        Shape.INSIDE: "loops inside",
    }.get(loop.shape, "crash-loops")
    stop = loop.who.partition(" ")[0]
    advice = {
        Shape.TIMER: f"Repair what it does, or stop its trigger: systemctl list-timers; systemctl cat {stop}.",
        Shape.BY_HAND: f"Find who does it: journalctl -u {stop} _PID=1, cron, and scripts that call systemctl.",
    }.get(
        loop.shape,
        f"If this host does not need it: systemctl disable --now {stop} (mask it where a package brings it back).",
    )
    return Finding(
        fingerprint=f"unit-loop/{loop.who}",
        severity=Severity.CRITICAL if fast else Severity.WARNING,
        title=f"{loop.who} {verb}{f': {what}' if what else ''}, {loop.turns:,} turns, one every {span(loop.period)}",
        culprit=loop.who,
        evidence=tuple(evidence),
        next_step=f"Read why it fails: journalctl -u {stop} -n 50. {advice}",
    )


def _median(values: Sequence[float]) -> float:
    """The standard library's takes half a megabyte of a process that stays."""
    ordered, half = sorted(values), len(values) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2
