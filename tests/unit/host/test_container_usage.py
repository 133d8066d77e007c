"""A container's counters in the shape of the engine's statistics, on both kinds of hierarchy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sexton.core import dockerstats
from sexton.host.container_usage import ContainerUsage

MIB = 1 << 20


def put(place: Path, files: dict[str, object]) -> None:
    place.mkdir(parents=True, exist_ok=True)
    for name, value in files.items():
        (place / name).write_text(f"{value}\n")


def proc(root: Path, host_ticks: int, received: int) -> None:
    put(root / "proc", {"stat": f"cpu  {host_ticks} 0 0 0 0 0 0 99 5 0\ncpu0 1 0\ncpu1 1 0\nintr 5"})
    lines = f"head\nhead\n    lo: 9 9 9 9 0 0 0 0 9 9 9 9 0 0 0 0\n  eth0: {received} 2 3 4 0 0 0 0 50 6 7 8 0 0 0 0"
    put(root / "proc/77/net", {"dev": lines})


def v1(root: Path, cpu_ns: int) -> None:
    put(
        root / "cpuacct/ecs/t/c",
        {"cpuacct.usage": cpu_ns, "cpuacct.stat": "user 3\nsystem 2", "cpuacct.usage_percpu": f"{cpu_ns} 0"},
    )
    put(root / "cpu/ecs/t/c", {"cpu.stat": "nr_periods 10\nnr_throttled 4\nthrottled_time 500"})
    put(
        root / "memory/ecs/t/c",
        {
            "memory.usage_in_bytes": 3 * MIB,
            "memory.max_usage_in_bytes": 5 * MIB,
            "memory.limit_in_bytes": 16 * MIB,
            "memory.failcnt": 2,
            "memory.stat": "cache 4096\ntotal_cache 8192",
            "cgroup.procs": "77\n78",
        },
    )
    put(root / "pids/ecs/t/c", {"pids.current": 3, "pids.max": "max"})
    blocks = "8:0 Read 100\n8:0 Write 200\n8:0 Total 300\nTotal 300"
    put(root / "blkio/ecs/t/c", {"blkio.throttle.io_service_bytes_recursive": blocks})


def v2(root: Path, cpu_ns: int) -> None:
    (root / "cgroup.controllers").touch()
    times = f"usage_usec {cpu_ns // 1000}\nuser_usec 7\nsystem_usec 8\nnr_periods 10\nnr_throttled 4\nthrottled_usec 5"
    put(
        root / "ecs/t/c",
        {
            "cpu.stat": times,
            "memory.current": 3 * MIB,
            "memory.max": "max",
            "memory.stat": "anon 5\nfile 6",
            "memory.events": "low 0\nmax 2\noom 0",
            "io.stat": "8:0 rbytes=100 wbytes=200 rios=3 wios=4 dbytes=0",
            "pids.current": 3,
            "pids.max": 64,
            "cgroup.procs": "77",
        },
    )


def pair(root: Path, write: Any) -> tuple[dockerstats.Reading, dockerstats.Reading]:
    proc(root, 1000, 1000)
    write(root, 1_000_000)
    usage = ContainerUsage(root, root / "proc")
    before = usage.read("/ecs/t/c", at=1_700_000_000.25, clock=10.0, network=True)
    proc(root, 1100, 3000)
    write(root, 5_000_000)
    now = usage.read("/ecs/t/c", at=1_700_000_002.0, clock=12.0, network=True)
    assert now is not None and before is not None
    return now, before


def test_version_1(tmp_path: Path) -> None:
    now, before = pair(tmp_path, v1)
    body = dockerstats.shape(now, before, name="ecs-web", container="c" * 64)
    assert body["read"] == "2023-11-14T22:13:22.000000Z" and body["preread"] == "2023-11-14T22:13:20.250000Z"
    assert body["cpu_stats"] == {
        "cpu_usage": {
            "total_usage": 5_000_000,
            "percpu_usage": [5_000_000, 0],
            "usage_in_kernelmode": 20_000_000,
            "usage_in_usermode": 30_000_000,
        },
        "system_cpu_usage": 11_000_000_000,
        "online_cpus": 2,
        "throttling_data": {"periods": 10, "throttled_periods": 4, "throttled_time": 500},
    }
    assert body["precpu_stats"]["cpu_usage"]["total_usage"] == 1_000_000
    assert body["memory_stats"] == {
        "usage": 3 * MIB,
        "max_usage": 5 * MIB,
        "stats": {"cache": 4096, "total_cache": 8192},
        "failcnt": 2,
        "limit": 16 * MIB,
    }
    assert body["pids_stats"] == {"current": 3}
    assert body["blkio_stats"]["io_service_bytes_recursive"][1] == {"major": 8, "minor": 0, "op": "Write", "value": 200}
    assert body["blkio_stats"]["io_queue_recursive"] == [] == body["blkio_stats"]["io_serviced_recursive"]
    assert body["networks"].keys() == {"eth0"} and body["networks"]["eth0"]["tx_dropped"] == 8
    assert (body["name"], body["id"]) == ("/ecs-web", "c" * 64)


def test_version_2(tmp_path: Path) -> None:
    now, before = pair(tmp_path, v2)
    body = dockerstats.shape(now, before, name="ecs-web", container="c")
    assert body["cpu_stats"]["cpu_usage"] == {
        "total_usage": 5_000_000,
        "usage_in_kernelmode": 8000,
        "usage_in_usermode": 7000,
    }
    assert body["cpu_stats"]["throttling_data"]["throttled_time"] == 5000
    memory = body["memory_stats"]
    assert memory.keys() == {"usage", "stats", "failcnt", "limit"} and memory["stats"] == {"anon": 5, "file": 6}
    assert memory["limit"] > MIB  # the host's, where there is none
    assert body["pids_stats"] == {"current": 3, "limit": 64}
    assert body["blkio_stats"]["io_service_bytes_recursive"] == [
        {"major": 8, "minor": 0, "op": "read", "value": 100},
        {"major": 8, "minor": 0, "op": "write", "value": 200},
    ]
    assert body["blkio_stats"]["io_serviced_recursive"][0]["value"] == 3
    assert body["blkio_stats"]["io_queue_recursive"] is None


def test_rates_need_two_readings_and_a_network(tmp_path: Path) -> None:
    now, before = pair(tmp_path, v2)
    assert dockerstats.rates(now, before) == {"rx_bytes_per_sec": 1000.0, "tx_bytes_per_sec": 0.0}
    assert dockerstats.rates(now, None) is None
    assert dockerstats.rates(now._replace(networks=None), before) is None
    assert dockerstats.rates(before, before) is None
    assert dockerstats.rates(before._replace(clock=20.0), now) == {"rx_bytes_per_sec": 0.0, "tx_bytes_per_sec": 0.0}


def test_without_an_earlier_reading_there_are_zeros(tmp_path: Path) -> None:
    now, _ = pair(tmp_path, v1)
    body = dockerstats.shape(now._replace(networks=None), None, name="n", container="c")
    assert body["preread"] == "0001-01-01T00:00:00Z" and body["precpu_stats"]["cpu_usage"]["total_usage"] == 0
    assert "system_cpu_usage" not in body["precpu_stats"] and "networks" not in body


@pytest.mark.parametrize("write", [v1, v2])
def test_one_that_has_ended_has_none(tmp_path: Path, write: Any) -> None:
    usage = ContainerUsage(tmp_path, tmp_path / "proc")
    assert usage.read("/ecs/t/c", at=1.0, clock=1.0, network=False) is None
    write(tmp_path, 1000)
    there = ContainerUsage(tmp_path, tmp_path / "proc").read("/ecs/t/c", at=1.0, clock=1.0, network=True)
    assert there is not None and there.networks is None  # its process is gone already
