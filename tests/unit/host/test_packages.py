"""Whose file it is, by a package manager's own records."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sexton.host.packages import last_change, owner_of


@pytest.fixture
def root(tmp_path: Path) -> Path:
    records = tmp_path / "var/lib/dpkg"
    (records / "info").mkdir(parents=True)
    (records / "info/format").write_text("1\n")
    (records / "info/amazon-ecs-init.list").write_text("/.\n/lib/systemd/system/ecs.service\n")
    (records / "status").write_text(
        "Package: amazon-ecs-init\nStatus: install ok installed\nVersion: 1.0\nArchitecture: amd64\n"
        "Maintainer: m <m@example.com>\nDescription: d\n\n"
    )
    os.utime(records / "status", (5000, 5000))
    return tmp_path


@pytest.mark.parametrize("path", ["/lib/systemd/system/ecs.service", "/usr/lib/systemd/system/ecs.service"])
def test_a_shipped_file_has_an_owner_on_either_side_of_the_merge(root: Path, path: str) -> None:
    assert owner_of(root, path) == "amazon-ecs-init"


def test_a_file_of_nobodys_has_none(root: Path, tmp_path: Path) -> None:
    assert owner_of(root, "/etc/systemd/system/mine.service") is None
    assert owner_of(tmp_path / "no-package-manager", "/lib/systemd/system/ecs.service") is None


def test_the_last_change_is_told(root: Path, tmp_path: Path) -> None:
    assert last_change(root) == 5000
    assert last_change(tmp_path / "nowhere") == 0
