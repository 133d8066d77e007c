"""Files that pin zombies: a path is given out only when it is that very file."""

from __future__ import annotations

import ctypes
import fcntl
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from sexton.core.zombie import BLOCK_DEVICES, EXT, TMPFS, Holder
from sexton.host.confined_work import open_by_handle
from sexton.host.pinned_files import Mounts, read_mounts

FILE, PROCESS = 1, 2
FS_IOC_GETVERSION = 0x80087601


@pytest.fixture
def file() -> Iterator[Path]:
    """On the disk the checkout is on: other file systems have no such handles."""
    with TemporaryDirectory(dir=Path(__file__).parent) as folder:
        path = Path(folder) / "log"
        path.write_bytes(b"x")
        yield path


def holder(path: Path, *, name: str | None = None, magic: int = EXT, links: int = 1) -> Holder:
    found = path.stat()
    device = os.major(found.st_dev) << 20 | os.minor(found.st_dev)
    return Holder(FILE, found.st_ino, device, generation(path), links, magic, os.fsencode(name or inside(path)))


def generation(path: Path) -> int:
    handle = os.open(path, os.O_RDONLY)
    try:
        return struct.unpack("I", fcntl.ioctl(handle, FS_IOC_GETVERSION, bytes(8))[:4])[0]
    finally:
        os.close(handle)


def inside(path: Path) -> str:
    """Its path inside its file system."""
    top = path
    while not os.path.ismount(top):
        top = top.parent
    return "/" + str(path.relative_to(top))


def test_the_path_is_told(file: Path) -> None:
    assert read_mounts().path_of(holder(file)) == str(file)


def test_a_file_that_was_renamed_is_found_by_what_it_is(file: Path) -> None:
    was = holder(file)
    now = file.rename(file.with_name("renamed"))

    assert read_mounts().path_of(was) == str(now)


def test_another_file_by_the_same_name_is_not_it(file: Path) -> None:
    was = holder(file)
    other = file.with_name("other")
    other.write_bytes(b"y")
    other.replace(file)  # the first one has no name any more

    mounts = read_mounts()

    assert mounts.path_of(was) is None
    assert "path unknown" in mounts.says(was)
    assert str(was.number) in mounts.says(was)


def test_a_handle_opens_that_generation_of_the_inode_only(file: Path) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    mount = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        opened = open_by_handle(libc, mount, file.stat().st_ino, generation(file))
        assert os.fstat(opened).st_ino == file.stat().st_ino
        os.close(opened)
        with pytest.raises(OSError, match="Stale"):
            open_by_handle(libc, mount, file.stat().st_ino, generation(file) ^ 1)
    finally:
        os.close(mount)


def test_a_part_of_a_file_system_mounted_elsewhere(tmp_path: Path, file: Path) -> None:
    found = file.stat()
    table = tmp_path / "mountinfo"
    device = f"{os.major(found.st_dev)}:{os.minor(found.st_dev)}"
    table.write_text(
        f"30 1 {device} /somewhere/else /mnt rw - ext4 /dev/x rw\n"
        f"31 1 {device} {inside(file.parent)} {str(file.parent).replace(' ', chr(92) + '040')} rw - ext4 /dev/x rw\n"
    )

    assert read_mounts(table).path_of(holder(file)) == str(file)


@pytest.mark.parametrize(
    ("what", "said"),
    [
        (Holder(PROCESS, 4242, 0, 0, 0, 0, b"postgres"), "process 4242 (postgres)"),
        (Holder(0, 0, 0, 0, 0, 0, b""), "anonymous memory of an unknown process"),
        (Holder(FILE, 5, 1 << 20, 0, 0, TMPFS, b"/memfd:cache"), "shared memory memfd:cache (inode 5)"),
        (Holder(FILE, 5, 1 << 20, 0, 1, BLOCK_DEVICES, b""), "metadata of a file system"),
        (
            Holder(FILE, 5, 8 << 20 | 1, 0, 0, EXT, b"/var/log/x\xff"),
            "inode 5 of device 8:1 (path unknown, deleted, was /var/log/x\\xff)",
        ),
        (Holder(FILE, 5, 8 << 20 | 1, 0, 1, EXT, b""), "inode 5 of device 8:1 (path unknown)"),
    ],
)
def test_what_has_no_path_is_named_by_what_it_is(what: Holder, said: str) -> None:
    assert Mounts({}).says(what) == said


def test_no_mount_table_is_no_trouble(tmp_path: Path) -> None:
    assert read_mounts(tmp_path / "nothing").openable((8, 1)) is None
