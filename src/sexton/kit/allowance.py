"""So many requests a second for each of many keys, and a few at once: token buckets in bounded memory.

A key that has not been seen for a while has its whole burst again, so what is forgotten is what no longer counts. When
there are more keys than are kept, the one that was used longest ago goes.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable

MOST_KEYS = 8192


class Allowances:
    """Tokens by key, ``rate`` more each second up to ``burst``."""

    def __init__(
        self, rate: float, burst: float, *, most: int = MOST_KEYS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rate = rate
        self._burst = burst
        self._most = most
        self._clock = clock
        self._left: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()  # tokens, and when there were so many

    def __len__(self) -> int:
        return len(self._left)

    def take(self, key: Hashable) -> bool:
        """Use one token of a key; False when it has none."""
        now = self._clock()
        tokens, then = self._left.pop(key, (self._burst, now))
        tokens = min(self._burst, tokens + (now - then) * self._rate)
        granted = tokens >= 1
        self._left[key] = (tokens - 1 if granted else tokens, now)
        if len(self._left) > self._most:
            self._left.popitem(last=False)
        return granted
