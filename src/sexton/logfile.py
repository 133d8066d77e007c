"""A log file that is put aside in time, so that it never fills the disk.

By size, ``name`` becomes ``name.1``, what was ``name.1`` becomes ``name.2``, and so on; hourly, it gets the hour it is
about (UTC) as its suffix. In both cases only so many are kept. A disk that is full or a directory that vanished costs
lines of this file and nothing else: logging never fails its caller, and the file is opened again when that works.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

_HOUR = "%Y-%m-%d-%H"
_HOURLY_NAME = re.compile(r"\.\d{4}-\d{2}-\d{2}-\d{2}$")


class Rollover(NamedTuple):
    """When a file is put aside and how many are kept."""

    kind: str = "size"  # or "hourly", "none"
    most_bytes: int = 5_000_000
    keep: int = 24


ROLLOVER = Rollover()


class LogFile(logging.Handler):
    """Writes one file; OSError at once when it cannot be opened at all."""

    def __init__(self, path: Path, rollover: Rollover, clock: Callable[[], float] = time.time) -> None:
        super().__init__()
        self._path = path
        self._rollover = rollover
        self._clock = clock
        self._descriptor: int | None = None
        self._size = 0
        self._hour = ""
        self._open()

    def emit(self, record: logging.LogRecord) -> None:
        """One line; what cannot be written is lost."""
        try:
            line = (self.format(record) + "\n").encode("utf-8", "backslashreplace")
        except Exception:  # the edge of logging: a fact that cannot be shown must not fail whoever states it
            self.handleError(record)
            return
        try:
            if self._descriptor is None:
                self._open()
            if self._is_due(len(line)):
                self._roll()
            assert self._descriptor is not None
            self._size += os.write(self._descriptor, line)
        except OSError:
            self._shut()

    def close(self) -> None:
        self._shut()
        super().close()

    def _open(self) -> None:
        with contextlib.suppress(FileExistsError):
            self._path.parent.mkdir()  # one level: a path that is wrong from its root on is a mistake
        self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)
        found = os.fstat(self._descriptor)
        self._size = found.st_size
        # A file with lines in it belongs to the hour of the last of them.
        self._hour = time.strftime(_HOUR, time.gmtime(found.st_mtime if found.st_size else self._clock()))

    def _shut(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            with contextlib.suppress(OSError):
                os.close(descriptor)

    def _is_due(self, more: int) -> bool:
        match self._rollover.kind:
            case "size":
                return self._size > 0 and self._size + more > self._rollover.most_bytes
            case "hourly":
                return time.strftime(_HOUR, time.gmtime(self._clock())) != self._hour
        return False

    def _roll(self) -> None:
        self._shut()
        if self._rollover.kind == "hourly":
            if self._size:
                os.replace(self._path, f"{self._path}.{self._hour}")
            self._prune_hours()
        else:
            self._shift()
        self._open()
        self._hour = time.strftime(_HOUR, time.gmtime(self._clock()))

    def _shift(self) -> None:
        keep = self._rollover.keep
        numbers = [n for n in range(1, keep + 1) if os.path.exists(f"{self._path}.{n}")]
        # Up to the first gap, from its end: nothing is overwritten before it has been put on.
        last = next((n for n in range(1, keep + 1) if n not in numbers), keep + 1)
        for number in range(last - 1, 0, -1):
            if number == keep:
                os.unlink(f"{self._path}.{number}")
            else:
                os.replace(f"{self._path}.{number}", f"{self._path}.{number + 1}")
        os.replace(self._path, f"{self._path}.1")

    def _prune_hours(self) -> None:
        name = self._path.name
        mine = sorted(
            path
            for path in self._path.parent.iterdir()
            if path.name.startswith(name) and _HOURLY_NAME.fullmatch(path.name[len(name) :])
        )
        for path in mine[: -self._rollover.keep]:
            path.unlink(missing_ok=True)
