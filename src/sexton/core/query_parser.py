"""From the text of a cluster query to its tree, or the one error that says where and why not.

``or`` binds loosest, then ``and``, then ``not``; parentheses bind tightest. What a field can be asked, and the form
of its arguments, is checked here, so that an expression which is accepted has a meaning on every host. The cost is
bounded whatever is sent: length, nesting and the size of all patterns together have limits.
"""

from __future__ import annotations

import re

from sexton.core.pattern import MOST_POSITIONS, Pattern, PatternError
from sexton.core.query_lexer import Scanner
from sexton.core.query_tree import (
    ALLOWED,
    ATTRIBUTE,
    OPERATOR_WORDS,
    WITH_LIST,
    WITH_PATTERN,
    WITHOUT_ARGUMENT,
    And,
    Compare,
    Field,
    Not,
    Operator,
    Or,
    Tree,
    instant,
    version,
    whole,
)

# The API's own limit.
MOST_CHARACTERS = 2000
# Parentheses and negations inside each other; bounds the interpreter's stack.
MOST_DEPTH = 50
_ATTRIBUTE_NAME = re.compile(r"[A-Za-z0-9_./\\-]{1,128}")
# Longer signs before those they begin with.
_SIGNS = (
    Operator.EQUAL,
    Operator.NOT_EQUAL,
    Operator.MATCHES,
    Operator.NOT_MATCHES,
    Operator.GREATER_EQUAL,
    Operator.LESS_EQUAL,
    Operator.GREATER,
    Operator.LESS,
)
_AN_OPERATOR = "an operator (" + " ".join(Operator) + " or its word, such as equals)"
_A_SUBJECT = f"a subject ({ATTRIBUTE}NAME, " + ", ".join(Field) + ")"


def parse(text: str) -> Tree:
    """The tree of an expression; ``QueryError`` is all it raises."""
    return Parser(text).parse()


class Parser:
    """One reading of one text."""

    def __init__(self, text: str) -> None:
        self._scanner = Scanner(text)
        self._positions = 0

    def parse(self) -> Tree:
        scanner = self._scanner
        if len(scanner.text) > MOST_CHARACTERS:
            raise scanner.wrong(f"at most {MOST_CHARACTERS} characters", MOST_CHARACTERS)
        tree = self._or(0)
        if not scanner.ended:
            raise scanner.wrong("'and', 'or' or the end")
        return tree

    def _or(self, depth: int) -> Tree:
        parts = [self._and(depth)]
        while self._scanner.sign("||") or self._scanner.word("or"):
            parts.append(self._and(depth))
        return parts[0] if len(parts) == 1 else Or(tuple(parts))

    def _and(self, depth: int) -> Tree:
        parts = [self._unary(depth)]
        while self._scanner.sign("&&") or self._scanner.word("and"):
            parts.append(self._unary(depth))
        return parts[0] if len(parts) == 1 else And(tuple(parts))

    def _unary(self, depth: int) -> Tree:
        scanner = self._scanner
        if depth > MOST_DEPTH:
            raise scanner.wrong(f"at most {MOST_DEPTH} parentheses and negations inside each other")
        if scanner.sign("!") or scanner.word("not"):
            return Not(self._unary(depth + 1))
        if scanner.sign("("):
            tree = self._or(depth + 1)
            if not scanner.sign(")"):
                raise scanner.wrong("'and', 'or' or ')'")
            return tree
        return self._compare()

    def _compare(self) -> Compare:
        subject, field = self._subject()
        operator = self._operator(subject, field)
        if operator in WITHOUT_ARGUMENT:
            return Compare(subject, operator)
        if operator in WITH_PATTERN:
            return Compare(subject, operator, (self._pattern(),))
        if operator in WITH_LIST:
            return Compare(subject, operator, self._list(field))
        return Compare(subject, operator, (self._literal(field),))

    def _subject(self) -> tuple[str, Field | None]:
        """The subject, and which field it is unless it is an attribute."""
        scanner = self._scanner
        at = scanner.at
        word = scanner.peek_word()
        if word in Field._value2member_map_:
            return scanner.word(), Field(word)
        if not word.startswith(ATTRIBUTE):
            raise scanner.wrong(_A_SUBJECT)
        if not _ATTRIBUTE_NAME.fullmatch(word.removeprefix(ATTRIBUTE)):
            raise scanner.wrong(
                "an attribute's name (1 to 128 letters, digits, or any of - _ . / \\)", at + len(ATTRIBUTE)
            )
        return scanner.word(), None

    def _operator(self, subject: str, field: Field | None) -> Operator:
        scanner = self._scanner
        at = scanner.at
        sign = scanner.sign(*_SIGNS)
        if sign:
            operator = Operator(sign)
        elif scanner.sign("!"):
            word = scanner.word("in", "exists")
            if not word:
                raise scanner.wrong(_AN_OPERATOR, at)
            operator = Operator("!" + word)
        else:
            found = OPERATOR_WORDS.get(scanner.peek_word())
            if found is None:
                raise scanner.wrong(_AN_OPERATOR)
            scanner.word()
            operator = found
        if field is not None and operator not in ALLOWED[field]:
            raise scanner.wrong(f"an operator that {subject} has ({' '.join(ALLOWED[field])})", at)
        return operator

    def _list(self, field: Field | None) -> tuple[str, ...]:
        scanner = self._scanner
        if not scanner.sign("["):
            raise scanner.wrong("'[' and a list of values")
        values = [self._literal(field)]
        while scanner.sign(","):
            values.append(self._literal(field))
        if not scanner.sign("]"):
            raise scanner.wrong("',' or ']'")
        return tuple(values)

    def _literal(self, field: Field | None) -> str:
        """A value in the form that the field needs."""
        scanner = self._scanner
        at = scanner.at
        value = scanner.literal()
        match field:
            case Field.AGENT_CONNECTED if value.lower() not in ("true", "false"):
                raise scanner.wrong("true or false", at)
            case Field.AGENT_VERSION if version(value) is None:
                raise scanner.wrong("a version number such as 1.14.5", at)
            case Field.REGISTERED_AT if instant(value) is None:
                raise scanner.wrong("a date such as 2018-06-18, 2018-06-18T22:28:28 or 2018-06-18T22:28:28Z", at)
            case Field.RUNNING_TASKS if whole(value) is None:
                raise scanner.wrong("a whole number", at)
        return value

    def _pattern(self) -> str:
        scanner = self._scanner
        at = scanner.at
        value = scanner.pattern()
        try:
            self._positions += Pattern(value).size
        except PatternError as error:
            quote = scanner.text[at] in "'\""
            raise scanner.wrong(f"in the pattern: {error.expected}", at + quote + error.position) from error
        if self._positions > MOST_POSITIONS:
            raise scanner.wrong(f"patterns of at most {MOST_POSITIONS} positions together, repeats written out", at)
        return value
