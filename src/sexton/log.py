"""One line per event, as logfmt or JSON, to standard error and to a file.

Events are constant strings and facts are fields, passed as ``extra=``. Fields whose name says that they hold a
secret are never written, whatever a caller passes: the formatter is the last place that can make sure. Facts come
from strangers too, so whatever could end a line, forge a field or drive a terminal is written as an escape.
"""

from __future__ import annotations

import json
import logging
import sys
import time
import traceback
from pathlib import Path
from typing import Any, NamedTuple

from sexton.logfile import ROLLOVER, LogFile, Rollover

_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_SECRET = ("secret", "token", "password", "authorization", "signature", "credential")
_WORDS = {"DEBUG": "debug", "INFO": "info", "WARNING": "warn", "ERROR": "error", "CRITICAL": "critical"}
_LEVELS = {
    "crit": logging.CRITICAL,
    "error": logging.ERROR,
    "warn": logging.WARNING,
    "info": logging.INFO,
    "debug": logging.DEBUG,
    "none": logging.CRITICAL + 10,
}


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    facts = {key: value for key, value in vars(record).items() if key not in _OWN}
    for key in facts:
        if any(word in key.lower() for word in _SECRET):
            facts[key] = "[redacted]"
    line: dict[str, Any] = {
        "level": _WORDS.get(record.levelname, record.levelname.lower()),
        "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
        "logger": record.name.removeprefix("sexton."),
        "msg": record.getMessage(),
    }
    # A fact never stands in for the line's own fields.
    line.update((f"{key}_" if key in line else key, value) for key, value in facts.items())
    if record.exc_info and record.exc_info[1] is not None:
        error = record.exc_info[1]
        line["error"] = f"{type(error).__name__}: {error}"
        line["trace"] = "".join(traceback.format_exception(error))
    return line


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return json.dumps(_fields(record), default=str)


class LogfmtFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return " ".join(f"{key}={_word(value)}" for key, value in _fields(record).items())


def _word(value: Any) -> str:
    text = str(value)
    if not text.isprintable():
        return json.dumps(text)
    if text and not any(mark in text for mark in ' "=\\'):
        return text
    return json.dumps(text, ensure_ascii=False)


class LastError(NamedTuple):
    """The last line at level error or worse."""

    event: str
    time: float


class _Errors(logging.Handler):
    """Counts what went wrong and keeps the last of it, for the metrics."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.count = 0
        self.last: LastError | None = None

    def emit(self, record: logging.LogRecord) -> None:
        self.count += 1
        self.last = LastError(str(record.msg), record.created)


_errors = _Errors()


def last_error() -> LastError | None:
    """The last error of this process."""
    return _errors.last


def errors() -> int:
    """How many errors this process has logged."""
    return _errors.count


def configure(
    level: str, file: str = "", shape: str = "logfmt", *, file_level: str = "", rollover: Rollover = ROLLOVER
) -> None:
    """Send every logger of this process to standard error, and to a file as well if one is named; OSError when it
    cannot be opened."""
    formatter = JsonFormatter() if shape == "json" else LogfmtFormatter()
    handlers: list[logging.Handler] = [logging.StreamHandler(sys.stderr)]
    handlers[0].setLevel(_LEVELS[level])
    chosen = file_level or level
    if file and chosen not in ("off", "none"):
        handlers.append(LogFile(Path(file), rollover))
        handlers[1].setLevel(_LEVELS[chosen])
    for handler in handlers:
        handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [*handlers, _errors]
    root.setLevel(min(_errors.level, *(handler.level for handler in handlers)))  # errors are counted, heard or not
    # One line per request or frame is not a state change.
    for chatty in ("aiohttp.access", "asyncio"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
