"""A second, plain copy of what cannot be found out again: who this agent is, what each task was asked to be, and how
far it is known to have come.

One small file per task beside the database, written when a task is accepted and when one of its containers begins to
run or ends, removed with it. It is read only when the database is lost or damaged; where a container is now is then
learnt from the engine. Files are replaced in one step; one that cannot be read costs itself and is named.
"""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path
from typing import TypeVar

import msgspec

from sexton.core.names import last_part
from sexton.wire.errors import UNREADABLE

log = logging.getLogger(__name__)

_IDENTITY = "identity.json"
_TASKS = "tasks"

T = TypeVar("T", bound=msgspec.Struct)


class Records:
    """The files below one directory; made when the first of them is."""

    def __init__(self, place: Path) -> None:
        self._place = place

    def keep_identity(self, me: msgspec.Struct) -> None:
        self._write(self._place / _IDENTITY, me)

    def identity(self, kind: type[T]) -> T | None:
        return _read(self._place / _IDENTITY, kind)

    def keep(self, arn: str, task: msgspec.Struct) -> None:
        self._write(self._file(arn), task)

    def drop(self, arn: str) -> None:
        try:
            self._file(arn).unlink(missing_ok=True)
        except OSError as error:
            log.warning("record of a task cannot be removed", extra={"task": arn, "reason": str(error)})

    def tasks(self, kind: type[T]) -> list[T]:
        """Everything that was kept."""
        read = (_read(path, kind) for path in sorted((self._place / _TASKS).glob("*.json")))
        return [one for one in read if one is not None]

    def keep_only(self, arns: set[str]) -> None:
        """Remove what is left of tasks that are over."""
        names = {last_part(arn) for arn in arns}
        for path in (self._place / _TASKS).glob("*.json"):
            if path.stem not in names:
                path.unlink(missing_ok=True)

    def clear(self) -> None:
        """This agent is somebody else now."""
        self.keep_only(set())
        (self._place / _IDENTITY).unlink(missing_ok=True)

    def _file(self, arn: str) -> Path:
        return self._place / _TASKS / f"{last_part(arn)}.json"

    def _write(self, path: Path, value: msgspec.Struct) -> None:
        """No sync: the database is what must survive a power loss; this must survive the database."""
        draft = path.with_suffix(".new")
        try:
            descriptor = _opened(draft)
            try:
                os.write(descriptor, msgspec.json.encode(value))
            finally:
                os.close(descriptor)
            draft.replace(path)
        except OSError as error:
            # The database has it: a copy that is missing is no reason to refuse a task.
            log.warning("record cannot be written", extra={"file": str(path), "reason": str(error)})


def _opened(draft: Path) -> int:
    """The file, empty; its directory is made when it turns out to be missing, which is once."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    try:
        return os.open(draft, flags, 0o600)
    except FileNotFoundError:
        draft.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return os.open(draft, flags, 0o600)


def _read(path: Path, kind: type[T]) -> T | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        return None
    except (OSError, *UNREADABLE) as error:
        log.warning("record cannot be read", extra={"file": str(path), "reason": str(error)})
        return None


def put_aside(path: Path, clock: float | None = None) -> Path:
    """Rename a damaged database, its side files included, so that nothing of it is lost; where it is now."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(clock if clock is not None else time.time()))
    aside = path.with_name(f"{path.name}.damaged-{stamp}")
    number = 0
    while aside.exists():
        number += 1
        aside = path.with_name(f"{path.name}.damaged-{stamp}-{number}")
    for side in ("", "-wal", "-shm"):
        old = Path(f"{path}{side}")
        if old.exists():
            old.replace(f"{aside}{side}")
    return aside
