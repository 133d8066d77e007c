"""``sexton doctor`` as a user runs it: exit codes, JSON, and going on without root, engine, systemd or a state file."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

# The command alone, so that these tests hold whatever else the program has.
PROGRAM = "import typer; from sexton.cli.doctor import doctor_command; typer.run(doctor_command)"


def doctor(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, *words],
        capture_output=True,
        text=True,
        timeout=15,
        check=False,
        env={"PATH": os.environ["PATH"]},
    )


@pytest.fixture
def quiet_host(tmp_path: Path) -> Path:
    """A v2 host with a few zombies, no systemd and no engine."""
    root = tmp_path / "host"
    (root / "proc/1").mkdir(parents=True)
    (root / "proc/1/mounts").write_text("cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n")
    (root / "proc/uptime").write_text("5000.0 9000.0\n")
    (root / "proc/sys/kernel/random").mkdir(parents=True)
    (root / "proc/sys/kernel/random/boot_id").write_text("11111111-2222-3333-4444-555555555555\n")
    groups = root / "sys/fs/cgroup"
    groups.mkdir(parents=True)
    (groups / "cgroup.controllers").write_text("cpu memory pids\n")
    set_zombies(root, 7)
    return root


PLUGIN = Path(__file__).parents[2] / "packaging/node-problem-detector/sexton.json"


@pytest.mark.timeout(60)
def test_the_shipped_plugin_of_node_problem_detector_says_one_short_line(quiet_host: Path, tmp_path: Path) -> None:
    """Each rule as it is called: 0 no problem, 1 a problem, 2 not known; longer lines are cut by the caller."""
    plugin = json.loads(PLUGIN.read_text())
    conditions = {one["type"] for one in plugin["conditions"]}
    assert {rule["condition"] for rule in plugin["rules"]} == conditions
    for zombies, code in ((7, 0), (5_000, 1)):
        set_zombies(quiet_host, zombies)
        for rule in plugin["rules"]:
            assert rule["path"] == "/usr/bin/sexton" and rule["args"][0] == "doctor"
            seen = doctor(*rule["args"][1:], "--root", str(quiet_host), "--state-dir", str(tmp_path))
            assert len(seen.stdout.splitlines()) == 1 and len(seen.stdout) <= 81, seen.stdout
            # There is no systemd and no engine on this host: nobody can say that nothing loops.
            assert seen.returncode == (code if rule["condition"] == "CgroupLeak" else 2)
            if seen.returncode == 1:
                assert seen.stdout.startswith("5,000 zombie memory cgroups")


def set_zombies(root: Path, count: int) -> None:
    (root / "sys/fs/cgroup/cgroup.stat").write_text(f"nr_descendants 99\nnr_dying_descendants {count}\n")


def test_a_healthy_host(quiet_host: Path, tmp_path: Path) -> None:
    seen = doctor("--root", str(quiet_host), "--state-dir", str(tmp_path))

    assert (seen.returncode, seen.stderr) == (0, "")
    assert seen.stdout.startswith("healthy")
    assert "107 memory cgroups tracked, 100 live, 7 zombies (v2)" in seen.stdout
    assert "systemd does not run here" in seen.stdout
    assert "no container engine listens" in seen.stdout


def test_findings_and_their_growth(quiet_host: Path, tmp_path: Path) -> None:
    doctor("--root", str(quiet_host), "--state-dir", str(tmp_path))
    set_zombies(quiet_host, 68_580)
    (quiet_host / "proc/uptime").write_text("8600.0 9000.0\n")

    seen = doctor("--json", "--root", str(quiet_host), "--state-dir", str(tmp_path))

    assert seen.returncode == 1
    report = json.loads(seen.stdout)
    (finding,) = report["findings"]
    assert (finding["fingerprint"], finding["severity"]) == ("memcg/zombies", "critical")
    assert report["probes"][0]["figures"] == {"tracked": 68_680, "live": 100, "zombies": 68_580}
    grown = {item["what"]: item["value"] for item in finding["evidence"]}["growth since the last look"]
    assert grown == "+68,573 in 60 minutes (+68,573 an hour)"


def test_nothing_found_but_something_unseen(quiet_host: Path, tmp_path: Path) -> None:
    (quiet_host / "run/systemd/system").mkdir(parents=True)

    seen = doctor("--root", str(quiet_host), "--state-dir", str(tmp_path))

    assert seen.returncode == 2
    assert seen.stdout.startswith("cannot say that this host is healthy: nothing found; could not see: units")


def test_a_damaged_last_look_is_said_and_does_no_harm(quiet_host: Path, tmp_path: Path) -> None:
    (tmp_path / "care").mkdir()
    (tmp_path / "care/last-look.json").write_text("{")

    seen = doctor("--root", str(quiet_host), "--state-dir", str(tmp_path))

    assert (seen.returncode, seen.stderr) == (0, "")
    assert "is damaged and is replaced" in seen.stdout


def test_a_state_directory_that_cannot_be_written_is_said(quiet_host: Path) -> None:
    seen = doctor("--root", str(quiet_host), "--state-dir", "/proc/nowhere")

    assert (seen.returncode, seen.stderr) == (0, "")
    assert "cannot keep this look in /proc/nowhere/care/last-look.json" in seen.stdout


def test_a_root_that_does_not_exist_is_the_users_mistake() -> None:
    seen = doctor("--root", "/no/such/place")

    assert seen.returncode == 2
    assert seen.stderr.startswith("cannot look at /no/such/place: no such directory")
    assert "Traceback" not in seen.stderr


# Another user may not be able to read the interpreter's own directory, so everything is loaded before root is given up:
# by one look as root.
UNPRIVILEGED = """
import contextlib, io, os, sys, typer
from sexton.cli.doctor import doctor_command
given, sys.argv[1:] = sys.argv[1:], ["--state-dir", sys.argv[1]]
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    typer.run(doctor_command)
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
sys.argv[1:] = ["--state-dir", "/proc/nowhere", *given[1:]]
typer.run(doctor_command)
"""


def test_without_root_it_looks_at_what_it_may(tmp_path: Path) -> None:
    socket_of_root = tmp_path / "engine.sock"
    with socket.socket(socket.AF_UNIX) as engine:
        engine.bind(str(socket_of_root))
        socket_of_root.chmod(0o600)
        engine.listen()
        words = [str(tmp_path / "state"), "--docker-host", f"unix://{socket_of_root}"]
        command = [sys.executable, "-c", UNPRIVILEGED, *words]
        seen = subprocess.run(command, capture_output=True, text=True, timeout=15, check=False)

    # This very machine may have a trouble of its own, which is a finding (1).
    assert (seen.returncode in (1, 2), seen.stderr) == (True, "")
    assert "could not see: containers" in seen.stdout
    assert "memory cgroups tracked" in seen.stdout
    assert "cannot keep this look" in seen.stdout


def test_it_colours_nothing_that_is_not_a_terminal(quiet_host: Path, tmp_path: Path) -> None:
    assert "\x1b" not in doctor("--root", str(quiet_host), "--state-dir", str(tmp_path)).stdout


@pytest.mark.parametrize(("env", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_a_terminal_is_coloured_unless_it_says_no(
    quiet_host: Path, tmp_path: Path, env: dict[str, str], coloured: bool
) -> None:
    reader, writer = os.openpty()
    command = [sys.executable, "-c", PROGRAM, "--root", str(quiet_host), "--state-dir", str(tmp_path)]
    subprocess.run(command, stdout=writer, timeout=15, check=False, env={"PATH": os.environ["PATH"], **env})
    os.close(writer)
    text = b""
    try:
        while piece := os.read(reader, 65536):
            text += piece
    except OSError:
        pass  # how a terminal says that its other side is closed
    os.close(reader)

    assert (b"\x1b[" in text) is coloured


def test_an_engine_and_a_bus_that_hang_cost_no_more_than_five_seconds(quiet_host: Path, tmp_path: Path) -> None:
    (quiet_host / "run/systemd/system").mkdir(parents=True)
    (quiet_host / "run/dbus").mkdir()
    silent = [socket.socket(socket.AF_UNIX) for _ in range(2)]
    try:
        for one, place in zip(silent, ("run/dbus/system_bus_socket", "run/docker.sock"), strict=True):
            one.bind(str(quiet_host / place))
            one.listen()
        begun = time.monotonic()
        seen = doctor("--root", str(quiet_host), "--state-dir", str(tmp_path))
        took = time.monotonic() - begun
    finally:
        for one in silent:
            one.close()

    # That it hangs is a finding; what it hides is unseen all the same.
    assert seen.returncode == 1
    assert "the container engine is stuck" in seen.stdout
    assert "could not see: units, containers, unit-turns" in seen.stdout
    assert took < 6  # five and the interpreter's start
