"""Reads the words and signs of a cluster query, and says exactly where one is wrong.

The language has words that are ordinary arguments elsewhere ("in", "and"), and patterns that use the signs of the
language itself. So there is no list of tokens: the parser asks for what may come next, and what comes is looked at
with that in mind.
"""

from __future__ import annotations

from sexton.core.query_tree import WORD

_QUOTES = ("'", '"')
# Of what was found, only so much is repeated in an error.
_SHOWN = 24


class QueryError(ValueError):
    """An expression that cannot be understood: at which character (from 0), and what was expected there."""

    def __init__(self, position: int, expected: str, found: str) -> None:
        super().__init__(f"cannot read the expression at character {position + 1}: expected {expected}, found {found}")
        self.position = position
        self.expected = expected


class Scanner:
    """A place in the text, moved on by whatever is taken."""

    __slots__ = ("at", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self._skip()

    @property
    def ended(self) -> bool:
        return self.at >= len(self.text)

    def wrong(self, expected: str, at: int | None = None) -> QueryError:
        """The error of finding something else at ``at`` (here, when not said)."""
        at = self.at if at is None else at
        rest = self.text[at : at + _SHOWN + 1]
        if not rest:
            return QueryError(at, expected, "the end")
        shown = "".join(one if one.isprintable() else "?" for one in rest[:_SHOWN])
        return QueryError(at, expected, f"'{shown}'" + ("..." if len(rest) > _SHOWN else ""))

    def sign(self, *signs: str) -> str:
        """The first of these signs that comes next, taken; otherwise nothing."""
        for sign in signs:
            if self.text.startswith(sign, self.at):
                self._move(self.at + len(sign))
                return sign
        return ""

    def peek_word(self) -> str:
        found = WORD.match(self.text, self.at)
        return found[0] if found else ""

    def word(self, *words: str) -> str:
        """One of these words, taken if it comes next; any word when none are named."""
        found = self.peek_word()
        if not found or (words and found not in words):
            return ""
        self._move(self.at + len(found))
        return found

    def literal(self) -> str:
        """A word, or a text in quotes (a quote inside it is doubled)."""
        if self.text.startswith(_QUOTES, self.at):
            return self._quoted()
        found = self.word()
        if not found:
            raise self.wrong("a value: a word, or a text in quotes")
        return found

    def pattern(self) -> str:
        """A pattern: in quotes, or up to white space, '&&', '||' or a parenthesis that it did not open."""
        if self.text.startswith(_QUOTES, self.at):
            return self._quoted()
        start = self.at
        depth = 0
        in_class = False
        while not self.ended and not self.text[self.at].isspace():
            character = self.text[self.at]
            if character == "\\":
                self.at += 1
            elif in_class:
                in_class = character != "]"
            elif character == "[":
                in_class = True
            elif character == "(":
                depth += 1
            elif (character == ")" and not depth) or self.text.startswith(("&&", "||"), self.at):
                break
            elif character == ")":
                depth -= 1
            self.at += 1
        found = self.text[start : self.at]
        if not found:
            raise self.wrong("a pattern")
        self._move(self.at)
        return found

    def _quoted(self) -> str:
        start = self.at
        quote = self.text[start]
        at = start + 1
        parts = []
        while True:
            end = self.text.find(quote, at)
            if end < 0:
                raise self.wrong(f"a closing {quote}", len(self.text))
            parts.append(self.text[at:end])
            at = end + 1
            if not self.text.startswith(quote, at):
                break
            parts.append(quote)
            at += 1
        self._move(at)
        return "".join(parts)

    def _move(self, at: int) -> None:
        self.at = at
        self._skip()

    def _skip(self) -> None:
        while not self.ended and self.text[self.at].isspace():
            self.at += 1
