"""Cgroup v2 for real: Debian's own kernel in a small emulated machine, with this checkout's code inside."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from guest import GUEST_TIMEOUT, run_in_guest
from guest_v2 import BUDGET, CLEAN, LINGERING, STUCK, WRITERS


@pytest.mark.slow
@pytest.mark.timeout(GUEST_TIMEOUT)
def test_zombies_are_counted_named_located_and_freed_on_v2_and_tasks_leave_none(tmp_path: Path) -> None:
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
    # One that a processor still keeps may have a second means tried on it.
    assert told["attempts"][0]["key"] == "files" and told["attempts"][0]["freed"] >= CLEAN - LINGERING
    assert len(told["attempts"]) <= 1 + LINGERING
    assert STUCK <= told["after_files"] <= STUCK + LINGERING
    assert [attempt["key"] for attempt in told["reclaimed"]][-1] == "reclaim"
    assert STUCK <= told["after_reclaim"] <= STUCK + LINGERING
    assert told["after_all"] <= LINGERING
    assert max(attempt["kernel"] for attempt in [*told["attempts"], *told["reclaimed"]]) <= BUDGET + 1
    assert told["pressure"] >= 0
    # A task's own cgroup there: its limits as the kernel has them, and a clean end with every byte written.
    task = told["task"]
    weight = str(1 + (1024 - 2) * 9999 // 262142)
    limits = {"cpu.max": "25000 50000", "memory.max": str(64 << 20), "pids.max": "77", "cpu.weight": weight}
    assert (task["writable"], task["limits"], task["empty"]) == (True, limits, True)
    assert task["pinned"] == WRITERS and task["zombies"] <= LINGERING
    assert (task["reclaimed"], task["there"], task["written"]) == ([True, True], False, [65536] * WRITERS)
