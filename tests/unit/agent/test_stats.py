"""From readings to what an interval saw: rates, restarts that never count backwards, and nothing kept of the dead."""

from __future__ import annotations

from pathlib import Path

import pytest

from sexton.agent.stats import MIB, MOST_SAMPLES, CgroupStats, Subject


def v1(mount: Path, name: str, cpu_ns: int, usage: int, cache: int) -> None:
    for folder, files in {
        "cpuacct": {"cpuacct.usage": cpu_ns},
        "memory": {
            "memory.usage_in_bytes": usage,
            "memory.stat": f"cache 1\ntotal_cache {cache}\n",
            "cgroup.procs": 77,
        },
    }.items():
        _write(mount / folder / name, files)


def v2(mount: Path, name: str, cpu_ns: int, usage: int, cache: int) -> None:
    (mount / "cgroup.controllers").touch()
    stat = f"anon 5\ninactive_file {cache}\n"
    _write(
        mount / name,
        {"cpu.stat": f"usage_usec {cpu_ns // 1000}\n", "memory.current": usage, "memory.stat": stat, "cgroup.procs": 7},
    )


def _write(place: Path, files: dict[str, object]) -> None:
    place.mkdir(parents=True, exist_ok=True)
    for name, value in files.items():
        (place / name).write_text(f"{value}\n")


def sent(proc: Path, received: int, sent: int) -> None:
    line = f" eth0: {received} 1 0 0 0 0 0 0 {sent} 2 0 0 0 0 0 0"
    _write(proc / "77/net", {"dev": f"head\nhead\n{line}"})


@pytest.mark.parametrize("write", [v1, v2])
def test_half_a_core_of_two_and_memory_without_cache(write: object, tmp_path: Path) -> None:
    write(tmp_path, "ecs/t/c", 0, 100 * MIB, 40 * MIB)  # type: ignore[operator]
    stats = CgroupStats(tmp_path, cores=2)
    stats.read([Subject("c", "/ecs/t/c")], 10.0)
    assert stats.take("c") is None  # one reading says nothing yet
    for second in (1, 2):
        write(tmp_path, "ecs/t/c", second * 5_000_000_000, 100 * MIB, 40 * MIB)  # type: ignore[operator]
        stats.read([Subject("c", "/ecs/t/c")], 10.0 + 10 * second)
    taken = stats.take("c")
    assert taken is not None
    assert (taken.cpu.min, taken.cpu.max, taken.cpu.sample_count, taken.cpu.sum) == (25.0, 25.0, 2, 50.0)
    # The first reading says how much memory there is, though nothing of CPU.
    assert (taken.memory.max, taken.memory.sample_count) == (60, 3)
    assert taken.network is None
    assert stats.take("c") is None


def test_network_as_counters_and_as_rates(tmp_path: Path) -> None:
    stats = CgroupStats(tmp_path, cores=1, proc=tmp_path / "proc")
    v1(tmp_path, "a", 1, MIB, 0)
    for second in range(3):
        sent(tmp_path / "proc", 1000 * second, 500 * second)
        stats.read([Subject("a", "a", network=True)], 10.0 * second)
    taken = stats.take("a")
    assert taken is not None and taken.network is not None
    assert taken.network.rx_bytes_per_second is not None and taken.network.rx_bytes_per_second.max == 100.0
    assert taken.network.tx_bytes is not None and taken.network.tx_bytes.max == 1000


def test_container_that_ended_is_forgotten(tmp_path: Path) -> None:
    v1(tmp_path, "a", 1, MIB, 0)
    stats = CgroupStats(tmp_path, cores=1)
    for second in range(3):
        stats.read([Subject("a", "a"), Subject("gone", "nowhere")], float(second))
    stats.read([], 4.0)
    assert stats.take("a") is None and stats.latest("a") is None and not stats._tracks


def test_counters_of_a_container_that_was_started_again_go_on(tmp_path: Path) -> None:
    """Its cgroup is a new one and counts from nothing; what is told of it must never go back."""
    stats = CgroupStats(tmp_path, cores=1)
    told = []
    for second, used in enumerate((4_000_000_000, 5_000_000_000, 1_000_000_000, 2_000_000_000)):
        v1(tmp_path, "a", used, MIB, 0)
        stats.read([Subject("a", "a")], float(second))
        latest = stats.latest("a")
        assert latest is not None
        told.append(latest.cpu_ns // 1_000_000_000)
    assert told == [4, 5, 6, 7]
    taken = stats.take("a")
    assert taken is not None and (taken.cpu.min, taken.cpu.max) == (100.0, 100.0)


def test_unreadable_file_gives_no_sample(tmp_path: Path) -> None:
    v1(tmp_path, "a", 1, MIB, 0)
    (tmp_path / "memory/a/memory.usage_in_bytes").write_text("much\n")
    stats = CgroupStats(tmp_path, cores=1)
    for second in range(3):
        stats.read([Subject("a", "a")], float(second))
    assert stats.take("a") is None


def test_samples_that_nobody_takes_do_not_pile_up(tmp_path: Path) -> None:
    v1(tmp_path, "a", 1, MIB, 0)
    stats = CgroupStats(tmp_path, cores=1)
    for second in range(10 * MOST_SAMPLES):
        stats.read([Subject("a", "a")], float(second))
    taken = stats.take("a")
    assert taken is not None and taken.memory.sample_count == MOST_SAMPLES
