"""Every way in which the compiled walk can fail is said with what would help."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec
import pytest

from sexton.core.zombie import Group
from sexton.host import memcg_walk
from sexton.host.errors import Unreadable
from sexton.host.memcg_walk import each_dead, walk


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


DEAD = Group(35, b"/x", True, 0, 1, 1, 0, 0, 1, 0, 0)
LIVE = Group(1, b"/", False, 0, 0, 9, 0, 0, 1, 0, 0)


def frame(kind: int, content: object) -> bytes:
    packed = msgspec.msgpack.encode([kind, content])
    return len(packed).to_bytes(4, "big") + packed


def account(folder: Path, *, shape: int = 2, promised: int = 3) -> Path:
    head = frame(0, [shape, True, False, 0, 0, promised, 0, 0])
    (folder / "account").write_bytes(head + frame(1, [LIVE, DEAD]) + frame(1, [DEAD]))
    return program(folder, f"cat {folder}/account")


def test_an_account_of_another_version_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match="of another version"):
        walk(10, program=account(tmp_path, shape=99))


def test_an_account_is_read_frame_by_frame(tmp_path: Path) -> None:
    written = account(tmp_path)

    seen = walk(10, program=written)

    assert [(seen.groups[row].path, seen.groups[row].file) for row in seen.dead()] == [("/x", 1), ("/x", 1)]
    assert list(each_dead(10, program=written)) == [DEAD, DEAD]


def test_an_account_that_is_not_whole_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match="it is not whole"):
        walk(10, program=account(tmp_path, promised=4))
    with pytest.raises(Unreadable, match="it is not whole"):
        list(each_dead(10, program=account(tmp_path, promised=4)))
    (tmp_path / "account").write_bytes((tmp_path / "account").read_bytes()[:-3])
    with pytest.raises(Unreadable, match="a frame is torn"):
        list(each_dead(10, program=tmp_path / "memcg-walk"))


def test_a_walk_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memcg_walk, "DEADLINE", 0.2)
    hangs = program(tmp_path, f"cat {account(tmp_path).parent}/account; exec sleep 60")

    with pytest.raises(Unreadable, match="did not end within"):
        walk(10, program=hangs)


def test_whoever_has_seen_enough_leaves_no_child_behind(tmp_path: Path) -> None:
    account(tmp_path)
    hangs = program(tmp_path, f"echo $$ >{tmp_path}/pid; cat {tmp_path}/account; exec sleep 60")

    dead = each_dead(10, program=hangs)
    assert next(dead) == DEAD
    child = (tmp_path / "pid").read_text().strip()
    assert Path(f"/proc/{child}").exists()
    dead.close()  # type: ignore[attr-defined]  # it is a generator

    assert not Path(f"/proc/{child}").exists()


def test_a_reader_that_takes_its_time_is_told_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memcg_walk, "DEADLINE", 0.3)
    read = []
    begun = time.monotonic()
    for group in each_dead(10, program=account(tmp_path)):
        while time.monotonic() < begun + 0.25 * (len(read) + 1):
            pass
        read.append(group)

    assert read == [DEAD, DEAD]
