"""The register of births: which group was which container, of which image, asked for by whom.

Engines forget a container once it is removed, and the kernel remembers a zombie's path alone. So what is seen at a
birth is written down while it can be seen: groups by id and path, containers by id with name, image and the unit that
asked for them. Whoever finds a zombie months later looks its container up here.

A register is two files of lines, the newer and the older; when the newer is full it becomes the older, so that
together they never exceed a bound, and nothing of them is kept in memory. A line that was torn by a sudden death is
passed over.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

# Bytes of one file: some 60,000 births, a week of the worst crash loop that was ever reported.
LARGEST = 8 * 2**20
# A line that is longer than this is none of ours.
LONGEST_LINE = 64 * 1024


class GroupBirth(msgspec.Struct, frozen=True, array_like=True, tag="g"):
    """A cgroup was made: its id, when, its path, and the name of the process that made it."""

    id: int
    at: int
    path: str
    by: str


class ContainerBirth(msgspec.Struct, frozen=True, array_like=True, tag="c"):
    """A container was made. ``unit`` asked for it; empty: not known. ``seen`` says how that is known."""

    id: str
    at: int
    name: str
    image: str
    unit: str = ""
    seen: str = ""


Birth = GroupBirth | ContainerBirth

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Birth)


class Births:
    """The register in a directory. Writing never raises: ``trouble`` says what went wrong last, empty: nothing."""

    def __init__(self, folder: Path, *, largest: int = LARGEST) -> None:
        self._newer = folder / "births.jsonl"
        self._older = folder / "births.old.jsonl"
        self._largest = largest
        self.trouble = ""

    def write(self, births: Iterable[Birth]) -> None:
        """Append; it has outlived this process when it returns."""
        lines = b"".join(_encoder.encode(birth) + b"\n" for birth in births)
        if not lines:
            return
        try:
            self._newer.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(self._newer, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            try:
                size = os.fstat(handle).st_size
                if size and os.pread(handle, 1, size - 1) != b"\n":
                    lines = b"\n" + lines  # whoever wrote before died in the middle of a line
                os.write(handle, lines)
            finally:
                os.close(handle)
            if size + len(lines) >= self._largest:
                os.replace(self._newer, self._older)
            self.trouble = ""
        except OSError as error:
            self.trouble = f"cannot keep births in {self._newer}: {error.strerror}"

    def _lines(self) -> Iterator[bytes]:
        for path in (self._older, self._newer):
            with contextlib.suppress(OSError), path.open("rb") as file:
                while line := file.readline(LONGEST_LINE):
                    yield line

    def containers(self) -> Iterator[ContainerBirth]:
        """Every birth of a container that is written down, the oldest first. Blocks."""
        for line in self._lines():
            if line.startswith(b'["c"'):
                with contextlib.suppress(msgspec.MsgspecError):
                    birth = _decoder.decode(line)
                    if isinstance(birth, ContainerBirth):
                        yield birth

    def groups(self, ids: Iterable[int]) -> dict[int, GroupBirth]:
        """What is known of these groups. Blocks."""
        wanted = frozenset(ids)
        found: dict[int, GroupBirth] = {}
        for line in self._lines() if wanted else ():
            if not line.startswith(b'["g"'):
                continue
            with contextlib.suppress(msgspec.MsgspecError):
                birth = _decoder.decode(line)
                if isinstance(birth, GroupBirth) and birth.id in wanted:
                    found[birth.id] = birth
        return found
