"""Hundreds of tasks that write to a host volume leave no zombie, no container, no cgroup and every byte they wrote.

A zombie is what an engine leaves when it removes a container's cgroup while page cache still pins it: without the
drain at the end of a task this test counts one per task. Every second task has limits of its own, the others have
none. Nor does the agent grow with the tasks that it has seen. The long form (``SEXTON_SOAK=1``) is a thousand tasks
instead of three hundred.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine import PrivateEngine
from node import Node, until
from sexton.host.cgroup import MemoryHierarchy, census, find_memory

pytestmark = [pytest.mark.docker, pytest.mark.slow]

SOAK = os.environ.get("SEXTON_SOAK") == "1"
TASKS = 1000 if SOAK else 300
AT_ONCE = 10
# What a whole task is held to, or nothing.
KINDS: dict[str, dict[str, str]] = {"open": {}, "limited": {"cpu": "128", "memory": "64"}}
WRITTEN = 256 * 1024
MIB = 1 << 20
# What is remembered of the last 256 tasks, and an allocator's slack, are small; a leak of 50 kB a task would show.
WARM_TURNS, GROWTH = 14, 6 * MIB
ROOT = Path("/")


@pytest.fixture
def volume() -> Iterator[Path]:
    """On a disk: what is written to a RAM disk has nowhere else to go, and pins its cgroup rightly."""
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="sexton-test-") as folder:
        yield Path(folder)


class Bystander:
    """Somebody else's cgroup, with page cache that nobody here has any business with."""

    def __init__(self, hierarchy: MemoryHierarchy, folder: Path) -> None:
        self._place = hierarchy.mount / f"sexton-test-{time.time_ns():x}"
        self._usage = self._place / ("memory.usage_in_bytes" if hierarchy.version == 1 else "memory.current")
        self._place.mkdir()
        file = folder / "bystander"
        script = f"echo $$ > {self._place}/cgroup.procs; head -c 33554432 /dev/zero > {file}"
        subprocess.run(["sh", "-c", script], check=True)

    def usage(self) -> int:
        return int(self._usage.read_text())

    def close(self) -> None:
        subprocess.run(["sync"], check=True)
        empty = self._place / "memory.force_empty"
        if empty.exists():
            empty.write_text("0")
        self._place.rmdir()


@pytest.fixture
def bystander(tmp_path_factory: pytest.TempPathFactory, volume: Path) -> Iterator[Bystander]:
    made = Bystander(find_memory(ROOT), volume)
    yield made
    made.close()


@pytest.mark.timeout(1800 if SOAK else 300)
def test_hundreds_of_writers_leave_nothing(
    engine_session: PrivateEngine, busybox_image: str, tmp_path: Path, volume: Path, bystander: Bystander
) -> None:
    environment = {"ECS_ENGINE_TASK_CLEANUP_WAIT_DURATION": "1s"}
    with Node(tmp_path / "node", engine_session.url, split=True, environment=environment) as node:
        ecs = node.ecs()
        # A name of its own for each file: the hostname is the container's.
        script = f"head -c {WRITTEN} /dev/zero > /out/$HOSTNAME; hostname >> /out/$HOSTNAME"
        for family, limits in KINDS.items():
            _register(ecs, family, limits, busybox_image, volume, script)
        before = census(ROOT)
        cached = bystander.usage()
        began = time.monotonic()
        for turn in range(TASKS // AT_ONCE):
            _run_to_end(ecs, list(KINDS)[turn % len(KINDS)])
            if turn == WARM_TURNS:
                warm = _memory(node)
        seconds = time.monotonic() - began
        until(lambda: not node.containers(), "no container is left", 60.0)
        until(lambda: not node.cgroups(), "no cgroup directory is left", 60.0)
        until(lambda: census(ROOT).zombies <= before.zombies, "no zombie is left", 30.0)
        after = census(ROOT)
        print(f"{TASKS} tasks in {seconds:.1f} s; zombies before {before.zombies}, after {after.zombies}")
        print(f"memory of the agent {warm / MIB:.1f} -> {_memory(node) / MIB:.1f} MiB")
        assert _memory(node) - warm < GROWTH
        assert len(node.task_ids()) == TASKS
        assert "still pinned" not in node.agent.log and "still in use" not in node.agent.log
        assert bystander.usage() >= cached * 0.9
    written = [one for one in volume.iterdir() if one.name != "bystander"]
    assert len(written) == TASKS
    assert all(one.read_bytes() == bytes(WRITTEN) + one.name.encode() + b"\n" for one in written)


def _memory(node: Node) -> int:
    return int(Path(f"/proc/{node.agent.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _register(ecs: Any, family: str, limits: dict[str, str], image: str, volume: Path, script: str) -> None:
    ecs.register_task_definition(
        **limits,
        family=family,
        networkMode="none",
        volumes=[{"name": "out", "host": {"sourcePath": str(volume)}}],
        containerDefinitions=[
            {
                "name": "app",
                "image": image,
                "memory": 32,
                "command": ["sh", "-c", f"HOSTNAME=$(hostname); {script}"],
                "mountPoints": [{"sourceVolume": "out", "containerPath": "/out"}],
            }
        ],
    )


def _run_to_end(ecs: Any, family: str) -> None:
    answer = ecs.run_task(cluster="default", taskDefinition=family, count=AT_ONCE)
    assert not answer["failures"]
    arns = [one["taskArn"] for one in answer["tasks"]]

    def ended() -> list[dict[str, Any]]:
        tasks = ecs.describe_tasks(cluster="default", tasks=arns)["tasks"]
        return tasks if all(one["lastStatus"] == "STOPPED" for one in tasks) else []

    for one in until(ended, "the tasks end", 60.0):
        assert one["containers"][0].get("exitCode") == 0, (one.get("stoppedReason"), one["containers"][0])
