"""The gate on a real systemd: a unit that loops fails it, so does drift from the lock; the clean host passes."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest

from sexton.care.audit.auditing import audit
from sexton.care.audit.lockfile import make_lock, write_lock
from sexton.care.audit.rulebook import open_rulebook
from sexton.care.audit.sources import live_states
from sexton.care.gate import Gate, run_gate
from sexton.care.probe import Outcome, Probe, Scene
from sexton.care.probes import memcg, units
from sexton.core.gate import Limits, Result
from sexton.host.rootfs import Directory
from systemd import FIRST_BOOT_TIMEOUT, Systemd, rootfs

DEADLINE = 15.0
# Other tests on this machine make groups as well: what is counted here is only that it is counted.
AMPLE = Limits(memcgs=10**9, growth_per_hour=1e12)
UNITS = {
    "looper.service": (
        "[Unit]\nStartLimitIntervalSec=0\n[Service]\nExecStart=/bin/false\nRestart=always\nRestartSec=100ms\n"
    ),
    "steady.service": "[Service]\nExecStart=/bin/sleep infinity\n",
}


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Systemd]:
    with Systemd(UNITS, tmp_path_factory.mktemp("systemd")) as running:
        yield running


def of_this_machine(probe: Probe) -> Probe:
    """The guest has no count of its own: its /proc belongs to other process numbers."""

    async def look(scene: Scene) -> Outcome:
        return await probe.look(msgspec.structs.replace(scene, root=Path("/")))

    return probe._replace(look=look)


def gate(host: Systemd, lock: Path | None = None, settle: float = 1.0) -> Gate:
    probes = (of_this_machine(memcg.PROBE), units.PROBE)
    return asyncio.run(run_gate(host.root, "unix:///nowhere", AMPLE, settle, lock=lock, probes=probes))


def failures(seen: Gate) -> list[tuple[str, str]]:
    return [(check.rule, check.name) for check in seen.checks if check.result is Result.FAILED]


@pytest.mark.timeout(FIRST_BOOT_TIMEOUT)
def test_a_clean_host_passes_a_looping_unit_and_drift_fail(host, tmp_path):
    lock = tmp_path / "lock"
    states = live_states(host.root)
    assert states["dbus.service"] == "active"
    write_lock(make_lock(audit(Directory(host.root), open_rulebook("plain"), live=True), states), lock)

    assert failures(clean := gate(host, lock)) == []
    assert clean.result is Result.PASSED
    assert [count.tracked > 0 for count in clean.counts] == [True] * 3

    host.systemctl("start", "--no-block", "looper.service")
    deadline = time.monotonic() + DEADLINE
    while int(host.systemctl("show", "looper.service", "-p", "NRestarts", "--value").stdout) < 3:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    (host.root / "etc/systemd/system/multi-user.target.wants").mkdir(exist_ok=True, parents=True)
    (host.root / "etc/systemd/system/multi-user.target.wants/steady.service").symlink_to(
        "/run/systemd/system/steady.service"
    )
    seen = gate(host, lock)

    assert failures(seen) == [("loop", "unit-loop/looper.service"), ("drift", "steady.service")]
    assert seen.exit_code == 1
    drifted = seen.checks[-1]
    assert any(
        why.startswith("started by: only in the second: link: multi-user.target.wants") for why in drifted.details
    )


@pytest.mark.timeout(FIRST_BOOT_TIMEOUT)
def test_a_booted_host_agrees_with_the_lock_of_the_image_it_was_made_from(host, tmp_path):
    lock = tmp_path / "lock"
    write_lock(make_lock(audit(Directory(rootfs()), open_rulebook("plain"))), lock)
    steady = host.root / "etc/systemd/system/multi-user.target.wants/steady.service"
    steady.unlink(missing_ok=True)

    drifted = [check for check in gate(host, lock, 0.1).checks if check.rule == "drift"]
    assert [(check.result, check.name, check.details) for check in drifted] == [(Result.PASSED, "lock", ())]


@pytest.mark.timeout(60)
def test_the_command_writes_what_a_pipeline_reads(tmp_path):
    def sexton(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "sexton", "gate", "--settle", "0.4", *words],
            capture_output=True,
            text=True,
            timeout=50,
            check=False,
        )

    files = ["--junit", str(tmp_path / "junit.xml"), "--sarif", str(tmp_path / "sarif.json")]
    done = sexton("--max-memcgs", "0", *files)
    (suite,) = ElementTree.parse(tmp_path / "junit.xml").getroot()

    assert done.returncode == 1
    assert "memory cgroups tracked" in done.stdout
    assert suite.find("testcase/failure") is not None
    (first, *_) = json.loads((tmp_path / "sarif.json").read_text())["runs"][0]["results"]
    assert first["ruleId"] == "memcg-count"
    bad_lock = tmp_path / "lock"
    bad_lock.write_text("")
    blind = sexton("--max-memcgs", "1000000000", "--max-growth", "1e12", "--lock", str(bad_lock))
    assert blind.returncode in (1, 2), blind.stdout  # a loop on this very machine would be a failure
    assert "COULD NOT CHECK" in blind.stdout
