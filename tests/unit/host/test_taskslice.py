"""Task slices: what systemd is told, where their cgroups are, and what becomes of a systemd that does not answer.

How a real one takes it is shown in ``tests/integration/test_task_slices.py``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sexton.host import taskslice
from sexton.host.taskcgroup import Limits, Remains
from sexton.host.taskslice import TaskSlices, _RefusedError


class Slices(TaskSlices):
    """On directories, with a systemd that a test scripts."""

    def __init__(self, root: Path, first: str = "/init.scope", controllers: str = "1:name=systemd") -> None:
        (root / "proc/1").mkdir(parents=True)
        (root / "proc/1/cgroup").write_text(f"{controllers}:{first}\n")
        self.asked: list[tuple[str, Any]] = []
        self.answers: dict[str, Exception] = {}
        super().__init__(root / "cgroup", root / "proc", root)

    async def _ask(self, member: str, signature: str, body: list[Any]) -> Any:
        self.asked.append((member, body))
        if member in self.answers:
            raise self.answers.pop(member)


@pytest.fixture
def slices(tmp_path: Path) -> Slices:
    (tmp_path / "cgroup").mkdir()
    for name in ("cgroup.controllers", "cgroup.procs"):
        (tmp_path / "cgroup" / name).touch()
    return Slices(tmp_path, controllers="0:")


def told(properties: list[list[Any]]) -> dict[str, Any]:
    return {name: value.value for name, value in properties}


async def test_a_slice_is_started_with_its_limits(slices: Slices) -> None:
    await slices.prepare("7", Limits(cpu_quota=1.5, memory=64, pids=9, cpu_period=0.05))
    ((member, (name, mode, properties, others)),) = slices.asked
    assert (member, name, mode, others) == ("StartTransientUnit", "ecstasks-7.slice", "replace", [])
    wanted = {"CPUQuotaPerSecUSec": 1_500_000, "CPUQuotaPeriodUSec": 50_000, "MemoryMax": 64, "TasksMax": 9}
    assert told(properties).items() >= wanted.items()


async def test_shares_become_a_weight_and_nothing_is_said_of_what_is_open(slices: Slices) -> None:
    await slices.prepare("7", Limits(cpu_shares=1024))
    properties = told(slices.asked[0][1][2])
    assert properties["CPUWeight"] == 39
    assert not {"CPUQuotaPerSecUSec", "MemoryMax", "TasksMax"} & set(properties)


async def test_one_that_is_there_gets_the_limits_again(slices: Slices) -> None:
    slices.answers["StartTransientUnit"] = _RefusedError(taskslice._EXISTS, "exists")
    await slices.prepare("7", Limits(memory=64))
    member, (name, _, properties) = slices.asked[1]
    assert (member, name, told(properties)["MemoryMax"]) == ("SetUnitProperties", "ecstasks-7.slice", 64)


async def test_a_refusal_is_the_tasks_reason(slices: Slices) -> None:
    slices.answers["StartTransientUnit"] = _RefusedError("org.freedesktop.DBus.Error.AccessDenied", "not for you")
    with pytest.raises(OSError, match="systemd does not do it: not for you"):
        await slices.prepare("7", Limits())


def test_names_are_amazons_and_scopes_are_the_engines(slices: Slices) -> None:
    assert slices.parent("7") == "ecstasks-7.slice"
    assert slices.container_group("7", "c") == "/ecstasks.slice/ecstasks-7.slice/docker-c.scope"


@pytest.mark.parametrize(
    ("first", "home"), [("/", ""), ("/init.scope", ""), ("/guest/init.scope", "/guest"), ("/lxc/7", "/lxc/7")]
)
def test_a_systemd_in_a_container_has_its_slices_below_its_own_group(tmp_path: Path, first: str, home: str) -> None:
    slices = Slices(tmp_path, first)
    assert slices.group("7") == f"{home}/ecstasks.slice/ecstasks-7.slice"


async def test_what_runs_is_never_stopped_with_its_slice(slices: Slices, tmp_path: Path) -> None:
    scope = tmp_path / "cgroup/ecstasks.slice/ecstasks-7.slice/docker-c.scope"
    scope.mkdir(parents=True)
    (scope / "cgroup.procs").write_text("4000000\n")
    assert slices.remains("7", "c") is Remains.RUNNING and not slices.empty("7", "c")
    assert not await slices._remove("7")
    assert slices.asked == []


async def test_a_slice_that_systemd_forgot_is_removed_all_the_same(slices: Slices, tmp_path: Path) -> None:
    (tmp_path / "cgroup/ecstasks.slice/ecstasks-7.slice").mkdir(parents=True)
    slices.answers["StopUnit"] = _RefusedError(taskslice._UNKNOWN, "not loaded")
    assert await slices._remove("7")
    assert not (tmp_path / "cgroup/ecstasks.slice/ecstasks-7.slice").exists()
    assert await slices._remove("7") and len(slices.asked) == 1


async def test_the_common_slice_of_others_is_left(slices: Slices, tmp_path: Path) -> None:
    (tmp_path / "cgroup/ecstasks.slice/ecstasks-other.slice").mkdir(parents=True)
    await slices.remove_parent()
    assert slices.asked == []
    (tmp_path / "cgroup/ecstasks.slice/ecstasks-other.slice").rmdir()
    await slices.remove_parent()
    assert slices.asked[0] == ("StopUnit", ["ecstasks.slice", "replace"])
    assert not (tmp_path / "cgroup/ecstasks.slice").exists()


async def test_without_systemd_no_limit_is_promised(tmp_path: Path) -> None:
    (tmp_path / "cgroup").mkdir()
    assert not await TaskSlices(tmp_path / "cgroup", tmp_path / "proc", tmp_path).writable()
