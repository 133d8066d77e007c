"""``sexton control export`` and ``import``: a running control plane saved, restored, and moved between stores."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import sys
from pathlib import Path

import aiohttp
import pytest

from etcd import shared_etcd
from fleet_agent import Key
from plane import REGION, Plane, open_plane
from sexton.cloud.client import EcsClient
from sexton.cloud.credentials import Credentials
from sexton.wire import ecs

pytestmark = pytest.mark.timeout(120)


async def sexton(plane: Plane | None, directory: Path, *words: str) -> tuple[int, str]:
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    environment |= {"ECS_DATADIR": str(directory)}
    if plane is not None:
        environment |= {"AWS_ENDPOINT_URL": f"http://{plane.host}"}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "sexton", *words),
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, output.decode()


async def families(plane: Plane, key: Credentials) -> list[str]:
    async with aiohttp.ClientSession() as http:
        client = EcsClient(f"http://{plane.host}", REGION, Key(key), http)
        answer = await client.call(
            "ListTaskDefinitions", ecs.ListTaskDefinitionsRequest(), ecs.ListTaskDefinitionsResponse
        )
        return [one.rpartition("/")[2] for one in answer.task_definition_arns or ()]


async def define(plane: Plane, family: str) -> None:
    async with aiohttp.ClientSession() as http:
        client = EcsClient(f"http://{plane.host}", REGION, Key(plane.key), http)
        container = ecs.ContainerDefinition(name="main", image="busybox", memory=8)
        await client.call(
            "RegisterTaskDefinition",
            ecs.RegisterTaskDefinitionRequest(family=family, container_definitions=(container,)),
        )


async def test_a_running_control_plane_is_saved_and_moves_to_etcd_and_back_with_its_keys(tmp_path: Path) -> None:
    first, second, third = (tmp_path / name for name in ("first", "second", "third"))
    saved, again = tmp_path / "saved", tmp_path / "again"
    url = f"{shared_etcd().url}/backup-{tmp_path.name}"
    async with open_plane(first) as plane:
        key = plane.key
        await define(plane, "web")
        code, said = await sexton(plane, first, "control", "export", str(saved))
        assert (code, "records saved" in said) == (0, True), said
        assert stat.S_IMODE(saved.stat().st_mode) == 0o600
        await define(plane, "later")

    code, said = await sexton(None, second, "control", "import", str(saved), "--store", url)
    assert (code, "records loaded" in said) == (0, True), said
    async with open_plane(second, store=url) as plane:
        assert await families(plane, key) == ["web:1"]
        assert plane.key == key
        async with asyncio.timeout(20):
            while not plane.control.leads:
                await asyncio.sleep(0.05)

        code, said = await sexton(None, second, "control", "import", str(saved), "--store", url, "--replace")
        assert code == 1
        assert "control planes work on it" in said
        assert await families(plane, key) == ["web:1"]
        await define(plane, "more")
        code, said = await sexton(None, second, "control", "export", str(again), "--store", url)
        assert code == 0, said

    code, said = await sexton(None, third, "control", "import", str(again))
    assert code == 0, said
    code, said = await sexton(None, third, "control", "import", str(saved))
    assert code == 1
    assert "ask to replace everything in it" in said
    async with open_plane(third) as plane:
        assert await families(plane, key) == ["more:1", "web:1"]
    code, said = await sexton(None, third, "control", "import", str(saved), "--replace")
    assert (code, "removed" in said) == (0, True), said
    async with open_plane(third) as plane:
        assert await families(plane, key) == ["web:1"]


async def test_what_is_no_whole_export_changes_nothing(tmp_path: Path) -> None:
    home, saved = tmp_path / "home", tmp_path / "saved"
    async with open_plane(home):
        pass
    code, said = await sexton(None, home, "control", "export", str(saved))
    assert code == 0, said
    text = saved.read_text()
    first = json.loads(text.partition("\n")[0])
    wrong = {
        "other": ("hello\n", "this is no export of a Sexton store"),
        "cut": (text[: len(text) // 2], "cannot load: "),
        "changed": (text.replace("default", "DEFAULT", 1), "cannot load: "),
        "newer": (json.dumps(first | {"sexton-store": 99}) + "\n" + text.partition("\n")[2], "export has format 99"),
    }
    for name, (content, reason) in wrong.items():
        (tmp_path / name).write_text(content)

        code, said = await sexton(None, home, "control", "import", str(tmp_path / name), "--replace")

        assert (code, reason in said) == (1, True), said
    code, said = await sexton(None, home, "control", "import", str(tmp_path / "absent"))
    assert (code, "cannot read" in said) == (1, True), said
    code, said = await sexton(None, tmp_path / "nowhere", "control", "export", "-")
    assert (code, "there is no" in said) == (1, True), said
    async with open_plane(home) as plane:
        code, said = await sexton(plane, home, "control", "import", str(saved), "--replace")
        assert (code, "is using it" in said) == (1, True), said
    assert not list(tmp_path.glob(".saved*"))
