"""Every way in which the compiled walk can fail is said with what would help."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from sexton.core.zombie import Group, Walk
from sexton.host.errors import Unreadable
from sexton.host.memcg_walk import walk


def program(folder: Path, script: str) -> Path:
    path = folder / "memcg-walk"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("script", "reason", "help_"),
    [
        ("echo 'cannot load: Operation not permitted' >&2; exit 3", "does not permit it (cannot load", "CAP_BPF"),
        ("echo 'cannot load: no BTF' >&2; exit 4", "this kernel cannot run it (cannot load: no BTF)", "5.17"),
        ("kill -SEGV $$", "exit code -11", "build_bpf.sh"),
        ("exit 2", "exit code 2", "build_bpf.sh"),
        ("printf garbage", "the account is damaged", "build_bpf.sh"),
        ("exit 0", "the account is damaged", "build_bpf.sh"),
    ],
)
def test_a_refusal_is_told_with_its_reason(tmp_path: Path, script: str, reason: str, help_: str) -> None:
    with pytest.raises(Unreadable) as refused:
        walk(10, program=program(tmp_path, script))

    assert reason in str(refused.value)
    assert help_ in refused.value.next_step


def test_a_program_that_was_never_compiled(tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match="is not compiled") as refused:
        walk(10, program=tmp_path / "nothing")

    assert "scripts/build_bpf.sh" in refused.value.next_step


def test_a_program_for_another_machine(tmp_path: Path) -> None:
    alien = tmp_path / "memcg-walk"
    alien.write_bytes(b"\x7fELF\x01\x01\x01" + bytes(60))
    alien.chmod(0o755)

    with pytest.raises(Unreadable, match="cannot start"):
        walk(10, program=alien)


def account(shape: int) -> bytes:
    dead = Group(35, b"/x", True, 0, 1, 1, 0, 0, 1, 0, 0)
    return msgspec.msgpack.encode(Walk(shape, True, False, 0, 0, (dead,), (), ()))


def test_an_account_of_another_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / "account").write_bytes(account(shape=99))

    with pytest.raises(Unreadable, match="of another version"):
        walk(10, program=program(tmp_path, f"cat {tmp_path}/account"))


def test_an_account_is_read(tmp_path: Path) -> None:
    (tmp_path / "account").write_bytes(account(shape=1))

    seen = walk(10, program=program(tmp_path, f"cat {tmp_path}/account"))

    assert [(seen.groups[row].path, seen.groups[row].file) for row in seen.dead()] == [("/x", 1)]
