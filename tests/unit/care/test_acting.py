"""Acting: never without a yes, written down first, finished after any death, and done no more the second time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from sexton.care.acting import REMEDIES, Actor, NoRemedy
from sexton.care.ledger import Ledger, ledger_file, open_ledger
from sexton.care.remedy import CannotAct, Ground, Remedy
from sexton.core.action import FINISH_WITHIN, Action, Cannot, Did, Outcome, Plan, PlannedStep, Proof
from sexton.core.finding import Finding, Severity
from sexton.core.ledger import Kind, Look, Sight
from sexton.core.policy import DisableUnit, Mode, Policy, Remedies

NAME = "unit-loop/a.service"
STEPS = ("stop", "disable", "mask")


class Death(BaseException):
    """The process is gone: nothing after this runs."""


class Unit:
    """A host with one unit that loops until it is stopped, disabled and masked."""

    def __init__(self, *, heals: bool = True) -> None:
        self.done: list[str] = []
        self.effects: dict[str, int] = {}
        self.heals = heals
        self.dies_after: int | None = None
        self.breaks_at = ""

    @property
    def well(self) -> bool:
        return self.heals and set(STEPS) <= set(self.done)

    def findings(self) -> tuple[Finding, ...]:
        if self.well:
            return ()
        told = {"severity": Severity.WARNING, "title": "loops", "culprit": "a", "evidence": (), "next_step": ""}
        return (Finding(fingerprint=NAME, **told),)

    def look(self) -> Look:
        return Look(probe="units", sight=Sight.LOOKED, findings=self.findings())

    async def look_again(self, probe: str) -> Look | None:
        return self.look()

    def remedy(self) -> Remedy:
        async def plan(ground: Ground, finding: Finding) -> Plan | Cannot:
            steps = tuple(PlannedStep(step, f"{step} it") for step in STEPS)
            return Plan(remedy="disable-unit", fingerprint=NAME, target="a.service", says="end it", steps=steps)

        async def carry_out(ground: Ground, planned: Plan, done: frozenset[str]) -> AsyncIterator[Did]:
            for number, step in enumerate(planned.steps):
                if self.dies_after == 2 * number:
                    raise Death
                if step.key in done:
                    continue
                if step.key == self.breaks_at:
                    raise CannotAct("it does not obey")
                if step.key not in self.done:
                    self.effects[step.key] = self.effects.get(step.key, 0) + 1
                self.done.append(step.key)
                if self.dies_after == 2 * number + 1:
                    raise Death
                yield Did(step.key, "as it was said")

        async def prove(ground: Ground, planned: Plan) -> Proof:
            if self.dies_after == 2 * len(STEPS):
                raise Death
            return Proof(set(STEPS) <= set(self.done), "masked")

        return Remedy(
            name="disable-unit", answers=("unit-loop/*",), touches="a unit", plan=plan, carry_out=carry_out, prove=prove
        )


def actor(ledger: Ledger, unit: Unit, **rule: object) -> Actor:
    remedies = Remedies(disable_unit=DisableUnit(**{"mode": Mode.ACT, "only": ("*",), "after": 0.0, **rule}))
    return Actor(
        ledger,
        Policy(source="a file", remedies=remedies),
        root=Path("/"),
        docker_host="unix:///nowhere",
        look_again=unit.look_again,
        remedies=(unit.remedy(),),
    )


async def seen(ledger: Ledger, unit: Unit, now: float = 1000.0) -> None:
    await ledger.file(unit.look(), now)
    await ledger.file(unit.look(), now + 60)


async def kinds(ledger: Ledger) -> list[Kind]:
    return [entry.kind for entry in await ledger.history(NAME)]


async def test_what_is_allowed_is_done_proved_and_closed(tmp_path: Path) -> None:
    unit = Unit()
    async with open_ledger(ledger_file(tmp_path)) as ledger:
        await seen(ledger, unit)
        said = await actor(ledger, unit).attend(2000.0)

        assert unit.effects == dict.fromkeys(STEPS, 1)
        (done,) = ledger.actions
        assert (done.outcome, done.who) == (Outcome.DONE, "policy")
        assert "a file" in done.why
        assert "does not hold any more" in done.says
        assert not ledger.find(NAME).open
        assert await kinds(ledger) == [
            *(Kind.OPENED, Kind.ACTING, Kind.STEP, Kind.STEP, Kind.STEP),
            *(Kind.RESOLVED, Kind.PROVED, Kind.DONE),
        ]
        assert said == (f"disable-unit for {NAME}: done",)
        assert await actor(ledger, unit).attend(3000.0) == ()


async def test_a_dry_run_says_once_what_it_would_do(tmp_path: Path) -> None:
    unit = Unit()
    async with open_ledger(ledger_file(tmp_path)) as ledger:
        await seen(ledger, unit)
        for now in (2000.0, 2030.0, 4000.0, 9000.0):
            await actor(ledger, unit, mode=Mode.DRY_RUN).attend(now)

        assert unit.done == []
        assert ledger.actions == ()
        assert await kinds(ledger) == [Kind.OPENED, Kind.PLANNED]
        (_, planned) = await ledger.history(NAME)
        assert "would end it (stop it; disable it; mask it)" in planned.says


async def test_a_vital_unit_is_refused_even_to_a_person(tmp_path: Path) -> None:
    unit = Unit()
    async with open_ledger(ledger_file(tmp_path)) as ledger:
        await seen(ledger, unit)
        strict = actor(ledger, unit, never=("a*",))
        await strict.attend(2000.0)

        assert await kinds(ledger) == [Kind.OPENED, Kind.REFUSED]
        with pytest.raises(NoRemedy, match="forbids"):
            async for _ in strict.fix(ledger.find(NAME), "", "me", "because"):
                pass
        with pytest.raises(NoRemedy, match="no remedy of that name"):
            async for _ in strict.fix(ledger.find(NAME), "other", "me", "because"):
                pass
        assert unit.done == []


async def test_a_persons_yes_needs_no_policy(tmp_path: Path) -> None:
    unit = Unit()
    async with open_ledger(ledger_file(tmp_path)) as ledger:
        await seen(ledger, unit)
        asked = actor(ledger, unit, mode=Mode.DRY_RUN, only=())
        told = [one async for one in asked.fix(ledger.find(NAME), "", "me", "it is broken")]

        assert [type(one) for one in told] == [Did, Did, Did, Action]
        assert (ledger.actions[0].who, ledger.actions[0].why) == ("me", "it is broken")


@pytest.mark.parametrize("instant", range(2 * len(STEPS) + 1))
async def test_killed_at_any_instant_the_next_finishes_and_nothing_happens_twice(tmp_path: Path, instant: int) -> None:
    unit = Unit()
    unit.dies_after = instant
    async with open_ledger(ledger_file(tmp_path)) as ledger:
        await seen(ledger, unit)
        with pytest.raises(Death):
            await actor(ledger, unit).attend(2000.0)
    unit.dies_after = None
    async with open_ledger(ledger_file(tmp_path)) as ledger:
        (left,) = ledger.actions
        assert left.outcome is Outcome.RUNNING
        said = await actor(ledger, unit).finish(left.begun + 5)

        assert said == (f"disable-unit for {NAME} was finished after its process had died",)
        assert unit.effects == dict.fromkeys(STEPS, 1)
        assert [one.outcome for one in ledger.actions] == [Outcome.DONE]
        assert not ledger.find(NAME).open
        assert await actor(ledger, unit).finish(left.begun + 6) == ()
        assert await actor(ledger, unit).attend(left.begun + 9000) == ()
        assert unit.effects == dict.fromkeys(STEPS, 1)


async def test_too_late_it_only_says_how_far_it_came(tmp_path: Path) -> None:
    unit = Unit()
    unit.dies_after = 2
    async with open_ledger(ledger_file(tmp_path)) as ledger:
        await seen(ledger, unit)
        with pytest.raises(Death):
            await actor(ledger, unit).attend(2000.0)
    unit.dies_after = None
    async with open_ledger(ledger_file(tmp_path)) as ledger:
        (said,) = await actor(ledger, unit).finish(ledger.actions[0].begun + FINISH_WITHIN + 1)

        assert "not done: disable, mask" in said
        assert unit.done == ["stop"]
        assert ledger.actions[0].outcome is Outcome.INTERRUPTED
        assert ledger.find(NAME).open


async def test_a_step_that_cannot_be_done_is_told_and_the_rest_is_left(tmp_path: Path) -> None:
    unit = Unit()
    unit.breaks_at = "disable"
    async with open_ledger(ledger_file(tmp_path)) as ledger:
        await seen(ledger, unit)
        await actor(ledger, unit).attend(2000.0)

        (done,) = ledger.actions
        assert done.outcome is Outcome.FAILED
        assert done.says == "it does not obey; not done: disable, mask"
        begun = done.begun
        said = await actor(ledger, unit).attend(begun + 600.0)
        assert "not again within" in said[0]
        assert len(ledger.actions) == 1


async def test_what_did_not_end_it_is_not_done_again_and_again(tmp_path: Path) -> None:
    unit = Unit(heals=False)
    async with open_ledger(ledger_file(tmp_path)) as ledger:
        await seen(ledger, unit)
        doer = actor(ledger, unit)
        await doer.attend(2000.0)
        assert "still holds" in ledger.actions[0].says
        assert ledger.find(NAME).open
        begun = ledger.actions[0].begun
        for minute in range(5, 300, 5):
            said = await doer.attend(begun + 60.0 * minute)
            assert "not again within" in said[0]
        assert len(ledger.actions) == 1


async def test_a_blind_second_look_is_said(tmp_path: Path) -> None:
    unit = Unit()
    async with open_ledger(ledger_file(tmp_path)) as ledger:
        await seen(ledger, unit)
        doer = actor(ledger, unit)

        async def blind(probe: str) -> Look:
            return Look(probe=probe, sight=Sight.BLIND, reason="too dark")

        doer._look_again = blind
        await doer.attend(2000.0)

        assert "units could not look again: too dark" in ledger.actions[0].says
        assert ledger.find(NAME).open


def test_every_remedy_has_a_rule_and_says_what_it_touches() -> None:
    names = [remedy.name for remedy in REMEDIES]

    assert sorted(names) == sorted(field.encode_name for field in msgspec.structs.fields(Remedies))
    assert all(remedy.touches and remedy.answers for remedy in REMEDIES)
