"""Twenty-three ways in which a healthy host is busy, on a real systemd and a real engine: none is taken for a loop, by
signals, by the kernel's events, by the engine's, or by one look; while a unit that does loop beside them is found."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engine import PrivateEngine
from images import IMAGE, build_busybox
from sexton.care.look import look_around
from sexton.care.probe import Scene
from sexton.care.probes import containers, group_churn, unit_turns, units
from sexton.core.finding import Finding
from sexton.host.cgroup import find_memory
from systemd import FIRST_BOOT_TIMEOUT, Systemd
from watchers import watching

pytestmark = pytest.mark.timeout(FIRST_BOOT_TIMEOUT)

TURNS = 4
"""So often at least each of them turns: one more than makes a loop."""

LOOPS = "forever.service"
QUICK = "[Unit]\nStartLimitIntervalSec=0\n[Service]\nType=oneshot\nExecStart=/bin/true\n"
STAYS = "[Unit]\nStartLimitIntervalSec=0\n[Service]\nExecStart=/bin/sleep infinity\nRestart=always\n"
TIMER = "[Timer]\nOnActiveSec=50ms\nOnUnitInactiveSec=150ms\nAccuracySec=10ms\n"
# Groups of its own, one after another or side by side; each is removed and leaves nothing behind.
RUNNER = """
here=/sys/fs/cgroup/memory$(sed -n 's/^[0-9]*:memory://p' /proc/self/cgroup)
for turn in 1 2 3 4 5 6; do
  mkdir "$here/job-$turn"
  sh -c "echo \\$\\$ > $here/job-$turn/cgroup.procs; exit 0"
  rmdir "$here/job-$turn"
  sleep 0.2
done
exec sleep infinity
"""
BUILDER = """
here=/sys/fs/cgroup/memory$(sed -n 's/^[0-9]*:memory://p' /proc/self/cgroup)
for round in 1 2 3 4; do
  for part in a b c; do mkdir "$here/part-$round$part"; done
  sleep 0.2
  for part in a b c; do rmdir "$here/part-$round$part"; done
done
exec sleep infinity
"""
DELEGATED = "[Service]\nDelegate=yes\nExecStart=/bin/sh /run/systemd/system/{}\n"
UNITS = {
    LOOPS: "[Unit]\nStartLimitIntervalSec=0\n[Service]\nExecStart=/bin/false\nRestart=always\nRestartSec=300ms\n",
    # By a timer: one that succeeds, one that fails now and then, one whose unit starts another.
    "tidy.service": QUICK,
    "tidy.timer": TIMER,
    "moody.service": (
        "[Unit]\nStartLimitIntervalSec=0\n[Service]\nType=oneshot\n"
        "ExecStart=/bin/sh -c 'test -e /run/moody && rm /run/moody || { touch /run/moody; exit 1; }'\n"
    ),
    "moody.timer": TIMER,
    "chain.service": "[Unit]\nStartLimitIntervalSec=0\nWants=link.service\n"
    + QUICK.partition("\n[Service]")[1]
    + ("\nType=oneshot\nExecStart=/bin/true\n"),
    "chain.timer": TIMER,
    "link.service": QUICK,
    # By a socket and by a path.
    "answer.socket": "[Socket]\nListenStream=/run/answer\nAccept=yes\nTriggerLimitIntervalSec=0\n",
    "answer@.service": "[Service]\nExecStart=/bin/echo hello\nStandardOutput=socket\n",
    "inbox.path": "[Path]\nPathExists=/run/inbox\nTriggerLimitIntervalSec=0\n",
    "inbox.service": (
        "[Unit]\nStartLimitIntervalSec=0\n[Service]\nType=oneshot\nExecStart=/bin/sh -c 'rm -f /run/inbox'\n"
    ),
    # Daemons: one that is restarted always and never needs it, one that stumbled once, one that waited for another.
    "steady.service": STAYS,
    "stumbler.service": (
        "[Service]\nRestart=on-failure\nRestartSec=50ms\n"
        "ExecStart=/bin/sh -c 'test -e /run/stumbled || { touch /run/stumbled; exit 1; }; exec sleep infinity'\n"
    ),
    "waiter.service": (
        "[Service]\nExecStartPre=/bin/sh -c 'until test -e /run/ready; do sleep 0.05; done'\n"
        "ExecStart=/bin/sleep infinity\n"
    ),
    # By hand: a deploy, a rolling one, a reload, a job, work spread over instances, a service that is put aside.
    "deployed.service": STAYS,
    "fleet@.service": STAYS,
    "reloaded.service": STAYS + "ExecReload=/bin/true\n",
    "job.service": QUICK,
    "worker@.service": "[Service]\nType=oneshot\nExecStart=/bin/sleep 0.1\n",
    "retired.service": "[Service]\nExecStart=/bin/sleep infinity\n",
    "setup.service": "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/true\n",
    "unlucky.service": "[Service]\nType=oneshot\nExecStart=/bin/false\n",
    # Work in groups of its own, that leaves nothing.
    "runner.service": DELEGATED.format("runner.sh"),
    "runner.sh": RUNNER,
    "builder.service": DELEGATED.format("builder.sh"),
    "builder.sh": BUILDER,
    # Restarted by its package.
    "packaged.service": STAYS,
}
BUSY = {
    "tidy.service",
    "moody.service",
    "chain.service",
    "link.service",
    "inbox.service",
    "job.service",
}


@pytest.fixture(scope="module")
def systemd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Systemd]:
    with Systemd(UNITS, tmp_path_factory.mktemp("systemd")) as running:
        yield running


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """This host, with tracefs where the caretaker looks for it."""
    root = tmp_path_factory.mktemp("traced")
    (root / "proc").symlink_to("/proc")
    (root / "sys/kernel/tracing").mkdir(parents=True)
    (root / "sys/fs").symlink_to("/sys/fs")
    subprocess.run(["mount", "-t", "tracefs", "tracefs", root / "sys/kernel/tracing"], check=True)
    try:
        yield root
    finally:
        subprocess.run(["umount", root / "sys/kernel/tracing"], check=True)


class Host:
    """What an administrator, a client and a deploy do to it; each call is over when systemd has done it."""

    def __init__(self, systemd: Systemd) -> None:
        self._systemd = systemd

    async def ctl(self, *words: str) -> str:
        return (await asyncio.to_thread(self._systemd.systemctl, *words)).stdout

    async def run(self, *words: str) -> str:
        return (await asyncio.to_thread(self._systemd.run, *words)).stdout

    async def until(self, what: str, true: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 30
        while not await asyncio.to_thread(true):
            assert time.monotonic() < deadline, what
            await asyncio.sleep(0.1)

    def turns(self, unit: str) -> int:
        """How often it was started, by the journal."""
        said = self._systemd.run("journalctl", "-q", "-o", "cat", "--output-fields=INVOCATION_ID", f"UNIT={unit}")
        return len({line for line in said.stdout.split() if len(line) == 32})


async def be_busy(host: Host, root: Path) -> None:
    """Everything that happens on a healthy host, several times over."""
    await host.ctl(
        "start", "--no-block", LOOPS, "steady", "stumbler", "waiter", "unlucky", "setup", "runner", "builder"
    )
    await host.ctl("start", "tidy.timer", "moody.timer", "chain.timer", "answer.socket", "inbox.path")
    await host.ctl("start", "deployed", "reloaded", "retired", "packaged", *(f"fleet@{n}" for n in range(5)))
    await host.ctl("restart", "deployed")
    for number in range(5):
        await host.ctl("restart", f"fleet@{number}")
        await host.ctl("start", f"worker@{number}")
    for _ in range(TURNS):
        await host.ctl("reload", "reloaded")
        await host.ctl("start", "job")
        await host.run("systemd-run", "-q", "--wait", "/bin/true")
        await host.run("sh", "-c", "touch /run/inbox; while test -e /run/inbox; do sleep 0.02; done")
        hello = "import socket; s = socket.socket(socket.AF_UNIX); s.connect('%s'); print(s.recv(9))"
        socket = hello % f"{root}/run/answer"
        await asyncio.to_thread(subprocess.run, ["python3", "-c", socket], check=True, capture_output=True)
    await host.ctl("stop", "retired")
    await host.ctl("start", "retired")
    await host.ctl("stop", "retired")
    (root / "run/ready").touch()


async def test_a_busy_healthy_systemd_is_silent(systemd: Systemd, traced: Path, tmp_path: Path) -> None:
    if find_memory(Path("/")).version != 1:
        pytest.skip("the runner makes its groups in the v1 memory hierarchy")
    host = Host(systemd)
    here = Scene(root=systemd.root, docker_host="unix:///nowhere", now=time.time(), uptime=None)
    there = Scene(root=traced, docker_host="unix:///nowhere", now=time.time(), uptime=None)
    mine = systemd_group(systemd)
    async with watching(unit_turns.watch, here) as signals, watching(group_churn.watch, there) as churn:
        await be_busy(host, systemd.root)
        for unit in sorted(BUSY):
            await host.until(f"{unit} turns", lambda unit=unit: host.turns(unit) >= TURNS)  # type: ignore[misc]
        await host.until(
            "waiter, runner and builder are where they stay",
            lambda: systemd.systemctl("is-active", "waiter", "runner", "builder").stdout.split() == ["active"] * 3,
        )
        await signals.until(lambda: f"unit-loop/{LOOPS}" in signals.ever)
        await asyncio.sleep(group_churn.PACE + 1)  # long enough for what was left behind to be told
        seen = await look_around(systemd.root, "unix:///nowhere", tmp_path, (units.PROBE, unit_turns.PROBE))
        # A package's upgrade restarts its service again and again while the package manager works.
        for _ in range(TURNS):
            os.utime(systemd.root / "var/lib/dpkg/status")
            await host.ctl("restart", "packaged")
        await asyncio.sleep(1.0)
        signals_said, churn_said = signals.ever, churn.ever

    assert set(signals_said) == {f"unit-loop/{LOOPS}"}
    assert set(of(churn_said, mine)) <= {f"unit-loop/{LOOPS}"}, churn_said
    assert [finding.culprit for finding in seen.findings if finding.fingerprint.startswith("unit-loop/")] == [LOOPS]


def systemd_group(systemd: Systemd) -> str:
    """The group its services are below: others on this machine make groups as well."""
    for line in Path(f"/proc/{systemd.pid}/cgroup").read_text().splitlines():
        if ":memory:" in line:
            return "/" + line.split(":", 2)[2].split("/")[1]
    raise AssertionError("the test's systemd has no memory group")


def of(findings: dict[str, Finding], group: str) -> list[str]:
    return [name for name, finding in findings.items() if group in str(finding.evidence)]


@pytest.mark.docker
async def test_containers_of_a_healthy_host_are_silent(tmp_path: Path, engine_session: PrivateEngine) -> None:
    """Jobs that end well, an autoscaled group, a deploy, a health check that runs something each time."""
    image = build_busybox(engine_session.url, IMAGE)
    scene = Scene(root=tmp_path, docker_host=engine_session.url, now=time.time(), uptime=None, keep=tmp_path)

    async def docker(*words: str) -> str:
        return await asyncio.to_thread(engine_session.cli, *words)

    async with watching(containers.watch, scene) as told:
        names = [f"web-{number}" for number in range(TURNS)]
        for name in names:
            await docker("run", "-d", "--name", name, "--network", "none", "--init", image, "sleep", "600")
        for number in range(TURNS):
            await docker("run", "--rm", "--network", "none", "--name", f"nightly-{number}", image, "true")
            await docker("exec", names[0], "true")
        await docker("stop", "-t", "1", *names)  # scaled in: told to go
        for version in range(2):
            await docker("run", "-d", "--name", f"api-v{version}", "--network", "none", "--init", image, "sleep", "600")
            await docker("rm", "-f", f"api-v{version}")
        await docker("rm", *names)
        await asyncio.sleep(2 * containers.CALM)
        seen = await look_around(tmp_path, engine_session.url, tmp_path, (containers.PROBE,))
        said = told.ever

    ours = ("web-", "nightly-", "api-v")
    assert [name for name in said if any(part in name for part in ours)] == []
    assert [one.fingerprint for one in seen.findings if any(part in one.fingerprint for part in ours)] == []
