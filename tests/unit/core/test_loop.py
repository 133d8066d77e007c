"""Five shapes of loops are told at their third turn, and what only looks like one stays silent."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.core.finding import Severity, Turn, judge_containers
from sexton.core.loop import Cause, Life, Loop, Shape, Toll, inner_loop, judge_loop, trouble_in, unit_loop

DAY = 86400.0


def lives(
    count: int,
    *,
    every: float,
    lasting: float,
    cause: Cause = Cause.UNKNOWN,
    failed: bool = False,
    cut: bool = False,
    upgrade: bool = False,
    left: bool | None = None,
    begin: float = 1000.0,
) -> list[Life]:
    return [
        Life(
            began=begin + turn * every,
            ended=begin + turn * every + lasting,
            cause=cause,
            failed=failed,
            cut=cut,
            upgrade=upgrade,
            left=left,
        )
        for turn in range(count)
    ]


def running(after: Sequence[Life], *, gap: float, cause: Cause) -> list[Life]:
    last = after[-1].ended
    assert last is not None
    return [*after, Life(began=last + gap, cause=cause)]


def end_of(some: Sequence[Life]) -> float:
    return some[-1].ended if some[-1].ended is not None else some[-1].began


SHAPES = {
    Shape.ALWAYS: (lives(3, every=2, lasting=1, cause=Cause.POLICY), "always", ""),
    Shape.ON_FAILURE: (lives(3, every=11, lasting=1, cause=Cause.POLICY, failed=True), "on-failure", ""),
    Shape.TIMER: (lives(3, every=DAY, lasting=400, cause=Cause.TRIGGER, failed=True), "no", "nightly.timer"),
    Shape.BY_HAND: (lives(3, every=20, lasting=5, cause=Cause.HAND, failed=True), "no", ""),
}


@pytest.mark.parametrize("shape", list(SHAPES))
def test_each_shape_is_told_at_its_third_turn_and_not_before(shape: Shape) -> None:
    some, policy, trigger = SHAPES[shape]

    assert unit_loop("x.service", some[:2], end_of(some[:2]), policy=policy, trigger=trigger) is None
    found = unit_loop("x.service", some, end_of(some), policy=policy, trigger=trigger)

    assert found is not None
    assert (found.shape, found.turns, found.since) == (shape, 3, 1000.0)
    assert found.period == some[1].began - some[0].began


def test_restarts_by_hand_of_a_service_that_runs_well_are_told_too() -> None:
    some = lives(3, every=10, lasting=10, cause=Cause.HAND, cut=True)

    found = unit_loop("x.service", running(some, gap=0, cause=Cause.HAND), end_of(some) + 1)

    assert found is not None
    assert found.shape is Shape.BY_HAND


@pytest.mark.parametrize(
    "some",
    [lives(3, every=15, lasting=1, failed=True), lives(3, every=15, lasting=1, left=True)],
    ids=["failing", "leaking"],
)
def test_a_loop_inside_a_service_is_told_at_its_third_turn(some: list[Life]) -> None:
    assert inner_loop("x.service", some[:2], end_of(some)) is None
    found = inner_loop("x.service", some, end_of(some))

    assert found is not None
    assert found.shape is Shape.INSIDE


def test_a_loop_that_backs_off_is_one() -> None:
    some = [Life(began=at, ended=at + 0.3, failed=True) for at in (0, 0.5, 1.5, 3.5, 7.5, 15.5, 30.5, 45.5)]

    found = inner_loop("ecs.service", some, 46)

    assert found is not None
    assert found.turns == 8


# What only looks like a loop. Name: (lives, restart policy, trigger, seconds after the last sign)
HEALTHY: dict[str, tuple[list[Life], str, str, float]] = {
    "a timer's oneshot that succeeds": (lives(40, every=60, lasting=1, cause=Cause.TRIGGER), "no", "t.timer", 1),
    "a timer that failed twice and succeeded": (
        [*lives(2, every=60, lasting=1, cause=Cause.TRIGGER, failed=True), Life(began=1120, ended=1121)],
        "no",
        "t.timer",
        1,
    ),
    "a timer that fails every other time": (
        [Life(began=float(at), ended=at + 1.0, cause=Cause.TRIGGER, failed=at % 120 == 0) for at in range(0, 1200, 60)],
        "no",
        "t.timer",
        1,
    ),
    "one stumble at boot": (
        running(lives(1, every=1, lasting=1, failed=True), gap=1, cause=Cause.POLICY),
        "on-failure",
        "",
        5,
    ),
    "two stumbles at boot until a disk is there": (
        running(lives(2, every=2, lasting=1, cause=Cause.POLICY, failed=True), gap=1, cause=Cause.POLICY),
        "on-failure",
        "",
        5,
    ),
    "five stumbles at boot, and up for ten minutes since": (
        running(lives(5, every=2, lasting=1, cause=Cause.POLICY, failed=True), gap=1, cause=Cause.POLICY),
        "always",
        "",
        600,
    ),
    "a daemon that ends itself every hour and is restarted": (
        lives(24, every=3605, lasting=3600, cause=Cause.POLICY),
        "always",
        "",
        1,
    ),
    "a daemon that fails once a day": (
        lives(5, every=DAY, lasting=DAY - 5, cause=Cause.POLICY, failed=True),
        "on-failure",
        "",
        1,
    ),
    "three deploys in an hour": (
        running(lives(3, every=1200, lasting=1199, cause=Cause.HAND, cut=True), gap=1, cause=Cause.HAND),
        "always",
        "",
        5,
    ),
    "ten deploys a day, for a week": (
        lives(70, every=8640, lasting=8639, cause=Cause.HAND, cut=True),
        "on-failure",
        "",
        5,
    ),
    "a person who tries it twice": (lives(2, every=20, lasting=5, cause=Cause.HAND, failed=True), "no", "", 5),
    "restarts by a package upgrade": (
        running(lives(4, every=8, lasting=8, cause=Cause.HAND, cut=True, upgrade=True), gap=0, cause=Cause.HAND),
        "always",
        "",
        5,
    ),
    "a person who tries it three times, and then it runs": (
        running(lives(3, every=20, lasting=5, cause=Cause.HAND, failed=True), gap=20, cause=Cause.HAND),
        "no",
        "",
        120,
    ),
    "a oneshot a script calls every few seconds": (lives(50, every=5, lasting=1, cause=Cause.HAND), "no", "", 1),
    "a service that a socket starts and that ends when it is idle": (
        lives(20, every=90, lasting=30, cause=Cause.TRIGGER),
        "no",
        "x.socket",
        1,
    ),
    "a service that D-Bus starts and that ends when it is idle": (
        lives(20, every=90, lasting=30, cause=Cause.HAND),
        "no",
        "",
        1,
    ),
    "a loop that was repaired an hour ago": (
        lives(30, every=2, lasting=1, cause=Cause.POLICY, failed=True),
        "always",
        "",
        3600,
    ),
    "a host that shuts down and stops everything once": (
        lives(1, every=1, lasting=30, cause=Cause.UNKNOWN, cut=True),
        "always",
        "",
        1,
    ),
}


@pytest.mark.parametrize("name", list(HEALTHY))
def test_healthy_units_stay_silent(name: str) -> None:
    some, policy, trigger, later = HEALTHY[name]

    assert unit_loop("x.service", some, end_of(some) + later, policy=policy, trigger=trigger) is None


HEALTHY_INSIDE: dict[str, list[Life]] = {
    "a build of eight steps": [
        Life(began=at, ended=at + long)
        for at, long in ((0, 3), (3.5, 20), (24, 1), (25.5, 7), (33, 45), (79, 2), (81.5, 2), (84, 12))
    ],
    "workers side by side": [Life(began=at * 0.5, ended=at * 0.5 + 5, failed=True) for at in range(30)],
    "jobs that take minutes": lives(10, every=200, lasting=150, left=True),
    "a job a minute that leaves nothing": lives(15, every=60, lasting=2, left=False),
    "three quick jobs, one of which left a group behind": [
        Life(began=0, ended=1, left=True),
        Life(began=5, ended=6, left=False),
        Life(began=10, ended=11, left=False),
    ],
}


@pytest.mark.parametrize("name", list(HEALTHY_INSIDE))
def test_healthy_work_inside_a_service_stays_silent(name: str) -> None:
    some = HEALTHY_INSIDE[name]

    assert inner_loop("runner.service", some, end_of(some)) is None


def containers(count: int, *, every: float, lasting: float, code: int | None, name: str = "web-{}") -> list[Turn]:
    return [
        Turn(
            container_id=f"{number:064x}",
            name=name.format(number),
            image="shop/web",
            started=1000 + number * every,
            died=None if code is None else 1000 + number * every + lasting,
            exit_code=code,
        )
        for number in range(count)
    ]


HEALTHY_CONTAINERS: dict[str, list[Turn]] = {
    "scaled out by twenty": containers(20, every=0.5, lasting=0, code=None),
    "scaled in by twenty, all stopped from outside": containers(20, every=0.5, lasting=30, code=143),
    "a batch of jobs that succeed": containers(50, every=2, lasting=1, code=0),
    "a rolling deploy that kills the old ones": containers(6, every=10, lasting=45, code=137),
    "two tries": containers(2, every=3, lasting=1, code=1),
}


@pytest.mark.parametrize("name", list(HEALTHY_CONTAINERS))
def test_healthy_containers_stay_silent(name: str) -> None:
    turns = HEALTHY_CONTAINERS[name]

    assert judge_containers(turns, turns[-1].died or turns[-1].started) == ()


def test_there_are_at_least_twenty_healthy_patterns() -> None:
    assert len(HEALTHY) + len(HEALTHY_INSIDE) + len(HEALTHY_CONTAINERS) >= 20


def a_loop(**other: object) -> Loop:
    fields = {"who": "x.service", "shape": Shape.ALWAYS, "turns": 57, "period": 10.0, "since": 0.0, "last": 570.0}
    return Loop(**{**fields, **other})  # type: ignore[arg-type]


def test_the_day_of_trouble_is_told_within_a_fifth() -> None:
    toll = Toll(left=57, turns=57, zombies=100)

    ahead = trouble_in(a_loop(), toll, 1000)

    assert ahead == pytest.approx(900 * 10.0, rel=0.2)
    assert trouble_in(a_loop(), Toll(left=0, turns=57, zombies=100), 1000) is None
    assert trouble_in(a_loop(), Toll(left=5, turns=57, zombies=2000), 1000) is None


def test_a_finding_tells_period_count_since_leak_and_the_day_of_trouble() -> None:
    found = judge_loop(a_loop(), 600, source="here", toll=Toll(left=114, turns=57, zombies=200))

    told = {item.what: item.value for item in found.evidence}
    assert found.fingerprint == "unit-loop/x.service"
    assert told["turns"] == "57 in a row, one every 10 s"
    assert told["since"] == "10 minutes ago"
    assert told["each turn leaks"] == "2.0 zombie cgroups (114 are left of 57 turns)"
    assert told["at this pace 1,000 zombies"] == "in 67 minutes"
    assert "at this pace 10,000 zombies" in told


def test_what_nothing_ends_and_turns_every_minute_is_critical() -> None:
    def severity(**other: object) -> Severity:
        return judge_loop(a_loop(**other), 600, source="here").severity

    assert severity(period=59.0) is Severity.CRITICAL
    assert severity(period=61.0) is Severity.WARNING
    assert severity(period=1.0, endless=False) is Severity.WARNING


lives_of_any_kind = st.lists(
    st.builds(
        lambda gap, length, cause, failed, cut: (gap, length, cause, failed, cut),
        st.floats(0, 1e6),
        st.one_of(st.none(), st.floats(0, 1e6)),
        st.sampled_from(Cause),
        st.booleans(),
        st.booleans(),
    ),
    max_size=80,
)


@given(lives_of_any_kind, st.sampled_from(["no", "always", "on-failure", ""]), st.floats(0, 1e9))
def test_any_history_is_judged_and_a_loop_has_three_turns(drawn: list[tuple], policy: str, later: float) -> None:  # type: ignore[type-arg]
    at, some = 0.0, []
    for gap, length, cause, failed, cut in drawn:
        at += gap
        some.append(Life(began=at, ended=None if length is None else at + length, cause=cause, failed=failed, cut=cut))

    for found in (unit_loop("x", some, at + later, policy=policy), inner_loop("x", some, at + later)):
        assert found is None or (found.turns >= 3 and found.period >= 0)
