"""Whether a request satisfies the service model, told in the words the service itself uses.

A decoded request goes in, the list of its violations comes out, empty when all is well; ``describe`` makes the one
sentence the API answers with. The decoder has already settled JSON types; what is left is members that must be there,
lengths, bounds, patterns, enum words and unions with more or less than one member.

The generated table is turned into checks once for each structure, on first use; only that cache outlives a call. A
request without violations, the usual one, costs a tuple of attributes and a few comparisons: paths are only spelt out
when there is something to say.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from operator import attrgetter
from types import ModuleType
from typing import NamedTuple, TypeAlias

from msgspec import Struct

from sexton.wire import ecs
from sexton.wire.constraint_rules import Entries, Items, Member, Nested, Number, Rule, Structure, Text
from sexton.wire.constraints_table import CONSTRAINTS
from sexton.wire.scalars import JsonValue

# A request of megabytes must not come back as an answer of megabytes: so much of a value is shown,
MAX_VALUE_SHOWN = 256
# so many violations are spelt out (all are counted),
MAX_VIOLATIONS_SHOWN = 10
# and so many are collected before looking further is pointless.
MAX_VIOLATIONS = 1000

# Words that agents have a capability for and the model does not list.
_UNLISTED = {"LogDriver": ("none",)}


class Violation(NamedTuple):
    """One demand that is not met. ``value`` is as shown to the caller, None when the member is absent."""

    path: str
    value: str | None
    constraint: str

    def __str__(self) -> str:
        shown = "Value" if self.value is None else f"Value '{self.value}'"
        return f"{shown} at '{self.path}' failed to satisfy constraint: {self.constraint}"


# Where the walk is: the steps taken so far, innermost first. A whole number is the place in a list, counted from 1.
_Path: TypeAlias = "tuple[_Path, str | int] | None"
# Says what a scalar violates; nothing said means nothing wrong.
_Scalar: TypeAlias = Callable[[JsonValue], "list[str] | None"]
_Check: TypeAlias = Callable[[JsonValue, _Path, "list[Violation]"], None]


class _Plan(NamedTuple):
    """The checks of one structure, in the order of its members."""

    values: Callable[[Struct], tuple[JsonValue, ...]]
    members: tuple[tuple[str, bool, _Check | None], ...]
    union: Callable[[Struct], tuple[JsonValue, ...]] | None


class Demands:
    """What one service demands of its requests: its shapes, its table, and the checks made of them."""

    def __init__(self, shapes: ModuleType, table: Mapping[str, Structure]) -> None:
        self._shapes = shapes
        self._table = table
        self._plans: dict[str, _Plan] = {}

    def check(self, request: Struct) -> list[Violation]:
        """Every violation of a request, in the order of the model."""
        found: list[Violation] = []
        name = type(request).__name__
        if name in self._table:
            self.structure(name, request, None, found)
        return found

    def structure(self, name: str, value: Struct, path: _Path, found: list[Violation]) -> None:
        plan = self._plans.get(name) or self._make_plan(name)
        for member, (wire, required, inspect) in zip(plan.values(value), plan.members, strict=True):
            if member is None:
                if required:
                    found.append(Violation(_spell((path, wire)), None, "Member must not be null"))
            elif inspect is not None:
                inspect(member, (path, wire), found)
        if plan.union is not None and sum(member is not None for member in plan.union(value)) != 1:
            found.append(Violation(_spell(path), _show(value), "Member must have exactly one of its members set"))

    def choices(self, name: str) -> type[StrEnum]:
        words: type[StrEnum] = getattr(self._shapes, name)
        return words

    def _make_plan(self, name: str) -> _Plan:
        structure = self._table[name]
        shape = getattr(self._shapes, name)
        wires = dict(zip(shape.__struct_encode_fields__, shape.__struct_fields__, strict=True))
        plan = _Plan(
            _attributes([member.attribute for member in structure.members]),
            tuple((member.wire, member.required, _member_check(self, member)) for member in structure.members),
            _attributes([wires[wire] for wire in structure.union]) if structure.union else None,
        )
        self._plans[name] = plan
        return plan


_ECS = Demands(ecs, CONSTRAINTS)


def check(request: Struct) -> list[Violation]:
    """Every violation of a request of the ECS API, in the order of its model."""
    return _ECS.check(request)


def describe(violations: list[Violation]) -> str:
    """The message of the error answer. There must be at least one violation."""
    count = len(violations)
    listed = "; ".join(str(violation) for violation in violations[:MAX_VIOLATIONS_SHOWN])
    return f"{count} validation error{'s' if count > 1 else ''} detected: {listed}"


def _attributes(names: list[str]) -> Callable[[Struct], tuple[JsonValue, ...]]:
    """Several attributes at once, always as a tuple."""
    if not names:
        return lambda _: ()
    if len(names) == 1:
        single = attrgetter(names[0])
        return lambda value: (single(value),)
    several: Callable[[Struct], tuple[JsonValue, ...]] = attrgetter(*names)
    return several


def _member_check(demands: Demands, member: Member) -> _Check | None:
    return None if member.rule is None else _rule_check(demands, member.rule)


def _rule_check(demands: Demands, rule: Rule) -> _Check:
    match rule:
        case Nested(name):
            return lambda value, path, found: demands.structure(name, value, path, found)
        case Items():
            return _items_check(demands, rule)
        case Entries():
            return _entries_check(demands, rule)
        case Text() | Number():
            return _scalar_check(_scalar(demands, rule))


def _scalar_check(violated: _Scalar) -> _Check:
    def inspect(value: JsonValue, path: _Path, found: list[Violation]) -> None:
        told = violated(value)
        if told:
            found.extend(Violation(_spell(path), _show(value), constraint) for constraint in told)

    return inspect


def _entries_check(demands: Demands, rule: Entries) -> _Check:
    length = _length(rule.minimum, rule.maximum)
    parts = [("keys", rule.key), ("values", rule.value)]
    inner = [(word, _scalar(demands, one)) for word, one in parts if one is not None]

    def inspect(value: JsonValue, path: _Path, found: list[Violation]) -> None:
        told = (length(value) or []) if length is not None else []
        for word, violated in inner:
            texts = value if word == "keys" else value.values()
            wrong = dict.fromkeys(constraint for text in texts for constraint in violated(text) or ())
            if wrong:
                told.append(f"Map {word} must satisfy constraint: [{', '.join(wrong)}]")
        shown = f"[{len(value)} entries]"
        found.extend(Violation(_spell(path), shown, constraint) for constraint in told)

    return inspect


def _items_check(demands: Demands, rule: Items) -> _Check:
    length = _length(rule.minimum, rule.maximum)
    checks = [_scalar_check(length)] if length is not None else []
    if rule.item is not None:
        checks.append(_item_check(demands, rule.item))

    def inspect(value: JsonValue, path: _Path, found: list[Violation]) -> None:
        for one in checks:
            one(value, path, found)

    return checks[0] if len(checks) == 1 else inspect


def _item_check(demands: Demands, rule: Text | Number | Nested) -> _Check:
    if isinstance(rule, Nested):
        name = rule.shape

        def inspect_structures(value: tuple[Struct, ...], path: _Path, found: list[Violation]) -> None:
            for place, item in enumerate(value, start=1):
                if len(found) >= MAX_VIOLATIONS:
                    return
                demands.structure(name, item, (path, place), found)

        return inspect_structures

    violated = _scalar(demands, rule)

    def inspect_scalars(value: tuple[JsonValue, ...], path: _Path, found: list[Violation]) -> None:
        # The service tells a list of scalars as one violation of the list, with the inner constraints in brackets.
        inner = dict.fromkeys(constraint for item in value for constraint in violated(item) or ())
        if inner:
            constraint = f"Member must satisfy constraint: [{', '.join(inner)}]"
            found.append(Violation(_spell(path), _show(value), constraint))

    return inspect_scalars


def _scalar(demands: Demands, rule: Text | Number) -> _Scalar:
    if isinstance(rule, Number):
        return _bounds(rule, "have value")
    if rule.choices is not None:
        return _choices(demands.choices(rule.choices), _UNLISTED.get(rule.choices, ()))
    length = _length(rule.minimum, rule.maximum)
    if rule.expression is None:
        return length or (lambda _: None)
    matches = re.compile(rule.expression).fullmatch
    wrong = f"Member must satisfy regular expression pattern: {rule.pattern}"

    def violated(value: str) -> list[str] | None:
        told = (length(value) or []) if length is not None else []
        return told if matches(value) else [*told, wrong]

    return violated


def _choices(words: type[StrEnum], more: tuple[str, ...]) -> _Scalar:
    known = frozenset((*more, *(word.value for word in words)))
    wrong = [f"Member must satisfy enum value set: [{', '.join(word.value for word in words)}]"]
    return lambda value: None if value in known else wrong


def _length(minimum: int | None, maximum: int | None) -> _Scalar | None:
    if minimum is None and maximum is None:
        return None
    violated = _bounds(Number(minimum, maximum), "have length")
    return lambda value: violated(len(value))


def _bounds(rule: Number, verb: str) -> _Scalar:
    minimum = float("-inf") if rule.minimum is None else rule.minimum
    maximum = float("inf") if rule.maximum is None else rule.maximum
    too_small = [f"Member must {verb} greater than or equal to {_number(minimum)}"]
    too_large = [f"Member must {verb} less than or equal to {_number(maximum)}"]
    return lambda value: None if minimum <= value <= maximum else too_small if value < minimum else too_large


def _number(value: float) -> str:
    return str(int(value)) if value == value // 1 and abs(value) != float("inf") else str(value)


def _spell(path: _Path) -> str:
    """``containerDefinitions.1.member.name``, from the steps of the walk."""
    steps: list[str] = []
    while path is not None:
        path, step = path
        steps.append(f"{step}.member" if isinstance(step, int) else step)
    return ".".join(reversed(steps))


def _show(value: JsonValue) -> str:
    match value:
        case str():
            shown = value
        case tuple() if all(isinstance(item, str) for item in value):
            shown = f"[{', '.join(_enough(value))}]"
        case tuple():
            shown = f"[{len(value)} items]"
        case Struct():
            # Structures may hold what must not be shown; the path says which one is meant.
            shown = type(value).__name__
        case _:
            shown = str(value)
    return shown if len(shown) <= MAX_VALUE_SHOWN else f"{shown[:MAX_VALUE_SHOWN]}..."


def _enough(items: Iterable[str]) -> list[str]:
    """As many items as can be shown."""
    return [item for item, _ in zip(items, range(MAX_VALUE_SHOWN), strict=False)]
