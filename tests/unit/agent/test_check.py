"""Asking beforehand: every trouble is named with its cure and the right code, and nothing is changed by asking."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from plane import REGION, Plane, open_plane
from sexton.agent import check
from sexton.agent.check import Finding
from sexton.cloud.credentials import Attempt, Credentials, NoCredentials
from sexton.host import packetfilter
from sexton.settings import Settings
from unit.agent.test_state import lived


class Wallet:
    def __init__(self, plane: Plane | None, error: NoCredentials | None = None) -> None:
        self.key = plane.key if plane is not None else None
        self._error = error

    async def current(self) -> Any:
        if self._error is not None:
            raise self._error
        return self.key

    def forget(self, refused: Any) -> None:
        pass


async def ask(plane: Plane | None, tmp_path: Path, wallet: Wallet | None = None, **more: Any) -> dict[str, Finding]:
    chosen = {"data_dir": str(tmp_path / "agent"), "docker_host": "fake://", "region": REGION} | more
    settings = Settings(**chosen)
    endpoint = f"http://{plane.host}" if plane is not None else "http://127.0.0.1:9"
    async with aiohttp.ClientSession() as http:
        found = await check.look(settings, http, wallet or Wallet(plane), endpoint, 4096)
    return {one.name: one for one in found}


def code(found: dict[str, Finding]) -> int:
    return check.exit_code(list(found.values()))


async def test_a_host_that_would_join(tmp_path: Path) -> None:
    async with open_plane(tmp_path / "plane") as plane:
        found = await ask(plane, tmp_path)
    assert code(found) == 0, found
    assert "default is active" in found["cluster"].says
    assert "4096 MiB" in found["registration"].says and "attributes" in found["registration"].says
    assert found["task endpoint"].says.startswith("none: the container engine is not on this host; tasks find nothing")
    assert not (tmp_path / "agent").exists()  # nothing was made


async def test_whether_tasks_would_find_their_endpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nobody = Wallet(None, NoCredentials([Attempt("environment", "not set", False)]))
    here: dict[str, Any] = {"docker_host": f"unix://{tmp_path}/none.sock", "wallet": nobody}
    found = await ask(None, tmp_path, task_endpoint_port=-1, **here)
    assert found["task endpoint"].says.startswith("none: SEXTON_TASK_ENDPOINT_PORT is off")
    monkeypatch.setattr(packetfilter, "PROGRAM", "no-such-tool")
    found = await ask(None, tmp_path, **here)
    assert "none: cannot run no-such-tool" in found["task endpoint"].says
    assert (found["task endpoint"].code, bool(found["task endpoint"].cure)) == (0, True)
    monkeypatch.setattr(packetfilter, "PROGRAM", "true")
    found = await ask(None, tmp_path, **here)
    assert found["task endpoint"].says == "tasks would find it at 169.254.170.2"


async def test_an_unknown_cluster(tmp_path: Path) -> None:
    async with open_plane(tmp_path / "plane") as plane:
        found = await ask(plane, tmp_path, cluster="nosuch")
    assert (found["cluster"].code, code(found)) == (5, 5)
    assert "there is no cluster nosuch" in found["cluster"].says and "ECS_CLUSTER" in found["cluster"].cure


async def test_a_control_plane_that_is_away_and_one_that_refuses(tmp_path: Path) -> None:
    async with open_plane(tmp_path / "plane") as plane:
        wrong = Wallet(plane)
        wrong.key = Credentials(plane.key.access_key_id, "x" * 40)
        refused = await ask(plane, tmp_path, wrong)
        gone = await ask(None, tmp_path, Wallet(plane))
    assert refused["control plane"].code == 5 and "refuses" in refused["control plane"].says
    assert (gone["control plane"].code, code(gone)) == (1, 1)


async def test_every_trouble_is_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "agent").write_text("a file")
    none = NoCredentials([Attempt("environment", "AWS_ACCESS_KEY_ID is not set", False)])
    found = await ask(
        None,
        tmp_path,
        Wallet(None, none),
        docker_host=f"unix://{tmp_path}/none.sock",
        reserved_memory=5000,
    )
    assert {name: one.code for name, one in found.items()} == {
        "credentials": 5,
        "state": 5,
        "engine": 1,
        "registration": 5,
        "task endpoint": 0,
    }
    assert all(one.cure for one in found.values() if one.code)
    text = check.report(Settings(), list(found.values()))
    assert text.count("FAIL") == 4 and text.endswith("the agent would stand down.")


async def test_a_state_of_another_cluster(tmp_path: Path) -> None:
    await lived(tmp_path / "agent")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "agent").rglob("*")}
    async with open_plane(tmp_path / "plane") as plane:
        other = await ask(plane, tmp_path, cluster="other")
        same = await ask(plane, tmp_path)
    assert other["state"].code == 5 and "belongs to cluster default" in other["state"].says
    assert same["state"].code == 0 and "would come back as arn:" in same["state"].says
    assert before == {path: path.stat().st_mtime_ns for path in (tmp_path / "agent").rglob("*")}


def test_the_command(tmp_path: Path) -> None:
    """Without credentials on a host of no cluster, as a script would ask."""
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        "HOME": str(tmp_path),
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "sexton",
            "agent",
            "--check",
            "--data-dir",
            str(tmp_path / "a"),
            "--docker-host",
            "fake://",
        ],
        env=environment,
        capture_output=True,
        text=True,
        timeout=15,
    )
    assert done.returncode == 5 and "FAIL credentials" in done.stdout and "ok   engine" in done.stdout
    assert "Traceback" not in done.stderr and list(tmp_path.iterdir()) == []
    asked = subprocess.run(
        [sys.executable, "-m", "sexton", "agent", "--healthcheck"],
        env=environment | {"SEXTON_INTROSPECTION": "127.0.0.1:9"},
        capture_output=True,
        text=True,
        timeout=15,
    )
    assert asked.returncode == 1 and "cannot reach an agent at http://localhost:9/v1/metadata" in asked.stdout
