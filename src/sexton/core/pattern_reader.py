"""Reads a pattern in Java's syntax into a tree, and refuses by name what cannot be matched in linear time.

Known are literals, ``.``, classes, ``\\d \\w \\s`` and their opposites, groups, ``|``, ``* + ? {m,n}``, ``^`` and ``$``
at the ends (the whole text is matched anyway), and ``(?i)`` in front. Look-around, back references and possessive
quantifiers are refused: the first two need another machine, the third another meaning.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

# Positions a pattern may have once its counted repeats are written out; building costs at most their square.
MOST_POSITIONS = 256
# Groups inside groups; far more than a person writes, far less than the interpreter's stack.
MOST_DEPTH = 20
_LAST_CHARACTER = 0x10FFFF
_LAZY = "?"

_Ranges = tuple[tuple[int, int], ...]

_SETS: dict[str, _Ranges] = {
    "d": ((48, 57),),
    "w": ((48, 57), (65, 90), (95, 95), (97, 122)),
    "s": ((9, 13), (32, 32)),
}
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_QUANTIFIERS = {"*": (0, None), "+": (1, None), "?": (0, 1)}


class PatternError(ValueError):
    """A pattern that cannot be used: where in it, and what would have been right."""

    def __init__(self, position: int, expected: str) -> None:
        super().__init__(f"cannot read the pattern at character {position + 1}: expected {expected}")
        self.position = position
        self.expected = expected


class One(NamedTuple):
    """One character out of sorted ranges, or any but these."""

    ranges: _Ranges
    negated: bool = False

    def holds(self, character: str, ignore_case: bool) -> bool:
        forms = {character, character.lower(), character.upper()} if ignore_case else {character}
        return any(self._within(ord(form)) for form in forms if len(form) == 1) is not self.negated

    def _within(self, code: int) -> bool:
        at = bisect_right(self.ranges, (code, _LAST_CHARACTER)) - 1
        return at >= 0 and self.ranges[at][1] >= code


class Sequence(NamedTuple):
    parts: tuple[Node, ...]


class Choice(NamedTuple):
    parts: tuple[Node, ...]


class Repeat(NamedTuple):
    part: Node
    least: int
    most: int | None


Node = One | Sequence | Choice | Repeat
_ANY = One(((10, 10),), negated=True)


class Reader:
    """From text to a tree, one character of foresight."""

    def __init__(self, text: str) -> None:
        self.ignore_case = text.startswith("(?i)")
        self._text = text
        self._at = 4 if self.ignore_case else 0

    def read(self) -> Node:
        tree = self._choice(0)
        if self._at < len(self._text):
            raise self._wrong("the end, or an opening parenthesis before this one")
        return tree

    def _wrong(self, expected: str, back: int = 0) -> PatternError:
        return PatternError(self._at - back, expected)

    def _next(self) -> str:
        return self._text[self._at : self._at + 1]

    def _take(self, text: str) -> bool:
        if not self._text.startswith(text, self._at):
            return False
        self._at += len(text)
        return True

    def _choice(self, depth: int) -> Node:
        parts = [self._sequence(depth)]
        while self._take("|"):
            parts.append(self._sequence(depth))
        return parts[0] if len(parts) == 1 else Choice(tuple(parts))

    def _sequence(self, depth: int) -> Node:
        parts: list[Node] = []
        if not depth:
            self._take("^")  # the whole text is matched anyway
        while self._next() not in ("", "|", ")"):
            if not depth and self._take("$"):
                if self._next() not in ("", "|"):
                    raise self._wrong("nothing after '$'")
                break
            parts.append(self._quantified(depth))
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def _quantified(self, depth: int) -> Node:
        part = self._atom(depth)
        character = self._next()
        if character in _QUANTIFIERS:
            self._at += 1
            least, most = _QUANTIFIERS[character]
        elif self._take("{"):
            least, most = self._counts()
        else:
            return part
        self._take(_LAZY)  # finds the same texts when all of the text must match
        if self._next() == "+":
            raise self._wrong("no possessive quantifier")
        if self._next() in ("*", "?", "{"):
            raise self._wrong("one quantifier at most; use a group")
        return Repeat(part, least, most)

    def _counts(self) -> tuple[int, int | None]:
        least = self._count()
        most: int | None = least
        if self._take(","):
            most = None if self._next() == "}" else self._count()
        if not self._take("}") or (most is not None and most < least):
            raise self._wrong("'{least,most}' with least not above most")
        return least, most

    def _count(self) -> int:
        start = self._at
        while self._next().isascii() and self._next().isdigit():
            self._at += 1
        if not 1 <= self._at - start <= len(str(MOST_POSITIONS)):
            raise self._wrong(f"a number up to {MOST_POSITIONS}")
        return int(self._text[start : self._at])

    def _atom(self, depth: int) -> Node:
        if self._take("("):
            return self._group(depth + 1)
        if self._take("["):
            return self._class()
        if self._take("."):
            return _ANY
        if self._take("\\"):
            ranges = self._escape()
            return One(ranges)
        character = self._next()
        if character in "*+?{":
            raise self._wrong("something to repeat before a quantifier")
        if character in "^$":
            raise self._wrong(f"'\\{character}', or '{character}' at the ends of the pattern only")
        self._at += 1
        return One(((ord(character), ord(character)),))

    def _group(self, depth: int) -> Node:
        if depth > MOST_DEPTH:
            raise self._wrong(f"at most {MOST_DEPTH} groups inside each other", back=1)
        if self._take("?") and not self._take(":"):
            raise self._wrong("a plain group; look-around, named groups and flags inside are not supported", back=1)
        tree = self._choice(depth)
        if not self._take(")"):
            raise self._wrong("')'")
        return tree

    def _class(self) -> One:
        negated = self._take("^")
        ranges: list[tuple[int, int]] = []
        while not self._take("]"):
            if self._next() in ("", "["):
                raise self._wrong("']', or '\\[' for the bracket itself" if self._next() else "']'")
            if self._text.startswith("&&", self._at):
                raise self._wrong("no intersection of classes; write '\\&' for the character itself")
            low = self._member()
            if self._next() == "-" and self._text[self._at + 1 : self._at + 2] not in ("", "]"):
                self._at += 1
                high = self._member()
                if len(low) != 1 or len(high) != 1 or low[0][0] > high[0][0]:
                    raise self._wrong("a range from a lower to a higher character", back=1)
                low = ((low[0][0], high[0][0]),)
            ranges.extend(low)
        if not ranges:
            raise self._wrong("a character in the class", back=1)
        return One(_merged(ranges), negated)

    def _member(self) -> _Ranges:
        if self._take("\\"):
            return self._escape()
        character = self._next()
        if character in ("", "["):
            raise self._wrong("a character")
        self._at += 1
        return ((ord(character), ord(character)),)

    def _escape(self) -> _Ranges:
        character = self._next()
        self._at += 1
        if character.lower() in _SETS and character:
            ranges = _SETS[character.lower()]
            return ranges if character.islower() else _others(ranges)
        if not character or (character.isalnum() and character not in _CONTROLS):
            raise self._wrong(
                "one of \\d \\w \\s \\D \\W \\S \\t or an escaped sign; nothing else is supported", back=1
            )
        code = ord(_CONTROLS.get(character, character))
        return ((code, code),)


def _merged(ranges: list[tuple[int, int]]) -> _Ranges:
    merged: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    return tuple(merged)


def _others(ranges: _Ranges) -> _Ranges:
    """Every character that is in none of the sorted ranges."""
    edges = [-1, *(edge for pair in ranges for edge in pair), _LAST_CHARACTER + 1]
    return tuple((edges[at] + 1, edges[at + 1] - 1) for at in range(0, len(edges), 2) if edges[at] + 1 < edges[at + 1])
