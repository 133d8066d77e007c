"""Delays grow to a cap, spread a little, and begin anew with each iterator."""

from __future__ import annotations

import random
from itertools import islice

from hypothesis import given
from hypothesis import strategies as st

from sexton.kit.retry import Backoff


def test_delays_grow_to_the_cap():
    assert list(islice(Backoff(1.0, 5.0, jitter=0).delays(), 5)) == [1.0, 2.0, 4.0, 5.0, 5.0]
    assert list(islice(Backoff(9.0, 5.0, jitter=0).delays(), 2)) == [5.0, 5.0]


def test_a_new_iterator_begins_at_the_first():
    backoff = Backoff(1.0, 100.0, jitter=0)
    list(islice(backoff.delays(), 9))

    assert next(backoff.delays()) == 1.0


@given(
    st.floats(0.001, 10),
    st.floats(0.001, 100),
    st.floats(1, 5),
    st.floats(0, 1),
    st.randoms(use_true_random=False),
)
def test_no_delay_is_below_the_first_or_beyond_the_cap_and_its_jitter(first, cap, factor, jitter, source):
    for delay in islice(Backoff(first, cap, factor, jitter).delays(source), 40):
        assert min(first, cap) <= delay <= cap * (1 + jitter)


def test_the_same_randomness_gives_the_same_delays():
    backoff = Backoff(1.0, 60.0)

    assert list(islice(backoff.delays(random.Random(7)), 9)) == list(islice(backoff.delays(random.Random(7)), 9))
