"""Cgroup v2 for real: Debian's own kernel in a small emulated machine, with this checkout's code inside."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from guest import GUEST_TIMEOUT, run_in_guest
from guest_v2 import BUDGET, CLEAN, LINGERING, STUCK


@pytest.mark.slow
@pytest.mark.timeout(GUEST_TIMEOUT)
def test_zombies_are_counted_named_located_and_freed_on_v2(tmp_path: Path) -> None:
    subprocess.run([Path(__file__).parents[2] / "scripts/build_bpf.sh", "--must"], check=True, capture_output=True)

    told = run_in_guest("guest_v2.py", tmp_path)

    assert told["mode"] == "v2"
    assert told["made"] == told["kernel_counts"] == STUCK + CLEAN
    # Named by the walk in that kernel, with makers; and without it, located and counted by arithmetic.
    assert told["cannot_see"] == []
    assert told["named"] == STUCK + CLEAN
    assert told["makers"] == {"unit": STUCK, "container": CLEAN}
    assert told["blind_says"][0].startswith("cannot name zombies: the walk over memory cgroups is not compiled")
    assert told["ghosts"]["/system.slice/nightly.service"] == STUCK
    assert told["ghosts"]["/docker"] == CLEAN
    # Freed by exact pages of the file; with a file that has no name, by memory.reclaim on the group above.
    assert [attempt["key"] for attempt in told["attempts"]] == ["files"]
    assert STUCK <= told["after_files"] <= STUCK + LINGERING
    assert [attempt["key"] for attempt in told["reclaimed"]][-1] == "reclaim"
    assert STUCK <= told["after_reclaim"] <= STUCK + LINGERING
    assert told["after_all"] <= LINGERING
    assert max(attempt["kernel"] for attempt in [*told["attempts"], *told["reclaimed"]]) <= BUDGET + 1
    assert told["pressure"] >= 0
