"""CPU and memory of containers from cgroup files, v1 and v2, without remembering the dead."""

from __future__ import annotations

from pathlib import Path

import pytest

from sexton.agent.stats import MIB, CgroupStats


def v1(mount: Path, name: str, cpu_ns: int, usage: int, cache: int) -> None:
    for folder, files in {
        "cpuacct": {"cpuacct.usage": cpu_ns},
        "memory": {"memory.usage_in_bytes": usage, "memory.stat": f"cache 1\ntotal_cache {cache}\n"},
    }.items():
        _write(mount / folder / name, files)


def v2(mount: Path, name: str, cpu_ns: int, usage: int, cache: int) -> None:
    (mount / "cgroup.controllers").touch()
    stat = f"anon 5\ninactive_file {cache}\n"
    _write(
        mount / name,
        {"cpu.stat": f"usage_usec {cpu_ns // 1000}\n", "memory.current": usage, "memory.stat": stat},
    )


def _write(place: Path, files: dict[str, object]) -> None:
    place.mkdir(parents=True, exist_ok=True)
    for name, value in files.items():
        (place / name).write_text(f"{value}\n")


@pytest.mark.parametrize("write", [v1, v2])
def test_half_a_core_of_two_and_memory_without_cache(write: object, tmp_path: Path) -> None:
    write(tmp_path, "ecs/t/c", 0, 100 * MIB, 40 * MIB)  # type: ignore[operator]
    stats = CgroupStats(tmp_path, cores=2)
    stats.read([("c", "/ecs/t/c")], 10.0)
    assert stats.take("c") is None  # one reading says nothing yet
    for second in (1, 2):
        write(tmp_path, "ecs/t/c", second * 5_000_000_000, 100 * MIB, 40 * MIB)  # type: ignore[operator]
        stats.read([("c", "/ecs/t/c")], 10.0 + 10 * second)
    taken = stats.take("c")
    assert taken is not None
    cpu, memory = taken
    assert (cpu.least, cpu.most, cpu.samples, cpu.total) == (25.0, 25.0, 2, 50.0)
    assert memory.most == 60
    assert stats.take("c") is None


def test_container_that_ended_is_forgotten(tmp_path: Path) -> None:
    v1(tmp_path, "a", 1, MIB, 0)
    stats = CgroupStats(tmp_path, cores=1)
    for second in range(3):
        stats.read([("a", "a"), ("gone", "nowhere")], float(second))
    stats.read([], 4.0)
    assert stats.take("a") is None and not stats._last and not stats._samples


def test_counter_that_went_back_gives_no_sample(tmp_path: Path) -> None:
    """A container of the same id that was made anew counts from nothing."""
    stats = CgroupStats(tmp_path, cores=1)
    for second, used in enumerate((9_000, 10)):
        v1(tmp_path, "a", used, MIB, 0)
        stats.read([("a", "a")], float(second))
    assert stats.take("a") is None


def test_unreadable_file_gives_no_sample(tmp_path: Path) -> None:
    v1(tmp_path, "a", 1, MIB, 0)
    (tmp_path / "memory/a/memory.usage_in_bytes").write_text("much\n")
    stats = CgroupStats(tmp_path, cores=1)
    for second in range(3):
        stats.read([("a", "a")], float(second))
    assert stats.take("a") is None
