"""The journal by message id: what counts, what is passed over, and the ways it cannot be read."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from sexton.core.lives import Moment
from sexton.host.errors import Absent, Unreadable
from sexton.host.journal import KINDS, unit_moments

STARTED = "39f53479d3a045ac8e11786248231fbf"
FAILED = "d9b373ed55a64feb8242e02dbe79a49c"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "host/var/log/journal/c1117b33b0ae4adbb561e0f7223e6b4d"
    folder.mkdir(parents=True)
    (folder / "system.journal").write_bytes(b"LPKSHHRH")
    return tmp_path / "host"


def journalctl(tmp_path: Path, output: str, code: int = 0, error: str = "") -> str:
    program = tmp_path / "journalctl"
    (tmp_path / "output").write_text(output)
    script = f"#!/bin/sh\necho \"$@\" > {tmp_path}/asked\ncat {tmp_path}/output\necho '{error}' >&2\nexit {code}\n"
    program.write_text(script)
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return os.fspath(program)


def line(kind: str, **fields: object) -> str:
    told = {"__REALTIME_TIMESTAMP": "1700000000500000", "MESSAGE_ID": kind, "INVOCATION_ID": "r1", "UNIT": "x.service"}
    return json.dumps({**told, **fields})


def test_only_systemds_own_messages_about_services_count(root: Path, tmp_path: Path) -> None:
    said = [
        line(STARTED),
        line(FAILED, __REALTIME_TIMESTAMP="1700000001000000"),
        line(STARTED, UNIT="tmp.mount"),
        line("00000000000000000000000000000000"),
        line(STARTED, INVOCATION_ID=[1, 2, 3]),
        "{torn",
    ]

    seen = unit_moments(root, 1_699_999_000.7, journalctl(tmp_path, "\n".join(said)))

    assert [(one.unit, one.run, one.at, one.what) for one in seen] == [
        ("x.service", "r1", 1_700_000_000.5, Moment.BEGAN),
        ("x.service", "r1", 1_700_000_001.0, Moment.FAILED),
    ]
    asked = (tmp_path / "asked").read_text().split()
    assert "_PID=1" in asked
    assert "--since=@1699999000" in asked
    assert {f"MESSAGE_ID={kind}" for kind in KINDS} <= set(asked)
    assert not any("MESSAGE=" in word for word in asked)


def test_no_journal_is_an_answer(tmp_path: Path) -> None:
    with pytest.raises(Absent):
        unit_moments(tmp_path, 0)


def test_a_journal_that_may_not_be_read_is_none(root: Path, tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match="No permission"):
        unit_moments(root, 0, journalctl(tmp_path, "", 1, "No permission"))
    with pytest.raises(Unreadable, match="journalctl is not here"):
        unit_moments(root, 0, "/no/such/journalctl")
    (root / "var/log/journal/c1117b33b0ae4adbb561e0f7223e6b4d/system.journal").unlink()
    with pytest.raises(Unreadable, match="no file of it"):
        unit_moments(root, 0, journalctl(tmp_path, ""))
