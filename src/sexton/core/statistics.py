"""From samples to the statistics sets that a publishing interval is reported in."""

from __future__ import annotations

from collections.abc import Sequence

from sexton.wire import tcs

# What a signed number of the wire holds; the rest goes into the overflow fields.
MOST_LONG = 2**63 - 1


def doubles(values: Sequence[float]) -> tcs.CWStatsSet:
    return tcs.CWStatsSet(min=min(values), max=max(values), sample_count=len(values), sum=sum(values))


def unsigned_doubles(values: Sequence[float]) -> tcs.UDoubleCWStatsSet:
    return tcs.UDoubleCWStatsSet(min=min(values), max=max(values), sample_count=len(values), sum=sum(values))


def longs(values: Sequence[int]) -> tcs.ULongStatsSet:
    (least, more_least), (most, more_most), (total, more_total) = map(_split, (min(values), max(values), sum(values)))
    return tcs.ULongStatsSet(
        min=least,
        max=most,
        sample_count=len(values),
        sum=total,
        overflow_min=more_least,
        overflow_max=more_most,
        overflow_sum=more_total,
    )


def _split(value: int) -> tuple[int, int]:
    """What fits, and what is above it, which is cut where that does not fit either."""
    return min(value, MOST_LONG), min(max(value - MOST_LONG, 0), MOST_LONG)
