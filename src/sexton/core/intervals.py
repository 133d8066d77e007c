"""Overlapping ranges cut into pieces that do not overlap, each with the first that covers it.

The kernel's sets of ranges take no overlaps, and it is told with each piece whose it is; so an order of precedence
becomes a plain table: more specific blocks of addresses before those around them, earlier rules before later ones.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple


class Span(NamedTuple):
    """Numbers from ``first`` to ``last``, both included."""

    first: int
    last: int
    owner: str


def pieces(spans: Sequence[Span]) -> list[Span]:
    """The same numbers in disjoint spans, in order; a number in several spans is the earliest one's."""
    edges = sorted({edge for one in spans for edge in (one.first, one.last + 1)})
    opening = sorted(range(len(spans)), key=lambda index: spans[index].first)
    active: list[int] = []
    found: list[Span] = []
    position = 0
    for edge, following in pairwise(edges):
        while position < len(opening) and spans[opening[position]].first <= edge:
            heapq.heappush(active, opening[position])
            position += 1
        while active and spans[active[0]].last < edge:
            heapq.heappop(active)
        if not active:
            continue
        owner = spans[active[0]].owner
        if found and found[-1].last == edge - 1 and found[-1].owner == owner:
            found[-1] = Span(found[-1].first, following - 1, owner)
        else:
            found.append(Span(edge, following - 1, owner))
    return found
