"""Texts of a policy with wildcards and variables: ``*`` any characters, ``?`` one, ``${aws:userid}`` a value.

A text is taken apart once, into pieces that are literal, a wildcard or a variable. What a variable brings in is
literal, whatever it holds. A variable without a value matches nothing, unless the policy names a default.
Matching walks from wildcard to wildcard and never back, so it takes time in proportion to the text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import Enum
from functools import lru_cache
from typing import NamedTuple

Values = Mapping[str, tuple[str, ...]]
"""The request's condition keys, in lower case, with their values."""

_VARIABLE = re.compile(r"\$\{(?P<name>[^{},']*)(?:,\s*'(?P<default>[^']*)')?\s*\}")
# Texts taken apart are kept: a policy's are few, and each is looked at with every request.
_KEPT = 4096


class Wild(Enum):
    """A wildcard."""

    ANY = "*"
    ONE = "?"


class Variable(NamedTuple):
    """A condition key whose single value stands in its place."""

    name: str
    default: str | None


Piece = str | Wild | Variable


class Pattern(NamedTuple):
    """A text of a policy, taken apart."""

    text: str
    pieces: tuple[Piece, ...]

    def fill(self, values: Values) -> tuple[str | Wild, ...] | None:
        """With values for its variables; None when one has none."""
        filled: list[str | Wild] = []
        for piece in self.pieces:
            if isinstance(piece, Variable):
                found = values.get(piece.name, ())
                if len(found) != 1 and piece.default is None:
                    return None
                filled.append(found[0] if len(found) == 1 else piece.default or "")
            else:
                filled.append(piece)
        return tuple(filled)

    def matches(self, text: str, values: Values, *, any_case: bool = False) -> bool:
        """Whether the whole text is what the pattern says."""
        filled = self.fill(values)
        return filled is not None and glob(filled, text, any_case=any_case)


@lru_cache(maxsize=_KEPT)
def pattern(text: str, *, wild: bool = True, variables: bool = True) -> Pattern:
    """Take a text apart; ValueError when a variable in it cannot be read."""
    pieces: list[Piece] = []
    place = 0
    while variables and (start := text.find("${", place)) >= 0:
        found = _VARIABLE.match(text, start)
        if found is None:
            raise ValueError(f"the variable at '{text[start : start + 20]}' has no end or no name")
        pieces += _literal(text[place:start], wild=wild)
        name, default = found["name"].strip(), found["default"]
        if name in ("*", "?", "$"):
            pieces.append(name)  # the way to write one of these as itself
        elif not name:
            raise ValueError("a variable has no name")
        else:
            pieces.append(Variable(name.lower(), default))
        place = found.end()
    pieces += _literal(text[place:], wild=wild)
    return Pattern(text, tuple(pieces))


def _literal(text: str, *, wild: bool) -> list[Piece]:
    if not wild:
        return [text] if text else []
    return [Wild(part) if part in ("*", "?") else part for part in re.split(r"([*?])", text) if part]


class _Chunk(NamedTuple):
    """What stands between two wildcards for any characters; it matches texts of one length alone."""

    shape: re.Pattern[str]
    width: int


def glob(pieces: Sequence[str | Wild], text: str, *, any_case: bool = False) -> bool:
    """Whether the text is what the pieces say, from its first character to its last."""
    first, *rest = _chunks(tuple(pieces), any_case)
    if not rest:
        return len(text) == first.width and first.shape.match(text) is not None
    if first.shape.match(text) is None:
        return False
    place = first.width
    *middle, last = rest
    for chunk in middle:
        found = chunk.shape.search(text, place)
        if found is None:
            return False
        place = found.end()
    start = len(text) - last.width
    return start >= place and last.shape.match(text, start) is not None


@lru_cache(maxsize=_KEPT)
def _chunks(pieces: tuple[str | Wild, ...], any_case: bool) -> tuple[_Chunk, ...]:
    parts: list[tuple[str, int]] = [("", 0)]
    for piece in pieces:
        shape, width = parts[-1]
        if piece is Wild.ANY:
            parts.append(("", 0))
        elif piece is Wild.ONE:
            parts[-1] = (shape + ".", width + 1)
        else:
            parts[-1] = (shape + re.escape(str(piece)), width + len(str(piece)))
    flags = re.DOTALL | (re.IGNORECASE if any_case else 0)
    return tuple(_Chunk(re.compile(shape, flags), width) for shape, width in parts)
