"""Digests against the exact answer: quantiles within one bucket, the same in any order, in one piece or in many."""

from __future__ import annotations

import math

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from sexton.core.digest import GROWTH, Digest, merged

VALUES = st.lists(st.floats(0, 1e9), min_size=1, max_size=200)


def digest(values: list[float]) -> Digest:
    made = Digest()
    for value in values:
        made.add(value)
    return made


@given(VALUES, st.sampled_from([0.0, 0.5, 0.95, 0.99, 1.0]))
def test_a_quantile_is_never_below_the_exact_one_and_at_most_a_bucket_above(values: list[float], share: float) -> None:
    exact = sorted(values)[max(math.ceil(share * len(values)) - 1, 0)]
    told = digest(values).quantile(share)

    assert exact <= told * (1 + 1e-9)
    assert told <= max(exact, 1.0) * GROWTH * (1 + 1e-9)
    assert told <= max(values)


@given(VALUES, VALUES)
def test_two_digests_make_the_one_of_both(one: list[float], other: list[float]) -> None:
    together, apart = digest(one + other), merged([digest(one), digest(other)])

    assert together.buckets == apart.buckets
    assert (together.count, together.most) == (apart.count, apart.most)
    assert math.isclose(together.total, apart.total)


def test_nothing_seen_is_nothing() -> None:
    assert (Digest().quantile(0.95), Digest().mean, Digest().most) == (0.0, 0.0, 0.0)


def test_it_stays_small_and_comes_back_from_json_as_it_was() -> None:
    made = digest([1.0001**number for number in range(100_000)])
    text = msgspec.json.encode(made)

    assert len(text) < 4000
    assert msgspec.json.decode(text, type=Digest) == made
