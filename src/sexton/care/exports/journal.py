"""Tells the host's journal what happens to findings, in fields of its own rather than in a sentence to be parsed.

One datagram an event to journald's native socket: MESSAGE, PRIORITY, SYSLOG_IDENTIFIER, a MESSAGE_ID for each kind of
event, and SEXTON_FINGERPRINT, SEXTON_KIND, SEXTON_SEVERITY, SEXTON_CULPRIT. So

    journalctl SYSLOG_IDENTIFIER=sexton-care SEXTON_FINGERPRINT=unit-loop/ecs.service

is the finding's history. It never waits: a journal that is not there or does not read costs a lost line, no more.
"""

from __future__ import annotations

import socket
import struct
import uuid
from pathlib import Path

from sexton.core.finding import Severity
from sexton.core.ledger import Entry, Kind, Record

SOCKET = "run/systemd/journal/socket"
IDENTIFIER = "sexton-care"
# What is told fits one datagram; a longer one would have to go by a file.
LARGEST = 60 * 1024
# Message ids are derived from the kind, so each is the same on every host and in every version.
_FAMILY = uuid.UUID("8e5a1a52-6a4f-4c6f-9a35-3b8b9f1d7c11")
_WARNING, _ERROR, _NOTICE = 4, 3, 5


def message_id(kind: Kind) -> str:
    """The MESSAGE_ID of this kind of event."""
    return uuid.uuid5(_FAMILY, kind.value).hex


class JournalExport:
    """Says events to the journal below a root directory."""

    def __init__(self, root: Path) -> None:
        self._path = root / SOCKET
        self.lost = 0

    def present(self) -> bool:
        return self._path.exists()

    def tell(self, record: Record, entry: Entry) -> None:
        """One event. Never blocks, never raises."""
        data = encode(fields_of(record, entry))[:LARGEST]
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC) as out:
                out.sendto(data, str(self._path))
        except OSError:
            self.lost += 1


def fields_of(record: Record, entry: Entry) -> dict[str, str]:
    """An event as the journal's fields."""
    finding = record.finding
    priority = _ERROR if finding.severity is Severity.CRITICAL else _WARNING
    if entry.kind in (Kind.RESOLVED, Kind.BETTER, Kind.DONE):
        priority = _NOTICE
    return {
        "MESSAGE": f"{entry.kind.value}: {finding.fingerprint}: {entry.says}",
        "PRIORITY": str(priority),
        "SYSLOG_IDENTIFIER": IDENTIFIER,
        "MESSAGE_ID": message_id(entry.kind),
        "SEXTON_FINGERPRINT": finding.fingerprint,
        "SEXTON_KIND": entry.kind.value,
        "SEXTON_SEVERITY": finding.severity.value,
        "SEXTON_CULPRIT": finding.culprit,
        "SEXTON_NEXT_STEP": finding.next_step,
    }


def encode(fields: dict[str, str]) -> bytes:
    """The native protocol: KEY=value lines; a value with a line break has its length in front instead."""
    parts = []
    for key, value in fields.items():
        raw = value.encode("utf-8", "backslashreplace")
        if b"\n" in raw:
            parts.append(key.encode() + b"\n" + struct.pack("<Q", len(raw)) + raw + b"\n")
        else:
            parts.append(key.encode() + b"=" + raw + b"\n")
    return b"".join(parts)
