"""Moments in any order, told once or twice, make the same lives; the book stays small."""

from __future__ import annotations

import pytest

from sexton.core.lives import LIVES_KEPT, UNITS_KEPT, Lives, Moment, UnitMoment, UnitState, moments_of
from sexton.core.loop import Cause


def moment(
    what: Moment, at: float, run: str = "r1", unit: str = "x.service", cause: Cause = Cause.UNKNOWN
) -> UnitMoment:
    return UnitMoment(unit=unit, run=run, at=at, what=what, cause=cause)


def book(*moments: UnitMoment) -> Lives:
    made = Lives()
    for one in moments:
        made.note(one)
    return made


def test_a_restart_that_was_planned_is_systemds_own() -> None:
    made = book(
        moment(Moment.BEGAN, 1),
        moment(Moment.FAILED, 2),
        moment(Moment.RESTART_PLANNED, 2.1),
        moment(Moment.BEGAN, 3, "r2", cause=Cause.HAND),
    )

    first, second = made.of("x.service")
    assert (first.ended, first.failed, second.cause) == (2, True, Cause.POLICY)


def test_what_is_told_twice_counts_once() -> None:
    said = [moment(Moment.BEGAN, 1), moment(Moment.BEGAN, 1.5), moment(Moment.FAILED, 2), moment(Moment.FAILED, 2.2)]

    made = book(*said, *said)

    assert made.turns("x.service") == 1
    assert [(life.began, life.ended) for life in made.of("x.service")] == [(1, 2)]


def test_an_end_without_a_beginning_says_nothing() -> None:
    assert book(moment(Moment.FAILED, 2)).of("x.service") == ()


def test_a_run_that_was_replaced_was_cut_short() -> None:
    first, _ = book(moment(Moment.BEGAN, 1), moment(Moment.BEGAN, 5, "r2")).of("x.service")

    assert (first.ended, first.cut) == (5, True)


def test_the_book_is_bounded_and_still_counts() -> None:
    made = book(
        *(moment(Moment.BEGAN, at, f"r{at}") for at in range(500)),
        *(moment(Moment.BEGAN, at, "r", unit=f"u{at}.service") for at in range(1000, 1000 + UNITS_KEPT - 1)),
    )

    assert len(made.of("x.service")) == LIVES_KEPT
    assert made.turns("x.service") == 500
    made.note(moment(Moment.BEGAN, 9999, "r", unit="one-more.service"))
    assert made.of("x.service") == ()
    assert len(made.units()) == UNITS_KEPT


def state(active: str, sub: str = "", **other: object) -> UnitState:
    fields = {
        "unit": "x.service",
        "run": "r1",
        "result": "success",
        "restarts": 0,
        "asked": False,
        "began": 5.0,
        "at": 7.0,
    }
    return UnitState(active=active, sub=sub, **{**fields, **other})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("seen", "told"),
    [
        (state("active", "running"), [Moment.BEGAN]),
        (state("activating", "start"), [Moment.BEGAN]),
        (
            state("activating", "auto-restart", result="exit-code"),
            [Moment.BEGAN, Moment.FAILED, Moment.RESTART_PLANNED],
        ),
        (state("activating", "auto-restart"), [Moment.BEGAN, Moment.ENDED, Moment.RESTART_PLANNED]),
        (state("deactivating", "stop-sigterm", asked=True), [Moment.BEGAN, Moment.STOPPING]),
        (state("deactivating", "stop-post"), [Moment.BEGAN]),
        (state("inactive", "dead"), [Moment.BEGAN, Moment.ENDED]),
        (state("failed", "failed", result="exit-code"), [Moment.BEGAN, Moment.FAILED]),
        # Between two runs of a restart the id is the next one's, the times are the last one's.
        (state("inactive", "dead", asked=True), [Moment.ENDED]),
        (state("inactive", "dead", run=""), []),
        (state("inactive", "dead", began=0.0), []),
    ],
)
def test_what_a_state_tells(seen: UnitState, told: list[Moment]) -> None:
    assert [one.what for one in moments_of(seen, Cause.HAND)] == told


def test_a_counter_above_zero_says_who_asked() -> None:
    assert {one.cause for one in moments_of(state("active", restarts=2), Cause.HAND)} == {Cause.POLICY}
    assert {one.cause for one in moments_of(state("active"), Cause.HAND)} == {Cause.HAND}
