"""Stops a unit that loops, keeps it from starting again, and masks it where something would bring it back.

    stop its triggers -> stop it -> forget that it failed -> disable it and its triggers -> mask it, where a package, a
    preset or another unit would start it again

Each step is one call that the manager carries out whole, and a host on which only the first of them happened is better
off than before: the loop has ended. An administrator's own unit file below /etc cannot be masked; that is said, not
forced.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

from sexton.care.remedy import CannotAct, Ground, Remedy
from sexton.core.action import Cannot, Did, Plan, PlannedStep, Proof
from sexton.core.finding import Finding
from sexton.core.policy import DisableUnit, Mask
from sexton.host.errors import HostFault
from sexton.host.unit_control import ADMINS, PACKAGED, UnitFacts, manager

# Time that a unit's processes get to end by themselves; systemd kills them after the unit's own TimeoutStopSec.
STOP_SECONDS = 30.0
MASKS = "/etc/systemd/system"


async def plan(ground: Ground, finding: Finding) -> Plan | Cannot:
    name, _, inside = finding.fingerprint.partition("/")[2].partition(" ")
    if inside:
        return Cannot(f"{name} is {inside}, with a systemd of its own", "Stop it there, or stop the container.")
    try:
        async with manager(ground.root) as systemd:
            facts = await systemd.read_unit(name)
    except HostFault as fault:
        return Cannot(str(fault), getattr(fault, "next_step", ""))
    if facts.load_state == "not-found" and facts.down:
        return Cannot(f"there is no unit {name} any more")
    why = _comes_back(ground.root, facts)
    rule = ground.rule if isinstance(ground.rule, DisableUnit) else DisableUnit()
    mask = rule.mask is Mask.ALWAYS or (rule.mask is Mask.AUTO and bool(why))
    notes = []
    if mask and facts.fragment.startswith(ADMINS) and not facts.masked:
        mask = False
        notes.append(f"it cannot be masked: {facts.fragment} is the administrator's own file; move that away by hand")
    steps = [PlannedStep(f"stop {one}", f"stop {one}, which starts it") for one in facts.triggered_by]
    steps.append(PlannedStep(f"stop {name}", f"stop {name}, now {facts.active_state} ({facts.sub_state})"))
    steps.append(PlannedStep(f"reset {name}", f"have systemd forget that {name} failed, and how often"))
    steps += [PlannedStep(f"disable {one}", f"disable {one}") for one in facts.triggered_by]
    steps.append(PlannedStep(f"disable {name}", f"disable {name}, now {facts.file_state or 'without a file'}"))
    if mask:
        reasons = "; ".join(why) or "the policy says always"
        steps.append(PlannedStep(f"mask {name}", f"mask {name} ({MASKS}/{name} -> /dev/null): {reasons}"))
    undo = [f"systemctl unmask {name}"] if mask and not facts.masked else []
    undo += [f"systemctl enable {one}" for one in (*facts.triggered_by, *([name] if facts.enabled else []))]
    undo += [f"systemctl start {one}" for one in (facts.triggered_by or (name,))]
    return Plan(
        remedy=REMEDY.name,
        fingerprint=finding.fingerprint,
        target=name,
        says=f"stop and disable{' and mask' if mask else ''} {name}",
        steps=tuple(steps),
        undo=tuple(undo),
        notes=tuple(notes),
        touches=1 + len(facts.triggered_by),
        seconds=ground.rule.seconds,
        facts={"unit": name},
    )


def _comes_back(root: Path, facts: UnitFacts) -> tuple[str, ...]:
    """What would start it again although it is disabled."""
    why = []
    if facts.fragment.startswith(PACKAGED):
        why.append(f"its package may enable it again ({facts.fragment})")
    if facts.preset == "enabled":
        why.append("a preset enables it")
    others = [one for one in facts.wanted_by if not _by_its_own_enabling(root, one, facts.name)]
    if others:
        why.append(f"wanted by {', '.join(others[:3])}")
    return tuple(why)


def _by_its_own_enabling(root: Path, wanting: str, name: str) -> bool:
    """Is it wanted only by a link that disabling removes?"""
    places = ("etc/systemd/system", "run/systemd/system")
    return any(
        os.path.lexists(root / place / f"{wanting}.{kind}" / name) for place in places for kind in ("wants", "requires")
    )


async def carry_out(ground: Ground, planned: Plan, done: frozenset[str]) -> AsyncIterator[Did]:
    try:
        async with manager(ground.root) as systemd:
            for step in planned.steps:
                if step.key in done:
                    continue
                verb, _, unit = step.key.partition(" ")
                if verb == "stop":
                    facts = await systemd.stop(unit, STOP_SECONDS)
                    if not facts.down:
                        raise CannotAct(f"{unit} does not stop: still {facts.active_state} ({facts.sub_state})")
                elif verb == "reset":
                    await systemd.reset_failed(unit)
                elif verb == "disable":
                    await systemd.disable(unit)
                else:
                    await systemd.mask(unit)
                facts = await systemd.read_unit(unit)
                yield Did(step.key, f"{unit} is {facts.active_state}, {_file_state(facts)}")
    except HostFault as fault:
        raise CannotAct(f"{fault}. {getattr(fault, 'next_step', '')}".rstrip()) from fault


def _file_state(facts: UnitFacts) -> str:
    return "masked" if facts.masked else facts.file_state or "without a unit file"


async def prove(ground: Ground, planned: Plan) -> Proof:
    name = planned.facts["unit"]
    try:
        async with manager(ground.root) as systemd:
            facts = await systemd.read_unit(name)
    except HostFault as fault:
        return Proof(False, f"cannot see how {name} stands now: {fault}")
    masks = any(step.key.startswith("mask ") for step in planned.steps)
    holds = facts.down and not facts.enabled and (facts.masked or not masks)
    return Proof(holds, f"{name} is {facts.active_state} ({facts.sub_state}), {_file_state(facts)}")


REMEDY = Remedy(
    name="disable-unit",
    answers=("unit-loop/*",),
    touches="one unit and the timers, sockets and paths that start it: stopped, disabled, masked where it comes back",
    plan=plan,
    carry_out=carry_out,
    prove=prove,
)
