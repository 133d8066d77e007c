"""A real systemd with units that turn in circles in every way there is, and busy ones that do not: the former are found
at their third turn and named for what they are, by systemd's signals and by one look at the journal."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from sexton.care.look import Round, look_around
from sexton.care.probe import Scene
from sexton.care.probes import unit_turns
from sexton.core.finding import Finding
from sexton.core.loop import SHAPES, Shape
from systemd import FIRST_BOOT_TIMEOUT, Systemd
from watchers import Told, watching

DEADLINE = 15.0

UNITS = {
    "forever.service": """
        [Unit]
        StartLimitIntervalSec=0
        [Service]
        ExecStart=/bin/sh -c 'sleep 0.1'
        Restart=always
        RestartSec=300ms
        """,
    "failing.service": """
        [Unit]
        StartLimitIntervalSec=0
        [Service]
        ExecStart=/bin/false
        Restart=on-failure
        RestartSec=300ms
        """,
    "nightly.service": "[Service]\nType=oneshot\nExecStart=/bin/false\n",
    "nightly.timer": "[Timer]\nOnActiveSec=100ms\nOnUnitInactiveSec=500ms\nAccuracySec=10ms\n",
    "poked.service": "[Unit]\nStartLimitIntervalSec=0\n[Service]\nExecStart=/bin/sleep infinity\n",
    "kicked.service": "[Unit]\nStartLimitIntervalSec=0\n[Service]\nExecStart=/bin/sh -c 'sleep 0.1; exit 2'\n",
    # Busy and healthy.
    "tidy.service": "[Service]\nType=oneshot\nExecStart=/bin/true\n",
    "tidy.timer": "[Timer]\nOnActiveSec=100ms\nOnUnitInactiveSec=200ms\nAccuracySec=10ms\n",
    "steady.service": "[Service]\nExecStart=/bin/sleep infinity\nRestart=always\n",
    "stumbler.service": """
        [Service]
        ExecStart=/bin/sh -c 'test -e /run/stumbled || { touch /run/stumbled; exit 1; }; exec sleep infinity'
        Restart=on-failure
        RestartSec=50ms
        """,
    "unlucky.service": "[Service]\nType=oneshot\nExecStart=/bin/false\n",
    "deployed.service": "[Service]\nExecStart=/bin/sleep infinity\nRestart=always\n",
    "job.service": "[Service]\nType=oneshot\nExecStart=/bin/true\n",
}
LOOPS = {
    "forever.service": Shape.ALWAYS,
    "failing.service": Shape.ON_FAILURE,
    "nightly.service": Shape.TIMER,
    "poked.service": Shape.BY_HAND,
    "kicked.service": Shape.BY_HAND,
}

pytestmark = pytest.mark.timeout(FIRST_BOOT_TIMEOUT)


@pytest.fixture(scope="module")
def systemd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Systemd]:
    units = {name: "\n".join(map(str.strip, text.splitlines())) for name, text in UNITS.items()}
    with Systemd(units, tmp_path_factory.mktemp("systemd")) as running:
        yield running


def watched(systemd: Systemd) -> AbstractAsyncContextManager[Told]:
    scene = Scene(root=systemd.root, docker_host="unix:///nowhere", now=time.time(), uptime=None)
    return watching(unit_turns.watch, scene)


def of(told: Told) -> dict[str, Finding]:
    """What is told now, by culprit."""
    return {found.culprit: found for found in told.findings}


def turns(finding: Finding) -> int:
    return int({item.what: item.value for item in finding.evidence}["turns"].split()[0].replace(",", ""))


def shape(finding: Finding) -> str:
    return {item.what: item.value for item in finding.evidence}["shape"]


async def test_every_shape_is_found_at_its_third_turn_and_the_healthy_stay_silent(systemd: Systemd) -> None:
    async def systemctl(*words: str) -> None:
        await asyncio.to_thread(systemd.systemctl, *words)

    async with watched(systemd) as told:
        await systemctl("start", "--no-block", "steady.service", "stumbler.service", "unlucky.service")
        await systemctl("start", "--no-block", "forever.service", "failing.service", "nightly.timer", "tidy.timer")
        await systemctl("start", "poked.service", "deployed.service")
        for turn in range(3):
            await systemctl("restart", "poked.service")
            await systemctl("start", "kicked.service")
            await systemctl("start", "job.service")
            if turn == 0:
                await systemctl("restart", "deployed.service")
            await told.until(lambda: systemd.systemctl("is-active", "kicked.service").stdout.strip() == "failed")
        await told.until(lambda: set(LOOPS) <= set(of(told)))
        last = of(told)
        first = {finding.culprit: finding for finding in told.ever.values()}

    assert set(last) == set(LOOPS)
    assert {who: shape(finding) for who, finding in last.items()} == {who: SHAPES[kind] for who, kind in LOOPS.items()}
    # A loaded machine may be judged some turns later than it was told.
    assert all(turns(finding) <= 8 for finding in first.values()), {who: turns(f) for who, f in first.items()}
    told_by = {item.what: item.value for item in last["nightly.service"].evidence}
    assert told_by["triggered by"] == "nightly.timer"
    assert "/run/systemd/system/nightly.service, which no package ships" in told_by["unit shipped by"]
    assert "each turn leaks" in told_by


async def test_one_look_at_the_journal_names_the_same(systemd: Systemd, tmp_path: Path) -> None:
    deadline = time.monotonic() + DEADLINE
    while set(LOOPS) - set(found := by_culprit(await look(systemd, tmp_path))):
        assert time.monotonic() < deadline, found
        await asyncio.sleep(0.1)

    assert set(found) == set(LOOPS)
    assert {who: shape(finding) for who, finding in found.items()} == {who: SHAPES[kind] for who, kind in LOOPS.items()}


async def look(systemd: Systemd, state: Path) -> Round:
    return await look_around(systemd.root, "unix:///nowhere", state, (unit_turns.PROBE,))


def by_culprit(seen: Round) -> dict[str, Finding]:
    return {finding.culprit: finding for finding in seen.findings}
