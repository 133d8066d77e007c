"""What dead groups hold, by arithmetic over fixture trees."""

from __future__ import annotations

from pathlib import Path

from sexton.core.zombie import Ghosts
from sexton.host.cgroup import MemoryHierarchy, Mode
from sexton.host.ghosts import PAGE, find_ghosts


def v1(top: Path) -> MemoryHierarchy:
    return MemoryHierarchy(mode=Mode.LEGACY, version=1, mount=top, tracked=9)


def v2(top: Path) -> MemoryHierarchy:
    return MemoryHierarchy(mode=Mode.UNIFIED, version=2, mount=top, tracked=None)


def group(path: Path, **counters: int) -> None:
    path.mkdir(parents=True, exist_ok=True)
    (path / "memory.stat").write_text("".join(f"{name} {value}\n" for name, value in counters.items()))


def test_v1_subtracts_own_pages_and_live_children(tmp_path: Path) -> None:
    group(tmp_path, inactive_file=PAGE, total_inactive_file=111 * PAGE, total_inactive_anon=7 * PAGE)
    group(tmp_path / "docker", total_inactive_file=110 * PAGE, total_active_file=5 * PAGE, total_inactive_anon=7 * PAGE)
    group(tmp_path / "docker/live", inactive_file=10 * PAGE, total_inactive_file=10 * PAGE)

    assert find_ghosts(v1(tmp_path)) == (Ghosts(path="/docker", file=105, anon=7, unevictable=0, live_file=10),)


def test_v1_without_ghosts_has_none(tmp_path: Path) -> None:
    group(tmp_path, inactive_file=PAGE, total_inactive_file=3 * PAGE)
    group(tmp_path / "a", inactive_file=2 * PAGE, total_inactive_file=2 * PAGE)

    assert find_ghosts(v1(tmp_path)) == ()


def test_v1_counters_that_are_being_updated_give_no_negative_ghosts(tmp_path: Path) -> None:
    group(tmp_path, total_inactive_file=2 * PAGE)
    group(tmp_path / "a", inactive_file=4 * PAGE, total_inactive_file=4 * PAGE)

    assert find_ghosts(v1(tmp_path)) == ()


def test_v2_counts_the_dead_in_each_directory(tmp_path: Path) -> None:
    group(tmp_path, inactive_file=60 * PAGE)
    group(tmp_path / "busy", inactive_file=60 * PAGE)
    group(tmp_path / "busy/live", inactive_file=10 * PAGE)
    group(tmp_path / "leaf", inactive_file=8 * PAGE)
    for name, dead in (("", 9), ("busy", 6), ("busy/live", 0), ("leaf", 3)):
        (tmp_path / name / "cgroup.stat").write_text(f"nr_descendants 4\nnr_dying_descendants {dead}\n")

    assert find_ghosts(v2(tmp_path)) == (
        Ghosts(path="/busy", file=50, anon=0, unevictable=0, live_file=10, zombies=6),
        # Its own pages and those of dead groups below it look the same from here, so no bytes are told.
        Ghosts(path="/leaf", file=0, anon=0, unevictable=0, live_file=8, zombies=3),
    )


def test_a_group_that_goes_meanwhile_is_no_trouble(tmp_path: Path) -> None:
    group(tmp_path, total_inactive_file=PAGE, inactive_file=PAGE)
    (tmp_path / "half-gone").mkdir()

    assert find_ghosts(v1(tmp_path)) == ()
