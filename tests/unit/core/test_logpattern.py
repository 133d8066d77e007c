"""Filter patterns take the lines that CloudWatch's documentation says they take."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.core.logpattern import BadPattern, read_pattern
from sexton.core.logpattern_words import glob

LINES = (
    "[ERROR 400] BAD REQUEST",
    "[ERROR 401] UNAUTHORIZED REQUEST",
    "[ERROR 419] MISSING ARGUMENTS",
    "[WARN] slow",
    "all is well",
)
ACCESS = '127.0.0.1 - frank [10/Oct/2000:13:25:15 -0700] "GET /index.html HTTP/1.0" 404 1534'
JSON = (
    '{"eventType": "UpdateTrail", "sourceIPAddress": "111.111.111.111", "arrayKey": ["value", "another"],'
    ' "objectList": [{"name": "a", "id": 1}, {"name": "b", "id": 2}], "SomeObject": null, "ThisFlag": true,'
    ' "cluster.name": "c", "bandwidth": 1000}'
)


def matching(pattern: str, *lines: str) -> list[str]:
    matches = read_pattern(pattern)
    return [line for line in lines if matches is None or matches(line)]


@pytest.mark.parametrize(
    "pattern, expected",
    [
        ("", LINES),
        ("  ", LINES),
        ("ERROR", LINES[:3]),
        ("ERROR REQUEST", LINES[:2]),
        ('"BAD REQUEST"', LINES[:1]),
        ("?400 ?WARN", (LINES[0], LINES[3])),
        ("ERROR -ARGUMENTS", LINES[:2]),
        ("-ERROR", LINES[3:]),
        ('ERROR -"BAD REQUEST" -MISSING', LINES[1:2]),
        ("ERROR ?slow", LINES[:3]),  # beside others, an option says nothing
        ("error", ()),
        ('"[WARN]"', LINES[3:4]),
    ],
)
def test_words(pattern: str, expected: tuple[str, ...]) -> None:
    assert matching(pattern, *LINES) == list(expected)


@pytest.mark.parametrize(
    "pattern, expected",
    [
        ('{ $.eventType = "UpdateTrail" }', True),
        ("{ $.eventType = UpdateTrail }", True),
        ('{ $.eventType != "UpdateTrail" }', False),
        ("{ $.sourceIPAddress != 123.123.* }", True),
        ("{ $.sourceIPAddress = 111.111.* }", True),
        ('{ $.arrayKey[0] = "value" }', True),
        ('{ $.arrayKey[2] = "value" }', False),
        ('{ $.arrayKey[*] = "another" }', True),
        ("{ $.objectList[1].id = 2 }", True),
        ("{ $.objectList[*].id > 2 }", False),
        ("{ $.SomeObject IS NULL }", True),
        ("{ $.SomeOtherObject NOT EXISTS }", True),
        ("{ $.SomeObject NOT EXISTS }", False),
        ("{ $.ThisFlag IS TRUE }", True),
        ("{ $.ThisFlag IS FALSE }", False),
        ('{ $.["cluster.name"] = "c" }', True),
        ("{ $.bandwidth > 75 && $.bandwidth <= 1000 }", True),
        ("{ $.bandwidth = 1e3 }", True),
        ("{ $.bandwidth = 1* }", False),  # a number is no text
        ('{ ($.eventType = "x" || $.bandwidth < 5) && $.ThisFlag IS TRUE }', False),
        ('{ $.eventType = "x" || $.bandwidth < 5 || $.ThisFlag IS TRUE }', True),
        ('{ $.eventType = "x" && $.bandwidth > 5 || $.ThisFlag IS TRUE }', True),
    ],
)
def test_json(pattern: str, expected: bool) -> None:
    assert bool(matching(pattern, JSON)) is expected
    assert matching(pattern, "no JSON", '{"broken": ', "[1, 2", "") == []


@pytest.mark.parametrize(
    "pattern, expected",
    [
        ("[ip, id, user, time, request, status, bytes]", True),
        ("[ip, id, user, time, request, status]", False),
        ("[ip, id, user, time, request, status = 404, bytes]", True),
        ("[ip, id, user, time, request, status = 4*, bytes > 1000]", True),
        ("[ip, id, user, time, request = *html*, status = 4*, bytes]", True),
        ("[..., status = 4*, bytes]", True),
        ("[ip, ..., bytes < 1000]", False),
        ("[ip = 127.*, ...]", True),
        ("[ip, id, user = frank && user != bob, ..., status = 500 || status = 404, bytes]", True),
        ('[ip, id, user, time, request = "GET /index.html HTTP/1.0", ...]', True),
    ],
)
def test_fields(pattern: str, expected: bool) -> None:
    assert bool(matching(pattern, ACCESS)) is expected


@pytest.mark.parametrize(
    "pattern",
    [
        '"open',
        "two-words",
        "%[0-9]%",
        "{ $.a = 1",
        "{ a = 1 }",
        "{ $.a }",
        "{ $.a = }",
        "{ $.a IS MAYBE }",
        "{ $.a NOT THERE }",
        "{ $.a < x }",
        "{ $.a = %x% }",
        "{ $.a = 1 && }",
        "{ ($.a = 1 }",
        "{ $.a = 1 } }",
        "{}",
        "{ " + "(" * 40 + "$.a = 1" + ")" * 40 + " }",
        "[a, b",
        "[..., ...]",
        "[a = ]",
        "[a = 1 && b = 2]",
        "[a = 1 & a = 2]",
        "[a b]",
        "[]",
    ],
)
def test_what_cannot_be_read_is_refused_with_a_sentence(pattern: str) -> None:
    with pytest.raises(BadPattern, match=r"^cannot "):
        read_pattern(pattern)


@given(st.text(max_size=80), st.text(max_size=80))
def test_any_pattern_is_read_or_refused_and_any_line_judged(pattern: str, line: str) -> None:
    try:
        matches = read_pattern(pattern)
    except BadPattern:
        return
    assert matches is None or matches(line) in (True, False)


@given(st.sampled_from("{["), st.text('$.ab[]*"=<>!&|() ,1%', max_size=40), st.sampled_from("}]"), st.text(max_size=20))
def test_any_structured_pattern_is_read_or_refused(start: str, middle: str, end: str, line: str) -> None:
    test_any_pattern_is_read_or_refused_and_any_line_judged.hypothesis.inner_test(start + middle + end, line)


@given(st.lists(st.text("ab", max_size=3), min_size=2, max_size=4), st.text("ab", max_size=12))
def test_a_star_stands_for_anything(parts: list[str], text: str) -> None:
    import fnmatch

    assert glob("*".join(parts))(text) == fnmatch.fnmatchcase(text, "*".join(parts))
