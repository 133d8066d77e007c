"""Two running hosts from one image, one sick and one spared by a second bug: the unit and the gate are named."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from systemd import FIRST_BOOT_TIMEOUT, Systemd

DEADLINE = 20.0
# The vendor's agent waits for our bootstrap. Both hosts have the same files; the bootstrap fails on one of them.
UNITS = {
    "bootstrap.service": "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/sh /etc/bootstrap\n",
    "ecs.service": (
        "[Unit]\nRequires=bootstrap.service\nAfter=bootstrap.service\n"
        "[Service]\nExecStart=/bin/sh -c 'exit 1'\nRestart=on-failure\nRestartSec=2\n"
    ),
}


def settle(host: Systemd, bootstrap: str) -> None:
    """Enabled and started as at boot, until each unit has come to where it stays."""
    (host.root / "etc/bootstrap").write_text(bootstrap)
    wants = host.root / "etc/systemd/system/multi-user.target.wants"
    wants.mkdir(parents=True, exist_ok=True)
    for name in UNITS:
        (wants / name).symlink_to(f"/run/systemd/system/{name}")
    host.systemctl("daemon-reload")
    host.systemctl("start", "--no-block", "ecs.service")
    states = {"exit 0": ("active", "activating"), "exit 1": ("failed", "inactive")}[bootstrap]
    deadline = time.monotonic() + DEADLINE
    while tuple(host.systemctl("is-active", *UNITS).stdout.split()) != states:
        assert time.monotonic() < deadline, host.systemctl("is-active", *UNITS).stdout
        time.sleep(0.1)


@pytest.mark.timeout(FIRST_BOOT_TIMEOUT)
def test_the_healthy_zone_that_was_healthy_by_a_second_bug(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    with Systemd(UNITS, tmp_path / "a") as sick, Systemd(UNITS, tmp_path / "b") as spared:
        settle(sick, "exit 0")
        settle(spared, "exit 1")
        done = subprocess.run(
            [sys.executable, "-m", "sexton", "drift", sick.root, spared.root, "--shape", "ray", "--json"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    differences = {one["unit"]: one for one in json.loads(done.stdout)["differences"]}
    agent = differences["ecs.service"]

    assert done.returncode == 1, done.stderr
    assert set(differences) == set(UNITS)
    assert agent["was"].startswith("starts, and can loop for ever; is a")  # activating or auto-restart
    assert agent["now"] == "held back; is inactive"
    assert agent["why"][0] == (
        "bootstrap order: in the second it waits for bootstrap.service, which does not start: it is failed: exit-code"
    )
    assert "spared by that alone" in agent["warning"]
    assert differences["bootstrap.service"]["now"] == "starts; is failed: exit-code"
