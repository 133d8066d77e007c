"""Filter patterns that look into JSON lines: ``{ ($.code >= 500 && $.user.name = "a*") || $.error IS NULL }``.

A selector is ``$`` with ``.name``, ``["any name"]`` and ``[0]`` or ``[*]`` behind it. Conditions are comparisons and
IS TRUE, IS FALSE, IS NULL, EXISTS, NOT EXISTS, joined by ``&&`` and ``||``, the former first. A line that is not a
JSON object or list matches nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from sexton.core.logpattern_words import MOST_DEPTH, OPERATORS, BadPattern, Token, condition

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<path>\$(?:\.(?:\w|-)+|\.?\[\s*(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|\d{1,9}|\*)\s*\])*)
      | "(?P<quoted>(?:[^"\\]|\\.)*)"
      | (?P<sign>&&|\|\||!=|<=|>=|[=<>()])
      | (?P<bare>[^\s()"&|=<>!]+)
    )""",
    re.VERBOSE,
)
_STEP = re.compile(
    r"""\.(?P<name>(?:\w|-)+)|\.?\[\s*(?:"(?P<double>.*?(?<!\\))"|'(?P<single>.*?(?<!\\))'|(?P<place>\d+|\*))\s*\]"""
)

Test = Callable[[Any], bool]
Path = tuple[str | int, ...]
_ANY = "[*]"  # a step into every member of a list
_CONSTANTS = {"TRUE": True, "FALSE": False, "NULL": None}


def json_pattern(pattern: str) -> Callable[[str], bool]:
    """What a pattern in braces asks of a line."""
    if not pattern.endswith("}"):
        raise BadPattern("cannot read the filter pattern: its brace is not closed")
    reader = _Reader(list(_tokens(pattern[1:-1])))
    test = reader.whole()

    def matches(line: str) -> bool:
        start = line.lstrip()[:1]
        if start not in ("{", "["):
            return False
        try:
            return test(msgspec.json.decode(line))
        except (msgspec.MsgspecError, RecursionError, UnicodeError):
            return False

    return matches


def _tokens(text: str) -> Iterator[Token]:
    at = 0
    while text[at:].strip():
        found = _TOKEN.match(text, at)
        if found is None or found.end() == at:
            raise BadPattern(f"cannot read the filter pattern at '{text[at : at + 20].strip()}'")
        quoted = found["quoted"]
        if quoted is not None:
            yield Token(re.sub(r"\\(.)", r"\1", quoted), at, quoted=True)
        else:
            yield Token(found["path"] or found["sign"] or found["bare"], at)
        at = found.end()


class _Reader:
    """Reads tokens from left to right."""

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._at = 0
        self._depth = 0

    def whole(self) -> Test:
        test = self._either()
        if self._at < len(self._tokens):
            raise BadPattern(f"cannot read the filter pattern at '{self._tokens[self._at].text[:50]}'")
        return test

    def _take(self, what: str) -> Token:
        if self._at == len(self._tokens):
            raise BadPattern(f"cannot read the filter pattern: {what} is missing at its end")
        self._at += 1
        return self._tokens[self._at - 1]

    def _next_is(self, word: str) -> bool:
        there = self._at < len(self._tokens)
        if there and not self._tokens[self._at].quoted and self._tokens[self._at].text.upper() == word:
            self._at += 1
            return True
        return False

    def _either(self) -> Test:
        tests = [self._both()]
        while self._next_is("||"):
            tests.append(self._both())
        return tests[0] if len(tests) == 1 else lambda value: any(test(value) for test in tests)

    def _both(self) -> Test:
        tests = [self._one()]
        while self._next_is("&&"):
            tests.append(self._one())
        return tests[0] if len(tests) == 1 else lambda value: all(test(value) for test in tests)

    def _one(self) -> Test:
        if self._next_is("("):
            self._depth += 1
            if self._depth > MOST_DEPTH:
                raise BadPattern("cannot read the filter pattern: its parentheses are nested too deeply")
            inner = self._either()
            if not self._next_is(")"):
                raise BadPattern("cannot read the filter pattern: a parenthesis is not closed")
            self._depth -= 1
            return inner
        selector = self._take("a selector")
        if selector.quoted or not selector.text.startswith("$"):
            raise BadPattern(f"cannot read '{selector.text[:50]}' in the filter pattern: a selector begins with $")
        return self._condition(_path(selector.text))

    def _condition(self, path: Path) -> Test:
        if self._next_is("IS"):
            word = self._take("TRUE, FALSE or NULL").text.upper()
            if word not in _CONSTANTS:
                raise BadPattern(f"cannot read 'IS {word[:50]}' in the filter pattern: TRUE, FALSE or NULL follows IS")
            constant = _CONSTANTS[word]
            return lambda value: any(found is constant for found in _find(value, path))
        if self._next_is("NOT"):
            if not self._next_is("EXISTS"):
                raise BadPattern("cannot read the filter pattern: EXISTS follows NOT")
            return lambda value: not any(True for _ in _find(value, path))
        if self._next_is("EXISTS"):
            return lambda value: any(True for _ in _find(value, path))
        sign = self._take("a comparison").text
        if sign not in OPERATORS:
            raise BadPattern(f"cannot read '{sign[:50]}' in the filter pattern: a comparison is expected there")
        given = self._take("a value")
        if not given.quoted and (given.text in OPERATORS or given.text in ("(", ")", "&&", "||")):
            raise BadPattern(f"cannot read '{given.text}' in the filter pattern: a value is expected there")
        test = condition(sign, given)
        return lambda value: any(test(found) for found in _find(value, path))


def _path(text: str) -> Path:
    steps: list[str | int] = []
    for found in _STEP.finditer(text, 1):
        if found["place"] is not None:
            steps.append(_ANY if found["place"] == "*" else int(found["place"]))
        else:
            name = found["name"] or found["double"] or found["single"] or ""
            steps.append(name if found["name"] else re.sub(r"\\(.)", r"\1", name))
    return tuple(steps)


def _find(value: Any, path: Path) -> Iterator[Any]:
    """What a selector points to; several things where it asks for every member of a list."""
    for number, step in enumerate(path):
        match value:
            case dict() if isinstance(step, str) and step in value:
                value = value[step]
            case list() if step == _ANY:
                rest = path[number + 1 :]
                for one in value:
                    yield from _find(one, rest)
                return
            case list() if isinstance(step, int) and step < len(value):
                value = value[step]
            case _:
                return
    yield value
