"""Statistics sets: what does not fit a signed number is carried over, never lost or negative."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from sexton.core.statistics import MOST_LONG, doubles, longs, unsigned_doubles


def test_plain_sets():
    assert msgspec.to_builtins(doubles([1.0, 3.0])) == {"min": 1.0, "max": 3.0, "sampleCount": 2, "sum": 4.0}
    assert unsigned_doubles([2.0]).sum == 2.0
    assert msgspec.to_builtins(longs([0, 5])) == {
        "min": 0,
        "max": 5,
        "sampleCount": 2,
        "sum": 5,
        "overflowMin": 0,
        "overflowMax": 0,
        "overflowSum": 0,
    }


@given(
    st.lists(st.integers(min_value=0, max_value=2 * MOST_LONG), min_size=1, max_size=3).filter(
        lambda v: sum(v) <= 2 * MOST_LONG
    )
)
def test_nothing_of_an_unsigned_counter_is_lost(values):
    found = longs(values)

    assert (found.sum + found.overflow_sum, found.max + found.overflow_max) == (sum(values), max(values))
    assert all(0 <= one <= MOST_LONG for one in (found.sum, found.overflow_sum, found.min, found.overflow_min))
