"""What a remedy means to do, does, and did: values that are written down before anything is touched.

    plan (what will be touched, step by step, and how to undo it) -> action begun -> its steps, one by one -> its end

The plan is in the ledger before the first step, so whoever finds an action without an end knows what it was for, how
far it came, and can finish it: every step may be done again and then does nothing more.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

# An action that a dead process left unfinished is finished by the next one within this time. Later, somebody may have
# changed things by hand; then it is only told how far it came.
FINISH_WITHIN = 3600.0


class PlannedStep(msgspec.Struct, frozen=True):
    """``key`` names the step within its plan; ``says`` is what it touches."""

    key: str
    says: str


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """``target`` is what the policy's patterns are compared with; ``touches`` how many things will be changed;
    ``facts`` is what the remedy needs to find its way again after a restart."""

    remedy: str
    fingerprint: str
    target: str
    says: str
    steps: tuple[PlannedStep, ...]
    undo: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    touches: int = 1
    seconds: float = 30.0
    facts: dict[str, str] = {}


class Cannot(msgspec.Struct, frozen=True):
    """Why a remedy has no plan for a finding."""

    reason: str
    next_step: str = ""


class Did(msgspec.Struct, frozen=True):
    """One step, done. ``says`` is what it changed."""

    key: str
    says: str


class Proof(msgspec.Struct, frozen=True):
    """What was seen when looking again afterwards."""

    holds: bool
    says: str


class Outcome(StrEnum):
    RUNNING = "running"
    DONE = "done"  # every step was done, and the proof holds
    NO_EFFECT = "no effect"  # every step was done, and the proof does not hold
    FAILED = "failed"  # a step could not be done
    INTERRUPTED = "interrupted"  # the process died, and it was too late to finish it


class Action(msgspec.Struct, frozen=True, kw_only=True):
    """One remedy's work on one finding. ``who`` asked for it and ``why``; ``boot`` is the host's boot it ran in."""

    id: str
    plan: Plan
    who: str
    why: str
    begun: float
    outcome: Outcome = Outcome.RUNNING
    done: tuple[Did, ...] = ()
    ended: float | None = None
    says: str = ""

    @property
    def steps_left(self) -> tuple[PlannedStep, ...]:
        finished = {did.key for did in self.done}
        return tuple(step for step in self.plan.steps if step.key not in finished)


def may_finish(action: Action, now: float) -> bool:
    """May an action that somebody else left unfinished be finished now?"""
    return action.outcome is Outcome.RUNNING and 0 <= now - action.begun <= FINISH_WITHIN
