"""Who has a file open or mapped."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

from sexton.host.file_users import FileId, file_users


def identity(handle: int) -> FileId:
    found = os.fstat(handle)
    return os.major(found.st_dev), os.minor(found.st_dev), found.st_ino


def test_an_open_file_and_a_mapped_one_are_found() -> None:
    opened, mapped = os.memfd_create("opened"), os.memfd_create("mapped")
    os.ftruncate(mapped, 4096)
    kept, gone = identity(opened), identity(mapped)
    with mmap.mmap(mapped, 4096):
        os.close(mapped)

        users = file_users([kept, gone])

        assert [user.pid for user in users.of[kept]] == [os.getpid()]
        assert [user.pid for user in users.of[gone]] == [os.getpid()]
        assert users.complete
    os.close(opened)


def test_nobody_uses_what_is_closed() -> None:
    handle = os.memfd_create("closed")
    closed = identity(handle)
    os.close(handle)

    assert file_users([closed]).of == {}


def test_processes_that_lock_memory_are_named(tmp_path: Path) -> None:
    for pid, name, locked in ((7, "database", "4096 kB"), (8, "shell", "0 kB")):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "status").write_text(f"Name:\t{name}\nVmLck:\t{locked}\n")
    (tmp_path / "9").mkdir()  # gone before it was read

    assert [tuple(user) for user in file_users([], tmp_path).locking] == [(7, "database")]
