"""A refused websocket upgrade tells its reason in either spelling."""

from __future__ import annotations

import pytest

from sexton.wire.errors import WireError
from sexton.wire.refusal import Refusal, decode_refusal, encode_refusal

REFUSAL = Refusal("InactiveInstanceException", "Instance is deregistered.")


@pytest.mark.parametrize(
    "body",
    [
        encode_refusal(REFUSAL),
        b'{"type":"InactiveInstanceException","message":"Instance is deregistered."}',
        b'{"InactiveInstanceException":"Instance is deregistered."}',
    ],
)
def test_both_spellings_are_read(body):
    assert decode_refusal(body) == REFUSAL


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"[]", b"{}", b'{"a":1}', b'{"a":"b","c":"d"}', b"[" * 100_000, b'{"a":"\xff"}']
)
def test_anything_else_is_a_wire_error(body):
    with pytest.raises(WireError, match="cannot read the refusal"):
        decode_refusal(body)
