"""A real engine with containers that die young over and over: by a restart policy, and by a script, which no counter
of systemd's sees. Healthy neighbours stay silent."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from engine import PrivateEngine
from sexton.care.look import Round, look_around
from sexton.care.probes import containers

pytestmark = pytest.mark.docker

DEADLINE = 20.0


def look(engine: PrivateEngine, state: Path) -> Round:
    return asyncio.run(look_around(Path("/"), engine.url, state, (containers.PROBE,)))


@pytest.mark.timeout(120)
def test_looping_containers_are_named_and_healthy_ones_are_not(
    engine_session: PrivateEngine, busybox_image: str, tmp_path: Path
) -> None:
    engine = engine_session
    engine.cli("run", "-d", "--name", "doctor-steady", "--network", "none", busybox_image, "sleep", "600")
    engine.cli(
        *("run", "-d", "--name", "doctor-policy", "--network", "none", "--restart", "always"),
        *(busybox_image, "sh", "-c", "exit 7"),
    )
    for number in range(4):
        done = ("run", "--rm", "--name", f"doctor-job-{number}", "--network", "none", busybox_image, "true")
        engine.cli(*done)
        engine.cli(
            "run", "-d", "--name", f"doctor-script-{number}", "--network", "none", busybox_image, "sh", "-c", "exit 5"
        )
        engine.cli("wait", f"doctor-script-{number}")
        engine.cli("rm", "-f", f"doctor-script-{number}")
    try:
        seen = look(engine, tmp_path)
        deadline = time.monotonic() + DEADLINE
        while not any("doctor-policy" in finding.culprit for finding in seen.findings):
            assert time.monotonic() < deadline, seen
            time.sleep(0.2)
            seen = look(engine, tmp_path)
    finally:
        engine.cli("rm", "-f", "doctor-steady", "doctor-policy")

    ours = {finding.culprit: finding for finding in seen.findings if finding.culprit.startswith("doctor-")}
    policy, script = f"doctor-policy (image {busybox_image})", f"doctor-script-* (image {busybox_image})"
    assert set(ours) == {policy, script}
    told = {item.what: item.value for item in ours[script].evidence}
    assert told["exit codes"] == "5"
    assert told["newest"].startswith("doctor-script-3 (")
    assert "4 containers were made one after another" in told["short lives that failed"]
    assert "a restart policy restarts one container" in str(ours[policy].evidence)


@pytest.mark.timeout(60)
def test_an_engine_without_trouble_has_no_findings_of_ours(
    engine_session: PrivateEngine, busybox_image: str, tmp_path: Path
) -> None:
    engine_session.cli("run", "-d", "--name", "doctor-calm", "--network", "none", busybox_image, "sleep", "600")
    try:
        seen = look(engine_session, tmp_path)
    finally:
        engine_session.cli("rm", "-f", "doctor-calm")

    assert not [finding for finding in seen.findings if "doctor-calm" in finding.culprit]
    assert "docker" in str(seen.sights[0].outcome)
