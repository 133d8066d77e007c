"""The contract of a remedy: what it is told, what it declares, and how it goes about its work.

A remedy answers one kind of finding. It declares what it may touch. It first only plans: reads, and says step by step
what it would do and how to undo that. Then, if somebody allows it, it does those steps one after another, each handed
out as soon as it is done so that it is written down; and at last it proves what it changed by looking again.

Every step can be done twice and then does nothing more, and between any two of them the host is in order: that is what
lets a process die anywhere, and the next one finish. Whoever runs remedies is in ``care/acting.py``; a remedy knows no
ledger, no policy but its own rule, and no sibling.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

import msgspec

from sexton.core.action import Cannot, Did, Plan, Proof
from sexton.core.finding import Finding
from sexton.core.policy import Rule


class Ground(msgspec.Struct, frozen=True, kw_only=True):
    """Where the host is, and what the remedy's own rule allows."""

    root: Path
    docker_host: str
    rule: Rule
    now: float


class CannotAct(Exception):  # noqa: N818 - the message is for a person
    """A step could not be done; the message says why, and what was left as it was."""


class Remedy(NamedTuple):
    """``answers`` are shell patterns for fingerprints; ``touches`` says what it may change, for a person."""

    name: str
    answers: tuple[str, ...]
    touches: str
    plan: Callable[[Ground, Finding], Awaitable[Plan | Cannot]]
    carry_out: Callable[[Ground, Plan, frozenset[str]], AsyncIterator[Did]]
    """Does the steps of the plan whose keys are not in the set."""
    prove: Callable[[Ground, Plan], Awaitable[Proof]]
