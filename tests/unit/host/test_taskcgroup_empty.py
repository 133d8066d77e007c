"""Whether a container's cgroup still holds a process, on fixture trees of both kinds."""

from __future__ import annotations

from pathlib import Path

import pytest

from sexton.host.taskcgroup import TaskCgroups


@pytest.fixture(params=["v1", "v2"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The container's cgroup below a fresh mount."""
    top = tmp_path
    if request.param == "v2":
        (tmp_path / "cgroup.controllers").write_text("cpu memory pids\n")
    else:
        top = tmp_path / "memory"
        top.mkdir()
        (top / "cgroup.procs").write_text("")
    made = top / "ecs" / "t1" / "c1"
    made.mkdir(parents=True)
    return made


def test_a_process_at_any_depth_counts(place: Path, tmp_path: Path) -> None:
    (place / "cgroup.procs").write_text("")
    cgroups = TaskCgroups(tmp_path)
    assert cgroups.empty("t1", "c1")
    inner = place / "init.scope"
    inner.mkdir()
    (inner / "cgroup.procs").write_text("17\n")
    assert not cgroups.empty("t1", "c1")


def test_one_that_is_gone_is_empty(place: Path, tmp_path: Path) -> None:
    assert TaskCgroups(tmp_path).empty("t1", "c2")


def test_where_nothing_is_mounted_nothing_is_known(tmp_path: Path) -> None:
    assert not TaskCgroups(tmp_path).empty("t1", "c1")
