"""Nothing is done that nobody allowed, and what keeps a host reachable is never touched."""

from __future__ import annotations

import msgspec
import pytest

from sexton.core.action import Action, Outcome, Plan, PlannedStep
from sexton.core.finding import Finding, Severity
from sexton.core.ledger import Mute, Record, View
from sexton.core.policy import (
    DAY,
    PROTECTED_UNITS,
    REPEAT_AFTER,
    Decision,
    DisableUnit,
    LocalTime,
    Mode,
    Policy,
    Remedies,
    ResetUnit,
    Verdict,
    Window,
    bounds,
    decide,
    decide_before,
    protected,
)

NOON = LocalTime(weekday=2, minute=12 * 60)


def plan(target: str = "a.service", touches: int = 1) -> Plan:
    return Plan(
        remedy="disable-unit",
        fingerprint=f"unit-loop/{target}",
        target=target,
        says="",
        steps=(PlannedStep("x", "x"),),
        touches=touches,
    )


def record(looks: int = 5, mute: Mute | None = None, opened: float = 0) -> Record:
    found = Finding(
        fingerprint="unit-loop/a.service", severity=Severity.WARNING, title="", culprit="", evidence=(), next_step=""
    )
    return Record(
        finding=found,
        views={"p": View(found)},
        open=True,
        first_seen=0,
        last_seen=0,
        opened=opened,
        looks=looks,
        mute=mute,
    )


def allowing(**rule: object) -> Policy:
    told = {"mode": Mode.ACT, "only": ("*",), **rule}
    return Policy(source="file", remedies=Remedies(disable_unit=DisableUnit(**told)))


def verdict(
    policy: Policy,
    what: Plan | None = None,
    held: Record | None = None,
    before: tuple[Action, ...] = (),
    now: float = 1000,
    local: LocalTime = NOON,
) -> Decision:
    what, held = what or plan(), held or record()
    return decide_before(policy, "disable-unit", held, before, now, local) or decide(policy, what)


def test_without_a_policy_everything_is_a_dry_run() -> None:
    for remedy in ("disable-unit", "reset-unit", "purge-memcg", "prune-images"):
        assert Policy().remedies.of(remedy).mode is Mode.DRY_RUN
    assert verdict(Policy()).verdict is Verdict.DRY_RUN


def test_what_is_allowed_by_name_is_done() -> None:
    assert verdict(allowing(only=("ecs*",)), plan("ecs.service")).verdict is Verdict.ACT
    assert verdict(allowing(only=("ecs*",)), plan("web.service")).verdict is Verdict.NO
    assert verdict(allowing(never=("a*",))).verdict is Verdict.NO


@pytest.mark.parametrize(
    "unit",
    [
        *("ssh.service", "sshd.service", "systemd-journald.service", "dbus.service", "docker.service"),
        *("kubelet.service", "user@0.service", "cloud-init.service", "sexton-care.service", "init.scope"),
        *("system.slice", "var.mount"),
    ],
)
def test_what_keeps_the_host_is_never_touched(unit: str) -> None:
    assert protected(unit)
    assert verdict(allowing(), plan(unit)).verdict is Verdict.NO


def test_having_a_failure_forgotten_stops_nothing() -> None:
    failed = msgspec.structs.replace(plan("systemd-networkd-wait-online.service"), remedy="reset-unit")

    assert bounds(ResetUnit(), failed) is None
    assert bounds(ResetUnit(start=True), failed) is not None
    assert bounds(ResetUnit(never=("systemd-*",)), failed) is not None


def test_what_is_not_vital_may_be() -> None:
    assert not any(protected(unit) for unit in ("ecs.service", "nginx.service", "cron.service", "a@b.service"))
    assert len(set(PROTECTED_UNITS)) == len(PROTECTED_UNITS)


def test_a_plan_that_reaches_too_far_is_refused() -> None:
    assert verdict(allowing(most_touched=2), plan(touches=3)).verdict is Verdict.NO
    assert verdict(allowing(most_touched=3), plan(touches=3)).verdict is Verdict.ACT


def test_a_finding_must_have_held() -> None:
    assert verdict(allowing(after=600.0), now=599).verdict is Verdict.LATER
    assert verdict(allowing(after=600.0), now=600).verdict is Verdict.ACT
    assert verdict(allowing(after=0.0), held=record(looks=1)).verdict is Verdict.LATER


def test_muted_means_left_alone() -> None:
    mute = Mute(since=0, until=None, who="me")

    assert verdict(allowing(), held=record(mute=mute)).verdict is Verdict.NO


@pytest.mark.parametrize(
    ("day", "minute", "inside"),
    [(0, 23 * 60, True), (1, 60, True), (1, 23 * 60, False), (0, 60, False), (0, 22 * 60 - 1, False), (1, 240, False)],
)
def test_a_window_over_midnight_belongs_to_the_day_it_begins_on(day: int, minute: int, inside: bool) -> None:
    policy = Policy(remedies=allowing().remedies, windows=(Window(days=frozenset({0}), begins=22 * 60, ends=4 * 60),))

    assert (verdict(policy, local=LocalTime(day, minute)).verdict is Verdict.ACT) == inside


def action(begun: float, outcome: Outcome = Outcome.DONE, target: str = "other.service") -> Action:
    return Action(id=str(begun), plan=plan(target), who="policy", why="", begun=begun, outcome=outcome)


def test_a_days_budget_is_kept() -> None:
    now = 10 * DAY
    three = tuple(action(now - 100 * number) for number in range(1, 4))

    assert verdict(allowing(per_day=3), before=three, now=now).verdict is Verdict.LATER
    assert verdict(allowing(per_day=4), before=three, now=now).verdict is Verdict.ACT
    assert verdict(allowing(per_day=3), before=three, now=now + DAY).verdict is Verdict.ACT
    assert verdict(Policy(remedies=allowing(per_day=9).remedies, per_day=3), before=three, now=now).verdict is (
        Verdict.LATER
    )


def test_what_did_not_help_is_not_tried_again_soon_and_later_each_time() -> None:
    once = (action(0, Outcome.NO_EFFECT, "a.service"),)
    twice = (*once, action(REPEAT_AFTER, Outcome.FAILED, "a.service"))

    assert verdict(allowing(), before=once, now=REPEAT_AFTER - 1).verdict is Verdict.LATER
    assert verdict(allowing(), before=once, now=REPEAT_AFTER).verdict is Verdict.ACT
    assert verdict(allowing(), before=twice, now=3 * REPEAT_AFTER - 1).verdict is Verdict.LATER
    assert verdict(allowing(), before=twice, now=3 * REPEAT_AFTER).verdict is Verdict.ACT


def test_what_was_proved_and_came_again_is_done_again_and_what_never_went_is_not() -> None:
    done = (action(100, Outcome.DONE, "a.service"),)

    assert verdict(allowing(), held=record(opened=0), before=done, now=2000).verdict is Verdict.LATER
    assert verdict(allowing(), held=record(opened=500), before=done, now=2000).verdict is Verdict.ACT
