"""Steal and pressure of a host, and of one whose kernel has neither."""

from __future__ import annotations

import os

from sexton.host.pressure import Stall, stalls, steal_seconds


def test_both(tmp_path):
    ticks = os.sysconf("SC_CLK_TCK")
    (tmp_path / "stat").write_text(f"cpu  1 2 3 4 5 6 7 {3 * ticks} 9 10\ncpu0 1 2 3 4 5 6 7 8\n")
    (tmp_path / "pressure").mkdir()
    (tmp_path / "pressure/cpu").write_text("some avg10=1.00 avg60=2.50 avg300=3.00 total=4500000\nfull avg10=x\n")

    assert steal_seconds(tmp_path) == 3.0
    assert stalls(tmp_path) == [Stall("cpu", "some", 4.5, 2.5)]


def test_neither(tmp_path):
    (tmp_path / "stat").write_text("cpu 1 2\n")

    assert steal_seconds(tmp_path) is None and stalls(tmp_path) == []
