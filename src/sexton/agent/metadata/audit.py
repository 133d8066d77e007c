"""The audit log: who asked for keys of a role, one line a request, in a file that is put aside in time.

A file that cannot be written is said once and tried again; tasks get their keys meanwhile, since a full disk must not
stop what runs. Lines that were lost are counted and said when writing works again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path

from sexton.agent.metadata.routes import Caller
from sexton.agent.steps.context import Identity
from sexton.core import auditline
from sexton.core.auditline import Asked, What
from sexton.kit import web
from sexton.kit.allowance import Allowances
from sexton.logfile import LogFile, Rollover
from sexton.settings import Settings

log = logging.getLogger(__name__)

FILE = "audit.log"
TRY_SECONDS = 30.0
# Lines about requests that were too many: a second, and at once, of one task or address.
LIMITED_LINES = (1.0, 60.0)


class Audit:
    """Writes the lines of one agent."""

    def __init__(self, settings: Settings, identity: Identity, clock: Callable[[], float] = time.time) -> None:
        self._identity = identity
        self._path = None if settings.audit_disabled else path_of(settings)
        self._rollover = Rollover(settings.log_rollover, int(settings.log_max_mb * 1_000_000), settings.log_max_rolls)
        self._clock = clock
        self._file: LogFile | None = None
        self._failed_at = 0.0
        self._lost = 0
        self._noise = Allowances(*LIMITED_LINES)

    def limited(self, request: web.BaseRequest, caller: Caller, status: int, path: str) -> None:
        """Remember one of those that were too many; not all of them, or they would push out the lines of others."""
        if self._noise.take((caller.task, caller.address)):
            self.note(request, caller, status, path)

    def note(
        self,
        request: web.BaseRequest,
        caller: Caller,
        status: int,
        path: str,
        what: What = What.LIMITED,
        task: str = "",
    ) -> None:
        """Remember one request."""
        if self._path is None:
            return
        asked = Asked(
            at=self._clock(),
            status=int(status),
            remote=f"{caller.address}:{caller.port}",
            path=path,
            user_agent=request.headers.get("User-Agent", ""),
            what=what,
            task=task,
        )
        self._write(self._path, auditline.line(asked, *self._identity))

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _write(self, path: Path, line: str) -> None:
        if self._file is None and not self._open(path):
            self._lost += 1
            return
        assert self._file is not None
        self._file.handle(logging.makeLogRecord({"msg": line}))

    def _open(self, path: Path) -> bool:
        now = time.monotonic()
        if self._failed_at and now - self._failed_at < TRY_SECONDS:
            return False
        try:
            self._file = LogFile(path, self._rollover)
        except OSError as error:
            if not self._failed_at:
                log.error("audit log cannot be written", extra={"file": str(path), "reason": error.strerror})
            self._failed_at = now
            return False
        if self._failed_at:
            log.warning("audit log is written again", extra={"file": str(path), "lost": self._lost})
            self._failed_at, self._lost = 0.0, 0
        return True


def path_of(settings: Settings) -> Path:
    """Where the lines go: beside the agent's own log, or with its state where that has no file."""
    if settings.audit_file:
        return Path(settings.audit_file)
    return (Path(settings.log_file).parent if settings.log_file else Path(settings.data_dir)) / FILE
