"""The cluster query language: which container instances an expression means.

In flows the text of a ``memberOf`` constraint or of a list's filter; out comes a ``Query`` that says of a host
whether it belongs, and, for people, which part of the expression it fails. An expression is read once and then only
evaluated; reading is remembered for the latest expressions, since services repeat theirs for ever. Nothing survives
a restart.

What a comparison means when there is nothing to compare: an attribute or field that a host does not have satisfies
no comparison at all, not even ``!=``; only ``!exists`` and ``not (...)`` find such hosts. ``task:group`` has as
many values as groups have tasks there: ``==`` asks for one of them, ``!=`` that none is it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import TypeVar

import msgspec

from sexton.core.pattern import Pattern
from sexton.core.query_lexer import QueryError
from sexton.core.query_parser import parse
from sexton.core.query_tree import (
    ATTRIBUTE,
    And,
    Compare,
    Field,
    Not,
    Operator,
    Or,
    Tree,
    agent_version,
    instant,
    version,
    written,
)

__all__ = ["Query", "QueryError", "Subject", "read"]

# Expressions in use at one time; one that falls out is read again.
REMEMBERED = 512
_DYNAMIC = frozenset({Field.TASK_GROUP, Field.RUNNING_TASKS})
_OPPOSITE = {
    Operator.NOT_EQUAL: Operator.EQUAL,
    Operator.NOT_IN: Operator.IN,
    Operator.NOT_MATCHES: Operator.MATCHES,
    Operator.NOT_EXISTS: Operator.EXISTS,
}
# How two values of one kind may stand to each other: below (-1), equal (0), above (1).
_STANDINGS = {
    Operator.EQUAL: (0,),
    Operator.NOT_EQUAL: (-1, 1),
    Operator.GREATER: (1,),
    Operator.GREATER_EQUAL: (0, 1),
    Operator.LESS: (-1,),
    Operator.LESS_EQUAL: (-1, 0),
}
_ORDER = frozenset({Operator.GREATER, Operator.GREATER_EQUAL, Operator.LESS, Operator.LESS_EQUAL})
_Value = TypeVar("_Value", float, str, tuple[int, ...])


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """A host as expressions see it. Attributes without a value are in ``attributes`` alone."""

    connected: bool
    attributes: frozenset[str]
    values: Mapping[str, str] = {}
    groups: Mapping[str, int] = {}
    running: int = 0
    agent_version: str = ""
    ec2_instance_id: str = ""
    registered_at: float | None = None


Test = Callable[[Subject], bool]


class Query:
    """An expression that was understood. Two that read as the same tree are equal.

    ``dynamic`` tells whether the answer may change as tasks come and go, or only with the host itself.
    """

    __slots__ = ("_parts", "dynamic", "text", "tree")

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.text = written(tree)
        self.dynamic = any(one.subject in _DYNAMIC for one in _comparisons(tree))
        self._parts = [(part, _test(part)) for part in _conjuncts(tree)]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Query) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"Query({self.text!r})"

    def matches(self, subject: Subject) -> bool:
        for _, test in self._parts:  # noqa: SIM110  (a generator would double the cost, and this runs for every host)
            if not test(subject):
                return False
        return True

    def mismatch(self, subject: Subject) -> str:
        """The first part the host fails, and what the host has instead; empty when it matches."""
        for part, test in self._parts:
            if not test(subject):
                return written(part) + (_instead(part, subject) if isinstance(part, Compare) else "")
        return ""


@lru_cache(maxsize=REMEMBERED)
def read(text: str) -> Query:
    """The query of an expression, or ``QueryError``."""
    return Query(parse(text))


def _conjuncts(tree: Tree) -> Iterator[Tree]:
    if isinstance(tree, And):
        for part in tree.parts:
            yield from _conjuncts(part)
    else:
        yield tree


def _comparisons(tree: Tree) -> Iterator[Compare]:
    match tree:
        case Compare():
            yield tree
        case Not(part):
            yield from _comparisons(part)
        case And(parts) | Or(parts):
            for part in parts:
                yield from _comparisons(part)


def _instead(part: Compare, subject: Subject) -> str:
    if part.subject == Field.TASK_GROUP or part.operator in (Operator.EXISTS, Operator.NOT_EXISTS):
        return ""  # the part itself says it all
    if part.subject == Field.REGISTERED_AT:
        return ""  # seconds since the epoch tell a person nothing
    value = _shown(part.subject)(subject)
    return f" (it has no {part.subject})" if value is None else f" (it is {value or 'without a value'})"


def _shown(name: str) -> Callable[[Subject], str | None]:
    match name:
        case Field.AGENT_CONNECTED:
            return lambda subject: "true" if subject.connected else "false"
        case Field.AGENT_VERSION:
            return lambda subject: subject.agent_version or None
        case Field.EC2_INSTANCE_ID:
            return lambda subject: subject.ec2_instance_id or None
        case Field.RUNNING_TASKS:
            return lambda subject: str(subject.running)
        case _:
            attribute = name.removeprefix(ATTRIBUTE)
            return lambda subject: subject.values.get(attribute, "" if attribute in subject.attributes else None)


def _test(tree: Tree) -> Test:
    match tree:
        case Not(part):
            inner = _test(part)
            return lambda subject: not inner(subject)
        case And(parts):
            every = [_test(part) for part in parts]
            return lambda subject: all(test(subject) for test in every)
        case Or(parts):
            either = [_test(part) for part in parts]
            return lambda subject: any(test(subject) for test in either)
        case Compare(name, operator, arguments):
            return _compare(name, operator, arguments)


def _compare(name: str, operator: Operator, arguments: tuple[str, ...]) -> Test:
    match name:
        case Field.TASK_GROUP:
            return _groups(operator, arguments)
        case Field.AGENT_VERSION:
            return _scalar(lambda subject: agent_version(subject.agent_version), operator, version(arguments[0]))
        case Field.REGISTERED_AT:
            return _scalar(_registered, operator, instant(arguments[0]))
        case Field.RUNNING_TASKS:
            return _scalar(lambda subject: subject.running, operator, int(arguments[0]))
        case Field.AGENT_CONNECTED if operator not in (Operator.MATCHES, Operator.NOT_MATCHES):
            arguments = tuple(one.lower() for one in arguments)
    value = _shown(name)
    if operator is Operator.EXISTS:
        return lambda subject: value(subject) is not None
    if operator is Operator.NOT_EXISTS:
        return lambda subject: value(subject) is None
    if operator in _ORDER:
        return _ordered(value, operator, arguments[0])
    holds = _textual(_OPPOSITE.get(operator, operator), arguments)
    wanted = operator not in _OPPOSITE
    return lambda subject: (found := value(subject)) is not None and holds(found) is wanted


def _registered(subject: Subject) -> float | None:
    """To the second, as the language writes it."""
    return None if subject.registered_at is None else subject.registered_at // 1


def _standing(one: _Value, other: _Value) -> int:
    return (one > other) - (one < other)


def _scalar(value: Callable[[Subject], _Value | None], operator: Operator, argument: _Value | None) -> Test:
    """Equality and order of two values of one kind; a host without the value satisfies neither."""
    standings = _STANDINGS[operator]
    if argument is None:
        return lambda subject: False
    return lambda subject: (found := value(subject)) is not None and _standing(found, argument) in standings


def _ordered(value: Callable[[Subject], str | None], operator: Operator, argument: str) -> Test:
    """An attribute's order: as numbers or versions where both are, else as texts."""
    standings = _STANDINGS[operator]
    number = version(argument)

    def test(subject: Subject) -> bool:
        found = value(subject)
        if found is None:
            return False
        own = version(found)
        if own is None or number is None:
            return _standing(found, argument) in standings
        return _standing(own, number) in standings

    return test


def _textual(operator: Operator, arguments: tuple[str, ...]) -> Callable[[str], bool]:
    if operator is Operator.MATCHES:
        return Pattern(arguments[0]).matches
    allowed = frozenset(arguments)
    return lambda text: text in allowed


def _groups(operator: Operator, arguments: tuple[str, ...]) -> Test:
    positive = _OPPOSITE.get(operator, operator)
    wanted = operator not in _OPPOSITE
    if positive is Operator.EXISTS:
        return lambda subject: bool(subject.groups) is wanted
    holds = _textual(positive, arguments)
    return lambda subject: any(map(holds, subject.groups)) is wanted
