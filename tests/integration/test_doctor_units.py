"""A real systemd with units that loop, one that failed, and units that only look busy: exactly the former are named."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sexton.care.look import Round, look_around
from sexton.care.probes import units
from sexton.core import finding as finding_rules
from systemd import FIRST_BOOT_TIMEOUT, Systemd

DEADLINE = 15.0

UNITS = {
    # Loops: without end, and until the start limit ends it.
    "looper.service": """
        [Unit]
        StartLimitIntervalSec=0
        [Service]
        ExecStart=/bin/sh -c 'exit 3'
        Restart=always
        RestartSec=100ms
        """,
    "quitter.service": """
        [Unit]
        StartLimitIntervalSec=60
        StartLimitBurst=3
        [Service]
        ExecStart=/bin/false
        Restart=on-failure
        RestartSec=50ms
        """,
    # Failed and left like that: a service, and a unit of another kind.
    "unlucky.service": "[Service]\nType=oneshot\nExecStart=/bin/sh -c 'exit 4'\n",
    "mnt-gone.mount": "[Mount]\nWhat=nothing\nWhere=/mnt/gone\nType=no-such-fs\n",
    # Busy and healthy: a timer's oneshot, a daemon that is always restarted, one that fell over once.
    "tidy.service": "[Unit]\nStartLimitIntervalSec=0\n[Service]\nType=oneshot\nExecStart=/bin/true\n",
    "tidy.timer": "[Timer]\nOnActiveSec=100ms\nOnUnitActiveSec=200ms\nAccuracySec=50ms\n",
    "steady.service": "[Service]\nExecStart=/bin/sleep infinity\nRestart=always\n",
    "stumbler.service": """
        [Service]
        ExecStart=/bin/sh -c 'test -e /run/stumbled || { touch /run/stumbled; exit 1; }; exec sleep infinity'
        Restart=on-failure
        RestartSec=50ms
        """,
}


@pytest.fixture(scope="module")
def systemd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Systemd]:
    with Systemd(
        {name: "\n".join(map(str.strip, text.splitlines())) for name, text in UNITS.items()},
        tmp_path_factory.mktemp("systemd"),
    ) as running:
        running.systemctl("start", "--no-block", *(name for name in UNITS if name != "tidy.service"))
        yield running


def look(systemd: Systemd, state: Path) -> Round:
    return asyncio.run(look_around(systemd.root, "unix:///nowhere", state, (units.PROBE,)))


def restarts(systemd: Systemd, unit: str) -> int:
    return int(systemd.systemctl("show", unit, "-p", "NRestarts", "--value").stdout)


def wait_until_busy(systemd: Systemd) -> None:
    """Every unit has shown what it does."""
    deadline = time.monotonic() + DEADLINE
    while True:
        tidied = systemd.systemctl(
            "show", "tidy.service", "-p", "ExecMainExitTimestampMonotonic", "--value"
        ).stdout.strip()
        fallen = ("quitter.service", "unlucky.service", "mnt-gone.mount")
        gave_up = set(systemd.systemctl("is-active", *fallen).stdout.split()) == {"failed"}
        if (
            restarts(systemd, "looper.service") >= 3
            and restarts(systemd, "stumbler.service") == 1
            and gave_up
            and tidied not in ("", "0")
        ):
            return
        assert time.monotonic() < deadline, "the units do not do what they are for"
        time.sleep(0.1)


@pytest.mark.timeout(FIRST_BOOT_TIMEOUT)
def test_exactly_the_units_that_loop_are_named(systemd: Systemd, tmp_path: Path) -> None:
    wait_until_busy(systemd)

    seen = look(systemd, tmp_path)

    assert sorted(finding.culprit for finding in seen.findings) == ["looper.service", "quitter.service"]
    looper = next(finding for finding in seen.findings if finding.culprit == "looper.service")
    evidence = {item.what: item.value for item in looper.evidence}
    assert int(evidence["automatic restarts"].replace(",", "")) >= 3
    assert evidence["last exit status"] == "3"
    assert evidence["can it loop for ever"].startswith("yes: Restart=always, RestartSec=0.1 s")
    assert "journalctl -u looper.service" in looper.next_step


@pytest.mark.timeout(FIRST_BOOT_TIMEOUT)
def test_what_failed_and_was_left_is_named_unless_it_just_happened(
    systemd: Systemd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait_until_busy(systemd)
    just_now = {finding.fingerprint for finding in look(systemd, tmp_path).findings}
    monkeypatch.setattr(finding_rules, "UNIT_STAYS_FAILED", 0.0)
    later = {finding.fingerprint: finding for finding in look(systemd, tmp_path).findings}

    assert {name for name in just_now if name.startswith("unit-failed/")} == set()
    # What looped until systemd gave up on it is told once, as the loop it was.
    assert set(later) - just_now == {"unit-failed/unlucky.service", "unit-failed/mnt-gone.mount"}
    assert later["unit-failed/unlucky.service"].title == "unlucky.service has failed: exit-code, status 4"
    systemd.systemctl("reset-failed", "unlucky.service", "mnt-gone.mount")
    try:
        assert {one.fingerprint for one in look(systemd, tmp_path).findings} == just_now
    finally:
        systemd.systemctl("start", "unlucky.service", "mnt-gone.mount")


@pytest.mark.timeout(FIRST_BOOT_TIMEOUT)
def test_the_second_look_tells_the_pace(systemd: Systemd, tmp_path: Path) -> None:
    wait_until_busy(systemd)
    look(systemd, tmp_path)
    earlier = restarts(systemd, "looper.service")
    deadline = time.monotonic() + DEADLINE
    while restarts(systemd, "looper.service") < earlier + 5:
        assert time.monotonic() < deadline
        time.sleep(0.1)

    looper = next(finding for finding in look(systemd, tmp_path).findings if finding.culprit == "looper.service")

    evidence = {item.what: item.value for item in looper.evidence}
    assert int(evidence["restarts since the last look"].split()[0].replace(",", "")) >= 5


@pytest.mark.timeout(FIRST_BOOT_TIMEOUT)
def test_a_unit_that_is_stopped_is_no_finding_any_more(systemd: Systemd, tmp_path: Path) -> None:
    wait_until_busy(systemd)
    systemd.systemctl("stop", "looper.service")
    try:
        assert [finding.culprit for finding in look(systemd, tmp_path).findings] == ["quitter.service"]
    finally:
        systemd.systemctl("start", "--no-block", "looper.service")


@pytest.mark.timeout(FIRST_BOOT_TIMEOUT)
def test_without_a_bus_the_managers_own_socket_answers(systemd: Systemd) -> None:
    wait_until_busy(systemd)
    # The manager only trusts a caller whose process it can see, so this one is started in its PID namespace.
    code = (
        "import asyncio, json, sys; from pathlib import Path; from sexton.host import systemd_bus, units\n"
        "systemd_bus.SYSTEM_BUS = 'run/no-bus-here'\n"
        "print(json.dumps([u.name for u in asyncio.run(units.read_services(Path(sys.argv[1]))).suspects]))"
    )
    inside = ["nsenter", "-t", str(systemd.pid), "-p"]
    seen = subprocess.run(
        [*inside, sys.executable, "-c", code, systemd.root], capture_output=True, text=True, timeout=15, check=True
    )

    assert {"looper.service", "quitter.service"} <= set(json.loads(seen.stdout))
