"""How full the host's file systems are, in bytes and in inodes, and what the container engine takes of one.

Only file systems on local disks are asked: a network's may not answer for minutes. Asking costs a call each. What an
engine uses is summed up only when its file system is short, within a bound of time: then it is a part of the truth
and says so.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import msgspec

from sexton.host.cgroup import unescaped
from sexton.host.errors import Unreadable

LOCAL = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "zfs", "bcachefs", "reiserfs", "jfs", "vfat"})
# Summing up is ended after so long; a directory of a million files takes a few seconds.
SUM_DEADLINE = 0.8


class Volume(msgspec.Struct, frozen=True, kw_only=True):
    """One file system. ``free`` is what an ordinary user still gets; inodes are 0 where it has no fixed number."""

    mount: str
    device: str
    size: int
    free: int
    inodes: int
    inodes_free: int

    @property
    def used(self) -> float:
        """From 0 to 1, of what an ordinary user can use."""
        return 1 - self.free / self.size if self.size else 0.0

    @property
    def inodes_used(self) -> float:
        return 1 - self.inodes_free / self.inodes if self.inodes else 0.0


class Use(msgspec.Struct, frozen=True):
    """Bytes below a directory of the engine's; ``whole`` is False when time ran out."""

    what: str
    size: int
    whole: bool


def volumes(root: Path) -> tuple[Volume, ...]:
    """Every local file system that can be written, once each, the fullest first. Raises Unreadable."""
    whose = "self" if root == Path("/") else "1"
    path = root / "proc" / whose / "mounts"
    try:
        lines = path.read_text(errors="surrogateescape").splitlines()
    except OSError as error:
        raise Unreadable(f"cannot read {path}: {error.strerror}", "Run it on the host itself.") from error
    found: dict[int, Volume] = {}
    for line in lines:
        words = line.split(" ")
        if len(words) < 4 or words[2] not in LOCAL or "ro" in words[3].split(","):
            continue
        mount = unescaped(words[1])
        here = root / mount.lstrip("/")
        try:
            number = here.stat().st_dev
            told = os.statvfs(here)
        except OSError:
            continue  # another mount hides it, or it has gone
        if number in found or not told.f_blocks or not here.is_dir():
            continue
        reserved = told.f_bfree - told.f_bavail
        found[number] = Volume(
            mount=mount,
            device=words[0],
            size=(told.f_blocks - reserved) * told.f_frsize,
            free=told.f_bavail * told.f_frsize,
            inodes=told.f_files,
            inodes_free=told.f_favail,
        )
    return tuple(sorted(found.values(), key=lambda volume: -max(volume.used, volume.inodes_used)))


def engine_use(root: Path, engine_root: str) -> tuple[Use, ...]:
    """What a Docker engine's directory holds, by kind, the largest first."""
    home = root / engine_root.lstrip("/")
    kinds = {
        "container logs": home / "containers",
        "images and container layers": home / "overlay2",
        "volumes": home / "volumes",
        "build cache": home / "buildkit",
    }
    until = time.monotonic() + SUM_DEADLINE
    used = [Use(what, *_sum(folder, until)) for what, folder in kinds.items() if folder.is_dir()]
    return tuple(sorted(used, key=lambda use: -use.size))


def is_on(root: Path, path: str, volume: Volume) -> bool:
    """Does this path lie on that file system?"""
    try:
        return (root / path.lstrip("/")).stat().st_dev == (root / volume.mount.lstrip("/")).stat().st_dev
    except OSError:
        return False


def _sum(folder: Path, until: float) -> tuple[int, bool]:
    total = 0
    pending = [os.fspath(folder)]
    while pending:
        if time.monotonic() > until:
            return total, False
        try:
            with os.scandir(pending.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        if entry.name != "merged":  # a running container's layers, seen a second time
                            pending.append(entry.path)
                    else:
                        total += entry.stat(follow_symlinks=False).st_blocks * 512
        except OSError:
            continue
    return total, True
