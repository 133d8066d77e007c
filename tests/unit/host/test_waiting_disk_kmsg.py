"""Readers of pressure, disks and the kernel's log on trees of files: whole, odd, damaged, and with nothing there."""

from __future__ import annotations

from pathlib import Path

import pytest

from sexton.host.disk import engine_use, volumes
from sexton.host.errors import Absent, Unreadable
from sexton.host.kmsg import oom_kills, oom_kills_since_boot, parse
from sexton.host.waiting import Waiting, pressure, waits_most
from sexton.host.waiting import parse as parse_pressure

PSI = """some avg10=0.78 avg60=2.03 avg300=5.77 total=90407828
full avg10=0.10 avg60=1.50 avg300=0.25 total=17
"""
OOM = (
    "6,1234,5678901,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,"
    "oom_memcg=/docker/abc,task_memcg=/docker/abc/inner,task=pyt,pid=hon,pid=42,uid=0"
)


def test_pressure_is_read_with_and_without_full(tmp_path: Path) -> None:
    assert parse_pressure(PSI) == Waiting(2.03, 1.5, 5.77, 0.25)
    assert parse_pressure("some avg10=0.00 avg60=oops total=1\n") == Waiting()
    (tmp_path / "proc/pressure").mkdir(parents=True)
    for name in ("cpu", "memory", "io"):
        (tmp_path / "proc/pressure" / name).write_text(PSI)

    assert pressure(tmp_path).memory.full == 1.5
    (tmp_path / "proc/pressure/io").unlink()
    with pytest.raises(Absent):
        pressure(tmp_path)


def test_of_groups_that_wait_the_deepest_is_told(tmp_path: Path) -> None:
    deep = tmp_path / "system.slice/db.service"
    deep.mkdir(parents=True)
    (tmp_path / "quiet").mkdir()
    for folder, full in ((tmp_path / "system.slice", 50), (deep, 50), (tmp_path / "quiet", 0)):
        (folder / "memory.pressure").write_text(f"full avg10=0 avg60={full}.00 avg300=0 total=1\n")

    told = waits_most(tmp_path, "memory")

    assert told is not None
    assert (told[0], told[1].full) == ("/system.slice/db.service", 50.0)
    assert waits_most(tmp_path / "quiet", "memory") is None


def test_only_local_file_systems_that_can_be_written_are_asked_once_each(tmp_path: Path) -> None:
    (tmp_path / "proc/1").mkdir(parents=True)
    (tmp_path / "data disk").mkdir()
    (tmp_path / "proc/1/mounts").write_text(
        "/dev/sda1 / ext4 rw,relatime 0 0\n"
        "/dev/sda1 /data\\040disk ext4 rw 0 0\n"
        "server:/x /nfs nfs4 rw 0 0\n"
        "/dev/sdb /gone xfs rw 0 0\n"
        "tmpfs /run tmpfs rw 0 0\n"
        "/dev/loop0 /snap squashfs ro 0 0\n"
    )

    (seen,) = volumes(tmp_path)

    assert (seen.mount, seen.device) == ("/", "/dev/sda1")
    assert 0 <= seen.used <= 1
    assert seen.free <= seen.size


def test_an_engines_use_is_summed_up_by_kind(tmp_path: Path) -> None:
    home = tmp_path / "var/lib/docker"
    (home / "containers/abc").mkdir(parents=True)
    (home / "containers/abc/abc-json.log").write_bytes(b"x" * 100_000)
    (home / "overlay2/l/merged").mkdir(parents=True)
    (home / "overlay2/l/merged/seen-twice").write_bytes(b"x" * 1_000_000)

    used = engine_use(tmp_path, "/var/lib/docker")

    assert [use.what for use in used] == ["container logs", "images and container layers"]
    assert used[0].size >= 100_000
    assert used[1].size == 0
    assert all(use.whole for use in used)


def test_a_kill_is_read_from_the_kernels_fields_and_nothing_else() -> None:
    told = parse(OOM)

    assert told is not None
    assert (told.at, told.pid, told.name, told.group, told.limit) == (
        5.678901,
        42,
        "pyt,pid=hon",
        "/docker/abc/inner",
        "/docker/abc",
    )
    assert parse("6,1,2,-;Out of memory: Killed process 42 (python)") is None
    assert parse("6,1,2,-;oom-kill:constraint=torn") is None
    host = parse(
        "6,1,2000000,-;oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),global_oom,task_memcg=/,task=x,pid=3,uid=0"
    )
    assert host is not None
    assert (host.limit, host.group, host.pid) == ("", "/", 3)


def test_the_counter_and_the_log_fail_apart(tmp_path: Path) -> None:
    with pytest.raises(Absent):
        oom_kills_since_boot(tmp_path)
    with pytest.raises(Unreadable):
        oom_kills(tmp_path)
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/vmstat").write_text("nr_free_pages 1\noom_kill 3\n")
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/kmsg").write_text(f"{OOM}\n SUBSYSTEM=x\n6,9,9,-;other\n")

    assert oom_kills_since_boot(tmp_path) == 3
    assert [told.pid for told in oom_kills(tmp_path)] == [42]
    (tmp_path / "proc/vmstat").write_text("nr_free_pages 1\n")
    with pytest.raises(Absent):
        oom_kills_since_boot(tmp_path)
