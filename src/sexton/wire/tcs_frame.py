"""The frame of an agent on TCS: a block of signed headers, a blank line, the JSON envelope.

The agent signs every frame as if it were a request and puts the resulting headers in front, each ``Name: value`` and
CRLF. Splitting and joining is all that happens here; signing and verifying live where keys and clocks are.
"""

from __future__ import annotations

from collections.abc import Mapping

from sexton.wire.errors import WireError

LINE_END = b"\r\n"
BLOCK_END = b"\r\n\r\n"

# A signature, a host, a date and a session token need 2 to 4 KiB; this bounds what a hostile peer makes us search.
MAX_HEADER_BYTES = 16 * 1024


def split_frame(frame: bytes) -> tuple[dict[str, str], bytes]:
    """Headers (names as spelt by the sender) and the JSON bytes. A frame that starts with the JSON has no headers."""
    if frame.startswith(b"{"):
        return {}, frame
    end = frame.find(BLOCK_END, 0, MAX_HEADER_BYTES)
    if end < 0:
        raise WireError(f"cannot read TCS frame: no blank line ends the headers within {MAX_HEADER_BYTES} bytes")
    headers: dict[str, str] = {}
    seen: set[str] = set()
    for line in frame[:end].split(LINE_END):
        name, value = _split_header(line)
        # Two values for one name would let the signature be checked against one and the frame read by the other.
        if name.lower() in seen:
            raise WireError(f"cannot read TCS frame: header {name} is there twice")
        seen.add(name.lower())
        headers[name] = value
    return headers, frame[end + len(BLOCK_END) :]


def join_frame(headers: Mapping[str, str], json: bytes) -> bytes:
    """The frame of these headers, in name order, and this JSON."""
    lines = []
    for name, value in sorted(headers.items()):
        line = f"{name}: {value}"
        if not name.strip() or ":" in name or not line.isascii() or "\r" in line or "\n" in line:
            raise WireError(f"cannot write TCS frame: header {name!r} does not fit on one line of ASCII")
        lines.append(line.encode("ascii") + LINE_END)
    return b"".join(lines) + LINE_END + json


def _split_header(line: bytes) -> tuple[str, str]:
    name, colon, value = line.partition(b":")
    if not colon or not name.strip() or not line.isascii() or b"\n" in line or b"\r" in line:
        raise WireError("cannot read TCS frame: a header line is not 'Name: value' in ASCII")
    return name.strip().decode("ascii"), value.strip().decode("ascii")
