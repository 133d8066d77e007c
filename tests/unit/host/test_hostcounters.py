"""Busy time and memory from pasted files, and nothing of what is not there."""

from __future__ import annotations

import os
from pathlib import Path

from sexton.host.hostcounters import HostCounters, read


def test_what_is_used_is_what_is_neither_idle_nor_stolen(tmp_path: Path) -> None:
    # user nice system idle iowait irq softirq steal guest guest_nice; guests are in user already
    (tmp_path / "stat").write_text("cpu  100 10 50 900 40 5 5 30 60 0\ncpu0 1 2 3\n")
    (tmp_path / "meminfo").write_text("MemTotal:  1000 kB\nMemFree: 1 kB\nMemAvailable:  600 kB\nBuffers: 5 kB\n")
    tick = os.sysconf("SC_CLK_TCK")

    assert read(tmp_path) == HostCounters(170 / tick, 30 / tick, 1000 * 1024, 400 * 1024)


def test_files_that_say_nothing(tmp_path: Path) -> None:
    assert read(tmp_path) == HostCounters()
    (tmp_path / "stat").write_text("cpu much\n")
    (tmp_path / "meminfo").write_text("MemTotal: 1 kB\n")
    assert read(tmp_path) == HostCounters()


def test_this_host_is_busy_and_has_memory() -> None:
    found = read()

    assert found.busy_seconds > 0
    assert 0 < found.memory_used < found.memory
