"""From an open finding to a remedy's work, and never further than the policy allows.

    open finding -> remedies that answer it -> plan (read only) -> policy -> written down -> step by step -> proof

One action at a time. It is in the ledger before its first step and each step is, as soon as it is done; so an action
whose process died is found by the next one and finished, because every step may be done twice. Whether unattended or
asked for by a person, it is the same road; a person's yes stands in for the policy's, but not for its bounds.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec

from sexton.care.ledger import Ledger
from sexton.care.remedies import disable_unit, prune_images, purge_memcg, reset_unit
from sexton.care.remedy import CannotAct, Ground, Remedy
from sexton.core.action import Action, Cannot, Did, Outcome, Plan, Proof, may_finish
from sexton.core.ledger import Kind, Look, Record, Sight
from sexton.core.policy import Decision, LocalTime, Policy, Verdict, bounds, decide, decide_before

log = logging.getLogger(__name__)

REMEDIES: tuple[Remedy, ...] = (disable_unit.REMEDY, reset_unit.REMEDY, purge_memcg.REMEDY, prune_images.REMEDY)

# A remedy that has not ended this long after its own budget is cut off; what it did is written down.
GRACE = 15.0
# A finding that may be acted on is planned for again after this long at the earliest: planning reads, too.
PLAN_AGAIN = 300.0
# Whoever makes the trouble is dealt with before the trouble that it made.
_LAST = ("memcg/", "disk/")

LookAgain = Callable[[str], Awaitable[Look | None]]
"""Has a probe look once more, now; None where that cannot be."""


class NoRemedy(Exception):  # noqa: N818 - the message is for a person
    """Nothing can be done about this finding, or not in this way."""


class Proposal(msgspec.Struct, frozen=True, kw_only=True):
    """What one remedy would do about a finding; ``refused`` when its bounds forbid that to everybody."""

    remedy: str
    touches: str
    plan: Plan | None = None
    cannot: Cannot | None = None
    refused: str | None = None


def local_time(now: float) -> LocalTime:
    told = time.localtime(now)
    return LocalTime(told.tm_wday, told.tm_hour * 60 + told.tm_min)


class Actor:
    """Plans and acts. ``policy`` may be replaced between rounds."""

    def __init__(
        self,
        ledger: Ledger,
        policy: Policy,
        *,
        root: Path,
        docker_host: str,
        look_again: LookAgain,
        remedies: tuple[Remedy, ...] = REMEDIES,
    ) -> None:
        self.policy = policy
        self._ledger = ledger
        self._root = root
        self._docker_host = docker_host
        self._look_again = look_again
        self._remedies = remedies
        self._planned_at: dict[str, float] = {}
        self._busy = asyncio.Lock()

    def _ground(self, remedy: Remedy, now: float) -> Ground:
        rule = self.policy.remedies.of(remedy.name)
        return Ground(root=self._root, docker_host=self._docker_host, rule=rule, now=now)

    def _answering(self, record: Record) -> tuple[Remedy, ...]:
        return tuple(
            remedy
            for remedy in self._remedies
            if any(fnmatchcase(record.fingerprint, pattern) for pattern in remedy.answers)
        )

    def _named(self, name: str) -> Remedy | None:
        return next((remedy for remedy in self._remedies if remedy.name == name), None)

    async def propose(self, record: Record, now: float) -> tuple[Proposal, ...]:
        """What could be done about a finding. Reads, and changes nothing."""
        return tuple([await self._propose(remedy, record, now) for remedy in self._answering(record)])

    async def _propose(self, remedy: Remedy, record: Record, now: float) -> Proposal:
        planned = await self._plan(remedy, record, now)
        if isinstance(planned, Cannot):
            return Proposal(remedy=remedy.name, touches=remedy.touches, cannot=planned)
        refused = bounds(self.policy.remedies.of(remedy.name), planned)
        return Proposal(remedy=remedy.name, touches=remedy.touches, plan=planned, refused=refused)

    async def _plan(self, remedy: Remedy, record: Record, now: float) -> Plan | Cannot:
        ground = self._ground(remedy, now)
        try:
            async with asyncio.timeout(ground.rule.seconds):
                return await remedy.plan(ground, record.finding)
        except TimeoutError:
            return Cannot(f"{remedy.name} could not plan within {ground.rule.seconds:g} s")

    async def attend(self, now: float) -> tuple[str, ...]:
        """Unattended: do what the policy allows now, and say what it does not. One sentence each."""
        said = []
        waiting = [record for record in self._ledger.records if record.open and not record.is_muted(now)]
        for record in sorted(waiting, key=lambda one: one.fingerprint.startswith(_LAST)):
            for remedy in self._answering(record):
                sentence, settled = await self._attend(remedy, record, now)
                said += [sentence] if sentence else []
                if settled:
                    break
        return tuple(said)

    async def _attend(self, remedy: Remedy, record: Record, now: float) -> tuple[str, bool]:
        """The sentence to say, and whether the finding needs no other remedy now."""
        local = local_time(now)
        decision = decide_before(self.policy, remedy.name, record, self._ledger.actions, now, local)
        if decision is not None and decision.verdict is Verdict.NO:
            return "", False
        if decision is not None:
            return f"{remedy.name} for {record.fingerprint} waits: {decision.why}", True
        mark = f"{remedy.name} {record.fingerprint}"
        if record.advised == record.opened and now - self._planned_at.get(mark, now - PLAN_AGAIN) < PLAN_AGAIN:
            return "", False
        self._planned_at[mark] = now
        planned = await self._plan(remedy, record, now)
        if isinstance(planned, Cannot):
            await self._ledger.advise(record.fingerprint, Kind.REFUSED, f"{remedy.name}: {planned.reason}", now)
            return "", False
        decision = decide(self.policy, planned)
        if decision.verdict is not Verdict.ACT:
            await self._advise(record, planned, decision, now)
            return "", True
        async with self._busy:
            async for _ in self._carry_out(remedy, planned, "policy", decision.why):
                pass
        done = self._ledger.actions[-1]
        return f"{remedy.name} for {record.fingerprint}: {done.outcome.value}", True

    async def _advise(self, record: Record, planned: Plan, decision: Decision, now: float) -> None:
        kind = Kind.REFUSED if decision.verdict is Verdict.NO else Kind.PLANNED
        steps = "; ".join(step.says for step in planned.steps)
        says = f"{planned.remedy} would {planned.says} ({steps}). Not done: {decision.why}"
        await self._ledger.advise(record.fingerprint, kind, says, now)

    async def fix(self, record: Record, remedy_name: str, who: str, why: str) -> AsyncIterator[Did | Action]:
        """Asked for by a person: plan, act and prove; each step, and at last the action as it ended."""
        now = time.time()
        proposals = await self.propose(record, now)
        chosen = [one for one in proposals if remedy_name in ("", one.remedy)]
        planned = next((one for one in chosen if one.plan is not None and one.refused is None), None)
        if planned is None or planned.plan is None:
            raise NoRemedy(_no_way(record, chosen, remedy_name))
        remedy = self._named(planned.remedy)
        assert remedy is not None  # it has just made a plan
        if self._busy.locked():
            raise NoRemedy("another remedy is at work; ask again when it has ended")
        async with self._busy:
            async for did in self._carry_out(remedy, planned.plan, who, why):
                yield did

    async def _carry_out(self, remedy: Remedy, plan: Plan, who: str, why: str) -> AsyncIterator[Did | Action]:
        now = time.time()
        action = await self._ledger.begin(f"{int(now * 1000):013d}-{secrets.token_hex(3)}", plan, who, why, now)
        log.warning(
            "remedy begins",
            extra={"remedy": plan.remedy, "finding": plan.fingerprint, "plan": plan.says, "who": who, "why": why},
        )
        async for told in self._go_on(remedy, action):
            yield told

    async def _go_on(self, remedy: Remedy, action: Action) -> AsyncIterator[Did | Action]:
        """Do the steps that are left, prove, and write down how it ended."""
        plan = action.plan
        failed = ""
        try:
            async with asyncio.timeout(plan.seconds + GRACE):
                ground = self._ground(remedy, time.time())
                async for did in remedy.carry_out(ground, plan, frozenset(one.key for one in action.done)):
                    action = await self._ledger.step(action, did, time.time())
                    yield did
        except CannotAct as error:
            failed = str(error)
        except TimeoutError:
            failed = f"it did not end within its budget of {plan.seconds:g} s"
        except Exception as error:
            # The edge of a remedy: whatever broke in it is written down, and must not end the caretaker.
            log.exception("remedy broke", extra={"remedy": plan.remedy})
            failed = f"the remedy broke: {type(error).__name__}: {error}"
        if failed:
            left = ", ".join(step.key for step in action.steps_left)
            says = f"{failed}; not done: {left}" if left else failed
            action = await self._ledger.end(action, Outcome.FAILED, says, time.time())
        else:
            proof = await self._prove(remedy, plan)
            outcome = Outcome.DONE if proof.holds else Outcome.NO_EFFECT
            action = await self._ledger.end(action, outcome, proof.says, time.time(), proof)
        log.warning(
            "remedy ended",
            extra={
                "remedy": plan.remedy,
                "finding": plan.fingerprint,
                "outcome": action.outcome.value,
                "says": action.says,
            },
        )
        yield action

    async def _prove(self, remedy: Remedy, plan: Plan) -> Proof:
        """The remedy's own proof decides; what the probes see now closes the finding, or tells that it still holds (a
        loop is told from its past, so it is known to have ended only after some quiet)."""
        try:
            async with asyncio.timeout(GRACE):
                proof = await remedy.prove(self._ground(remedy, time.time()), plan)
        except TimeoutError:
            return Proof(False, f"whether it helped is not known: no answer within {GRACE:g} s")
        try:
            record = self._ledger.find(plan.fingerprint)
        except LookupError:
            return proof
        still, blind = False, []
        for probe in tuple(record.views):
            look = await self._look_again(probe)
            if look is None:
                continue
            await self._ledger.file(msgspec.structs.replace(look, sure=True), time.time(), only=plan.fingerprint)
            still = still or any(finding.fingerprint == plan.fingerprint for finding in look.findings)
            blind += [f"{probe} could not look again: {look.reason}"] if look.sight is Sight.BLIND else []
        if still:
            seen = ["the finding still holds by what is known of the past; it closes once it was quiet for long enough"]
        elif blind:
            seen = blind
        elif self._ledger.find(plan.fingerprint).open:
            seen = ["the finding closes when whoever watches it says so"]
        else:
            seen = ["the finding does not hold any more"]
        return Proof(proof.holds, "; ".join([proof.says, *seen]))

    async def finish(self, now: float) -> tuple[str, ...]:
        """Finish what a process that died left unfinished, or say how far it came."""
        said = []
        for action in [one for one in self._ledger.actions if one.outcome is Outcome.RUNNING]:
            remedy = self._named(action.plan.remedy)
            if remedy is None or not may_finish(action, now):
                left = ", ".join(step.key for step in action.steps_left) or "nothing but the proof"
                says = f"its process died and too much time has passed to finish it; not done: {left}"
                await self._ledger.end(action, Outcome.INTERRUPTED, says, now)
                said.append(f"{action.plan.remedy} for {action.plan.fingerprint} was interrupted: {says}")
                continue
            await self._ledger.note(
                action.plan.fingerprint, Kind.ACTING, f"{action.plan.remedy}: its process died; it is finished now", now
            )
            async with self._busy:
                async for _ in self._go_on(remedy, action):
                    pass
            said.append(f"{action.plan.remedy} for {action.plan.fingerprint} was finished after its process had died")
        return tuple(said)


def _no_way(record: Record, proposals: list[Proposal], wanted: str) -> str:
    """Why nothing can be done."""
    if not proposals and wanted:
        return f"cannot use {wanted} for {record.fingerprint}: no remedy of that name answers it"
    if not proposals:
        return f"no remedy answers {record.fingerprint}. {record.finding.next_step}"
    reasons = []
    for one in proposals:
        because = one.refused or (one.cannot.reason if one.cannot is not None else "")
        cure = f" {one.cannot.next_step}" if one.cannot is not None and one.cannot.next_step else ""
        reasons.append(f"{one.remedy}: {because}{cure}")
    return f"nothing can be done about {record.fingerprint} from here: {'; '.join(reasons)}"
