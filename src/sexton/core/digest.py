"""How a figure was spread over a long time, in a few counters: quantiles to within five percent, and the exact largest.

Values are counted in buckets that each begin five percent above the one before, so that a byte count and a share of a
core are kept equally well. What goes in costs one logarithm and one addition however much is there already, two
digests of different times add up to the one of both, and nothing of it depends on the order of values.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec

GROWTH = 1.05
_LOG = math.log(GROWTH)


class Digest(msgspec.Struct, kw_only=True, omit_defaults=True):
    """``buckets`` counts values by bucket; bucket 0 holds everything below 1, which is next to nothing."""

    buckets: dict[int, int] = {}
    count: int = 0
    total: float = 0.0
    most: float = 0.0

    def add(self, value: float) -> None:
        """One more value; what is below nothing counts as nothing."""
        value = max(value, 0.0)
        index = 0 if value < 1 else 1 + int(math.log(value) / _LOG)
        self.buckets[index] = self.buckets.get(index, 0) + 1
        self.count += 1
        self.total += value
        self.most = max(self.most, value)

    def quantile(self, share: float) -> float:
        """What this share of the values does not exceed: the upper end of its bucket, and never more than the largest
        value, so that nothing is said to be smaller than it was."""
        wanted = math.ceil(share * self.count)
        seen = 0
        for index in sorted(self.buckets):
            seen += self.buckets[index]
            if seen >= wanted:
                return min(GROWTH**index, self.most)
        return 0.0

    @property
    def mean(self) -> float:
        return self.total / self.count if self.count else 0.0


def merged(digests: Iterable[Digest]) -> Digest:
    """All of them as one."""
    whole = Digest()
    for one in digests:
        for index, count in one.buckets.items():
            whole.buckets[index] = whole.buckets.get(index, 0) + count
        whole.count += one.count
        whole.total += one.total
        whole.most = max(whole.most, one.most)
    return whole
