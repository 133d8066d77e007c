"""The sandbox: its program, its image and its names."""

from __future__ import annotations

import io
import json
import platform
import subprocess
import tarfile
from pathlib import Path

import pytest

from sexton.core import sandbox


def test_the_program_waits_and_ends_when_it_is_killed(tmp_path: Path):
    path = tmp_path / "sandbox"
    path.write_bytes(sandbox.program(platform.machine()))
    path.chmod(0o755)
    process = subprocess.Popen([str(path)])
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.2)
    process.kill()

    assert process.wait(5) == -9


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_image_is_small_and_the_same_each_time(machine):
    made = sandbox.image(machine)
    with tarfile.open(fileobj=io.BytesIO(made)) as archive:
        manifest = json.load(archive.extractfile("manifest.json"))
        config = json.load(archive.extractfile(manifest[0]["Config"]))

    assert made == sandbox.image(machine) and len(made) < 32 << 10
    assert manifest[0]["RepoTags"] == [sandbox.image_name(machine)]
    assert config["config"]["User"] == sandbox.NOBODY


def test_a_machine_nobody_knows_is_refused():
    with pytest.raises(sandbox.NoProgram, match="riscv64"):
        sandbox.program("riscv64")


def test_a_task_has_one_name_and_the_pool_has_none_of_a_task():
    assert sandbox.task_of("tag", sandbox.task_name("tag", "abc")) == "abc"
    assert sandbox.task_of("tag", sandbox.pool_name("tag", "1234")) == ""
    assert sandbox.task_of("other", sandbox.task_name("tag", "abc")) == ""


def test_a_sandbox_has_no_rights():
    body = sandbox.create_body("arn", "1234", "/ecs/x")

    assert body["HostConfig"]["CapDrop"] == ["ALL"] and body["HostConfig"]["ReadonlyRootfs"]
    assert body["HostConfig"]["NetworkMode"] == "none" and body["User"] == "65534:65534"
    assert not any(key.startswith("com.amazonaws.ecs") for key in body["Labels"])


def test_name_servers_on_the_hosts_loopback_are_none_for_a_task():
    text = "# made by x\nnameserver 127.0.0.53\nnameserver ::1\nnameserver 192.0.2.53\nsearch example.com\n"

    assert sandbox.resolver_of_host(text) == "nameserver 192.0.2.53\nsearch example.com\n"
    assert sandbox.resolver_file(("10.0.0.2",), ("a.b",)) == "search a.b\nnameserver 10.0.0.2\n"


def test_a_task_finds_itself_by_its_names():
    assert "10.0.0.5\tip-10-0-0-5 held\n" in sandbox.hosts_file(("ip-10-0-0-5", "held", "held"), ("10.0.0.5",))
