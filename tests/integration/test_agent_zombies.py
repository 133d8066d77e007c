"""Three hundred tasks that write to a host volume leave no zombie, no container, no cgroup and every byte they wrote.

A zombie is what an engine leaves when it removes a container's cgroup while page cache still pins it: without the
drain at the end of a task this test counts one per task.
"""

from __future__ import annotations

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

TASKS = 300
AT_ONCE = 10
WRITTEN = 256 * 1024
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


@pytest.mark.timeout(300)
def test_three_hundred_writers_leave_nothing(
    engine_session: PrivateEngine, busybox_image: str, tmp_path: Path, volume: Path, bystander: Bystander
) -> None:
    environment = {"ECS_ENGINE_TASK_CLEANUP_WAIT_DURATION": "1s"}
    with Node(tmp_path / "node", engine_session.url, environment=environment) as node:
        ecs = node.ecs()
        # A name of its own for each file: the hostname is the container's.
        script = f"head -c {WRITTEN} /dev/zero > /out/$HOSTNAME; hostname >> /out/$HOSTNAME"
        _register(ecs, busybox_image, volume, script)
        before = census(ROOT)
        cached = bystander.usage()
        began = time.monotonic()
        for _ in range(TASKS // AT_ONCE):
            _run_to_end(ecs)
        seconds = time.monotonic() - began
        until(lambda: not node.containers(), "no container is left", 60.0)
        until(lambda: not node.cgroups(), "no cgroup directory is left", 60.0)
        until(lambda: census(ROOT).zombies <= before.zombies, "no zombie is left", 30.0)
        after = census(ROOT)
        print(f"{TASKS} tasks in {seconds:.1f} s; zombies before {before.zombies}, after {after.zombies}")
        assert len(node.task_ids()) == TASKS
        assert "still pinned" not in node.agent.log and "still in use" not in node.agent.log
        assert bystander.usage() >= cached * 0.9
    written = [one for one in volume.iterdir() if one.name != "bystander"]
    assert len(written) == TASKS
    assert all(one.read_bytes() == bytes(WRITTEN) + one.name.encode() + b"\n" for one in written)


def _register(ecs: Any, image: str, volume: Path, script: str) -> None:
    ecs.register_task_definition(
        family="writer",
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


def _run_to_end(ecs: Any) -> None:
    answer = ecs.run_task(cluster="default", taskDefinition="writer", count=AT_ONCE)
    assert not answer["failures"]
    arns = [one["taskArn"] for one in answer["tasks"]]

    def ended() -> list[dict[str, Any]]:
        tasks = ecs.describe_tasks(cluster="default", tasks=arns)["tasks"]
        return tasks if all(one["lastStatus"] == "STOPPED" for one in tasks) else []

    for one in until(ended, "the tasks end", 60.0):
        assert one["containers"][0].get("exitCode") == 0, (one.get("stoppedReason"), one["containers"][0])
