"""What a rule allows, in one form however it was written."""

from __future__ import annotations

import pytest

from sexton.core import permission
from sexton.core.permission import BadPermissionError, Reach, reach


@pytest.mark.parametrize(
    ("written", "means"),
    [
        (("-1", None, None), Reach("-1", -1, -1)),
        (("all", 80, 80), Reach("-1", -1, -1)),
        (("TCP", 80, 81), Reach("tcp", 80, 81)),
        (("6", 80, 80), Reach("tcp", 80, 80)),
        (("tcp", -1, -1), Reach("tcp", 0, 65535)),
        (("17", 0, 65535), Reach("udp", 0, 65535)),
        (("icmp", -1, -1), Reach("icmp", -1, -1)),
        (("icmp", 8, None), Reach("icmp", 8, -1)),
        (("58", 128, 0), Reach("icmpv6", 128, 0)),
        (("47", 1, 2), Reach("47", -1, -1)),
    ],
)
def test_what_is_written_is_read_in_one_form(written, means):
    assert reach(*written) == means


@pytest.mark.parametrize(
    "written",
    [
        ("", None, None),
        ("tcp", None, 80),
        ("tcp", 81, 80),
        ("udp", -1, 80),
        ("tcp", 0, 65536),
        ("icmp", -1, 3),
        ("icmp", 256, 0),
        ("256", None, None),
        ("warp", None, None),
    ],
)
def test_what_means_nothing_is_refused(written):
    with pytest.raises(BadPermissionError):
        reach(*written)


def test_peers_lose_the_bits_behind_their_prefix():
    assert permission.peer4("10.1.2.3/8") == "10.0.0.0/8"
    assert permission.peer6("2001:db8::1/32") == "2001:db8::/32"
    with pytest.raises(BadPermissionError, match=r"1\.2\.3\.4"):
        permission.peer4("1.2.3.4")


def test_descriptions_have_the_characters_that_ec2_allows():
    assert permission.bad_description("port 80 (web), [a+b] = {c}; $1!*") == ""
    assert permission.bad_description("\u00fc") and permission.bad_description("x" * 256)
