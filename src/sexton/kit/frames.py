"""Files that only grow, in frames that say of themselves whether they are whole.

    length (4 bytes) | checksum (4 bytes) | that many bytes | the next frame

A frame is written in one call. A process that is killed leaves a file of whole frames, and perhaps a torn one at its
end, which a reader takes for the end and the next writer cuts off. Whether what was written is on the disk after a
power loss is for ``sync`` to say.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_HEAD = struct.Struct("<II")
HEAD_BYTES = _HEAD.size
# Longer than anything that is written; a length beyond this is no length.
LONGEST = 64 << 20


class Frame(NamedTuple):
    """A whole frame: where its bytes begin, and what they are."""

    at: int
    payload: bytes

    @property
    def end(self) -> int:
        return self.at + len(self.payload)


def framed(payload: bytes) -> bytes:
    """The bytes of one frame."""
    return _HEAD.pack(len(payload), zlib.crc32(payload)) + payload


def read_frames(path: Path, start: int = 0) -> Iterator[Frame]:
    """Every whole frame from a place on; ends quietly at the end of the file, and at what is torn or damaged."""
    with path.open("rb") as file:
        file.seek(start)
        at = start
        while len(head := file.read(HEAD_BYTES)) == HEAD_BYTES:
            length, checksum = _HEAD.unpack(head)
            payload = file.read(length) if length <= LONGEST else b""
            if len(payload) != length or zlib.crc32(payload) != checksum:
                return
            yield Frame(at + HEAD_BYTES, payload)
            at += HEAD_BYTES + length


class FrameFile:
    """One file open for growing. Blocking: for a thread that may wait for a disk."""

    def __init__(self, path: Path, end: int) -> None:
        """Open it and cut off what is behind ``end``, which is where the last whole frame ends."""
        self.path = path
        self.end = end
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.ftruncate(self._file, end)

    def append(self, payload: bytes) -> int:
        """Add a frame; where its bytes begin. OSError leaves the file as it was."""
        data = framed(payload)
        try:
            written = os.pwrite(self._file, data, self.end)
            if written != len(data):
                raise OSError(f"cannot write {len(data)} bytes to {self.path}: only {written} were taken")
        except OSError:
            os.ftruncate(self._file, self.end)
            raise
        at = self.end + HEAD_BYTES
        self.end += len(data)
        return at

    @property
    def linked(self) -> bool:
        """Whether the file still has its name: somebody else may have removed it."""
        return os.fstat(self._file).st_nlink > 0

    def sync(self) -> None:
        """Have it on the disk."""
        os.fdatasync(self._file)

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
