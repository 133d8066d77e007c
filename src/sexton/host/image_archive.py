"""A root file system out of an archive: a plain tar, or an image as a container engine saves it.

An image is known by the list of its layers: ``manifest.json``, or ``index.json`` where only the open format is kept.

Only the table of contents is taken, and the text of small files below the directories an audit reads; nothing is
unpacked. An image's layers are laid over each other in order: a later one hides, replaces or removes (``.wh.`` names)
what earlier ones brought. Names that would lead out of the root are refused a place, as by any careful unpacker.
"""

from __future__ import annotations

import json
import posixpath
import tarfile
from pathlib import Path
from typing import IO, Any

from sexton.host.errors import Unreadable
from sexton.host.rootfs import LARGEST_TEXT, Entry, Index, Kind

# Below these, small files keep their text.
TEXTS_BELOW = ("/etc/", "/run/", "/lib/systemd/", "/usr/lib/", "/usr/local/lib/", "/usr/share/dbus-1/", "/var/lib/")
WHITEOUT = ".wh."
OPAQUE = ".wh..wh..opq"
# More entries than any image has; a bomb ends here.
MOST_ENTRIES = 5_000_000


def open_archive(path: Path) -> Index:
    """The tree in this file. Unreadable when it is no archive, or a damaged one."""
    try:
        with path.open("rb") as file:
            return read_archive(file, str(path))
    except OSError as error:
        raise Unreadable(f"cannot read {path}: {error.strerror}", "Name a directory, a tar or an image.") from error


def read_archive(file: IO[bytes], name: str) -> Index:
    """From a file that can be sought."""
    entries: dict[str, Entry] = {}
    try:
        with tarfile.open(fileobj=file, mode="r:*") as tar:
            layers = _layers(tar)
            if layers is None:
                _lay(tar, entries, layered=False)
            else:
                for layer in layers:
                    content = tar.extractfile(layer)
                    if content is None:
                        raise Unreadable(f"cannot read {name}: its layer {layer} is no file", "Save the image again.")
                    with tarfile.open(fileobj=content, mode="r:*") as inner:
                        _lay(inner, entries, layered=True)
    except (tarfile.TarError, EOFError, KeyError, ValueError, OSError) as error:
        why = str(error) or type(error).__name__
        raise Unreadable(f"cannot read {name} as an archive: {why}", "Name a directory, a tar or an image.") from error
    return Index(name, entries)


def _layers(tar: tarfile.TarFile) -> list[str] | None:
    """Names of an image's layers, lowest first; None for a plain root file system."""
    manifest = _json(tar, "manifest.json")
    if isinstance(manifest, list) and manifest and isinstance(manifest[0], dict):
        if len(manifest) > 1:
            raise ValueError("it holds several images; save one")
        return [str(layer) for layer in manifest[0]["Layers"]]
    listed = _json(tar, "index.json")
    # An index may lead to another, one for each platform; more levels than these nobody makes.
    for _ in range(3):
        if not isinstance(listed, dict) or "schemaVersion" not in listed:
            return None
        if "layers" in listed:
            return [_blob(layer) for layer in listed["layers"]]
        images = listed.get("manifests", ())
        if len(images) != 1:
            raise ValueError(f"it holds {len(images)} images; save one")
        listed = _json(tar, _blob(images[0]))
    return None


def _blob(described: dict[str, str]) -> str:
    return f"blobs/{described['digest'].replace(':', '/', 1)}"


def _json(tar: tarfile.TarFile, name: str) -> Any:
    """A member's content; None when there is none."""
    try:
        content = tar.extractfile(name)
    except KeyError:
        return None
    return None if content is None else json.loads(content.read(LARGEST_TEXT))


def _lay(tar: tarfile.TarFile, entries: dict[str, Entry], *, layered: bool) -> None:
    """One layer over what is there."""
    # Within a layer a whiteout hides only what lower layers brought, wherever it stands in the archive.
    own: dict[str, Entry] = {}
    for member in tar:
        path = posixpath.normpath("/" + member.name)
        above, base = posixpath.split(path)
        if layered and base == OPAQUE:
            _remove_below(entries, above)
        elif layered and base.startswith(WHITEOUT):
            gone = posixpath.join(above, base.removeprefix(WHITEOUT))
            entries.pop(gone, None)
            _remove_below(entries, gone)
        elif path != "/":
            own[path] = _entry(tar, member, path, own, entries)
            if len(own) > MOST_ENTRIES:
                raise ValueError(f"it has more than {MOST_ENTRIES:,} entries")
    for path, entry in own.items():
        was = entries.get(path)
        if was is not None and was.kind is Kind.DIRECTORY and entry.kind is not Kind.DIRECTORY:
            _remove_below(entries, path)
        entries[path] = entry


def _remove_below(entries: dict[str, Entry], directory: str) -> None:
    head = directory.rstrip("/") + "/"
    for path in [path for path in entries if path.startswith(head)]:
        del entries[path]


def _entry(
    tar: tarfile.TarFile, member: tarfile.TarInfo, path: str, own: dict[str, Entry], below: dict[str, Entry]
) -> Entry:
    if member.issym():
        return Entry(Kind.LINK, target=member.linkname)
    if member.islnk():
        first = posixpath.normpath("/" + member.linkname)
        return own.get(first) or below.get(first) or Entry(Kind.FILE)
    if member.isdir():
        return Entry(Kind.DIRECTORY)
    if not member.isfile():
        return Entry(Kind.OTHER)
    data = None
    if member.size <= LARGEST_TEXT and path.startswith(TEXTS_BELOW):
        content = tar.extractfile(member)
        data = content.read() if content is not None else None
    return Entry(Kind.FILE, bool(member.mode & 0o111), member.size, data=data)
