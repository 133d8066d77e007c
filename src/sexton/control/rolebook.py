"""The roles file in force: read at the start, and again whenever it or a policy file of it changes.

A file that cannot be used keeps the process from starting, with its place named; once running, the one before stays
in force and the log says why. No file means that there are no roles.

    a role's ARN -> its entry, or None
    a session of a local role -> the policies that limit it, as they are at that moment
"""

from __future__ import annotations

import asyncio
import logging
import os
import stat
from pathlib import Path

from sexton.core.iam_document import Policy
from sexton.core.rolesfile import LARGEST, BadRoles, RoleEntry, RolesFile, Source, parse

log = logging.getLogger(__name__)

LOOK_SECONDS = 2.0
"""How often the files are looked at; a look is one stat each."""


class Rolebook:
    """What one roles file says now."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = RolesFile()
        self._seen: tuple[object, ...] = ()
        self._asked = asyncio.Event()
        self.present = False
        """Whether there is a roles file at all."""
        self.trouble = ""
        """Why what stands in the file is not what is in force; empty when it is."""

    @property
    def entries(self) -> tuple[RoleEntry, ...]:
        return self._file.entries

    def find(self, role_arn: str) -> RoleEntry | None:
        """The entry of a role."""
        return self._file.find(role_arn)

    def policies(self, role_arn: str) -> tuple[Policy, ...] | None:
        """What limits the local keys of a role; None when there are none of it any more."""
        entry = self.find(role_arn)
        return entry.policies if entry is not None and entry.source is Source.LOCAL else None

    def load(self) -> None:
        """Read the file; BadRoles with the place when it cannot be used."""
        self._seen = self._stamp(self._file)
        try:
            file = self._read()
        except BadRoles as error:
            raise BadRoles(f"cannot use the roles file {self.path}: {error}") from None
        self.present = file is not None
        self._file = file or RolesFile()
        self._seen = self._stamp(self._file)

    def reload(self) -> None:
        """Look at the files now, whether they seem changed or not."""
        self._asked.set()

    async def watch(self) -> None:
        """Take up what changes until cancelled."""
        while True:
            try:
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._asked.wait()
            except TimeoutError:
                if await asyncio.to_thread(self._stamp, self._file) == self._seen:
                    continue
            self._asked.clear()
            await asyncio.to_thread(self.look)

    def look(self) -> None:
        """Take up what the file says now, if it can be used."""
        before = self.present
        seen = self._stamp(self._file)
        try:
            file = self._read()
            if file is None and before:
                raise BadRoles("it is gone; put it back, or empty it to have no roles")
        except BadRoles as error:
            self._seen, self.trouble = seen, str(error)
            log.error("roles file not taken up", extra={"file": str(self.path), "reason": str(error)})
            return
        self.present, self._file, self.trouble = file is not None, file or RolesFile(), ""
        self._seen = self._stamp(self._file)
        if self.present:
            log.info("roles file taken up", extra={"file": str(self.path), "roles": len(self.entries)})

    def _stamp(self, file: RolesFile) -> tuple[object, ...]:
        """What tells whether a file was changed."""
        found: list[object] = []
        for path in (self.path, *(self._beside(one.policy_file) for one in file.entries if one.policy_file)):
            try:
                status = path.stat()
            except OSError as error:
                found.append(error.errno)
            else:
                found.append((status.st_ino, status.st_mtime_ns, status.st_size, status.st_mode))
        return tuple(found)

    def _beside(self, name: str) -> Path:
        return self.path.parent / name

    def _read(self) -> RolesFile | None:
        found = _text(self.path)
        if found is None:
            return None
        text, mode = found
        file = parse(text, self._policy)
        if mode & 0o077 and any(one.source is Source.STATIC for one in file.entries):
            raise BadRoles(
                f"it holds keys and others may read it (mode {mode:04o}); chmod 600 it, and replace the keys"
            )
        if mode & 0o022:
            raise BadRoles(f"others may write it (mode {mode:04o}), and with it any policy; chmod 600 it")
        return file

    def _policy(self, name: str) -> str:
        found = _text(self._beside(name))
        if found is None:
            raise BadRoles(f"there is no policy file {self._beside(name)}")
        text, mode = found
        if mode & 0o022:
            raise BadRoles(f"others may write {self._beside(name)} (mode {mode:04o}); chmod 600 it")
        return text


def _text(path: Path) -> tuple[str, int] | None:
    """A file's text and its permission bits; None when there is none."""
    try:
        # Not blocking, so that a pipe in the file's place is found out instead of waited for.
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BadRoles(f"cannot read {path}: {error.strerror}") from None
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise BadRoles(f"{path} is no plain file")
        with os.fdopen(handle, "rb", closefd=False) as file:
            data = file.read(LARGEST + 1)
    except OSError as error:
        raise BadRoles(f"cannot read {path}: {error.strerror}") from None
    finally:
        os.close(handle)
    if len(data) > LARGEST:
        raise BadRoles(f"{path} is larger than {LARGEST >> 20} MiB")
    try:
        return data.decode(), stat.S_IMODE(status.st_mode)
    except UnicodeDecodeError:
        raise BadRoles(f"{path} is no text in UTF-8") from None
