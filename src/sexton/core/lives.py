"""The book of lives: what was seen of each unit's starts and ends, put together to its newest turns.

Who looks on, by signals or in the journal, sees moments: a run began, systemd will restart it, it was told to stop, it
ended. Each run has an id of its own (systemd's invocation id), so moments may be told twice, or in a slightly wrong
order, and make the same lives. Units and lives are bounded in number: the ones longest without news are forgotten.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from sexton.core.loop import Cause, Life

# A run of turns is told by its newest ones; older ones are counted only.
LIVES_KEPT = 64
# A host has some hundred services; a busy one starts many of them for a moment only.
UNITS_KEPT = 1024


class Moment(StrEnum):
    BEGAN = "began"
    RESTART_PLANNED = "restart-planned"
    STOPPING = "stopping"
    FAILED = "failed"
    ENDED = "ended"


class UnitMoment(msgspec.Struct, frozen=True, kw_only=True):
    """Something happened to one run of a unit. ``cause`` says who asked for it, where who saw it can tell."""

    unit: str
    run: str
    at: float
    what: Moment
    cause: Cause = Cause.UNKNOWN
    upgrade: bool = False


class UnitState(msgspec.Struct, frozen=True, kw_only=True):
    """A unit as the service manager shows it at one moment. ``asked`` says that a job of somebody's is under way,
    ``began`` when its newest run left the inactive state."""

    unit: str
    run: str
    active: str
    sub: str
    result: str
    restarts: int
    asked: bool
    began: float
    at: float


def moments_of(state: UnitState, cause: Cause, *, upgrade: bool = False) -> tuple[UnitMoment, ...]:
    """What a state tells of the unit's newest run. ``cause`` is who asked for it if systemd itself did not: a restart
    counter above zero says that it did, since any other start sets it back."""
    if not state.run or state.began <= 0:
        return ()

    def moment(what: Moment, at: float) -> UnitMoment:
        asked = Cause.POLICY if state.restarts > 0 else cause
        return UnitMoment(unit=state.unit, run=state.run, at=at, what=what, cause=asked, upgrade=upgrade)

    down = state.active in ("inactive", "failed")
    # Down with a job under way, the unit may carry the id of a run that is still to begin.
    told = [] if down and state.asked else [moment(Moment.BEGAN, state.began)]
    failed = state.result not in ("success", "")
    if state.sub.startswith("auto-restart"):
        told.append(moment(Moment.FAILED if failed else Moment.ENDED, state.at))
        told.append(moment(Moment.RESTART_PLANNED, state.at))
    elif state.active == "deactivating":
        if state.asked:
            told.append(moment(Moment.STOPPING, state.at))
    elif down:
        told.append(moment(Moment.FAILED if failed or state.active == "failed" else Moment.ENDED, state.at))
    return tuple(told)


class _Run(msgspec.Struct):
    began: float
    cause: Cause
    upgrade: bool
    ended: float | None = None
    failed: bool = False
    cut: bool = False
    again: bool = False


class Lives:
    """``turns`` counts every run that was seen to begin, the forgotten ones included."""

    def __init__(self) -> None:
        self._units: dict[str, dict[str, _Run]] = {}
        self._turns: dict[str, int] = {}

    def note(self, moment: UnitMoment) -> None:
        """Take a moment in. The end of a run whose beginning nobody saw says nothing of how long it was."""
        runs = self._units.get(moment.unit, {})
        run = runs.get(moment.run)
        if run is None:
            if moment.what is not Moment.BEGAN:
                return
            run = self._begin(moment, runs)
        self._units.pop(moment.unit, None)
        self._units[moment.unit] = runs  # newest news last
        if moment.what is Moment.BEGAN:
            run.began = min(run.began, moment.at)
            if moment.cause is not Cause.UNKNOWN and run.cause is not Cause.POLICY:
                run.cause = moment.cause
        elif moment.what is Moment.RESTART_PLANNED:
            run.again = True
            run.ended = run.ended if run.ended is not None else moment.at
        elif moment.what is Moment.STOPPING:
            run.cut = run.cut or run.ended is None
        else:
            run.ended = moment.at if run.ended is None else min(run.ended, moment.at)
            run.failed = run.failed or moment.what is Moment.FAILED
        run.upgrade = run.upgrade or moment.upgrade
        while len(runs) > LIVES_KEPT:
            del runs[next(iter(runs))]
        while len(self._units) > UNITS_KEPT:
            oldest = next(iter(self._units))
            del self._units[oldest], self._turns[oldest]

    def _begin(self, moment: UnitMoment, runs: dict[str, _Run]) -> _Run:
        cause = moment.cause
        if runs:
            before = runs[next(reversed(runs))]
            if before.ended is None:  # a restart is quicker than its signals, which then show the new run only
                before.ended, before.cut = moment.at, True
            if before.again:
                cause = Cause.POLICY
        run = _Run(began=moment.at, cause=cause, upgrade=False)
        runs[moment.run] = run
        self._turns[moment.unit] = self._turns.get(moment.unit, 0) + 1
        return run

    def units(self) -> tuple[str, ...]:
        return tuple(self._units)

    def turns(self, unit: str) -> int:
        return self._turns.get(unit, 0)

    def of(self, unit: str) -> tuple[Life, ...]:
        """The newest lives of a unit, in order."""
        return tuple(
            Life(
                began=run.began,
                cause=run.cause,
                ended=run.ended,
                failed=run.failed,
                cut=run.cut and not run.failed,
                upgrade=run.upgrade,
            )
            for run in self._units.get(unit, {}).values()
        )
