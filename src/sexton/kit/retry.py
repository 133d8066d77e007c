"""How long to wait before trying again: growing, capped, with jitter, and the randomness handed in.

Every retry in this program takes its delays from here, so that none of them can become a tight loop.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import NamedTuple


class Backoff(NamedTuple):
    """Delays from ``first`` to ``cap`` seconds, each ``factor`` times the last, up to ``jitter`` (a share) added."""

    first: float
    cap: float
    factor: float = 2.0
    jitter: float = 0.2

    def delays(self, source: random.Random | None = None) -> Iterator[float]:
        """One delay per attempt, for ever; a new iterator begins at ``first`` again."""
        draw = source or random.Random()  # noqa: S311 - spreads load, guards nothing
        delay = self.first
        while True:
            yield min(delay, self.cap) * (1 + self.jitter * draw.random())
            delay = min(delay * self.factor, self.cap)
