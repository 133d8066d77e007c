"""Frees zombie memory cgroups by the ladder of ``core/purge.py``: exact pages first, then bounded reclaim on the
narrowest live group, the whole host's page cache only where the rule allows it.

It is planned and done by a process of its own (``care/purge_worker.py``), since the account of every pinned page would
make this one larger for good. Each attempt is a child of that one on one core, ended at its budget
(``care/purging.py``), and proved by counting. There is nothing to finish after a death: pages that were dropped stay
dropped, all others were not touched, and the next run plans with fresh eyes; so a plan found unfinished is simply
planned and done again.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path

import msgspec

from sexton.care.purge_worker import Answer, Attempted, Fault, Order, Planned
from sexton.care.remedy import CannotAct, Ground, Remedy
from sexton.core.action import Cannot, Did, Plan, PlannedStep, Proof
from sexton.core.finding import ZOMBIES_WARNING, Finding
from sexton.core.policy import PurgeMemcg
from sexton.host.cgroup import census
from sexton.host.errors import HostFault
from sexton.host.offload import in_thread
from sexton.host.proc import boot

HOST = Path("/")
# Attempts differ run by run, but all are this one step: it may be repeated at will.
STEP = "purge"
# Bytes of one answer: a plan names a few holders and steps.
MOST_ANSWER = 1 << 20
ENDED_EARLY = "the process that purges ended early"

_decoder = msgspec.json.Decoder(Answer)


def _rule(ground: Ground) -> PurgeMemcg:
    return ground.rule if isinstance(ground.rule, PurgeMemcg) else PurgeMemcg()


async def _answers(rule: PurgeMemcg, seconds: float) -> AsyncGenerator[Answer, None]:
    """What the worker says. It never outlives this."""
    order = Order(caches=rule.drop_caches, budget=rule.kernel_seconds, seconds=seconds)
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-P", "-m", "sexton.care.purge_worker", str(os.getpid()), msgspec.json.encode(order).decode()),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={"PATH": os.environ.get("PATH", os.defpath), "PYTHONPATH": str(Path(__file__).parents[3])},
            limit=MOST_ANSWER,
        )
    except OSError as error:
        yield Fault(reason=f"cannot start the process that purges: {error.strerror}")
        return
    try:
        assert process.stdout is not None
        while line := await process.stdout.readline():
            yield _decoder.decode(line)
        if await process.wait() != 0:
            yield Fault(reason=ENDED_EARLY, next_step="See 'sexton zombies --purge'.")
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


async def plan(ground: Ground, finding: Finding) -> Plan | Cannot:
    if boot(ground.root).id != boot(HOST).id:
        return Cannot(f"{ground.root} is not the root of this kernel's host: its zombies cannot be freed from here")
    rule = _rule(ground)
    async with contextlib.aclosing(_answers(rule, 0.0)) as answers:
        ladder = await anext(answers, None)
    if isinstance(ladder, Fault):
        return Cannot(ladder.reason, ladder.next_step)
    if not isinstance(ladder, Planned):
        return Cannot(ENDED_EARLY, "See 'sexton zombies --purge'.")
    if not ladder.steps:
        held = f": {'; '.join(ladder.left)}" if ladder.left else ""
        return Cannot(f"nothing can be freed by the means that are allowed{held}", "See 'sexton zombies --purge'.")
    return Plan(
        remedy=REMEDY.name,
        fingerprint=finding.fingerprint,
        target="/",
        says=f"free {ladder.zombies:,} zombie memory cgroups, at most {rule.kernel_seconds:g} s in the "
        "kernel at a time, on one core",
        steps=(PlannedStep(STEP, "the steps below, the gentlest first, each planned anew after the one before"),),
        notes=tuple([f"would {step}" for step in ladder.steps] + [f"left: {one}" for one in ladder.left]),
        seconds=rule.seconds,
        facts={"zombies": str(ladder.zombies)},
    )


async def carry_out(ground: Ground, planned: Plan, done: frozenset[str]) -> AsyncIterator[Did]:
    if STEP in done:
        return
    rule = _rule(ground)
    attempts = freed = 0
    async with contextlib.aclosing(_answers(rule, rule.seconds)) as answers:
        async for answer in answers:
            if isinstance(answer, Fault):
                raise CannotAct(f"{answer.reason}. {answer.next_step}".rstrip())
            if isinstance(answer, Attempted):
                attempts += 1
                freed += answer.freed
                # Told as a step of its own: its key is never in a plan, so nothing takes it for finished work.
                yield Did(f"{STEP} {attempts}: {answer.key}", answer.says)
    yield Did(STEP, f"{freed:,} zombies freed in {attempts} attempts")


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
