"""The journal gets fields, whatever is in them, and a journal that is away costs nothing."""

from __future__ import annotations

import socket
import struct
from pathlib import Path

import msgspec

from sexton.care.exports.journal import SOCKET, JournalExport, encode, fields_of, message_id
from sexton.core.finding import Finding, Severity
from sexton.core.ledger import Entry, Kind, Record, View


def event(says: str = "it loops", kind: Kind = Kind.OPENED) -> tuple[Record, Entry]:
    found = Finding(
        fingerprint="unit-loop/a.service",
        severity=Severity.CRITICAL,
        title="a.service loops",
        culprit="a.service",
        evidence=(),
        next_step="stop it",
    )
    record = Record(finding=found, views={"p": View(found)}, open=True, first_seen=1.0, last_seen=1.0, opened=1.0)
    return record, Entry(at=1.0, kind=kind, says=says, told=True)


def decoded(data: bytes) -> dict[str, str]:
    """As journald reads it."""
    found = {}
    while data:
        line, _, rest = data.partition(b"\n")
        if b"=" in line:
            key, _, value = line.partition(b"=")
        else:
            key, size = line, struct.unpack("<Q", rest[:8])[0]
            value, rest = rest[8 : 8 + size], rest[8 + size + 1 :]
        found[key.decode()] = value.decode()
        data = rest
    return found


def test_an_event_arrives_in_fields(tmp_path: Path) -> None:
    (tmp_path / SOCKET).parent.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as journald:
        journald.bind(str(tmp_path / SOCKET))
        journald.settimeout(5)
        JournalExport(tmp_path).tell(*event("first line\nPRIORITY=0"))
        fields = decoded(journald.recv(1 << 16))

    assert fields["SEXTON_FINGERPRINT"] == "unit-loop/a.service"
    assert fields["PRIORITY"] == "3"
    assert fields["MESSAGE"] == "opened: unit-loop/a.service: first line\nPRIORITY=0"
    assert fields["MESSAGE_ID"] == message_id(Kind.OPENED)


def test_a_journal_that_is_away_or_does_not_read_costs_a_line(tmp_path: Path) -> None:
    export = JournalExport(tmp_path)
    export.tell(*event())
    assert export.lost == 1
    (tmp_path / SOCKET).parent.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stuck:
        stuck.bind(str(tmp_path / SOCKET))
        for _ in range(5000):
            export.tell(*event("x" * 1000))
    assert export.lost > 1


def test_kinds_have_ids_that_never_change() -> None:
    assert len({message_id(kind) for kind in Kind}) == len(Kind)
    assert message_id(Kind.OPENED) == "b316da438e1e5dbf84d70cd2efce1961"
    assert message_id(Kind.RESOLVED) == "48d1ae242ecd5dbd8c8e80b28155a014"


def test_good_news_is_a_notice() -> None:
    assert fields_of(*event(kind=Kind.RESOLVED))["PRIORITY"] == "5"
    record, entry = event()
    mild = msgspec.structs.replace(record.finding, severity=Severity.WARNING)
    assert fields_of(msgspec.structs.replace(record, finding=mild), entry)["PRIORITY"] == "4"


def test_values_of_any_kind_can_be_read_back() -> None:
    fields = {"A": "x=y", "B": "", "C": "a\n\nb=1\n", "D": "ä\t\x00"}

    assert decoded(encode(fields)) == fields
