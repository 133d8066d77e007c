"""Counting groups by kind: exact with very many, small all the same, and a zombie only after its time of grace."""

from __future__ import annotations

from sexton.core.churn import GRACE, KINDS_KEPT, TURNS_KEPT, Churn, kind_of
from sexton.core.finding import Severity
from sexton.core.loop import Shape, judge_loop

SERVICE = "/system.slice/ecs.service"


def turn(churn: Churn, ident: int, path: str, at: float, *, lasting: float = 1.0, released: bool = False) -> None:
    churn.made(ident, path, at, "runc")
    churn.removed(ident, path, at + lasting)
    if released:
        churn.released(ident, path)


def test_names_that_differ_by_a_number_or_an_id_are_one_kind() -> None:
    assert (
        kind_of("/docker/" + "0123456789abcdef" * 4) == kind_of("/docker/" + "fedcba9876543210" * 4) == ("/docker", "*")
    )
    assert kind_of("/run-12") == ("/", "run-*")


def test_seventy_thousand_are_counted_by_kind_and_few_are_kept() -> None:
    churn = Churn()
    for number in range(70_000):
        turn(churn, number, f"{SERVICE}/run-{number}", number, released=number % 10 == 0)

    (kind,) = churn.kinds()
    assert (kind.made, kind.removed, kind.released) == (70_000, 70_000, 7_000)
    assert churn.left() == 63_000
    assert len(churn.lives(kind, 80_000)) == TURNS_KEPT


def test_names_without_a_pattern_do_not_fill_the_memory() -> None:
    churn = Churn()
    for number in range(5_000):
        word = "".join(chr(ord("a") + int(digit)) for digit in str(number))
        turn(churn, number, f"/top/{word}/x", number)

    assert len(churn.kinds()) == KINDS_KEPT


def test_a_group_is_a_zombie_only_after_its_time_of_grace() -> None:
    churn = Churn()
    turn(churn, 1, f"{SERVICE}/run-1", 10)
    turn(churn, 2, f"{SERVICE}/run-2", 20, released=True)
    (kind,) = churn.kinds()

    assert [life.left for life in churn.lives(kind, 11 + GRACE - 0.1)] == [None, False]
    assert [life.left for life in churn.lives(kind, 11 + GRACE)] == [True, False]


def test_a_leaking_loop_inside_a_service_is_its_units() -> None:
    churn = Churn()
    for number in range(3):
        turn(churn, number, f"{SERVICE}/run-{number}", 10.0 * number)

    ((kind, loop),) = churn.loops(25)

    assert (loop.who, loop.shape, loop.turns, loop.left) == ("ecs.service", Shape.INSIDE, 3, 3)
    assert kind.path == f"{SERVICE}/run-*"
    assert churn.makers(kind) == ("runc",)


def test_leaking_containers_are_told_and_quiet_ones_are_the_engines_business() -> None:
    churn = Churn()
    for number in range(30):
        turn(churn, number, f"/docker/{number:064x}", 10.0 * number, released=True)
    assert churn.loops(300) == ()
    for number in range(30, 63):
        turn(churn, number, f"/docker/{number:064x}", 10.0 * number)

    ((_, loop),) = churn.loops(630)

    assert loop.who == "groups /docker/*"


def test_a_few_leftovers_of_many_turns_are_no_leak() -> None:
    """A health check by a timer, every two seconds, of whose runs the kernel holds one in ten for a while."""
    churn = Churn()
    for number in range(60):
        turn(churn, number, "/system.slice/check.service", 2.0 * number, released=number % 10 > 0)

    assert churn.loops(130) == ()


def test_a_unit_whose_every_start_leaves_a_zombie_is_told_under_its_own_name() -> None:
    churn = Churn()
    for number in range(4):
        turn(churn, number, "/system.slice/ecs.service", 10.0 * number)
        turn(churn, 100 + number, f"/system.slice/system-job.slice/job@{number}.service", 10.0 * number)

    told = {kind.path: (loop.who, kind.unit) for kind, loop in churn.loops(40)}

    assert told == {
        "/system.slice/ecs.service": ("ecs.service", "ecs.service"),
        "/system.slice/system-job.slice/job@*.service": (
            "groups /system.slice/system-job.slice/job@*.service",
            "",
        ),
    }


def test_many_quick_turns_that_leave_nothing_are_a_warning_at_most() -> None:
    churn = Churn()
    for number in range(60):
        turn(churn, number, f"{SERVICE}/run-{number}", 2.0 * number, released=True)

    ((_, loop),) = churn.loops(121)
    finding = judge_loop(loop, 121, source="test")

    assert finding.severity is Severity.WARNING
    assert any(item.what == "do its turns fail" for item in finding.evidence)


def test_a_units_own_groups_and_scopes_are_not_inside_it() -> None:
    churn = Churn()
    for number in range(60):
        turn(churn, number, "/system.slice/nightly.service", 2.0 * number, released=True)
        turn(churn, 1000 + number, f"/user.slice/session-{number}.scope", 2.0 * number, released=True)

    assert churn.loops(120) == ()
