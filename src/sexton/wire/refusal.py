"""How a control plane says no to a websocket upgrade: a small JSON body in one of two spellings.

    {"type": "InvalidClusterException", "message": {"message": "Cluster not found."}}
    {"InvalidClusterException": "Cluster not found."}

The control plane writes the first; the agent reads both, because what it does next (wait, give up, try another cluster)
hangs on the type.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from sexton.wire.errors import UNREADABLE, WireError
from sexton.wire.scalars import JsonValue


class Refusal(NamedTuple):
    """Why an upgrade was refused: the exception's name and its text."""

    type: str
    message: str


def encode_refusal(refusal: Refusal) -> bytes:
    return msgspec.json.encode({"type": refusal.type, "message": {"message": refusal.message}})


def decode_refusal(body: bytes) -> Refusal:
    """WireError when the body is in neither spelling, as when something between the two ends answered."""
    try:
        answer = msgspec.json.decode(body, type=dict[str, JsonValue])
    except UNREADABLE as error:
        raise WireError(f"cannot read the refusal of a websocket upgrade: {error}") from error
    match answer:
        case {"type": str(kind), "message": {"message": str(text)}}:
            return Refusal(kind, text)
        case {"type": str(kind), "message": str(text)}:
            return Refusal(kind, text)
    if len(answer) == 1:
        ((kind, text),) = answer.items()
        if isinstance(text, str):
            return Refusal(kind, text)
    raise WireError("cannot read the refusal of a websocket upgrade: it names no exception")
