"""Regular expressions that strangers may send: matching always takes time in proportion to the text.

A placement expression may carry a pattern, and whoever may run a task may send one. Engines that backtrack (Python's
own among them) can be kept busy for hours by thirty characters, and no check of a pattern's shape catches every such
case. So this is a small automaton instead: a pattern becomes a set of positions, each one character wide, and for
every position the set of those that may follow. Matching walks the text once and keeps the set of positions it may
be at. Sets are the bits of an integer; steps taken before are remembered, within a bound. As with ``matches`` in
Java, a pattern must match the whole text.
"""

from __future__ import annotations

from typing import NamedTuple

from sexton.core.pattern_reader import MOST_POSITIONS, Choice, Node, One, PatternError, Reader, Repeat, Sequence

__all__ = ["MOST_POSITIONS", "Pattern", "PatternError"]

# Remembered steps of one pattern; at this many they are forgotten and learned anew.
MOST_STEPS = 1024


def _size(node: Node) -> int:
    """Positions of the node once repeats are written out; the empty one counts, so that its repeats are bounded."""
    match node:
        case One():
            return 1
        case Repeat(part, least, most):
            return _size(part) * max(1, least if most is None else most)
        case Sequence(parts) | Choice(parts):
            return max(1, sum(map(_size, parts)))


class _Piece(NamedTuple):
    """A part of the automaton: whether it matches nothing as well, and the positions it may begin and end at."""

    empty: bool
    first: int
    last: int


_NOTHING = _Piece(True, 0, 0)


class Pattern:
    """A pattern, ready to match. ``size`` is the number of its positions."""

    __slots__ = ("_accepting", "_classes", "_follow", "_ignore_case", "_joined", "_occurs", "_steps", "size")

    def __init__(self, text: str) -> None:
        reader = Reader(text)
        tree = reader.read()
        self.size = _size(tree)
        if self.size > MOST_POSITIONS:
            raise PatternError(0, f"at most {MOST_POSITIONS} positions, repeats written out")
        self._ignore_case = reader.ignore_case
        self._classes: list[One] = []
        self._follow = [0]  # position 0 is the start, before any character
        whole = self._build(tree)
        self._follow[0] = whole.first
        self._accepting = whole.last | whole.empty
        self._occurs: dict[str, int] = {}
        self._joined: dict[tuple[int, int], int] = {}
        self._steps: dict[tuple[int, str], int] = {}

    def matches(self, text: str) -> bool:
        """Whether the whole text matches."""
        at = 1
        for character in text:
            step = (at, character)
            known = self._steps.get(step)
            at = self._step(at, character) if known is None else known
            if not at:
                return False
        return bool(at & self._accepting)

    def _step(self, at: int, character: str) -> int:
        occurs = self._occurs.get(character)
        if occurs is None:
            occurs = sum(
                1 << (index + 1) for index, one in enumerate(self._classes) if one.holds(character, self._ignore_case)
            )
            if len(self._occurs) >= MOST_STEPS:
                self._occurs.clear()
            self._occurs[character] = occurs
        after = 0
        for index, byte in enumerate(at.to_bytes(MOST_POSITIONS // 8 + 1, "little")):
            if byte:
                after |= self._after(index, byte)
        if len(self._steps) >= MOST_STEPS:
            self._steps.clear()
        self._steps[(at, character)] = after & occurs
        return after & occurs

    def _after(self, index: int, byte: int) -> int:
        """What may follow the eight positions from ``8 * index`` on that are set in the byte; worked out once."""
        known = self._joined.get((index, byte))
        if known is None:
            known = 0
            for position in _positions(byte):
                known |= self._follow[8 * index + position]
            self._joined[(index, byte)] = known
        return known

    def _build(self, node: Node) -> _Piece:
        match node:
            case One():
                self._classes.append(node)
                self._follow.append(0)
                bit = 1 << len(self._classes)
                return _Piece(False, bit, bit)
            case Sequence(parts):
                piece = _NOTHING
                for part in parts:
                    piece = self._then(piece, self._build(part))
                return piece
            case Choice(parts):
                built = [self._build(part) for part in parts]
                first = last = 0
                for one in built:
                    first |= one.first
                    last |= one.last
                return _Piece(any(one.empty for one in built), first, last)
            case Repeat(part, least, most):
                piece = _NOTHING
                for _ in range(least if most is not None else least - 1):
                    piece = self._then(piece, self._build(part))
                if most is None:
                    again = self._build(part)
                    self._link(again.last, again.first)
                    return self._then(piece, again._replace(empty=again.empty or not least))
                for _ in range(most - least):
                    piece = self._then(piece, self._build(part)._replace(empty=True))
                return piece

    def _then(self, one: _Piece, other: _Piece) -> _Piece:
        self._link(one.last, other.first)
        return _Piece(
            one.empty and other.empty,
            one.first | other.first if one.empty else one.first,
            other.last | one.last if other.empty else other.last,
        )

    def _link(self, ends: int, starts: int) -> None:
        for position in _positions(ends):
            self._follow[position] |= starts


def _positions(bits: int) -> list[int]:
    found = []
    while bits:
        lowest = bits & -bits
        found.append(lowest.bit_length() - 1)
        bits ^= lowest
    return found
