"""Log files that are put aside in time: by size, by the hour, never more than were asked for, never failing anybody."""

from __future__ import annotations

import logging
import os
import shutil

import pytest

from sexton.logfile import LogFile, Rollover

HOUR = 1_800_000_000.0  # 2027-01-15 08:00:00 UTC


def record(text):
    return logging.makeLogRecord({"msg": text, "levelno": logging.INFO})


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def opened():
    files = []

    def make(*arguments, **named):
        files.append(LogFile(*arguments, **named))
        return files[-1]

    yield make
    for file in files:
        file.close()


def test_by_size_the_newest_is_first_and_only_so_many_are_kept(tmp_path, opened):
    file = opened(tmp_path / "log", Rollover("size", most_bytes=20, keep=3))
    for number in range(12):
        file.emit(record(f"line {number:04}"))

    assert names(tmp_path) == ["log", "log.1", "log.2", "log.3"]
    assert (tmp_path / "log").read_text() == "line 0010\nline 0011\n"
    assert (tmp_path / "log.1").read_text() == "line 0008\nline 0009\n"
    assert (tmp_path / "log.3").read_text() == "line 0004\nline 0005\n"


def test_a_line_longer_than_a_file_has_one_to_itself(tmp_path, opened):
    file = opened(tmp_path / "log", Rollover("size", most_bytes=5, keep=9))
    for text in ("a" * 50, "b" * 50):
        file.emit(record(text))

    assert names(tmp_path) == ["log", "log.1"]


def test_a_later_process_goes_on_where_the_last_one_stopped(tmp_path, opened):
    for number in range(4):
        file = opened(tmp_path / "log", Rollover("size", most_bytes=20, keep=3))
        file.emit(record(f"line {number:04}"))
        file.close()

    assert (tmp_path / "log.1").read_text() + (tmp_path / "log").read_text() == "".join(
        f"line {number:04}\n" for number in range(4)
    )


def test_hourly_each_file_is_named_after_its_hour(tmp_path, opened):
    now = HOUR
    file = opened(tmp_path / "log", Rollover("hourly", keep=2), clock=lambda: now)
    for hour in range(5):
        now = HOUR + 3600 * hour + 10
        file.emit(record(f"hour {hour}"))
        os.utime(tmp_path / "log", (now, now))

    assert names(tmp_path) == ["log", "log.2027-01-15-10", "log.2027-01-15-11"]
    assert (tmp_path / "log.2027-01-15-11").read_text() == "hour 3\n"
    assert (tmp_path / "log").read_text() == "hour 4\n"


def test_hourly_a_file_of_an_earlier_life_goes_to_its_own_hour(tmp_path, opened):
    (tmp_path / "log").write_text("before\n")
    os.utime(tmp_path / "log", (HOUR, HOUR))
    opened(tmp_path / "log", Rollover("hourly"), clock=lambda: HOUR + 7200).emit(record("now"))

    assert (tmp_path / "log.2027-01-15-08").read_text() == "before\n"
    assert (tmp_path / "log").read_text() == "now\n"


def test_never(tmp_path, opened):
    file = opened(tmp_path / "log", Rollover("none", most_bytes=1))
    for _ in range(5):
        file.emit(record("x"))

    assert names(tmp_path) == ["log"]


def test_a_directory_that_vanishes_costs_lines_and_nothing_else(tmp_path, opened):
    file = opened(tmp_path / "d/log", Rollover("size", most_bytes=3))
    shutil.rmtree(tmp_path / "d")
    for _ in range(3):
        file.emit(record("while it is gone"))
    file.emit(record("and back"))

    assert "and back" in (tmp_path / "d/log").read_text()


def test_a_full_disk_costs_lines_and_nothing_else(opened):
    if not os.path.exists("/dev/full"):
        pytest.skip("needs /dev/full")
    file = opened(__import__("pathlib").Path("/dev/full"), Rollover("none"))
    file.emit(record("x"))
    file.emit(record("y"))


def test_a_path_that_is_wrong_from_its_root_on_is_an_error(tmp_path):
    with pytest.raises(OSError, match="No such file"):
        LogFile(tmp_path / "a/b/log", Rollover())
