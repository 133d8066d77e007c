"""Resets a failed unit: systemd forgets that it failed and how often it was started, and starts it if the rule says so.

For a unit that gave up for a reason that is over (a disk that was full, a server that was away). It changes nothing on
disk. A unit that still loops is not reset: that would only begin the loop anew.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from sexton.care.remedy import CannotAct, Ground, Remedy
from sexton.core.action import Cannot, Did, Plan, PlannedStep, Proof
from sexton.core.finding import Finding
from sexton.core.policy import ResetUnit
from sexton.host.errors import HostFault
from sexton.host.unit_control import manager


async def plan(ground: Ground, finding: Finding) -> Plan | Cannot:
    name = finding.fingerprint.partition("/")[2]
    try:
        async with manager(ground.root) as systemd:
            facts = await systemd.read_unit(name)
    except HostFault as fault:
        return Cannot(str(fault), getattr(fault, "next_step", ""))
    if facts.active_state != "failed":
        return Cannot(f"{name} has not failed, it is {facts.active_state} ({facts.sub_state}): nothing to reset")
    steps = [PlannedStep(f"reset {name}", f"have systemd forget that {name} failed")]
    if isinstance(ground.rule, ResetUnit) and ground.rule.start:
        steps.append(PlannedStep(f"start {name}", f"start {name}"))
    return Plan(
        remedy=REMEDY.name,
        fingerprint=finding.fingerprint,
        target=name,
        says=" and ".join(step.key for step in steps),
        steps=tuple(steps),
        seconds=ground.rule.seconds,
        facts={"unit": name},
    )


async def carry_out(ground: Ground, planned: Plan, done: frozenset[str]) -> AsyncIterator[Did]:
    name = planned.facts["unit"]
    try:
        async with manager(ground.root) as systemd:
            for step in planned.steps:
                if step.key in done:
                    continue
                if step.key.startswith("reset "):
                    await systemd.reset_failed(name)
                else:
                    await systemd.start(name)
                facts = await systemd.read_unit(name)
                yield Did(step.key, f"{name} is {facts.active_state} ({facts.sub_state})")
    except HostFault as fault:
        raise CannotAct(f"{fault}. {getattr(fault, 'next_step', '')}".rstrip()) from fault


async def prove(ground: Ground, planned: Plan) -> Proof:
    name = planned.facts["unit"]
    try:
        async with manager(ground.root) as systemd:
            facts = await systemd.read_unit(name)
    except HostFault as fault:
        return Proof(False, f"cannot see how {name} stands now: {fault}")
    return Proof(facts.active_state != "failed", f"{name} is {facts.active_state} ({facts.sub_state})")


REMEDY = Remedy(
    name="reset-unit",
    answers=("unit-failed/*", "unit-loop/*"),
    touches="what systemd remembers of one failed unit; with 'start' it is started once",
    plan=plan,
    carry_out=carry_out,
    prove=prove,
)
