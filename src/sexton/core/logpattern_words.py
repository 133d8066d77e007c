"""What the structured filter patterns share: how a condition is spelt, and how a value is compared with it.

``=`` and ``!=`` compare numbers with numbers and texts with texts, in which ``*`` stands for anything; the others
compare numbers only. Matching takes time in proportion to the text, whatever the pattern is.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple


class BadPattern(Exception):  # noqa: N818 - an answer for the client
    """A filter pattern that cannot be read; the message says where."""


class Token(NamedTuple):
    """A piece of a pattern. ``quoted`` tells a text in quotes from the same word without."""

    text: str
    at: int
    quoted: bool = False


# Deeper than anybody writes by hand, far from the end of the stack.
MOST_DEPTH = 32

Test = Callable[[object], bool]
"""Asked of a text or number of a line."""

_ORDER: Mapping[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
OPERATORS = ("!=", "<=", ">=", "=", "<", ">")


def number(value: object) -> float | None:
    """A finite number, or the one that a text spells."""
    if isinstance(value, bool):
        return None
    try:
        found = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return None
    return found if math.isfinite(found) else None


def condition(sign: str, value: Token) -> Test:
    """The test of ``<sign> <value>``; BadPattern where they do not go together."""
    if value.text.startswith("%") and not value.quoted:
        raise BadPattern("cannot use a regular expression in a filter pattern here; use * for anything")
    if sign in _ORDER:
        limit = number(value.text)
        if limit is None or value.quoted:
            raise BadPattern(f"cannot compare with '{value.text[:50]}' by {sign}: it is no number")
        compare = _ORDER[sign]
        return lambda found: (given := number(found)) is not None and compare(given, limit)
    equals = _equals(value)
    return equals if sign == "=" else lambda found: not equals(found)


def _equals(value: Token) -> Test:
    wanted = None if value.quoted else number(value.text)
    if wanted is not None:
        return lambda found: number(found) == wanted
    matches = glob(value.text)
    return lambda found: isinstance(found, str) and matches(found)


def glob(pattern: str) -> Callable[[str], bool]:
    """Whether a text is this one, with ``*`` for anything."""
    first, *rest = re.split(r"\*+", pattern)
    if not rest:
        return lambda text: text == pattern
    *middle, last = rest

    def matches(text: str) -> bool:
        if len(text) < len(first) + len(last) or not (text.startswith(first) and text.endswith(last)):
            return False
        at, end = len(first), len(text) - len(last)
        for part in middle:
            at = text.find(part, at, end)
            if at < 0:
                return False
            at += len(part)
        return True

    return matches
