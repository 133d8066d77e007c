"""A container's counters from fixture trees of both cgroup versions, and from what is half there or gone."""

from __future__ import annotations

from pathlib import Path

import pytest

from sexton.host.container_counters import ContainerCounters, Counters, Network, Throttling, parse_interfaces

NET_DEV = """Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier
    lo: 900 9 0 0 0 0 0 0 900 9 0 0 0 0 0 0
  eth0: 100 10 1 2 0 0 0 0 200 20 3 4 0 0 0 0
  eth1:1000 1 0 0 0 0 0 0 2000 2 0 0 0 0 0 0
"""


def write(place: Path, **files: object) -> None:
    place.mkdir(parents=True, exist_ok=True)
    for name, value in files.items():
        (place / name.replace("__", ".")).write_text(f"{value}\n")


def v1(root: Path, name: str = "ecs/t/c") -> Path:
    mount = root / "cgroup"
    write(mount / "cpuacct" / name, cpuacct__usage=5_000)
    write(mount / "cpu" / name, cpu__stat="nr_periods 10\nnr_throttled 3\nthrottled_time 400")
    write(
        mount / "memory" / name,
        memory__usage_in_bytes=1000,
        memory__stat="cache 1\ntotal_cache 300\ntotal_shmem 50",
        memory__oom_control="oom_kill_disable 0\nunder_oom 0\noom_kill 2",
        cgroup__procs="77\n78",
    )
    io = "8:0 Read 10\n8:0 Write 20\n8:0 Total 30\n8:16 Read 1\n8:16 Write 2\nTotal 33"
    (mount / "blkio" / name).mkdir(parents=True)
    (mount / "blkio" / name / "blkio.throttle.io_service_bytes_recursive").write_text(io)
    return mount


def v2(root: Path, name: str = "ecs/t/c") -> Path:
    mount = root / "cgroup"
    mount.mkdir(parents=True, exist_ok=True)
    (mount / "cgroup.controllers").touch()
    write(
        mount / name,
        cpu__stat="usage_usec 5\nnr_periods 10\nnr_throttled 3\nthrottled_usec 4",
        memory__current=1000,
        memory__stat="anon 5\ninactive_file 300\nfile 350\nshmem 150\nslab_reclaimable 50",
        memory__events="low 0\noom 3\noom_kill 2",
        io__stat="8:0 rbytes=10 wbytes=20 rios=1 wios=1\n8:16 rbytes=1 wbytes=2",
        cgroup__procs="77\n78",
    )
    return mount


def proc(root: Path) -> Path:
    write(root / "proc/77/net", dev=NET_DEV)
    return root / "proc"


@pytest.mark.parametrize(("tree", "throttled"), [(v1, 400), (v2, 4000)])
def test_everything_of_one_container(tmp_path, tree, throttled):
    reader = ContainerCounters(tree(tmp_path), proc(tmp_path))
    network = Network(1100, 11, 1, 2, 2200, 22, 3, 4)

    assert reader.read("/ecs/t/c", network=True) == Counters(5_000, 700, 11, 22, 2, network, 750)
    assert reader.read("/ecs/t/c", network=False).network is None
    assert reader.throttling("/ecs/t/c") == Throttling(10, 3, throttled)


def test_time_in_which_a_group_waited_is_told_by_v2_alone(tmp_path):
    mount = v2(tmp_path / "two")
    place = mount / "ecs/t/c"
    line = "avg10=0.00 avg60=1.00 avg300=0.00 total"
    (place / "cpu.pressure").write_text(f"some {line}=2500000\nfull {line}=1\n")
    (place / "memory.pressure").write_text("some what\n")

    assert ContainerCounters(mount).stalled("/ecs/t/c") == {"cpu": 2.5}
    assert ContainerCounters(mount).stalled("/ecs/t/other") == {}
    assert ContainerCounters(v1(tmp_path / "one")).stalled("/ecs/t/c") == {}


@pytest.mark.parametrize("tree", [v1, v2])
def test_what_is_gone_has_no_counters(tmp_path, tree):
    reader = ContainerCounters(tree(tmp_path), proc(tmp_path))

    assert reader.read("/ecs/t/other", network=True) is None
    assert reader.throttling("/ecs/t/other") is None


def test_what_this_kernel_does_not_have_is_left_out(tmp_path):
    mount = v1(tmp_path)
    (mount / "memory/ecs/t/c/memory.oom_control").unlink()
    (mount / "blkio/ecs/t/c/blkio.throttle.io_service_bytes_recursive").unlink()
    (mount / "memory/ecs/t/c/cgroup.procs").write_text("")

    assert ContainerCounters(mount, proc(tmp_path)).read("ecs/t/c", network=True) == Counters(5_000, 700, held=750)


def test_a_file_that_is_no_number_gives_no_counters(tmp_path):
    mount = v2(tmp_path)
    (mount / "ecs/t/c/memory.current").write_text("much\n")

    assert ContainerCounters(mount, proc(tmp_path)).read("ecs/t/c", network=False) is None


def test_interfaces_that_are_cut_short_are_left_out():
    assert parse_interfaces(b"a\nb\n eth0: 1 2 3\n") == Network()
