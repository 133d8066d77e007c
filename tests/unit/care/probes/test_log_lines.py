"""The probe of log lines reads what the agent wrote down, and never takes silence for health."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from sexton.care.probe import Before, CouldNotLook, Looked, NotPresent, Scene
from sexton.care.probes.log_lines import PROBE
from sexton.core.logstanding import FILE, FOLDER, Standing, Waiting

NOW = 1_000_000.0


def scene(data_dir, before=None):
    return Scene(root=Path("/"), docker_host="unix:///none", now=NOW, uptime=1.0, before=before, data_dir=data_dir)


def write(folder, standing):
    (folder / FOLDER).mkdir()
    (folder / FOLDER / FILE).write_bytes(msgspec.json.encode(standing))


async def test_without_an_agent_there_is_nothing_to_see(tmp_path):
    assert isinstance(await PROBE.look(scene(None)), NotPresent)
    assert isinstance(await PROBE.look(scene(tmp_path)), NotPresent)


async def test_trouble_is_told(tmp_path):
    write(tmp_path, Standing(at=NOW, held=5, bound=9, dropped=3, waiting=(Waiting("https://logs", NOW - 99, "no"),)))
    outcome = await PROBE.look(scene(tmp_path, Before(60.0, {"dropped": 1})))
    assert isinstance(outcome, Looked)
    assert [one.fingerprint for one in outcome.findings] == ["logs/undelivered/https://logs", "logs/dropped"]
    assert outcome.figures == {"dropped": 3}


@pytest.mark.parametrize("held, kind", [(0, Looked), (5, CouldNotLook)])
async def test_a_file_of_an_agent_that_is_gone_is_no_health_while_lines_wait(tmp_path, held, kind):
    write(tmp_path, Standing(at=NOW - 3600, held=held))
    assert isinstance(await PROBE.look(scene(tmp_path)), kind)


async def test_a_damaged_file_is_not_seen(tmp_path):
    (tmp_path / FOLDER).mkdir()
    (tmp_path / FOLDER / FILE).write_bytes(b"{")
    assert isinstance(await PROBE.look(scene(tmp_path)), CouldNotLook)
