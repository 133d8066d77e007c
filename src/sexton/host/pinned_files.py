"""Files that pin zombies: from what a walk saw in memory (device, inode, name inside the file system) to a path and
back.

The kernel's name for a file is a hint: the file may have been renamed since, or its name dropped from memory. So a path
is only given out when the file there is that very file by device and inode; else its file system is named and its
inode, and the path is "unknown". Files to be dropped from memory are never opened by path, but by inode and generation.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

from sexton.core.zombie import BLOCK_DEVICES, BY_HANDLE, MEMORY_ONLY, Holder, HolderKind, text
from sexton.host.confined_work import open_by_handle


class Mount(msgspec.Struct, frozen=True):
    """One place where a file system, or the part of it below ``top``, is mounted."""

    where: bytes
    top: bytes


class Mounts:
    """The mount table at one moment, by device."""

    def __init__(self, by_device: dict[tuple[int, int], list[Mount]]) -> None:
        self._by_device = by_device
        self._libc = ctypes.CDLL(None, use_errno=True)

    def openable(self, device: tuple[int, int]) -> bytes | None:
        """A directory of this file system, through which its files can be opened."""
        for mount in self._by_device.get(device, ()):
            if _device_of(mount.where) == device:
                return mount.where
        return None

    def path_of(self, holder: Holder) -> str | None:
        """The file's path as seen from here, or None when nobody can say."""
        if holder.kind is not HolderKind.FILE or holder.links == 0:
            return None
        for mount in self._by_device.get(holder.device, ()):
            top = mount.top.rstrip(b"/")
            if holder.name and (holder.name == top or holder.name.startswith(top + b"/")):
                path = mount.where.rstrip(b"/") + holder.name[len(top) :]
                if _is(path, holder):
                    return text(path)
        return self._by_handle(holder)

    def _by_handle(self, holder: Holder) -> str | None:
        where = self.openable(holder.device) if holder.magic in BY_HANDLE else None
        if where is None:
            return None
        try:
            mount = os.open(where, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            file = open_by_handle(self._libc, mount, holder.number, holder.generation)
        except OSError:
            return None
        finally:
            os.close(mount)
        try:
            path = os.fsencode(os.readlink(f"/proc/self/fd/{file}"))
        except OSError:
            return None
        finally:
            os.close(file)
        return text(path) if _is(path, holder) else None

    def says(self, holder: Holder) -> str:
        """The holder as a person says it."""
        if holder.kind is HolderKind.PROCESS:
            return f"process {holder.number} ({text(holder.name)})"
        if holder.kind is HolderKind.UNKNOWN:
            return "anonymous memory of an unknown process"
        if path := self.path_of(holder):
            return path
        where = self.openable(holder.device)
        major, minor = holder.device
        if holder.magic == BLOCK_DEVICES:  # such a file's number is the device's
            mounted = self.openable((holder.number >> 20, holder.number & 0xFFFFF))
            return "metadata of a file system" if mounted is None else f"metadata of the file system at {text(mounted)}"
        if (
            where is None and holder.magic in MEMORY_ONLY and holder.name
        ):  # no mount shows it: memfd, SysV and other memory shared by processes
            return f"shared memory {text(holder.name).lstrip('/')} (inode {holder.number})"
        gone = ", deleted" if holder.links == 0 else ""
        hint = f", was {text(holder.name)}" if holder.name else ""
        place = f"device {major}:{minor}" if where is None else text(where)
        return f"inode {holder.number} of {place} (path unknown{gone}{hint})"


def read_mounts(table: Path = Path("/proc/self/mountinfo")) -> Mounts:
    """The mount table as it is now; empty when it cannot be read."""
    try:
        lines: Iterable[bytes] = table.read_bytes().splitlines()
    except OSError:
        lines = ()
    by_device: dict[tuple[int, int], list[Mount]] = {}
    for line in lines:
        words = line.split(b" ")
        major, _, minor = words[2].partition(b":") if len(words) > 4 else (b"", b"", b"")
        if major.isdigit() and minor.isdigit():
            mount = Mount(where=_unescaped(words[4]), top=_unescaped(words[3]))
            by_device.setdefault((int(major), int(minor)), []).append(mount)
    return Mounts(by_device)


def _unescaped(field: bytes) -> bytes:
    """Blanks, tabs, newlines and backslashes are written in octal in a mount table."""
    for code, char in ((b"\\040", b" "), (b"\\011", b"\t"), (b"\\012", b"\n"), (b"\\134", b"\\")):
        field = field.replace(code, char)
    return field


def _device_of(path: bytes) -> tuple[int, int] | None:
    try:
        found = os.stat(path).st_dev
    except OSError:
        return None
    return os.major(found), os.minor(found)


def _is(path: bytes, holder: Holder) -> bool:
    try:
        found = os.stat(path, follow_symlinks=False)
    except OSError:
        return False
    return (os.major(found.st_dev), os.minor(found.st_dev)) == holder.device and found.st_ino == holder.number
