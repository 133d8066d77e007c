"""The condition operators of IAM's policies: whether what a policy asks of a request's keys is so.

All operators of a block must hold, and all keys of an operator. Of a key's values in the policy one is enough; for an
operator that says not, none may match. A key that the request has not makes an operator false, one that says not true,
and with ``IfExists`` any. ``ForAllValues:`` and ``ForAnyValue:`` are for keys with several values.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
from collections.abc import Callable
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

from sexton.core.iam_pattern import Pattern, Values, pattern

Test = Callable[[str, Pattern, Values], bool]
"""Whether a value of the request is what one value of the policy says; False for what cannot be compared."""


class Quantifier(StrEnum):
    """How many of a key's values in the request must do."""

    ONE = ""
    ALL = "ForAllValues"
    ANY = "ForAnyValue"


class Operator(NamedTuple):
    """One operator as the policy names it, taken apart."""

    name: str
    test: Test
    negated: bool = False
    if_exists: bool = False
    quantifier: Quantifier = Quantifier.ONE


class Condition(NamedTuple):
    """One key that is asked for, and the values that would do."""

    operator: Operator
    key: str  # in lower case
    wanted: tuple[Pattern, ...]

    def holds(self, values: Values) -> bool:
        found = values.get(self.key)
        operator = self.operator
        if operator.name == NULL:
            absent = found is None
            return any(absent == (one.text.lower() == "true") for one in self.wanted)
        if operator.quantifier is Quantifier.ALL:
            return all(self._met_by(one, values) for one in found or ())
        if operator.quantifier is Quantifier.ANY:
            return any(self._met_by(one, values) for one in found or ())
        if found is None:
            return operator.if_exists or operator.negated
        if operator.negated:
            return all(self._met_by(one, values) for one in found)
        return any(self._met_by(one, values) for one in found)

    def _met_by(self, value: str, values: Values) -> bool:
        test = self.operator.test
        return any(test(value, one, values) for one in self.wanted) != self.operator.negated


NULL = "Null"


def _equals(value: str, wanted: Pattern, values: Values) -> bool:
    return wanted.matches(value, values)


def _equals_any_case(value: str, wanted: Pattern, values: Values) -> bool:
    return wanted.matches(value, values, any_case=True)


ARN_PARTS = 6


def _arn(value: str, wanted: Pattern, values: Values) -> bool:
    """Each of the six parts by itself: a wildcard goes over a colon in the last one only."""
    parts = value.split(":", ARN_PARTS - 1)
    asked = wanted.text.split(":", ARN_PARTS - 1)
    if len(parts) != ARN_PARTS or len(asked) != ARN_PARTS or parts[0] != "arn":
        return False
    if "${" in wanted.text:
        filled = wanted.fill(values)
        if filled is None:
            return False
        # What a variable brings may hold colons: then the whole is compared.
        return wanted.matches(value, values)
    return all(pattern(want).matches(have, values) for have, want in zip(parts, asked, strict=True))


def _compared(read: Callable[[str], object], compare: Callable[[object, object], bool]) -> Test:
    def test(value: str, wanted: Pattern, _values: Values) -> bool:
        try:
            return compare(read(value), read(wanted.text))
        except ValueError:
            return False

    return test


def read_number(text: str) -> float:
    number = float(text)
    if number != number:
        raise ValueError("it is not a number")
    return number


@lru_cache(maxsize=1024)
def read_date(text: str) -> float:
    """Unix seconds of a date as ISO 8601 has it, or of a number of them."""
    if text.replace(".", "", 1).isdecimal():
        return float(text)
    moment = datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def read_bool(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("it is neither true nor false")
    return text.lower() == "true"


def read_network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    return ipaddress.ip_network(text, strict=False)


def read_binary(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(str(error)) from None


def _inside(have: object, want: object) -> bool:
    assert isinstance(have, ipaddress.IPv4Network | ipaddress.IPv6Network)
    if isinstance(have, ipaddress.IPv4Network):
        return isinstance(want, ipaddress.IPv4Network) and have.subnet_of(want)
    return isinstance(want, ipaddress.IPv6Network) and have.subnet_of(want)


def _same(have: object, want: object) -> bool:
    return have == want


_NUMBERS: dict[str, Callable[[float, float], bool]] = {
    "LessThan": lambda have, want: have < want,
    "LessThanEquals": lambda have, want: have <= want,
    "GreaterThan": lambda have, want: have > want,
    "GreaterThanEquals": lambda have, want: have >= want,
}


def _tests() -> dict[str, tuple[Test, bool, Callable[[str], object] | None]]:
    """Name -> the test, whether it says not, and what its values in a policy must be readable as."""
    found: dict[str, tuple[Test, bool, Callable[[str], object] | None]] = {
        "StringEquals": (_equals, False, None),
        "StringNotEquals": (_equals, True, None),
        "StringEqualsIgnoreCase": (_equals_any_case, False, None),
        "StringNotEqualsIgnoreCase": (_equals_any_case, True, None),
        "StringLike": (_equals, False, None),
        "StringNotLike": (_equals, True, None),
        "ArnEquals": (_arn, False, None),
        "ArnNotEquals": (_arn, True, None),
        "ArnLike": (_arn, False, None),
        "ArnNotLike": (_arn, True, None),
        "Bool": (_compared(read_bool, _same), False, read_bool),
        "BinaryEquals": (_compared(read_binary, _same), False, read_binary),
        "IpAddress": (_compared(read_network, _inside), False, read_network),
        "NotIpAddress": (_compared(read_network, _inside), True, read_network),
        NULL: (_equals, False, read_bool),
    }
    kinds: dict[str, Callable[[str], float]] = {"Numeric": read_number, "Date": read_date}
    for kind, read in kinds.items():
        found[f"{kind}Equals"] = (_compared(read, _same), False, read)
        found[f"{kind}NotEquals"] = (_compared(read, _same), True, read)
        for word, compare in _NUMBERS.items():
            # The reader gives numbers, whatever its type says.
            found[f"{kind}{word}"] = (_compared(read, compare), False, read)  # type: ignore[arg-type]
    return found


_TESTS = _tests()
OPERATORS = tuple(_TESTS)
# Operators whose values are texts in which wildcards count; the others' are compared as they are.
_WILD = frozenset(name for name in _TESTS if name.endswith("Like") or name.startswith("Arn"))


def operator_of(text: str) -> Operator:
    """The operator of this name; ValueError when there is none."""
    before, colon, rest = text.partition(":")
    if colon and before not in (Quantifier.ALL, Quantifier.ANY):
        raise ValueError(f"'{before}:' is no quantifier; there are ForAllValues: and ForAnyValue:")
    name = (rest if colon else text).removesuffix("IfExists")
    if_exists = text.endswith("IfExists")
    if name not in _TESTS:
        close = [one for one in OPERATORS if one.lower() == name.lower()]
        hint = f"; write {close[0]}" if close else f"; there are {', '.join(OPERATORS)}"
        raise ValueError(f"'{name}' is no condition operator{hint}")
    if name == NULL and (if_exists or colon):
        raise ValueError("Null asks whether a key is there, so it goes with no IfExists and no quantifier")
    test, negated, _ = _TESTS[name]
    return Operator(name, test, negated, if_exists, Quantifier(before) if colon else Quantifier.ONE)


def wanted_of(operator: Operator, text: str, *, variables: bool) -> Pattern:
    """One value of the policy, taken apart; ValueError when the operator cannot compare with it."""
    read = _TESTS[operator.name][2]
    if read is None:
        return pattern(text, wild=operator.name in _WILD, variables=variables)
    try:
        read(text)
    except ValueError:
        raise ValueError(f"'{text}' is no value for {operator.name}") from None
    return pattern(text, wild=False, variables=False)
