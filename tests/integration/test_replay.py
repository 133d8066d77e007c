"""The incident from its first turn to its proof, on a systemd of its own; and nothing left of it, however it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sexton.care.replay import stage, story
from sexton.host.errors import Absent
from sexton.host.guest import NAME, hierarchies
from systemd import FIRST_BOOT_TIMEOUT, rootfs

DEADLINE = 40.0


@pytest.fixture(scope="module", autouse=True)
def compiled() -> None:
    """The walk that names zombies, compiled when it is not."""
    script = Path(__file__).parents[2] / "scripts/build_bpf.sh"
    subprocess.run([script, "--must"], check=True, capture_output=True)


def start(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-u", "-m", "sexton", "replay", "--rootfs", str(rootfs()), *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def leftovers(pid: int) -> list[str]:
    """What a replay of that process has on this machine."""
    groups = [str(path) for tree in hierarchies() for path in tree.glob(f"{NAME}{pid}-*")]
    folders = [str(path) for path in story.SCRATCH.glob(f"{story.SCRATCH_NAME}{pid}-*")]
    mark = f"{story.SCRATCH_NAME}{pid}-".encode()
    processes = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != pid:
            try:
                if mark in (entry / "environ").read_bytes():
                    processes.append(entry.name)
            except OSError:
                continue  # gone meanwhile, or a kernel thread
    return groups + folders + processes


def wait(what: str, true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def line_of(running: subprocess.Popen[str], word: str) -> None:
    assert running.stdout is not None
    for line in running.stdout:
        if word in line:
            return
    assert running.stderr is not None
    raise AssertionError(f"it ended before '{word}': {running.stderr.read()}")


@pytest.mark.timeout(FIRST_BOOT_TIMEOUT)
def test_it_loops_leaks_is_found_named_disabled_purged_and_leaves_nothing() -> None:
    running = start("--json")
    out, err = running.communicate(timeout=150)
    said = json.loads(out)
    scenes = {scene["name"]: scene for scene in said["scenes"]}

    assert running.returncode == 0, "\n".join([err, *(str(one) for one in said["scenes"] if not one["held"])])
    assert list(scenes) == ["boot", "audit", "find", "name", "disable", "purge", "healthy", "leave"]
    assert all(scene["held"] for scene in said["scenes"])
    assert "mask ecs.service: loops for ever, cannot work here" in scenes["audit"]["says"]
    assert "ecs.service crash-loops" in scenes["find"]["says"]
    assert "made by unit ecs.service (" in scenes["name"]["says"]
    assert "masked" in scenes["disable"]["says"]
    assert scenes["leave"]["at"] < 120
    assert leftovers(running.pid) == []
    assert f"{story.SCRATCH_NAME}{running.pid}-" not in Path("/proc/self/mountinfo").read_text()


@pytest.mark.timeout(FIRST_BOOT_TIMEOUT)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_told_to_end_it_takes_everything_away(number: signal.Signals) -> None:
    running = start()
    line_of(running, "AUDIT")
    assert leftovers(running.pid) != []
    running.send_signal(number)
    _, err = running.communicate(timeout=DEADLINE)

    assert running.returncode == 130
    assert "the guest is gone" in err
    assert leftovers(running.pid) == []


@pytest.mark.timeout(FIRST_BOOT_TIMEOUT)
def test_killed_outright_its_guest_dies_with_it_and_the_next_sweeps_the_rest() -> None:
    running = start()
    line_of(running, "BOOT")
    running.kill()
    running.communicate(timeout=DEADLINE)
    trace = leftovers(running.pid)
    wait("its processes end", lambda: not [one for one in leftovers(running.pid) if one.isdigit()])
    assert any(one.startswith("/") for one in trace)
    following = start()
    line_of(following, "BOOT")
    following.send_signal(signal.SIGINT)
    following.communicate(timeout=DEADLINE)

    assert leftovers(running.pid) == []
    assert leftovers(following.pid) == []


def test_without_the_means_it_says_what_is_missing_and_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage, "ROOTFS", tmp_path / "none")
    monkeypatch.setenv("PATH", os.fspath(tmp_path))

    with pytest.raises(Absent, match="apt-get install mmdebstrap"):
        stage.find_rootfs(None)
    with pytest.raises(Absent, match="no /sbin/init"):
        stage.find_rootfs(tmp_path)
