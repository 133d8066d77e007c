"""The Debian package on a Debian of its own: installed, stood down, started, upgraded, watched, removed, purged.

One guest for the whole story, because each chapter begins where the last one ended. Its container engine is the
scripted one; that tasks survive an agent's restart is shown elsewhere, on a real engine.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from node import until
from systemd import FIRST_BOOT_TIMEOUT, Systemd

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(FIRST_BOOT_TIMEOUT + 120)]

CONTROL = """
[Unit]
Description=a control plane to join
[Service]
ExecStart=/usr/bin/sexton control --data-dir /var/lib/control
"""
# What somebody's host would have from Amazon's agent, and where the other end is.
CONFIG = """ECS_CLUSTER=default
ECS_BACKEND_HOST=http://127.0.0.1:7070
DOCKER_HOST=fake://
AWS_DEFAULT_REGION=us-east-1
ECS_ENABLE_TASK_IAM_ROLE=true
ECS_POLL_METRICS=true
ECS_INSTANCE_ATTRIBUTES={"rack":"7"}
ECS_LOGFILE=/log/ecs-agent.log
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("deb")
    built = subprocess.run([ROOT / "scripts/build_deb.sh", folder], capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    (made,) = folder.glob("sexton_*.deb")
    return made


@pytest.fixture(scope="module")
def guest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Systemd]:
    with Systemd({"control.service": CONTROL}, tmp_path_factory.mktemp("guest"), ["python3"]) as running:
        subprocess.run(["nsenter", "-t", str(running.pid), "-n", "ip", "link", "set", "lo", "up"], check=True)
        yield running


def newer(package: Path) -> Path:
    """The same package under a later version, as an upgrade is."""
    tree, later = package.parent / "tree", package.parent / "later.deb"
    subprocess.run(["dpkg-deb", "-R", package, tree], check=True)
    control = (tree / "DEBIAN/control").read_text()
    (tree / "DEBIAN/control").write_text(control.replace("Version: ", "Version: 1:"))
    subprocess.run(["dpkg-deb", "--root-owner-group", "-Znone", "-b", tree, later], check=True, capture_output=True)
    return later


def dpkg(guest: Systemd, *words: str) -> str:
    done = guest.run("dpkg", *words, seconds=90)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def install(guest: Systemd, package: Path) -> None:
    (guest.root / "var/cache/sexton.deb").write_bytes(package.read_bytes())
    dpkg(guest, "-i", "/var/cache/sexton.deb")


def prop(guest: Systemd, name: str) -> str:
    return guest.systemctl("show", "-P", name, "sexton-agent").stdout.strip()


def put(guest: Systemd, path: str, text: str) -> None:
    (guest.root / path).parent.mkdir(parents=True, exist_ok=True)
    (guest.root / path).write_text(text)


def override(guest: Systemd, text: str) -> None:
    put(guest, "run/systemd/system/sexton-agent.service.d/test.conf", text)
    guest.systemctl("daemon-reload")


def fetched(guest: Systemd, url: str) -> str:
    script = f"import urllib.request as u; print(u.urlopen({url!r}, timeout=3).read().decode())"
    done = guest.run("python3", "-c", script)
    return done.stdout if done.returncode == 0 else ""


def metadata(guest: Systemd) -> dict[str, Any]:
    return dict(json.loads(fetched(guest, "http://127.0.0.1:51678/v1/metadata") or "{}"))


def findings(guest: Systemd) -> dict[str, Any]:
    """What the caretaker has found, once it has looked."""
    told = dict(json.loads(guest.run("sexton", "findings", "--json", seconds=20).stdout or "{}"))
    return told if told.get("eyes") else {}


def test_the_story_of_a_package(guest: Systemd, package: Path) -> None:
    # Installed: there, whole, and doing nothing until it is told to.
    install(guest, package)
    assert guest.run("sexton", "--version").stdout.startswith("sexton 0.")
    assert guest.systemctl("is-active", "sexton-agent").stdout.strip() == "inactive"
    assert guest.systemctl("is-enabled", "sexton-agent").stdout.strip() == "disabled"
    assert guest.systemctl("is-enabled", "sexton-care").stdout.strip() == "disabled"
    for unit in ("sexton-agent", "sexton-care"):
        assert guest.run("systemd-analyze", "verify", f"/lib/systemd/system/{unit}.service").stderr == ""
    assert "verify" not in dpkg(guest, "-V", "sexton")

    # Without credentials it stands down, once, and is left alone.
    put(guest, "etc/ecs/ecs.config", CONFIG)
    override(guest, "[Service]\nRestartSec=100ms\nEnvironment=AWS_EC2_METADATA_DISABLED=true\n")
    checked = guest.run(
        *("env", "-i", "PATH=/usr/bin:/bin", "AWS_EC2_METADATA_DISABLED=true"),
        *("sexton", "agent", "--check"),
        seconds=20,
    )
    assert checked.returncode == 5 and "FAIL credentials" in checked.stdout
    guest.systemctl("start", "sexton-agent")
    until(lambda: prop(guest, "ActiveState") == "failed", "the agent stands down")
    time.sleep(0.5)
    assert (prop(guest, "ExecMainStatus"), prop(guest, "NRestarts")) == ("5", "0")

    # With credentials and the file that Amazon's agent had, it joins.
    guest.systemctl("start", "control")
    keys = guest.root / "var/lib/control/keys.json"
    until(keys.exists, "the control plane has keys")
    (key,) = json.loads(keys.read_text())["keys"][:1]
    put(
        guest,
        "etc/default/sexton",
        f"AWS_ACCESS_KEY_ID={key['access_key_id']}\nAWS_SECRET_ACCESS_KEY={key['secret_access_key']}\n",
    )
    guest.systemctl("enable", "sexton-agent")
    started = guest.run("systemctl", "start", "sexton-agent", seconds=30)
    assert started.returncode == 0, started.stderr
    me = until(lambda: metadata(guest), "introspection answers")["ContainerInstanceArn"]
    assert prop(guest, "StatusText") == "running"
    log = (guest.root / "var/log/ecs/ecs-agent.log").read_text()
    assert "setting=ECS_POLL_METRICS" in log
    assert "msg=registered" in log

    # The caretaker beside it, with what it publishes and what it was asked.
    started = guest.run("systemctl", "enable", "--now", "sexton-care", seconds=60)
    assert started.returncode == 0, started.stderr
    care = guest.systemctl("show", "-P", "MainPID", "sexton-care").stdout.strip()
    seen = until(lambda: findings(guest), "the caretaker has looked")
    assert seen["daemon"] and {"memcg", "units"} <= {eye["probe"] for eye in seen["eyes"]}
    assert "sexton_probe_up" in fetched(guest, "http://127.0.0.1:9546/metrics")

    # Upgraded: another process of the same container instance, without anybody's doing.
    before = prop(guest, "MainPID")
    install(guest, newer(package))
    until(lambda: prop(guest, "MainPID") not in ("0", before), "the new agent runs")
    assert until(lambda: metadata(guest), "the new agent answers")["ContainerInstanceArn"] == me
    assert prop(guest, "NRestarts") == "0"
    assert guest.systemctl("show", "-P", "MainPID", "sexton-care").stdout.strip() not in ("0", care)

    # Watched: one that stands still is ended and started anew.
    watched = "WatchdogSec=1s\nTimeoutAbortSec=1s\nEnvironment=AWS_EC2_METADATA_DISABLED=true\n"
    override(guest, f"[Service]\nRestartSec=100ms\n{watched}")
    guest.run("systemctl", "restart", "sexton-agent", seconds=30)
    stopped = prop(guest, "MainPID")
    assert guest.systemctl("kill", "-s", "STOP", "sexton-agent").returncode == 0
    until(lambda: prop(guest, "MainPID") not in ("0", stopped), "the watchdog has it started anew")
    assert until(lambda: metadata(guest), "it answers again")["ContainerInstanceArn"] == me

    # One that fails again and again is not started for ever.
    override(guest, "[Service]\nRestartSec=50ms\nEnvironment=ECS_INSTANCE_ATTRIBUTES=foo\n")
    guest.run("systemctl", "reset-failed", "sexton-agent")
    guest.run("systemctl", "restart", "sexton-agent", seconds=30)
    until(lambda: prop(guest, "Result") == "start-limit-hit" or prop(guest, "NRestarts") == "4", "the limit trips")
    until(lambda: prop(guest, "ActiveState") == "failed", "it is given up")
    assert prop(guest, "ExecMainStatus") == "1"

    # Removed: the program goes, what it remembers and what the user wrote stay.
    dpkg(guest, "-r", "sexton")
    assert not (guest.root / "usr/lib/sexton").exists() and not (guest.root / "usr/bin/sexton").exists()
    for unit in ("sexton-agent", "sexton-care"):
        assert guest.systemctl("is-enabled", unit).returncode != 0
        assert guest.systemctl("is-active", unit).returncode != 0
    assert (guest.root / "var/lib/sexton/agent.db").exists()

    # Purged: nothing of it is left but the user's own file.
    dpkg(guest, "--purge", "sexton")
    assert not (guest.root / "var/lib/sexton").exists() and not (guest.root / "var/log/ecs").exists()
    assert (guest.root / "etc/ecs/ecs.config").read_text() == CONFIG
