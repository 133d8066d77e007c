"""Filters: what a pattern means, quickly whatever it is."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.control.ec2 import zones
from sexton.control.ec2.asking import _parts, matches


@pytest.mark.parametrize(
    ("pattern", "text", "good"),
    [
        ("web", "web", True),
        ("web", "webs", False),
        ("w*", "web", True),
        ("*b", "web", True),
        ("w?b", "web", True),
        ("w?b", "wb", False),
        (r"a\*", "a*", True),
        (r"a\*", "ab", False),
        ("*", "", True),
        ("", "", True),
    ],
)
def test_stars_and_question_marks(pattern, text, good):
    assert matches(_parts(pattern), text) is good


@given(st.text("ab*?", max_size=8), st.text("ab", max_size=8))
def test_as_the_regular_expression_that_it_means(pattern, text):
    meant = "".join({"*": ".*", "?": "."}.get(one, one) for one in pattern)

    assert matches(_parts(pattern), text) is bool(re.fullmatch(meant, text))


def test_a_pattern_of_stars_takes_no_longer():
    assert not matches(_parts("*a" * 120 + "b"), "a" * 255)


@pytest.mark.parametrize(
    ("zone", "short"),
    [("us-east-1a", "use1-az1"), ("eu-central-1c", "euc1-az3"), ("ap-southeast-2b", "apse2-az2"), ("rack-7", "rack-7")],
)
def test_zones_have_their_short_ids(zone, short):
    assert zones.id_of(zone) == short
