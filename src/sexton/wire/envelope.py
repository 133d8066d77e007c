"""The envelope both websocket protocols use: ``{"type": "<shape>", "message": {...}}``.

A frame comes in as text or bytes and leaves as a ``Message``: the type, the typed body when this release knows the
type, and the frame as it was. Peers are newer or older than we are, so an unknown type is a message without a body and
unknown fields ride along in the frame; passing a message on sends the frame, nothing is lost by not understanding it.
``acs`` and ``tcs`` each own one ``Catalogue`` of the shapes they know. Pure: nothing is kept between calls.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import Raw, Struct

from sexton.wire.errors import UNREADABLE, WireError


class Envelope(Struct, frozen=True):
    """A frame whose body is not looked into yet. Some messages say everything by their type and have no body."""

    type: str
    message: Raw = Raw(b"{}")


class _Outgoing(Struct, frozen=True):
    type: str
    message: Struct


class Message(Struct, frozen=True):
    """One message as received: ``body`` is None when the type is not in the catalogue."""

    type: str
    body: Struct | None
    frame: bytes

    def __repr__(self) -> str:
        # Frames carry role credentials, and a repr ends up in logs and tracebacks.
        return f"Message(type={self.type!r}, known={self.body is not None}, bytes={len(self.frame)})"


class Catalogue:
    """The message shapes of one protocol, found by their wire name, which is the name of the class."""

    def __init__(self, protocol: str, *shapes: type[Struct]) -> None:
        self.protocol = protocol
        self.shapes: Mapping[str, type[Struct]] = {shape.__name__: shape for shape in shapes}

    def decode(self, frame: bytes | str) -> Message:
        """Read one frame; WireError when it is not an envelope, or a known type has a body of another shape."""
        try:
            # Decoding alone would let malformed text through inside parts that are skipped.
            data = frame.encode() if isinstance(frame, str) else frame
            data.decode()
            envelope = msgspec.json.decode(data, type=Envelope)
            shape = self.shapes.get(envelope.type)
            body = None if shape is None else msgspec.json.decode(envelope.message, type=shape)
        except UNREADABLE as error:
            raise WireError(f"cannot read {self.protocol} frame: {error}") from error
        return Message(envelope.type, body, data)

    def encode(self, message: Message | Struct) -> bytes:
        """The frame of a received message as it came, or a new frame around a body made here."""
        if isinstance(message, Message):
            return message.frame
        name = type(message).__name__
        if self.shapes.get(name) is not type(message):
            raise WireError(f"cannot send {name} over {self.protocol}: it is not a message of that protocol")
        return msgspec.json.encode(_Outgoing(name, message))
