"""The kernel's real trace events of cgroups: loops inside a service, what each turn leaves, and nothing of it stays."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from sexton.care.births import Births
from sexton.care.probe import CouldNotLook, Looked, Scene
from sexton.care.probes import group_churn
from sexton.core.finding import Finding
from sexton.host.cgroup import find_memory
from sexton.host.errors import Unreadable
from sexton.host.tracefs import PREFIX, GroupTrace, Seen, find_tracefs, remove_leftovers
from systemd import FIRST_BOOT_TIMEOUT, Systemd
from watchers import Told, watching
from zombies import Graveyard, graveyard, numbered

DEADLINE = 15.0


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """This host, with tracefs where the caretaker looks for it."""
    root = tmp_path_factory.mktemp("root")
    (root / "proc").symlink_to("/proc")
    (root / "sys/kernel/tracing").mkdir(parents=True)
    (root / "sys/fs").symlink_to("/sys/fs")
    subprocess.run(["mount", "-t", "tracefs", "tracefs", root / "sys/kernel/tracing"], check=True)
    try:
        yield root
        assert instances(root) == []
    finally:
        subprocess.run(["umount", root / "sys/kernel/tracing"], check=True)


def instances(root: Path) -> list[str]:
    return [name for name in os.listdir(find_tracefs(root) / "instances") if name.startswith(PREFIX)]


@pytest.fixture
def yard() -> Iterator[Graveyard]:
    with TemporaryDirectory(dir=Path(__file__).parent) as scratch, graveyard(Path(scratch)) as yard:
        yield yard


def of(told: Told, below: str) -> dict[str, Finding]:
    """What is told of ours: other programs of this host have groups as well."""
    assert isinstance(told.outcomes[-1], Looked), told.outcomes[-1]
    return {found.culprit: found for found in told.findings if below in str(found.evidence)}


def watched(root: Path, keep: Path | None = None) -> AbstractAsyncContextManager[Told]:
    scene = Scene(root=root, docker_host="unix:///nowhere", now=time.time(), uptime=None, keep=keep)
    return watching(group_churn.watch, scene)


def test_a_zombie_is_a_group_that_was_removed_and_not_released(root: Path, yard: Graveyard) -> None:
    with GroupTrace(root) as trace:
        yard.make(["kept"], yard.tmpfs / "pages")
        (yard.top / "gone").mkdir()
        (yard.top / "gone").rmdir()
        seen: dict[str, list[Seen]] = {}
        deadline = time.monotonic() + DEADLINE
        while Seen.RELEASED not in seen.get(f"{yard.path}/gone", []):
            assert time.monotonic() < deadline, seen
            for event in trace.read():
                seen.setdefault(event.path, []).append(event.what)
                if event.path.startswith(yard.path):
                    assert abs(event.at - time.monotonic()) < DEADLINE
            time.sleep(0.05)

    assert seen[f"{yard.path}/kept"] == [Seen.MADE, Seen.REMOVED]
    assert seen[f"{yard.path}/gone"] == [Seen.MADE, Seen.REMOVED, Seen.RELEASED]


@pytest.mark.timeout(60)
async def test_a_loop_inside_a_service_is_found_at_its_third_turn_by_what_it_leaves(
    root: Path, yard: Graveyard, tmp_path: Path
) -> None:
    """What the shipped agent does: the unit stays up, and each turn of its own loop leaves a group behind."""
    service = "system.slice/ecs.service"
    async with watched(root, tmp_path) as told:
        for turn in range(3):
            make = lambda turn=turn: yard.make([f"{service}/run-{turn}"], yard.tmpfs / "pages", first=turn)  # noqa: E731
            await asyncio.to_thread(make)
            await asyncio.sleep(0.2)  # a turn's pace
        await told.until(lambda: "ecs.service" in of(told, yard.path))
        found = of(told, yard.path)["ecs.service"]

    evidence = {item.what: item.value for item in found.evidence}
    assert evidence["shape"].startswith("it loops inside")
    assert evidence["turns"].startswith("3 in a row")
    assert evidence["each turn leaks"] == "3 of 3 turns left a zombie cgroup"
    assert evidence["comes and goes"] == f"{yard.path}/{service}/run-*"
    assert evidence["made by"].startswith("python")
    register = Births(tmp_path)._newer.read_text()
    assert register.count(f"{yard.path}/{service}/run-") == 3


AGENT = """
[Unit]
StartLimitIntervalSec=0
[Service]
Delegate=yes
Restart=on-failure
ExecStart=/bin/sh /run/systemd/system/agent.sh
"""
# Makes a group for each turn, runs something in it that fails and leaves a page behind, removes it, tries again.
AGENT_TURNS = r"""
here=/sys/fs/cgroup/memory$(sed -n 's/^[0-9]*:memory://p' /proc/self/cgroup)
turn=0
while :; do
  turn=$((turn + 1))
  mkdir "$here/run-$turn"
  sh -c "echo \$\$ > $here/run-$turn/cgroup.procs; echo x > /tmp/state-$turn; exit 1"
  rmdir "$here/run-$turn"
  sleep 0.3
done
"""


@pytest.mark.timeout(FIRST_BOOT_TIMEOUT)
async def test_a_real_unit_that_loops_inside_is_named_while_its_restart_counter_stays_zero(
    root: Path, tmp_path: Path
) -> None:
    if find_memory(Path("/")).version != 1:
        pytest.skip("the stand-in makes its groups in the v1 memory hierarchy")
    with Systemd({"ecs.service": AGENT, "agent.sh": AGENT_TURNS}, tmp_path) as systemd:
        async with watched(root) as told:
            await asyncio.to_thread(systemd.systemctl, "start", "--no-block", "ecs.service")
            await told.until(lambda: "ecs.service" in of(told, "/ecs.service/run-"))
            found = of(told, "/ecs.service/run-")["ecs.service"]
            counter = systemd.systemctl("show", "ecs.service", "-p", "NRestarts,ActiveState", "--value").stdout

    assert counter.split() == ["0", "active"] or counter.split() == ["active", "0"]
    evidence = {item.what: item.value for item in found.evidence}
    assert evidence["shape"].startswith("it loops inside")
    # A zombie is told some seconds after its removal, so a loop of three turns a second has gone on meanwhile.
    assert "left a zombie cgroup" in evidence["each turn leaks"]


@pytest.mark.timeout(60)
async def test_work_that_leaves_nothing_is_no_loop(root: Path, yard: Graveyard) -> None:
    async with watched(root) as told:
        for name in numbered("system.slice/runner.service/job-*", 6):
            (yard.top / name).mkdir(parents=True)
            await asyncio.sleep(0.05)
            (yard.top / name).rmdir()
        await asyncio.sleep(group_churn.PACE + 1)  # long enough for what was left to be told

        assert of(told, yard.path) == {}
    assert instances(root) == []


LEAVES = """
import os, sys, signal
from pathlib import Path
from sexton.host.tracefs import GroupTrace
with GroupTrace(Path(sys.argv[1])):
    print("open", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_predecessor_left_is_removed_and_a_neighbours_is_not(root: Path) -> None:
    with GroupTrace(root):
        (neighbour,) = instances(root)
        words = [sys.executable, "-c", LEAVES, str(root)]
        killed = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False)
        assert (killed.returncode, killed.stdout) == (-signal.SIGKILL, "open\n")
        assert len(instances(root)) == 2

        assert remove_leftovers(find_tracefs(root)) == 1

        assert instances(root) == [neighbour]


async def test_without_tracefs_nothing_is_claimed(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cgroups").write_text("memory 4 23 1\n")
    told = Told()

    await group_churn.watch(Scene(root=tmp_path, docker_host="", now=0, uptime=None), told)

    (outcome,) = told.outcomes
    assert isinstance(outcome, CouldNotLook)
    assert "mount -t tracefs" in outcome.next_step


def test_an_ordinary_user_is_told(root: Path) -> None:
    code = "from pathlib import Path; from sexton.host import tracefs; tracefs.find_tracefs(Path('/'))"
    seen = subprocess.run(
        ["setpriv", "--reuid=65534", "--clear-groups", sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
    )

    assert Unreadable.__name__ in seen.stderr
