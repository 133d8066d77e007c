"""GPUs of a host: the driver's own files first, then the vendor's program, then what Amazon's start left behind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sexton.host import gpus
from sexton.host.gpus import NONE, Gpus

DRIVER = """NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC 2024
GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)
"""
OPEN_DRIVER = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build\n"
ONE, TWO = "GPU-0af51ba4-1111-2222-3333-444444444444", "GPU-1bf51ba4-1111-2222-3333-555555555555"


def device(root: Path, bus: str, uuid: str) -> None:
    place = root / "proc/driver/nvidia/gpus" / bus
    place.mkdir(parents=True)
    (place / "information").write_text(
        f"Model: \t\t Tesla T4\nIRQ:   \t\t 35\nGPU UUID: \t {uuid}\nBus Type: \t PCIe\n"
    )
    (root / "dev").mkdir(exist_ok=True)
    (root / "dev" / f"nvidia{len(list((root / 'dev').iterdir()))}").touch()


def version(root: Path, text: str = DRIVER) -> None:
    (root / "proc/driver/nvidia/version").write_text(text)


def program(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    folder.mkdir()
    (folder / "nvidia-smi").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")


@pytest.mark.parametrize(("text", "number"), [(DRIVER, "535.183.01"), (OPEN_DRIVER, "570.86.15"), ("?", "")])
async def test_the_drivers_files_name_every_device(tmp_path, text, number):
    device(tmp_path, "0000:00:1e.0", ONE)
    device(tmp_path, "0000:00:1f.0", TWO)
    version(tmp_path, text)

    assert await gpus.find(root=tmp_path) == Gpus((ONE, TWO), number)


async def test_a_device_nobody_has_used_yet_is_asked_for(tmp_path, monkeypatch):
    device(tmp_path, "0000:00:1e.0", "GPU-????????-????-????-????-????????????")
    program(tmp_path / "bin", monkeypatch, f'[ "$1" = --query-gpu=uuid,driver_version ] && echo "{ONE}, 535.183.01"')

    assert await gpus.find(root=tmp_path) == Gpus((ONE,), "535.183.01")


async def test_what_comes_late_is_waited_for(tmp_path, monkeypatch):
    device(tmp_path, "0000:00:1e.0", "GPU-????????-????-????-????-????????????")
    again = tmp_path / "again"
    program(tmp_path / "bin", monkeypatch, f'[ -e {again} ] && echo "{ONE}, 1.2"; : > {again}; exit 0')

    assert await gpus.find(root=tmp_path, pause=0.0) == Gpus((ONE,), "1.2")


async def test_what_amazons_start_left_is_the_last_resort(tmp_path):
    file = tmp_path / gpus.LEFT_BY_INIT
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"DriverVersion": "470.1", "GPUIDs": [ONE, TWO]}))

    assert await gpus.find(root=tmp_path) == Gpus((ONE, TWO), "470.1")

    device(tmp_path, "0000:00:1e.0", TWO)

    assert (await gpus.find(root=tmp_path)).ids == (TWO,)


async def test_a_file_that_was_named_is_believed_before_all(tmp_path):
    device(tmp_path, "0000:00:1e.0", TWO)
    (tmp_path / "mine.json").write_text(json.dumps({"GPUIDs": [ONE, ONE]}))

    assert await gpus.find(str(tmp_path / "mine.json"), tmp_path) == Gpus((ONE,), "")


@pytest.mark.parametrize("text", ["", "{", '{"GPUIDs": "GPU-1"}'])
async def test_a_damaged_list_is_said_and_is_no_reason_not_to_start(tmp_path, caplog, text):
    (tmp_path / "mine.json").write_text(text)

    assert await gpus.find(str(tmp_path / "mine.json"), tmp_path) == NONE
    assert caplog.messages == ["list of GPUs cannot be read, going on without"]


async def test_a_host_without_any_is_said_at_once(tmp_path, caplog):
    assert await gpus.find(root=tmp_path, pause=3600.0) == NONE
    assert caplog.messages == ["GPUs cannot be found, going on without"]
