"""A real engine that is stuck, a real victim of a real memory limit: found, named, and nobody else accused."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine import PrivateEngine
from sexton.care.look import Round, look_around
from sexton.care.probe import CouldNotLook, Looked, Probe
from sexton.care.probes import disk, engine, oom, pressure
from sexton.core.finding import Finding
from sexton.host.cgroup import find_memory


def look(state: Path, *probes: Probe, docker_host: str = "unix:///nowhere") -> Round:
    return asyncio.run(look_around(Path("/"), docker_host, state, probes))


@pytest.mark.docker
@pytest.mark.timeout(60)
def test_an_engine_that_hangs_is_a_finding_and_one_that_answers_is_none(
    engine_session: PrivateEngine, tmp_path: Path
) -> None:
    before = look(tmp_path, engine.PROBE, docker_host=engine_session.url)
    process = engine_session._dockerd
    assert process is not None
    process.send_signal(signal.SIGSTOP)
    try:
        stuck = look(tmp_path, engine.PROBE, docker_host=engine_session.url)
    finally:
        process.send_signal(signal.SIGCONT)
    after = look(tmp_path, engine.PROBE, docker_host=engine_session.url)

    assert [finding.fingerprint for finding in stuck.findings] == ["engine/stuck"]
    for calm in (before, after):
        # A loaded machine may answer late; it is not stuck.
        assert "engine/stuck" not in {finding.fingerprint for finding in calm.findings}
        assert isinstance(calm.sights[0].outcome, Looked)


# Enters the group, then takes more than it may have.
GREEDY = """
import os, sys
with open(sys.argv[1] + "/cgroup.procs", "w") as procs:
    procs.write("0")
taken = [bytearray(2**20) for _ in range(200)]
"""


@pytest.fixture
def small_group() -> Iterator[Path]:
    """A group that may have 32 MiB, named as a unit's."""
    place = find_memory(Path("/"))
    top = place.mount / f"sexton-test-{secrets.token_hex(4)}"
    group = top / "greedy.service"
    top.mkdir()
    if place.version == 2:
        for parent in (place.mount, top):
            (parent / "cgroup.subtree_control").write_text("+memory")
    group.mkdir()
    (group / ("memory.limit_in_bytes" if place.version == 1 else "memory.max")).write_text(str(32 * 2**20))
    yield group
    for folder in (group, top):
        deadline = time.monotonic() + 5
        while folder.exists():
            try:
                folder.rmdir()
            except OSError:
                assert time.monotonic() < deadline
                time.sleep(0.02)


def test_a_victim_of_a_memory_limit_is_named_with_whose_limit_it_was(small_group: Path, tmp_path: Path) -> None:
    victim = subprocess.Popen([sys.executable, "-S", "-c", GREEDY, str(small_group)], stderr=subprocess.DEVNULL)
    assert victim.wait(15) == -signal.SIGKILL

    seen = look(tmp_path, oom.PROBE)

    finding = {one.fingerprint: one for one in seen.findings}["oom/greedy.service"]
    told = {item.what: item.value for item in finding.evidence}
    assert told["newest"].startswith(f"{told['newest'].split()[0]} (pid {victim.pid})")
    assert told["why"].endswith("/greedy.service hit its own limit")


def test_who_may_not_read_the_log_claims_no_health(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/vmstat").write_text("oom_kill 2\n")

    seen = asyncio.run(look_around(tmp_path, "unix:///nowhere", tmp_path, (oom.PROBE,)))

    outcome = seen.sights[0].outcome
    assert isinstance(outcome, CouldNotLook)
    assert outcome.reason.startswith("2 processes were killed for want of memory since boot")


def test_disks_and_pressure_of_this_very_host(tmp_path: Path) -> None:
    seen = look(tmp_path, disk.PROBE, pressure.PROBE)

    told = os.statvfs("/")
    outcome = seen.sights[0].outcome
    assert isinstance(outcome, Looked)
    assert outcome.figures["free /"] == pytest.approx(told.f_bavail * told.f_frsize, rel=0.05)


def test_a_disk_that_is_nearly_full_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A real file system of its own, where this machine lets us have one."""
    image, mount = tmp_path / "image", tmp_path / "mount"
    mount.mkdir()
    with image.open("wb") as file:
        file.truncate(16 * 2**20)
    subprocess.run(["mke2fs", "-q", "-t", "ext4", "-m", "0", image], check=True)
    mounted = subprocess.run(["mount", "-o", "loop", image, mount], capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"no loop devices here: {mounted.stderr.strip()}")
    try:
        room = os.statvfs(mount)
        (mount / "log").write_bytes(b"x" * int(room.f_bavail * room.f_frsize * 0.95))
        found: dict[str, Finding] = {one.fingerprint: one for one in look(tmp_path, disk.PROBE).findings}
    finally:
        subprocess.run(["umount", mount], check=True)

    assert f"disk/space/{mount}" in found
