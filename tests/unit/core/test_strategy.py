"""Placement constraints and strategies as requests carry them: understood, or refused with a sentence."""

from __future__ import annotations

import pytest

from sexton.core import constraint, strategy
from sexton.core.constraint import RuleError, Rules
from sexton.core.query import Subject, read
from sexton.core.strategy import INSTANCE, Strategy
from sexton.wire import ecs
from sexton.wire.ecs import (
    PlacementConstraint,
    PlacementStrategy,
    PlacementStrategyType,
    TaskDefinitionPlacementConstraint,
)


@pytest.mark.parametrize(
    "given, understood",
    [
        (PlacementStrategy(type="random", field="x"), Strategy(PlacementStrategyType.RANDOM)),
        (PlacementStrategy(type="binpack", field="MEMORY"), Strategy(PlacementStrategyType.BINPACK, "memory")),
        (PlacementStrategy(type="binpack", field="cpu"), Strategy(PlacementStrategyType.BINPACK, "cpu")),
        (PlacementStrategy(type="spread", field="host"), Strategy(PlacementStrategyType.SPREAD, INSTANCE)),
        (PlacementStrategy(type="spread", field="instanceId"), Strategy(PlacementStrategyType.SPREAD, INSTANCE)),
        (
            PlacementStrategy(type="spread", field="attribute:ecs.availability-zone"),
            strategy.SERVICE_DEFAULT[0],
        ),
    ],
)
def test_strategies_are_understood_in_every_spelling_clients_use(given, understood):
    assert strategy.of_request([given]) == (understood,)


@pytest.mark.parametrize(
    "given, message",
    [
        ([PlacementStrategy(type="binpack")], r"placementStrategy\[0\]: binpack needs the field cpu or memory, not ''"),
        (
            [PlacementStrategy(type="spread", field="zone")],
            "spread needs instanceId, host or attribute:NAME, not 'zone'",
        ),
        ([PlacementStrategy(type="spread", field="attribute:")], "spread needs"),
        ([PlacementStrategy(type="random"), PlacementStrategy(type="best")], r"placementStrategy\[1\]: type must be"),
        ([PlacementStrategy(type="random")] * 6, "more than 5 placement strategies"),
    ],
)
def test_a_strategy_that_means_nothing_is_refused_with_its_place(given, message):
    with pytest.raises(RuleError, match=message):
        strategy.of_request(given)


def test_nothing_given_asks_for_nothing():
    assert strategy.of_request(None) == ()
    assert constraint.of_request(None) == constraint.ANYWHERE


def test_constraints_of_request_and_definition_all_hold():
    rules = constraint.of_request(
        [
            PlacementConstraint(type="distinctInstance"),
            PlacementConstraint(type="memberOf", expression="attribute:a == x"),
        ],
        [TaskDefinitionPlacementConstraint(type="memberOf", expression="attribute:b exists")],
    )

    assert rules == Rules((read("attribute:b exists"), read("attribute:a == x")), distinct=True)
    both = Subject(connected=True, attributes=frozenset("ab"), values={"a": "x"})
    assert rules.unmet(both) == ""
    assert rules.unmet(Subject(connected=True, attributes=frozenset("a"), values={"a": "x"})) == "attribute:b exists"
    assert rules.unmet(Subject(connected=True, attributes=frozenset("b"))) == "attribute:a == x (it has no attribute:a)"


@pytest.mark.parametrize(
    "given, message",
    [
        (
            [PlacementConstraint(type="distinctInstance", expression="")],
            "^distinctInstance expression should not be spec",
        ),
        ([PlacementConstraint(type="memberOf")], r"placementConstraints\[0\]: memberOf needs an expression"),
        (
            [PlacementConstraint(type="memberOf", expression="a b")],
            "placementConstraints.*at character 1: expected a subj",
        ),
        ([PlacementConstraint(type="near")], "type must be distinctInstance or memberOf, not 'near'"),
        ([PlacementConstraint(type="distinctInstance")] * 11, "more than 10 placement constraints"),
    ],
)
def test_a_constraint_that_means_nothing_is_refused_with_its_place(given, message):
    with pytest.raises(RuleError, match=message):
        constraint.of_request(given)


def test_constraints_of_the_definition_count_towards_the_limit_and_know_member_of_only():
    one = TaskDefinitionPlacementConstraint(type="memberOf", expression="attribute:a exists")

    with pytest.raises(RuleError, match="more than 10"):
        constraint.of_request([PlacementConstraint(type="distinctInstance")], [one] * 10)
    with pytest.raises(RuleError, match="more than 10"):
        constraint.of_definition([one] * 11)
    with pytest.raises(RuleError, match=r"constraint.type 'distinctInstance' is not supported\."):
        constraint.of_definition([TaskDefinitionPlacementConstraint(type="distinctInstance")])
    with pytest.raises(RuleError, match=r"the task definition's placementConstraints\[0\]: cannot read the expression"):
        constraint.of_definition([ecs.TaskDefinitionPlacementConstraint(type="memberOf", expression="x")])
