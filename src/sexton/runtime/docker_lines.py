"""Bytes of Docker's streams into lines, whatever the pieces they arrive in. No I/O.

Two kinds: JSON, one value a line (events, pull progress), and logs. A log comes framed, eight bytes of header (the
stream's number, three zeros, the length) before each message, or raw when the container has a terminal. Which one it
is shows in the first byte: times are always asked for, so a raw log begins with a digit, and no frame does.
"""

from __future__ import annotations

from sexton.runtime.contract import LogLine, Refused, Unavailable
from sexton.runtime.docker_decode import seconds

LONGEST_JSON = 16 << 20
"""An event carries its container's labels; nothing real comes near, and a line without end must not fill memory."""

LONGEST_LINE = 256 << 10
"""A log line beyond this is handed on in parts; engines cut at 16 KiB and mark the parts as belonging together."""

LARGEST_FRAME = 16 << 20
"""A longer frame is not a log message; the stream lost its place."""

_STREAMS = {0: "stdout", 1: "stdout", 2: "stderr"}
_ENGINE_ERROR = 3
"""Number of the stream on which the engine says why the log ends."""

_HEADER = 8


class JsonLines:
    """Pieces in, complete lines out."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, piece: bytes) -> list[bytes]:
        self._rest += piece
        if b"\n" not in piece:
            if len(self._rest) > LONGEST_JSON:
                raise Unavailable(f"cannot read the engine's stream: a line of more than {LONGEST_JSON} bytes")
            return []
        *lines, rest = self._rest.split(b"\n")
        self._rest = rest
        return [bytes(line) for line in lines if line.strip()]

    def finish(self) -> list[bytes]:
        """A last value that no newline follows."""
        return [bytes(self._rest)] if self._rest.strip() else []


class LogLines:
    """Pieces of a log answer in, whole lines with their times out."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._framed: bool | None = None
        self._open: dict[str, tuple[float, bytearray]] = {}

    def feed(self, piece: bytes) -> list[LogLine]:
        if self._framed is None and piece:
            self._framed = piece[0] <= _ENGINE_ERROR
        self._rest += piece
        return self._frames() if self._framed else self._raw()

    def finish(self) -> list[LogLine]:
        """What the container wrote last without ending the line."""
        if not self._framed and self._rest:
            self._rest += b"\n"
            return self._raw()
        return [_line(stream, at, text) for stream, (at, text) in self._open.items()]

    def _raw(self) -> list[LogLine]:
        *whole, rest = self._rest.split(b"\n")
        if len(rest) > LONGEST_LINE:
            whole.append(rest)
            rest = bytearray()
        self._rest = rest
        return [_line("stdout", *_stamped(part)) for part in whole]

    def _frames(self) -> list[LogLine]:
        lines: list[LogLine] = []
        rest, at = self._rest, 0
        while len(rest) - at >= _HEADER:
            number, length = rest[at], int.from_bytes(rest[at + 4 : at + _HEADER])
            if number > _ENGINE_ERROR or length > LARGEST_FRAME:
                raise Unavailable("cannot read the log: the engine's stream is not framed as it says")
            if len(rest) - at - _HEADER < length:
                break
            self._message(number, rest[at + _HEADER : at + _HEADER + length], lines)
            at += _HEADER + length
        del rest[:at]
        return lines

    def _message(self, number: int, message: bytearray, lines: list[LogLine]) -> None:
        """One message is one line, or a part of one when no newline ends it; every part has a time of its own."""
        if number == _ENGINE_ERROR:
            raise Refused(message.decode("utf-8", "replace").strip())
        stream = _STREAMS[number]
        time, text = _stamped(message)
        if stream in self._open:
            time, before = self._open.pop(stream)
            text = before + text
        if text.endswith(b"\n") or len(text) > LONGEST_LINE:
            lines.append(_line(stream, time, text))
        else:
            self._open[stream] = (time, text)


def _stamped(message: bytearray) -> tuple[float, bytearray]:
    """Time and text of "2026-11-18T21:27:38.555400865Z text"; a part that was cut off its time keeps all its text."""
    stamp, space, text = message.partition(b" ")
    time = seconds(stamp.decode("ascii", "replace")) if space and stamp.endswith(b"Z") else 0.0
    return (time, text) if time else (0.0, message)


def _line(stream: str, time: float, text: bytearray) -> LogLine:
    return LogLine(stream=stream, text=text.decode("utf-8", "replace").rstrip("\r\n"), time=time)
