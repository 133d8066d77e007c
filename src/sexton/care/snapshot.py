"""What the caretaker knew at the end of its last round: everything that is published, and nothing that looks."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from sexton.core.action import Action
from sexton.core.ledger import Eye, Record


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """``figures`` and ``seconds`` are by probe. ``zombie_growth`` is in zombies an hour, None while it is not known."""

    now: float
    records: tuple[Record, ...]
    actions: tuple[Action, ...]
    eyes: tuple[Eye, ...]
    figures: Mapping[str, Mapping[str, int]]
    seconds: Mapping[str, float]
    zombie_growth: float | None
    cpu_seconds: float
    rounds: int
    says: str = ""
    policy: str = ""
