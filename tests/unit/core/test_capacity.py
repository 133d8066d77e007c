"""A strategy divides tasks exactly: base first, then by weight, never a whole task off, always the same way."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.core import capacity
from sexton.core.capacity import Share
from sexton.wire import ecs


@st.composite
def strategies(draw):
    names = draw(st.lists(st.sampled_from("abcdef"), min_size=1, max_size=6, unique=True))
    weights = draw(st.lists(st.integers(0, 1000), min_size=len(names), max_size=len(names)).filter(any))
    based = draw(st.sampled_from([None, *names]))
    base = draw(st.integers(1, 100_000) if draw(st.booleans()) else st.integers(1, 12))
    return tuple(Share(name, base if name == based else 0, weight) for name, weight in zip(names, weights, strict=True))


totals = st.integers(0, 5000)


@given(strategies(), totals)
def test_every_task_is_given_out_and_the_base_comes_first(strategy, total):
    parts = capacity.divide(strategy, total)

    assert sum(parts.values()) == total
    assert list(parts) == [one.provider for one in strategy]
    assert all(parts[one.provider] >= min(one.base, total) for one in strategy)


@given(strategies(), totals)
def test_nobody_is_a_whole_task_away_from_what_is_due(strategy, total):
    parts = capacity.divide(strategy, total)
    base = {one.provider: min(one.base, total) for one in strategy}
    rest, weights = total - sum(base.values()), sum(one.weight for one in strategy)

    for one in strategy:
        due = base[one.provider] + Fraction(rest * one.weight, weights)
        assert abs(parts[one.provider] - due) < 1
        assert one.weight or parts[one.provider] == base[one.provider], "without a weight there is only the base"


@given(strategies(), totals)
def test_more_weight_never_gets_less(strategy, total):
    parts = capacity.divide(strategy, total)

    for one in strategy:
        for other in strategy:
            if one.weight > other.weight and one.base >= other.base:
                assert parts[one.provider] >= parts[other.provider]


@given(strategies(), st.dictionaries(st.sampled_from("abcdefxy"), st.integers(0, 30)), st.integers(0, 30))
def test_what_is_added_heals_what_is_there(strategy, present, more):
    added = capacity.assign(strategy, present, more)
    own = {one.provider: present.get(one.provider, 0) for one in strategy}
    due = capacity.divide(strategy, sum(own.values()) + more)

    assert len(added) == more
    assert capacity.assign(strategy, present, more) == added
    for provider, count in own.items():
        assert count + added.count(provider) <= max(due[provider], count), "nobody is raised above its due"


@given(strategies(), st.integers(0, 200))
def test_from_nothing_adding_is_dividing(strategy, total):
    added = capacity.assign(strategy, {}, total)

    assert {one.provider: added.count(one.provider) for one in strategy} == capacity.divide(strategy, total)


@pytest.mark.parametrize(
    "strategy, total, expected",
    [
        ([Share("a", 0, 1), Share("b", 0, 1)], 3, {"a": 2, "b": 1}),
        ([Share("a", 0, 1), Share("b", 0, 4)], 10, {"a": 2, "b": 8}),
        ([Share("a", 2, 1), Share("b", 0, 1)], 1, {"a": 1, "b": 0}),
        ([Share("a", 2, 1), Share("b", 0, 1)], 6, {"a": 4, "b": 2}),
        ([Share("a", 5, 0), Share("b", 0, 1)], 8, {"a": 5, "b": 3}),
        ([Share("a", 0, 3), Share("b", 0, 3), Share("c", 0, 1)], 2, {"a": 1, "b": 1, "c": 0}),
    ],
)
def test_examples(strategy, total, expected):
    assert capacity.divide(strategy, total) == expected


@pytest.mark.parametrize(
    "strategy, said",
    [
        ([Share("a", 0, 1)], ""),
        ([], ""),
        ([Share(f"p{number}") for number in range(21)], "maximum of 20"),
        ([Share("a"), Share("a", 0, 1)], "more than once"),
        ([Share("elsewhere", 0, 1)], "not associated with the cluster"),
        ([Share("a", 0, 1), Share("FARGATE", 0, 1)], "cannot contain a mix"),
        ([Share("FARGATE", 0, 1), Share("FARGATE_SPOT", 0, 1)], ""),
        ([Share("a", 1, 1), Share("b", 1, 1)], "Only one"),
    ],
)
def test_what_cannot_be_a_strategy_is_told_why(strategy, said):
    members = ["a", "b", "FARGATE", "FARGATE_SPOT", *(f"p{number}" for number in range(21))]
    text = capacity.problem(strategy, members)

    assert said in text
    assert bool(text) is bool(said)


def test_a_strategy_of_the_wire_is_read_with_its_defaults_and_shown_with_them():
    given_items = (ecs.CapacityProviderStrategyItem(capacity_provider="a", weight=1),)
    strategy = capacity.of_request(given_items)

    assert strategy == (Share("a", 0, 1),)
    assert capacity.shown(strategy) == (ecs.CapacityProviderStrategyItem(capacity_provider="a", weight=1, base=0),)
    assert capacity.usable(strategy)
    assert not capacity.usable((Share("a", 3, 0),))


def test_an_instance_names_its_provider_by_an_attribute():
    attributes = (ecs.Attribute(name="rack"), ecs.Attribute(name=capacity.PROVIDER_ATTRIBUTE, value="edge"))

    assert capacity.provider_of(attributes) == "edge"
    assert capacity.provider_of(None) == capacity.provider_of(attributes[:1]) == ""
