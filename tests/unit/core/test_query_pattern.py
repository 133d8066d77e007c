"""Patterns: the same answers as a real engine, without the engine's worst days."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sexton.core.pattern import MOST_POSITIONS, Pattern, PatternError

atoms = st.sampled_from(["a", "b", "-", ".", "[ab]", "[^a]", "[a-c-]", "\\.", "\\d", "\\W", "[\\s\\]]", "[\\D]", "é"])
quantifiers = st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "{0,2}", "{2,}", "*?", "{0}"])
patterns = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map("|".join),
        inner.map("({})".format),
        st.tuples(inner, quantifiers).map(lambda both: f"(?:{both[0]}){both[1]}"),
    ),
    max_leaves=5,
)


@given(patterns, st.lists(st.text("ab-.1] é\nA", max_size=7), max_size=8), st.sampled_from(["", "(?i)"]))
@settings(max_examples=300)
def test_it_matches_exactly_what_a_backtracking_engine_matches(pattern, texts, flags):
    own = Pattern(flags + pattern)
    # Java and this language know the ASCII classes only.
    other = re.compile(flags.replace("?i", "?ia") + pattern, re.ASCII)

    assert [own.matches(text) for text in texts] == [bool(other.fullmatch(text)) for text in texts]


@pytest.mark.parametrize(
    "pattern, yes, no",
    [
        ("g2.*", "g2.2xlarge", "t2.small"),
        ("^t2\\.(small|medium)$", "t2.small", "t2.smaller"),
        ("^dev|prod$", "dev", "development"),
        ("(?i)PROD-[a-f]+", "prod-BEEF", "prod-xyz"),
        ("(?i)[^A]", "b", "a"),
        ("[-a]", "-", "b"),
        ("a{2,}", "aaaa", "a"),
        ("", "", "a"),
        ("\\t\\\\", "\t\\", "t"),
    ],
)
def test_it_is_java_s_language(pattern, yes, no):
    assert Pattern(pattern).matches(yes)
    assert not Pattern(pattern).matches(no)


@pytest.mark.parametrize(
    "pattern, position",
    [
        ("a**", 2),
        ("*a", 0),
        ("a|+", 2),
        ("(a", 2),
        ("a)", 1),
        ("[a", 2),
        ("[]", 1),
        ("[b-a]", 3),
        ("[a-\\d]", 4),
        ("[a[b]]", 2),
        ("[a&&b]", 2),
        ("a{x}", 2),
        ("a{3,2}", 6),
        ("a{2", 3),
        ("a{9999}", 6),
        ("a++", 2),
        ("\\1", 1),
        ("\\b", 1),
        ("a\\", 2),
        ("(?<x>a)", 1),
        ("(?!a)", 1),
        ("a^b", 1),
        ("a$b", 2),
        ("(" * 21 + "a" + ")" * 21, 20),
        ("a{257}", 0),
        ("((a{16}){16}){2}", 0),
    ],
)
def test_what_it_cannot_do_is_refused_at_the_place(pattern, position):
    with pytest.raises(PatternError) as error:
        Pattern(pattern)

    assert error.value.position == position


@given(st.text("a()[]{}*+?|\\^$.,-09di&", max_size=24))
@settings(max_examples=500)
def test_any_text_is_a_pattern_or_the_one_error(text):
    try:
        pattern = Pattern(text)
    except PatternError as error:
        assert 0 <= error.position <= len(text)
        return
    pattern.matches("a0-" * 5)


@pytest.mark.parametrize(
    "pattern",
    [
        "(a+)+",
        "(a|a)*b",
        "(a|aa)+",
        "(.*a){20}",
        "(a?){120}a{120}",
        "(.?){256}",
        "([ab]*a[ab]{100}){2}",
        "((a*)*)*",
    ],
)
def test_patterns_that_ruin_other_engines_take_time_in_proportion_to_the_text(pattern):
    own = Pattern(pattern)
    assert own.size <= MOST_POSITIONS
    text = "abba" * 500 + "a" * 2000

    begin = time.process_time()
    own.matches(text + "!")

    assert time.process_time() - begin < 0.5
