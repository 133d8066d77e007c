"""When to look at what: every key once, at its earliest time, those that are due first come first.

Nothing survives a restart; whoever keeps an agenda puts everything on it anew.
"""

from __future__ import annotations

import heapq


class Agenda:
    """Keys with times. A key that is taken off is forgotten until it is put on again."""

    def __init__(self) -> None:
        self._at: dict[str, float] = {}
        # Entries that were overtaken by an earlier time stay until they come up.
        self._heap: list[tuple[float, str]] = []

    def put(self, key: str, at: float) -> None:
        """Look at this key then, or earlier if it was to be looked at earlier."""
        if at < self._at.get(key, float("inf")):
            self._at[key] = at
            heapq.heappush(self._heap, (at, key))

    def take(self, now: float) -> str | None:
        """A key that is due, taken off; None when none is."""
        at = self.next_at()
        if at is None or at > now:
            return None
        _, key = heapq.heappop(self._heap)
        del self._at[key]
        return key

    def next_at(self) -> float | None:
        """When the next key is due."""
        while self._heap and self._at.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None
