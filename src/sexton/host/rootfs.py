"""A root file system to look into without booting it: a directory, or an archive's table of contents.

Links are followed the way the host that boots it would: an absolute one starts at *its* root, none leads out of it. A
directory is read as it is asked; an archive (see ``image_archive.py``) is an index in memory that keeps the contents of
the small files an audit may read. Nothing is ever written here, run, or unpacked to disk.
"""

from __future__ import annotations

import fnmatch
import os
import posixpath
import stat
from collections.abc import Iterable, Mapping
from enum import StrEnum
from pathlib import Path

import msgspec

from sexton.host.errors import Unreadable

# As many links as the kernel follows before it gives up.
MOST_LINKS = 40
# Unit files and configuration are kilobytes; what is larger is not read as one.
LARGEST_TEXT = 256 * 1024


class Kind(StrEnum):
    FILE = "file"
    DIRECTORY = "directory"
    LINK = "link"
    OTHER = "other"


class Entry(msgspec.Struct, frozen=True):
    """What has one name. ``target`` is a link's; ``data`` an archive's content, None when it was not kept."""

    kind: Kind
    executable: bool = False
    size: int = 0
    target: str = ""
    data: bytes | None = None


class Tree:
    """A root file system. Paths are absolute as on the host that boots it."""

    name = ""

    def __init__(self) -> None:
        self._resolved: dict[str, str | None] = {}

    def entry(self, path: str) -> Entry | None:
        """What has exactly this canonical path; a link is not followed."""
        raise NotImplementedError

    def names(self, path: str) -> Iterable[str]:
        """Names in the directory of this canonical path."""
        raise NotImplementedError

    def content(self, path: str) -> bytes | None:
        """Bytes of the file of this canonical path; None when they cannot be had."""
        raise NotImplementedError

    def real(self, path: str) -> str | None:
        """The canonical path, all links followed; None when it leads nowhere."""
        return self._follow(path, MOST_LINKS)

    def _follow(self, path: str, left: int) -> str | None:
        path = posixpath.normpath("/" + path.lstrip("/"))
        if path == "/":
            return path
        known = self._resolved.get(path, "")
        if known != "":
            return known
        found = self._step(path, left)
        self._resolved[path] = found
        return found

    def _step(self, path: str, left: int) -> str | None:
        if left <= 0:
            return None
        above, name = posixpath.split(path)
        parent = self._follow(above, left)
        if parent is None:
            return None
        here = posixpath.join(parent, name)
        entry = self.entry(here)
        if entry is None:
            return None
        if entry.kind is not Kind.LINK:
            return here
        # Not normalised before it is followed: ".." after a link is the parent of where the link leads.
        at: str | None = "/" if entry.target.startswith("/") else parent
        for part in entry.target.split("/"):
            if at is None:
                return None
            if part == "..":
                at = posixpath.dirname(at)
            elif part not in ("", "."):
                at = self._follow(posixpath.join(at, part), left - 1)
        return at

    def link(self, path: str) -> str | None:
        """Where the link of this name points, as written; None when it is none."""
        above, name = posixpath.split(posixpath.normpath("/" + path.lstrip("/")))
        parent = self.real(above)
        entry = None if parent is None else self.entry(posixpath.join(parent, name))
        return entry.target if entry is not None and entry.kind is Kind.LINK else None

    def at(self, path: str) -> Entry | None:
        """What is there, links followed."""
        real = self.real(path)
        return None if real is None else self.entry(real) if real != "/" else Entry(Kind.DIRECTORY)

    def exists(self, path: str) -> bool:
        return self.real(path) is not None

    def is_directory(self, path: str) -> bool:
        entry = self.at(path)
        return entry is not None and entry.kind is Kind.DIRECTORY

    def is_executable(self, path: str) -> bool:
        entry = self.at(path)
        return entry is not None and entry.kind is Kind.FILE and entry.executable

    def listing(self, path: str) -> tuple[str, ...]:
        """Sorted names in a directory; none where there is no such directory."""
        real = self.real(path)
        if real is None or (real != "/" and not self.is_directory(real)):
            return ()
        return tuple(sorted(self.names(real)))

    def text(self, path: str) -> str | None:
        """A small text file; None when there is none, or it is not readable as one."""
        real = self.real(path)
        entry = None if real is None else self.entry(real)
        if real is None or entry is None or entry.kind is not Kind.FILE or entry.size > LARGEST_TEXT:
            return None
        data = self.content(real)
        return None if data is None else data.decode("utf-8", "replace")

    def glob(self, pattern: str) -> bool:
        """Does anything match this path with wildcards?"""
        return any(True for _ in self._expand("/", [part for part in pattern.split("/") if part]))

    def _expand(self, above: str, parts: list[str]) -> Iterable[str]:
        if not parts:
            yield above
            return
        for name in self.listing(above):
            if fnmatch.fnmatchcase(name, parts[0]):
                here = posixpath.join(above, name)
                if self.exists(here):
                    yield from self._expand(here, parts[1:])


class Directory(Tree):
    """A root file system that is mounted or unpacked somewhere here; ``/`` itself is one."""

    def __init__(self, top: Path) -> None:
        super().__init__()
        # Not resolved: /proc/<pid>/root is a link that must stay one.
        self.top = os.path.abspath(top)
        self.name = self.top
        if not os.path.isdir(self.top):
            raise Unreadable(f"cannot look into {self.top}: it is no directory", "Name a root file system's directory.")

    def where(self, path: str) -> str:
        return self.top.rstrip("/") + path

    def entry(self, path: str) -> Entry | None:
        try:
            seen = os.lstat(self.where(path))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise Unreadable(f"cannot look at {path}: {error.strerror}", "Run it as root.") from error
        if stat.S_ISLNK(seen.st_mode):
            return Entry(Kind.LINK, target=os.readlink(self.where(path)))
        if stat.S_ISDIR(seen.st_mode):
            return Entry(Kind.DIRECTORY)
        if stat.S_ISREG(seen.st_mode):
            return Entry(Kind.FILE, bool(seen.st_mode & 0o111), seen.st_size)
        return Entry(Kind.OTHER)

    def names(self, path: str) -> Iterable[str]:
        try:
            return os.listdir(self.where(path))
        except OSError as error:
            raise Unreadable(f"cannot list {path}: {error.strerror}", "Run it as root.") from error

    def content(self, path: str) -> bytes | None:
        try:
            with open(self.where(path), "rb") as file:
                return file.read(LARGEST_TEXT + 1)
        except OSError as error:
            raise Unreadable(f"cannot read {path}: {error.strerror}", "Run it as root.") from error


class Index(Tree):
    """A root file system known by its table of contents: canonical path -> entry."""

    def __init__(self, name: str, entries: Mapping[str, Entry]) -> None:
        super().__init__()
        self.name = name
        self._entries = entries
        self._below: dict[str, set[str]] = {}
        for path in entries:
            # An archive may leave out the directories above a file.
            while path != "/":
                above, base = posixpath.split(path)
                below = self._below.setdefault(above, set())
                if base in below:
                    break
                below.add(base)
                path = above

    def entry(self, path: str) -> Entry | None:
        known = self._entries.get(path)
        if known is None and (path == "/" or path in self._below):
            return Entry(Kind.DIRECTORY)
        return known

    def names(self, path: str) -> Iterable[str]:
        return self._below.get(path, ())

    def content(self, path: str) -> bytes | None:
        known = self._entries.get(path)
        return None if known is None else known.data
