"""The last look: growth within one boot, and never in the way."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.care.memory import BASELINE_AGE, LARGEST, recall, remember, state_file
from sexton.host.proc import Boot

NOW = 1_800_000_000.0


def boot(uptime: float, boot_id: str = "first") -> Boot:
    return Boot(id=boot_id, uptime=uptime)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return state_file(tmp_path / "state")


def test_figures_come_back_with_their_age(path: Path) -> None:
    assert remember(path, boot(100), NOW, None, {"memcg": {"zombies": 5}}) == ""

    last = recall(path, boot(700)).look

    assert last is not None
    before = last.before("memcg", 700)
    assert before is not None
    assert (before.seconds, before.figures) == (600, {"zombies": 5})
    assert last.before("units", 700) is None


def test_the_first_look_says_so(path: Path) -> None:
    assert recall(path, boot(100)).note.startswith("first look")


def test_another_boot_is_not_compared(path: Path) -> None:
    remember(path, boot(90_000), NOW, None, {"memcg": {"zombies": 5}})

    seen = recall(path, boot(50, "second"))

    assert seen.look is None
    assert "restarted since the last look" in seen.note


def test_looking_every_few_seconds_keeps_the_older_baseline(path: Path) -> None:
    remember(path, boot(100), NOW, None, {"memcg": {"zombies": 5}})
    soon = 100 + BASELINE_AGE / 2
    remember(path, boot(soon), NOW, recall(path, boot(soon)).look, {"memcg": {"zombies": 50}, "units": {"a": 1}})

    last = recall(path, boot(200)).look

    assert last is not None
    assert last.probes["memcg"].figures == {"zombies": 5}
    assert last.probes["units"].figures == {"a": 1}


def test_looking_each_minute_still_tells_growth_over_ten(path: Path) -> None:
    """As node-problem-detector and cron do."""
    spans = []
    for minute in range(60):
        now = boot(100 + 60 * minute)
        last = recall(path, now).look
        if last is not None and (before := last.before("memcg", 100 + 60 * minute)) is not None:
            spans.append(before.seconds)
            assert before.figures == {"zombies": minute - before.seconds / 60}
        remember(path, now, NOW, last, {"memcg": {"zombies": minute}})

    assert min(spans[int(BASELINE_AGE // 60) :]) >= BASELINE_AGE
    assert max(spans) <= 2 * BASELINE_AGE


def test_looking_each_day_compares_with_yesterday(path: Path) -> None:
    for day in (1, 2, 3):
        remember(path, boot(day * 86400), NOW, recall(path, boot(day * 86400)).look, {"memcg": {"zombies": day}})
    last = recall(path, boot(4 * 86400)).look

    assert last is not None
    assert (before := last.before("memcg", 4 * 86400)) is not None
    assert (before.seconds, before.figures) == (86400, {"zombies": 3})


def test_a_probe_that_could_not_look_keeps_what_it_knew(path: Path) -> None:
    remember(path, boot(100), NOW, None, {"memcg": {"zombies": 5}, "units": {"a": 1}})
    remember(path, boot(900), NOW, recall(path, boot(900)).look, {"memcg": {"zombies": 7}})

    last = recall(path, boot(1000)).look

    assert last is not None
    assert (last.probes["memcg"].figures, last.probes["units"].figures) == ({"zombies": 7}, {"a": 1})


@given(st.binary(max_size=300))
def test_any_damage_is_a_note(tmp_path_factory: pytest.TempPathFactory, damage: bytes) -> None:
    path = tmp_path_factory.mktemp("state") / "last-look.json"
    path.write_bytes(damage)

    seen = recall(path, boot(100))

    assert seen.look is None
    assert "damaged" in seen.note


def test_a_damaged_file_is_replaced(path: Path) -> None:
    path.parent.mkdir(parents=True)
    path.write_bytes(b"{")

    assert remember(path, boot(100), NOW, None, {"memcg": {"zombies": 5}}) == ""
    assert recall(path, boot(200)).look is not None


def test_a_huge_file_is_not_loaded(path: Path) -> None:
    path.parent.mkdir(parents=True)
    with path.open("wb") as file:
        file.truncate(LARGEST * 1000)

    assert "damaged" in recall(path, boot(100)).note


def test_another_versions_file_is_not_misread(path: Path) -> None:
    path.parent.mkdir(parents=True)
    path.write_bytes(msgspec.json.encode({"schema": 99, "boot_id": "first", "at": 0, "probes": {}}))

    assert "another version" in recall(path, boot(100)).note


def test_a_place_that_cannot_be_written_is_a_note(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    said = remember(state_file(tmp_path / "file"), boot(100), NOW, None, {"memcg": {"zombies": 5}})

    assert said.startswith("cannot keep this look in") and "--state-dir" in said
    assert "cannot read the last look" in recall(state_file(tmp_path / "file"), boot(100)).note


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "read-only"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", place], check=True)
    yield place
    subprocess.run(["umount", place], check=True)


def test_a_read_only_disk_is_a_note(read_only: Path) -> None:
    said = remember(state_file(read_only), boot(100), NOW, None, {"memcg": {"zombies": 5}})

    assert "Read-only file system" in said


def test_without_a_boot_id_nothing_is_compared_or_kept(path: Path) -> None:
    assert remember(path, Boot(), NOW, None, {"memcg": {"zombies": 5}}) == ""
    assert not path.exists()
