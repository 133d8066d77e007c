"""Counting memory cgroups on fixture trees of every layout, and refusing to where only a part is visible."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.host import cgroup
from sexton.host.cgroup import Mode, census, count_directories
from sexton.host.errors import Absent, Unreadable

HEADER = "#subsys_name\thierarchy\tnum_cgroups\tenabled\n"
V1_MOUNT = "cgroup /sys/fs/cgroup/memory cgroup rw,nosuid,memory 0 0\n"
V2_MOUNT = "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid,nsdelegate 0 0\n"
V2_BESIDE = "cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n"


def host(root: Path, *, cgroups: str | None, mounts: str) -> Path:
    (root / "proc/1").mkdir(parents=True)
    (root / "proc/1/mounts").write_text("proc /proc proc rw 0 0\n" + mounts)
    if cgroups is not None:
        (root / "proc/cgroups").write_text(HEADER + cgroups)
    return root


def v1_tree(root: Path, *, live: int, at: str = "sys/fs/cgroup/memory", real_root: bool = True) -> Path:
    """``live`` directories with the files a kernel puts there, nested like services below slices."""
    top = root / at
    top.mkdir(parents=True)
    if real_root:
        (top / "cgroup.sane_behavior").write_text("0\n")
        (top / "release_agent").write_text("\n")
    (top / "cgroup.procs").write_text("1\n")
    for number in range(live - 1):
        (top / ("system.slice" if number else "") / f"unit{number}.service").mkdir(parents=True)
    return top


def v2_tree(
    root: Path, stat: str, *, controllers: str = "cpuset cpu io memory pids", at: str = "sys/fs/cgroup"
) -> Path:
    top = root / at
    top.mkdir(parents=True)
    (top / "cgroup.controllers").write_text(controllers + "\n")
    (top / "cgroup.stat").write_text(stat)
    return top


def test_v1_counts_directories_with_the_root(tmp_path: Path) -> None:
    host(tmp_path, cgroups="cpu\t3\t9\t1\nmemory\t4\t68680\t1\n", mounts=V1_MOUNT)
    (v1_tree(tmp_path, live=1) / "a/b/c").mkdir(parents=True)

    seen = census(tmp_path)

    assert (seen.mode, seen.tracked, seen.live, seen.zombies) == (Mode.LEGACY, 68680, 4, 68676)


def test_hybrid_keeps_memory_on_v1(tmp_path: Path) -> None:
    host(tmp_path, cgroups="memory\t7\t12\t1\n", mounts=V1_MOUNT + V2_BESIDE)
    top = v1_tree(tmp_path, live=1)
    for number in range(11):
        (top / f"g{number}").mkdir()
    v2_tree(tmp_path, "nr_descendants 70\nnr_dying_descendants 30\n", at="sys/fs/cgroup/unified", controllers="")

    seen = census(tmp_path)

    assert (seen.mode, seen.tracked, seen.live, seen.zombies) == (Mode.HYBRID, 12, 12, 0)


def test_hybrid_with_memory_on_v2(tmp_path: Path) -> None:
    mounts = "cgroup /sys/fs/cgroup/systemd cgroup rw,name=systemd 0 0\n" + V2_BESIDE
    host(tmp_path, cgroups="memory\t0\t12\t1\n", mounts=mounts)
    v2_tree(tmp_path, "nr_descendants 8\nnr_dying_descendants 3\n", at="sys/fs/cgroup/unified")

    seen = census(tmp_path)

    assert (seen.mode, seen.tracked, seen.live, seen.zombies) == (Mode.HYBRID, 12, 9, 3)


def test_v2_uses_the_memory_controllers_own_counters_where_the_kernel_has_them(tmp_path: Path) -> None:
    host(tmp_path, cgroups="memory\t0\t999\t1\n", mounts=V2_MOUNT)
    v2_tree(
        tmp_path,
        "nr_descendants 80\nnr_subsys_cpu 81\nnr_subsys_memory 60\n"
        "nr_dying_descendants 900\nnr_dying_subsys_cpu 0\nnr_dying_subsys_memory 850\n",
    )

    seen = census(tmp_path)

    assert (seen.mode, seen.tracked, seen.live, seen.zombies) == (Mode.UNIFIED, 910, 60, 850)


def test_v2_on_a_kernel_that_retired_proc_cgroups(tmp_path: Path) -> None:
    host(tmp_path, cgroups=None, mounts=V2_MOUNT)
    v2_tree(tmp_path, "nr_descendants 80\nnr_dying_descendants 900\n")

    seen = census(tmp_path)

    assert (seen.tracked, seen.live, seen.zombies) == (981, 81, 900)


def test_a_mount_point_with_a_blank_is_found(tmp_path: Path) -> None:
    host(tmp_path, cgroups="memory\t4\t3\t1\n", mounts="cgroup /my\\040groups cgroup rw,memory 0 0\n")
    v1_tree(tmp_path, live=2, at="my groups")

    assert census(tmp_path).zombies == 1


def test_a_part_of_a_v1_hierarchy_is_not_taken_for_the_host(tmp_path: Path) -> None:
    host(tmp_path, cgroups="memory\t4\t68680\t1\n", mounts=V1_MOUNT)
    v1_tree(tmp_path, live=1, real_root=False)

    with pytest.raises(Unreadable, match=r"tracks 68,680 .* only a part of the hierarchy is visible"):
        census(tmp_path)


def test_a_part_of_a_v2_hierarchy_is_not_taken_for_the_host(tmp_path: Path) -> None:
    host(tmp_path, cgroups="memory\t0\t500\t1\n", mounts=V2_MOUNT)
    top = v2_tree(tmp_path, "nr_descendants 0\nnr_dying_descendants 0\n")
    (top / "cgroup.events").write_text("populated 1\n")

    with pytest.raises(Unreadable, match="only a part"):
        census(tmp_path)


def test_the_whole_hierarchy_is_preferred_over_a_partial_mount_of_it(tmp_path: Path) -> None:
    partial = "cgroup /mnt/part cgroup rw,memory 0 0\n"
    host(tmp_path, cgroups="memory\t4\t5\t1\n", mounts=partial + V1_MOUNT)
    v1_tree(tmp_path, live=1, at="mnt/part", real_root=False)
    v1_tree(tmp_path, live=2)

    assert census(tmp_path).zombies == 3


def test_a_hierarchy_that_is_not_mounted_here_cannot_be_counted(tmp_path: Path) -> None:
    host(tmp_path, cgroups="memory\t4\t700\t1\n", mounts="")

    with pytest.raises(Unreadable, match="not mounted in this view"):
        census(tmp_path)


@pytest.mark.parametrize(
    ("cgroups", "mounts"),
    [("memory\t0\t1\t0\n", V1_MOUNT), (None, "")],
    ids=["switched off", "no cgroups at all"],
)
def test_a_host_without_memory_cgroups_has_nothing_to_count(tmp_path: Path, cgroups: str | None, mounts: str) -> None:
    host(tmp_path, cgroups=cgroups, mounts=mounts)

    with pytest.raises(Absent):
        census(tmp_path)


def test_a_v2_hierarchy_without_the_memory_controller_has_nothing_to_count(tmp_path: Path) -> None:
    host(tmp_path, cgroups=None, mounts=V2_MOUNT)
    v2_tree(tmp_path, "nr_descendants 1\nnr_dying_descendants 0\n", controllers="cpu pids")

    with pytest.raises(Absent, match="belongs to no mounted hierarchy"):
        census(tmp_path)


def test_a_missing_proc_is_unreadable_and_not_healthy(tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match="cannot read"):
        census(tmp_path)


def test_too_long_a_walk_gives_up_with_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(20):
        (tmp_path / f"g{number}").mkdir()
    monkeypatch.setattr(cgroup, "WALK_LIMIT", 10)
    (tmp_path / "g0/below").mkdir()

    with pytest.raises(Unreadable, match="more than 10 directories"):
        count_directories(tmp_path)


@given(st.lists(st.sampled_from(["a", "b", "a/c", "a/c/d", "b/e", "f/g/h"]), unique=True))
def test_every_directory_counts_once(tmp_path_factory: pytest.TempPathFactory, names: list[str]) -> None:
    top = tmp_path_factory.mktemp("tree")
    for name in names:
        (top / name).mkdir(parents=True, exist_ok=True)
    (top / "file").write_text("")
    (top / "link").symlink_to(top)

    assert count_directories(top) == 1 + sum(1 for path in top.rglob("*") if path.is_dir() and not path.is_symlink())
