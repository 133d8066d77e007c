"""The header block of agent frames on TCS comes apart and goes together again without a byte of difference."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.wire.errors import WireError
from sexton.wire.tcs_frame import MAX_HEADER_BYTES, join_frame, split_frame
from unit.wire.captured import frames

TOKEN = st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters=":"), min_size=1).filter(
    lambda name: not name.startswith("{")
)
VALUE = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=60).map(str.strip)


def test_captured_frames_come_apart_and_go_together():
    signed = [frame for frame in frames("tcs") if not frame.startswith(b"{")]
    for frame in signed:
        headers, json = split_frame(frame)

        assert set(headers) == {"Authorization", "Host", "X-Amz-Date"}
        assert json.startswith(b'{"type":')
        assert join_frame(headers, json) == frame
    assert len(signed) == 36


@given(headers=st.dictionaries(TOKEN, VALUE, min_size=1, max_size=5), json=st.binary(max_size=80))
def test_what_was_joined_splits_the_same(headers, json):
    unique = {name.lower(): value for name, value in headers.items()}

    assert split_frame(join_frame(unique, json)) == (unique, json)


def test_a_frame_without_headers_is_all_json():
    assert split_frame(b'{"a":"\r\n\r\n"}') == ({}, b'{"a":"\r\n\r\n"}')


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"Host: a\r\n",
        b"\r\n\r\n{}",
        b"Host\r\n\r\n{}",
        b": a\r\n\r\n{}",
        b"Host: a\r\nhost: b\r\n\r\n{}",
        b"host: a\r\nHost: b\r\n\r\n{}",
        b"Host: \xff\r\n\r\n{}",
        b"Host: a\nX: b\r\n\r\n{}",
        b"Host: " + b"a" * MAX_HEADER_BYTES + b"\r\n\r\n{}",
    ],
)
def test_a_broken_block_is_a_wire_error(frame):
    with pytest.raises(WireError, match=r"^cannot read TCS frame: "):
        split_frame(frame)


@given(frame=st.binary(max_size=200))
def test_random_bytes_are_wire_errors_or_frames(frame):
    try:
        split_frame(frame)
    except WireError as error:
        assert str(error).startswith("cannot read TCS frame: ")


@pytest.mark.parametrize("name, value", [("A", "x\r\nB: y"), ("A\n", "x"), ("A:B", "x"), (" ", "x"), ("A", "é")])
def test_a_header_cannot_smuggle_another(name, value):
    with pytest.raises(WireError, match="cannot write TCS frame"):
        join_frame({name: value}, b"{}")
