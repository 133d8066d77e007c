"""Filter patterns of lines whose fields stand between spaces: ``[ip, user, ..., status = 4* || status = 5*, bytes]``.

A field of a line that is in square brackets or double quotes is one field, spaces and all. A line has as many fields
as the pattern, or where the pattern has an ellipsis, at least as many.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from sexton.core.logpattern_words import BadPattern, Test, Token, condition

_FIELD = re.compile(r'"([^"]*)"|\[([^\]]*)\]|(\S+)')
_CONDITION = re.compile(
    r"""\s*(?P<name>\w+)\s*(?:(?P<sign>!=|<=|>=|=|<|>)\s*(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<bare>[^\s"&|,]+)))?\s*""",
)
_ELLIPSIS = "..."


def fields_pattern(pattern: str) -> Callable[[str], bool]:
    """What a pattern in square brackets asks of a line."""
    if not pattern.endswith("]"):
        raise BadPattern("cannot read the filter pattern: its bracket is not closed")
    places = [one.strip() for one in _split(pattern[1:-1])]
    if places.count(_ELLIPSIS) > 1:
        raise BadPattern("cannot read the filter pattern: it may have one ellipsis")
    tests = [None if one == _ELLIPSIS else _field(one) for one in places]
    if None not in tests:
        whole = [one for one in tests if one is not None]
        return lambda line: len(found := split_line(line)) == len(whole) and _all(whole, found)
    at = tests.index(None)
    before = [one for one in tests[:at] if one is not None]
    after = [one for one in tests[at + 1 :] if one is not None]

    def matches(line: str) -> bool:
        found = split_line(line)
        if len(found) < len(before) + len(after):
            return False
        return _all(before, found[: len(before)]) and _all(after, found[len(found) - len(after) :])

    return matches


def split_line(line: str) -> list[str]:
    """The fields of a line."""
    return [quoted or bracketed or bare for quoted, bracketed, bare in _FIELD.findall(line)]


def _all(tests: list[Test], fields: list[str]) -> bool:
    return all(test(field) for test, field in zip(tests, fields, strict=True))


def _split(text: str) -> list[str]:
    """Between commas, but for those in quotes."""
    parts = [""]
    quoted = False
    for character in text:
        quoted ^= character == '"'
        if character == "," and not quoted:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def _field(text: str) -> Test:
    """The test of one field: a name alone takes anything."""
    tests: list[Test] = []
    joins: list[str] = []
    at, name = 0, ""
    while True:
        found = _CONDITION.match(text, at)
        if found is None or (name and found["name"] != name):
            raise BadPattern(f"cannot read the field '{text[:50]}' of the filter pattern")
        name = found["name"]
        if found["sign"]:
            quoted = found["quoted"] is not None
            given = re.sub(r"\\(.)", r"\1", found["quoted"]) if quoted else found["bare"]
            tests.append(condition(found["sign"], Token(given, at, quoted)))
        elif joins or found.end() < len(text):
            raise BadPattern(f"cannot read the field '{text[:50]}' of the filter pattern")
        at = found.end()
        if at == len(text):
            break
        joins.append(text[at : at + 2])
        at += 2
    if len(set(joins)) > 1 or not set(joins) <= {"&&", "||"}:
        raise BadPattern(f"cannot read the field '{text[:50]}' of the filter pattern: join by && or by ||, not both")
    if not tests:
        return lambda _: True
    judge = any if "||" in joins else all
    return lambda field: judge(test(field) for test in tests)
