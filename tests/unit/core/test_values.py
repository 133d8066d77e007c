"""Texts of settings: what Go reads is read the same way, what it refuses is refused with what would be right."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.core import values
from sexton.core.values import BadValue


@pytest.mark.parametrize(
    "text, seconds",
    [
        ("0", 0.0),
        ("0s", 0.0),
        ("30s", 30.0),
        ("10m", 600.0),
        ("1h30m", 5400.0),
        ("1.5h", 5400.0),
        ("1.s", 1.0),
        (".5s", 0.5),
        ("500ms", 0.5),
        ("2us", 2e-6),
        ("2µs", 2e-6),
        ("2μs", 2e-6),
        ("7ns", 7e-9),
        ("1m1m", 120.0),
    ],
)
def test_durations(text, seconds):
    assert values.duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "10", "s", "10 s", "1h 30m", "-5s", "1d", ".s", "1e3s", "९s", "9" * 400 + "h"])
def test_what_is_no_duration(text):
    with pytest.raises(BadValue, match="with a unit"):
        values.duration(text)


@pytest.mark.parametrize("text", ["1", "t", "T", "TRUE", "true", "True"])
def test_true(text):
    assert values.boolean(text) is True


@pytest.mark.parametrize("text", ["0", "f", "F", "FALSE", "false", "False"])
def test_false(text):
    assert values.boolean(text) is False


@pytest.mark.parametrize("text", ["yes", "no", "on", "tRUE", "", "2", " true"])
def test_what_is_no_boolean(text):
    with pytest.raises(BadValue):
        values.boolean(text)


@pytest.mark.parametrize("text, good", [("0", True), ("9", True), ("10", False), ("-1", False), ("1.0", False)])
def test_whole_numbers_have_limits(text, good):
    if good:
        assert values.integer(text, 0, 9) == int(text)
        return
    with pytest.raises(BadValue, match="from 0 to 9"):
        values.integer(text, 0, 9)


@pytest.mark.parametrize("text", ["22,80", "[22,", '["22"]', "[0]", "[65536]", "[1.5]", "null", "{}"])
def test_what_is_no_list_of_ports(text):
    with pytest.raises(BadValue):
        values.port_list(text)


def test_lists_and_maps():
    assert values.port_list("[22, 80]") == (22, 80)
    assert values.word_list('["a","b"]') == ("a", "b")
    assert values.word_map('{"rack":"7"}') == {"rack": "7"}


@pytest.mark.parametrize("parse, text", [(values.word_list, "a,b"), (values.word_map, "foo"), (values.word_map, "[1]")])
def test_what_is_no_list_or_map(parse, text):
    with pytest.raises(BadValue, match="JSON"):
        parse(text)


@pytest.mark.parametrize("text", ["x", "5", "5-4", "0-5", "1-65536", "1-", "-5", "1-2-3", "९-९"])
def test_what_is_no_range(text):
    with pytest.raises(BadValue):
        values.port_range(text)


def test_ranges_and_choices():
    assert values.port_range("32768-60999") == (32768, 60999)
    assert values.choice("a", ("a", "b")) == "a"
    with pytest.raises(BadValue, match="one of a, b"):
        values.choice("c", ("a", "b"))


@given(st.text(max_size=30))
def test_no_text_is_another_exception(text):
    for parse in (values.duration, values.boolean, values.port_list, values.word_map, values.port_range):
        try:
            parse(text)
        except BadValue as error:
            assert str(error).startswith("must ")
