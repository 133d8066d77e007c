"""Disjoint pieces: every number keeps its first owner, and no two pieces touch without need."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from sexton.core.intervals import Span, pieces

spans = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 12), st.sampled_from("abc")).map(
        lambda drawn: Span(drawn[0], drawn[0] + drawn[1], drawn[2])
    ),
    max_size=8,
)


def test_more_specific_first():
    whole, part = Span(0, 255, "whole"), Span(10, 19, "part")

    assert pieces([part, whole]) == [Span(0, 9, "whole"), part, Span(20, 255, "whole")]
    assert pieces([whole, part]) == [whole]
    assert pieces([]) == []


@given(spans)
def test_a_number_in_several_is_the_earliest_ones(given_spans):
    found = pieces(given_spans)

    def owner(number, among):
        return next((one.owner for one in among if one.first <= number <= one.last), None)

    assert [owner(number, found) for number in range(54)] == [owner(number, given_spans) for number in range(54)]
    for one, following in pairwise(found):
        assert one.last < following.first
        assert one.owner != following.owner or one.last + 1 < following.first
