"""Frees zombie memory cgroups by the ladder of ``core/purge.py``: exact pages first, then bounded reclaim on the
narrowest live group, the whole host's page cache only where the rule allows it.

Each attempt is a child of its own on one core, ended at its budget (``care/purging.py``), and proved by counting. There
is nothing to finish after a death: pages that were dropped stay dropped, all others were not touched, and the next
run plans with fresh eyes; so a plan found unfinished is simply planned and done again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from sexton.care.grave_report import attempt_says, left_says, step_says
from sexton.care.purging import Attempt, Purge
from sexton.care.remedy import CannotAct, Ground, Remedy
from sexton.core.action import Cannot, Did, Plan, PlannedStep, Proof
from sexton.core.finding import ZOMBIES_WARNING, Finding
from sexton.core.policy import PurgeMemcg
from sexton.core.purge import Allowed
from sexton.host.cgroup import census
from sexton.host.errors import HostFault
from sexton.host.offload import in_thread
from sexton.host.pinned_files import read_mounts
from sexton.host.proc import boot

HOST = Path("/")
# A plan lists so many of the holders it cannot free.
LEFT_TOLD = 5
# Attempts differ run by run, but all are this one step: it may be repeated at will.
STEP = "purge"


def _rule(ground: Ground) -> PurgeMemcg:
    return ground.rule if isinstance(ground.rule, PurgeMemcg) else PurgeMemcg()


def _purge(rule: PurgeMemcg) -> Purge:
    return Purge(allowed=Allowed(caches=rule.drop_caches, budget=rule.kernel_seconds))


async def plan(ground: Ground, finding: Finding) -> Plan | Cannot:
    if boot(ground.root).id != boot(HOST).id:
        return Cannot(f"{ground.root} is not the root of this kernel's host: its zombies cannot be freed from here")
    rule = _rule(ground)
    try:
        purge = await in_thread("purge plan", lambda: _purge(rule))
        ladder = purge.plan()
        mounts = read_mounts()
    except HostFault as fault:
        return Cannot(str(fault), getattr(fault, "next_step", ""))
    left = tuple(left_says(one, mounts, {}) for one in ladder.left[:LEFT_TOLD])
    if not ladder.steps:
        held = f": {'; '.join(left)}" if left else ""
        return Cannot(f"nothing can be freed by the means that are allowed{held}", "See 'sexton zombies --purge'.")
    notes = [f"would {step_says(step)}" for step in ladder.steps] + [f"left: {one}" for one in left]
    return Plan(
        remedy=REMEDY.name,
        fingerprint=finding.fingerprint,
        target="/",
        says=f"free {purge.seen.count.zombies:,} zombie memory cgroups, at most {rule.kernel_seconds:g} s in the "
        "kernel at a time, on one core",
        steps=(PlannedStep(STEP, "the steps below, the gentlest first, each planned anew after the one before"),),
        notes=tuple(notes),
        seconds=rule.seconds,
        facts={"zombies": str(purge.seen.count.zombies)},
    )


async def carry_out(ground: Ground, planned: Plan, done: frozenset[str]) -> AsyncIterator[Did]:
    if STEP in done:
        return
    rule = _rule(ground)
    loop = asyncio.get_running_loop()
    until = loop.time() + rule.seconds
    attempts = []
    try:
        purge = await in_thread("purge plan", lambda: _purge(rule))
        run = purge.run()
        while loop.time() < until and (attempt := await in_thread("purge", lambda: _next(run))) is not None:
            attempts.append(attempt)
            # Told as a step of its own: its key is never in a plan, so nothing takes it for finished work.
            yield Did(f"{STEP} {len(attempts)}: {attempt.step.key}", attempt_says(attempt))
    except HostFault as fault:
        raise CannotAct(f"{fault}. {getattr(fault, 'next_step', '')}".rstrip()) from fault
    freed = sum(attempt.freed for attempt in attempts)
    yield Did(STEP, f"{freed:,} zombies freed in {len(attempts)} attempts")


def _next(run: Iterator[Attempt]) -> Attempt | None:
    return next(run, None)


async def prove(ground: Ground, planned: Plan) -> Proof:
    try:
        count = await in_thread("memcg census", lambda: census(HOST))
    except HostFault as fault:
        return Proof(False, f"cannot count afterwards: {fault}")
    before = int(planned.facts["zombies"])
    says = f"{count.zombies:,} zombies, {before:,} before"
    return Proof(count.zombies < min(before, ZOMBIES_WARNING), says)


REMEDY = Remedy(
    name="purge-memcg",
    answers=("memcg/zombies",),
    touches="page cache that pins zombies; with 'drop-caches' the whole host's; the kernel for a bounded time",
    plan=plan,
    carry_out=carry_out,
    prove=prove,
)
