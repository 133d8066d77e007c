"""A task's own cgroup: its limits, what still runs in it, and that nobody else's is touched."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sexton.host.taskcgroup import Limits, Remains, TaskCgroups
from sexton.host.taskslice import TaskSlices

HIERARCHIES = ("cpu", "cpu,cpuacct", "memory", "pids", "systemd")


class Tree(TaskCgroups):
    """Directories that stand for cgroups; what a kernel would refuse is not refused."""

    def __init__(self, root: Path) -> None:
        self.mount = root / "cgroup"
        self.proc = root / "proc"
        super().__init__(self.mount, self.proc)

    def process(self, place: str, pid: int, name: str) -> None:
        where = self.mount / place
        where.mkdir(parents=True, exist_ok=True)
        with (where / "cgroup.procs").open("a") as file:
            file.write(f"{pid}\n")
        (self.proc / str(pid)).mkdir(parents=True, exist_ok=True)
        (self.proc / str(pid) / "comm").write_text(f"{name}\n")


@pytest.fixture
def v1(tmp_path: Path) -> Tree:
    for name in HIERARCHIES[1:]:
        (tmp_path / "cgroup" / name).mkdir(parents=True)
        (tmp_path / "cgroup" / name / "cgroup.procs").touch()
    (tmp_path / "cgroup/cpu").symlink_to("cpu,cpuacct")
    return Tree(tmp_path)


@pytest.fixture
def v2(tmp_path: Path) -> Tree:
    (tmp_path / "cgroup").mkdir()
    for name in ("cgroup.controllers", "cgroup.procs"):
        (tmp_path / "cgroup" / name).touch()
    return Tree(tmp_path)


async def test_limits_are_set_before_anybody_runs(v1: Tree) -> None:
    await v1.prepare("t", Limits(cpu_quota=1.5, memory=64 << 20))
    cpu, memory = v1.mount / "cpu/ecs/t", v1.mount / "memory/ecs/t"
    assert (cpu / "cpu.cfs_period_us").read_text() == "100000"
    assert (cpu / "cpu.cfs_quota_us").read_text() == "150000"
    assert (memory / "memory.limit_in_bytes").read_text() == str(64 << 20)
    await v1.prepare("u", Limits(cpu_shares=512))
    assert (v1.mount / "cpu/ecs/u/cpu.shares").read_text() == "512"


async def test_limits_on_v2(v2: Tree) -> None:
    await v2.prepare("t", Limits(cpu_quota=0.25, memory=1 << 20))
    assert (v2.mount / "ecs/t/cpu.max").read_text() == "25000 100000"
    assert (v2.mount / "ecs/t/memory.max").read_text() == str(1 << 20)
    assert (v2.mount / "ecs/cgroup.subtree_control").read_text() == "+cpu +memory +pids"


async def test_asking_whether_limits_work_leaves_nothing(v1: Tree) -> None:
    assert await v1.writable()
    assert not (v1.mount / "memory/ecs").exists()


async def test_asking_where_tasks_are_already(v1: Tree) -> None:
    await v1.prepare("t", Limits(memory=1))
    assert await v1.writable() and (v1.mount / "memory/ecs/t").is_dir()


@pytest.mark.parametrize("version", ["v1", "v2"])
async def test_what_a_start_that_nobody_saw_the_end_of_has_left(version: str, request: pytest.FixtureRequest) -> None:
    tree: Tree = request.getfixturevalue(version)
    top = "memory/" if version == "v1" else ""
    await tree.prepare("t", Limits(memory=1))
    assert tree.remains("t", "c") is Remains.NONE
    tree.process(f"{top}ecs/t/c", 101, "runc:[2:INIT]")
    assert tree.remains("t", "c") is Remains.WAITING
    tree.process(f"{top}ecs/t/c/inner", 103, "sh")
    assert tree.remains("t", "c") is Remains.RUNNING
    (tree.mount / top / "ecs/t/c/cgroup.procs").write_text("")
    (tree.mount / top / "ecs/t/c/inner/cgroup.procs").write_text("")
    assert tree.remains("t", "c") is Remains.ENDED


def test_process_that_has_just_ended_may_have_run(v1: Tree) -> None:
    v1.process("memory/ecs/t/c", 101, "runc:[2:INIT]")
    (v1.proc / "101/comm").unlink()
    assert v1.remains("t", "c") is Remains.RUNNING


async def test_where_there_are_no_cgroups_the_engine_is_believed(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    assert tree.remains("t", "c") is Remains.NONE and not await tree.writable()


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "60"])
    yield process
    process.kill()
    process.wait()


def test_only_what_is_in_the_tasks_own_cgroup_is_killed(v1: Tree, sleeper: subprocess.Popen[bytes]) -> None:
    v1.process("memory/ecs/other/c", sleeper.pid, "sleep")
    assert v1.kill("t") == 0 and sleeper.poll() is None
    v1.process("pids/ecs/t/c", sleeper.pid, "sleep")
    assert v1.kill("t", "d") == 0 and sleeper.poll() is None
    assert v1.kill("t", "c") == 1
    assert sleeper.wait(5.0) == -9
    assert v1.kill("t") == 1  # gone meanwhile, which is what was wanted


async def test_own_empty_parent_goes_and_anothers_directory_stays(v1: Tree) -> None:
    await v1.prepare("t", Limits(memory=1))
    other = v1.mount / "pids/ecs/somebody"
    other.mkdir(parents=True)
    (v1.mount / "memory/ecs/t/memory.limit_in_bytes").unlink()
    (v1.mount / "memory/ecs/t").rmdir()
    await v1.remove_parent()
    assert other.is_dir() and not (v1.mount / "memory/ecs").exists()


# From here on with the machine's own cgroups.

MEMORY = Path("/sys/fs/cgroup/memory")


@pytest.fixture
def real() -> Iterator[TaskCgroups]:
    there = set(MEMORY.parent.glob("*/ecs"))
    yield TaskCgroups(MEMORY.parent)
    for parent in set(MEMORY.parent.glob("*/ecs")) - there:
        parent.rmdir()


async def test_task_directory_with_cache_of_a_dead_child_goes_and_the_file_stays(
    real: TaskCgroups, tmp_path: Path
) -> None:
    task = f"sexton-test-{time.time_ns():x}"
    await real.prepare(task, Limits(memory=256 << 20))
    inner = MEMORY / "ecs" / task / "c"
    inner.mkdir()
    file = tmp_path / "written"
    script = f"echo $$ > {inner}/cgroup.procs; head -c 8388608 /dev/urandom > {file}"
    subprocess.run(["sh", "-c", script], check=True)
    expected = file.read_bytes()
    inner.rmdir()
    assert _bytes(MEMORY / "ecs" / task) > 4 << 20  # the dead child's cache, which would keep it a zombie
    before = _bytes(MEMORY)
    assert await real.reclaim(task)
    assert not list(MEMORY.parent.glob(f"*/ecs/{task}"))
    assert _bytes(MEMORY) < before + (64 << 20)
    assert file.read_bytes() == expected


async def test_task_directory_in_use_is_left_and_said(real: TaskCgroups, sleeper: subprocess.Popen[bytes]) -> None:
    task = f"sexton-test-{time.time_ns():x}"
    await real.prepare(task, Limits())
    (MEMORY / "ecs" / task / "cgroup.procs").write_text(str(sleeper.pid))
    began = time.monotonic()
    assert not await real.reclaim(task)
    assert time.monotonic() - began < 8.0
    assert real.kill(task) == 1
    sleeper.wait(5.0)
    assert await real.reclaim(task)


def _bytes(place: Path) -> int:
    return int((place / "memory.usage_in_bytes").read_text())


def test_directories_beside_those_of_tasks_are_found_by_their_names(v2: Tree) -> None:
    for name in ("sandboxaa11", "sandboxbb22", "t"):
        (v2.mount / "ecs" / name).mkdir(parents=True)
    assert v2.named("sandboxaa") == {"sandboxaa11"}


def test_slices_are_found_by_their_names(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").touch()
    slices = TaskSlices(tmp_path)
    for name in ("sandboxaa11", "t"):
        (tmp_path / slices.group(name).lstrip("/")).mkdir(parents=True)
    assert slices.named("sandbox") == {"sandboxaa11"}
