"""Tasks where cgroups are systemd's: a real systemd, a real engine with systemd's driver, a real agent, all of them in
namespaces of their own, as on a host that was installed like that.
"""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from images import build_busybox
from node import QUIET, Role, until
from scripted_plane import ScriptedPlane, task_arn
from sexton.host.cgroup import census
from systemd import FIRST_BOOT_TIMEOUT, Systemd
from systemd_host import Engine, Host

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(FIRST_BOOT_TIMEOUT + 120)]

MIB = 1024 * 1024
CGROUPS = Path("/sys/fs/cgroup")
WRITERS = 20
Json = dict[str, Any]


class Agent(Role):
    def __init__(self, root: Path, plane: ScriptedPlane, engine: Engine, host: Host) -> None:
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(root),
            "AWS_EC2_METADATA_DISABLED": "true",
            "ECS_IMAGE_PULL_BEHAVIOR": "prefer-cached",
            "ECS_ENGINE_TASK_CLEANUP_WAIT_DURATION": "1s",
            "ECS_ENABLE_TASK_CPU_MEM_LIMIT": "true",
            "ECS_TASK_PIDS_LIMIT": "77",
            **QUIET,
        } | plane.environment
        words = ("--data-dir", f"{root}/data", "--backend", plane.url, "--docker-host", engine.url)
        super().__init__("agent", root / "agent.log", words, environment)
        self._command = [*host.inside, *self._command]
        self._plane = plane

    def __enter__(self) -> Agent:
        self.start()
        until(lambda: self._plane.connections, "the agent is connected")
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def kill(self) -> None:
        """What enters the namespaces waits outside for what runs in them."""
        for child in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split():
            os.kill(int(child), signal.SIGKILL)
        super().wait()


@pytest.fixture(scope="module")
def guest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    scratch = tmp_path_factory.mktemp("guest")
    with Systemd({}, scratch, everywhere=True) as systemd:
        yield Host(systemd, scratch / "scratch" / "top")


@pytest.fixture
def engine(guest: Host, tmp_path: Path) -> Iterator[Engine]:
    with Engine(tmp_path / "engine", guest) as engine:
        yield engine


def shown(guest: Host, unit: str, *names: str) -> dict[str, str]:
    text = guest.systemd.systemctl("show", "-p", ",".join(names), unit).stdout
    return dict(line.split("=", 1) for line in text.splitlines() if line)


def a_task(number: int, image: str, script: str, **fields: Any) -> Json:
    container = {
        "name": "app",
        "image": image,
        "essential": True,
        "stopTimeout": 1,
        "command": ["sh", "-c", script],
        "mountPoints": [{"sourceVolume": "out", "containerPath": "/out"}],
    }
    return {
        "arn": task_arn(number),
        "family": "web",
        "version": "1",
        "desiredStatus": "RUNNING",
        "networkMode": "none",
        "containers": [container],
    } | fields


def left(guest: Host) -> list[str]:
    """Task slices that are still anywhere: in the kernel, or known to systemd."""
    units = guest.systemd.systemctl("list-units", "--all", "--plain", "--no-legend", "ecstasks-*").stdout.split()
    return [*units, *(str(one) for one in CGROUPS.glob(f"*/{guest.group}/ecstasks.slice/ecstasks-*"))]


def test_tasks_have_slices_with_their_limits_and_leave_nothing(guest: Host, engine: Engine, tmp_path: Path) -> None:
    image = build_busybox(engine.url)
    with (
        tempfile.TemporaryDirectory(dir="/var/tmp", prefix="sexton-test-") as folder,
        ScriptedPlane() as plane,
        Agent(tmp_path, plane, engine, guest) as agent,
    ):
        volumes = {"volumes": [{"name": "out", "host": {"sourcePath": folder}}]}
        before = census(Path("/")).zombies
        stays = a_task(1, image, "sleep 1000", cpu=0.5, memory=64, **volumes)
        plane.payload(stays)
        until(lambda: plane.told(task_arn(1)) == ["RUNNING"], "the task runs")

        # Held to its limits by the kernel, as systemd knows and will not undo.
        name = f"ecstasks-{1:032x}.slice"
        place = f"{guest.group}/ecstasks.slice/{name}"
        assert shown(guest, name, "MemoryMax", "CPUQuotaPerSecUSec", "TasksMax") == {
            "MemoryMax": str(64 * MIB),
            "CPUQuotaPerSecUSec": "500ms",
            "TasksMax": "77",
        }
        guest.systemd.systemctl("daemon-reload")
        limits = ("memory/{}/memory.limit_in_bytes", "cpu/{}/cpu.cfs_quota_us", "pids/{}/pids.max")
        found = [(CGROUPS / one.format(place)).read_text().strip() for one in limits]
        assert found == [str(64 * MIB), "50000", "77"]
        (scope,) = (CGROUPS / "memory" / place).glob("docker-*.scope")
        assert (scope / "cgroup.procs").read_text().split()

        # An agent that was killed outright finds its task again; others come and go, each pinned by what it wrote.
        agent.kill()
        connections = len(plane.connections)
        agent.start()
        until(lambda: len(plane.connections) > connections, "the agent is connected again")
        script = "head -c 262144 /dev/zero > /out/$(hostname)"
        plane.payload(*(a_task(number, image, script, **volumes) for number in range(2, 2 + WRITERS)))
        until(lambda: all(plane.told(task_arn(n))[-1:] == ["STOPPED"] for n in range(2, 2 + WRITERS)), "all end", 60)
        plane.payload(stays | {"desiredStatus": "STOPPED"})
        until(lambda: plane.told(task_arn(1)) == ["RUNNING", "STOPPED"], "the task ends")
        until(lambda: not left(guest), "no slice is left", 60)
        until(lambda: census(Path("/")).zombies <= before, "no zombie is left", 30)
        assert len(list(Path(folder).iterdir())) == WRITERS
        assert "still pinned" not in agent.log and "still in use" not in agent.log and "trace=" not in agent.log
