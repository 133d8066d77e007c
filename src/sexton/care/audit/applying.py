"""Carries an audit's verdicts into the root file system, so that no package upgrade takes them back.

A disabled unit loses the links that enable it and gets a preset line that refuses it, since an upgrade,
``preset-all`` or a first boot asks presets. A masked one also gets a link to ``/dev/null`` in ``/etc``, which nothing
but a person removes. A unit whose own file is in ``/etc`` cannot be masked there; a drop-in with a condition that
never holds does the same.

All is planned first, as a list of changes to single files; a plan made again after it was carried out is empty. What
was done is recorded in ``/var/lib/sexton/audit-applied.json`` of that root: written before the first change, so that
whatever dies in between, ``undo`` knows what to take back. Every path is resolved inside the root: a link in an image
leads nowhere else.
"""

from __future__ import annotations

import os
import posixpath
from enum import StrEnum
from pathlib import Path

import msgspec

from sexton.care.audit.auditing import Audit, Audited
from sexton.core.audit import Verdict
from sexton.host.errors import Unreadable
from sexton.host.rootfs import Directory, Entry, Kind
from sexton.kit.atomicfile import write_atomic

UNIT_DIRECTORY = "/etc/systemd/system"
PRESET_FILE = "/etc/systemd/system-preset/00-sexton.preset"
DROP_IN_NAME = "00-sexton.conf"
RECORD = "/var/lib/sexton/audit-applied.json"
_PRESET_HEAD = "# Written by sexton audit --apply: units that must not be enabled on this host.\n"
_NEVER = """# Written by sexton audit --apply: this unit must not start on this host.
[Unit]
ConditionPathExists=
ConditionPathExists=!/
"""
_LIMIT = """# Written by sexton audit --apply: a loop of this unit ends by itself.
[Unit]
StartLimitIntervalSec={interval}
StartLimitBurst=5
"""
# A start limit is made to trip when so many restarts fail in a row, with room for the time each start takes.
LIMIT_BURST = 5
LIMIT_ROOM = 10.0


class What(StrEnum):
    REMOVE_LINK = "remove link"
    LINK = "link"
    WRITE = "write"


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One file or link. ``before`` is the link's target or the file's text there was, None when there was none."""

    what: What
    path: str
    text: str = ""
    before: str | None = None
    why: str

    @property
    def says(self) -> str:
        if self.what is What.REMOVE_LINK:
            return f"remove {self.path} -> {self.before}  ({self.why})"
        if self.what is What.LINK:
            return f"link {self.path} -> {self.text}  ({self.why})"
        return f"write {self.path}  ({self.why})"


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """What was done to this root, oldest first."""

    schema: int = 1
    changes: tuple[Change, ...] = ()


class CannotApply(Exception):  # noqa: N818
    """The root file system cannot be changed; nothing more was done to it."""


def plan(seen: Audit, tree: Directory) -> tuple[Change, ...]:
    """The changes that carry out this audit's verdicts."""
    changes: list[Change] = []
    refused: list[str] = []
    for unit in seen.to_change:
        verdict = unit.assessment.verdict
        if verdict is Verdict.FIX:
            changes += _fix(unit, seen, tree)
            continue
        changes += _disable(unit, seen, tree)
        if verdict is Verdict.MASK:
            changes += _mask(unit, tree)
        elif not unit.reached.unit.mask:
            changes += _hold_back(unit, tree)
        refused += [unit.name, *unit.reached.unit.aliases]
    return (*changes, *_presets(refused, tree))


def _disable(unit: Audited, seen: Audit, tree: Directory) -> list[Change]:
    names = {unit.name, *unit.reached.unit.aliases}
    paths = [link.path for link in seen.installed.links if link.unit in names and not link.vendor]
    paths += [
        path
        for alias, path in seen.installed.alias_paths.items()
        if alias in names and path.startswith(f"{UNIT_DIRECTORY}/")
    ]
    return [
        Change(what=What.REMOVE_LINK, path=path, before=target, why=f"disables {unit.name}")
        for path in paths
        if path.startswith("/etc/") and (target := tree.link(path)) is not None
    ]


def _mask(unit: Audited, tree: Directory) -> list[Change]:
    path = f"{UNIT_DIRECTORY}/{unit.name}"
    directory = tree.real(UNIT_DIRECTORY)
    entry = None if directory is None else tree.entry(posixpath.join(directory, unit.name))
    if entry is not None and entry.kind is not Kind.LINK:
        return _drop_in(unit, _NEVER, tree, f"{unit.name} has its own file there: never starts")
    before = _before(entry, tree, path)
    return [Change(what=What.LINK, path=path, text="/dev/null", before=before, why=f"masks {unit.name}")]


def _hold_back(unit: Audited, tree: Directory) -> list[Change]:
    """Something other than enabling starts it: a dependency, a timer, a socket. Removing links would not stop that."""
    pulled = [
        origin
        for origin in unit.origins
        if origin.way.value in ("dependency", "vendor link", "timer", "socket", "path")
    ]
    return _mask(unit, tree) if pulled else []


def _fix(unit: Audited, seen: Audit, tree: Directory) -> list[Change]:
    """A start limit that can be reached; other faults need a person."""
    if not unit.assessment.loops_for_ever:
        return []
    from sexton.core.unitfile import seconds

    said = seconds(unit.reached.unit.settings.value("Service", "RestartSec"))
    delay = seen.installed.defaults.restart_sec if said is None else said
    interval = round(LIMIT_BURST * (delay + LIMIT_ROOM)) + 1
    return _drop_in(unit, _LIMIT.format(interval=interval), tree, f"a loop of {unit.name} ends by itself")


def _drop_in(unit: Audited, text: str, tree: Directory, why: str) -> list[Change]:
    return _write(f"{UNIT_DIRECTORY}/{unit.name}.d/{DROP_IN_NAME}", text, tree, why)


def _presets(names: list[str], tree: Directory) -> list[Change]:
    """One preset file of our own, sorted first, that keeps what earlier runs wrote."""
    earlier = tree.text(PRESET_FILE) or ""
    kept = {line for line in earlier.splitlines() if line.startswith("disable ")}
    lines = sorted(kept | {f"disable {name}" for name in names})
    if not names:
        return []
    text = _PRESET_HEAD + "\n".join(lines) + "\n"
    return _write(PRESET_FILE, text, tree, "an upgrade or a first boot does not enable them again")


def _write(path: str, text: str, tree: Directory, why: str) -> list[Change]:
    before = tree.text(path)
    return [] if before == text else [Change(what=What.WRITE, path=path, text=text, before=before, why=why)]


def _before(entry: Entry | None, tree: Directory, path: str) -> str | None:
    return tree.link(path) if entry is not None else None


def carry_out(changes: tuple[Change, ...], tree: Directory) -> None:
    """Do it. Recorded first; each change whole or not at all."""
    if not changes:
        return
    done = read_record(tree)
    _store(Record(changes=(*done.changes, *changes)), tree)
    for change in changes:
        _do(change, tree)


def undo(tree: Directory) -> tuple[Change, ...]:
    """Take back all that was ever recorded for this root, the newest first. What a person changed since stays."""
    done = read_record(tree)
    for change in reversed(done.changes):
        _take_back(change, tree)
    record = _inside(tree, RECORD)
    if record.exists():
        record.unlink()
    return tuple(reversed(done.changes))


def read_record(tree: Directory) -> Record:
    text = tree.text(RECORD)
    if text is None:
        return Record()
    try:
        return msgspec.json.decode(text.encode(), type=Record)
    except msgspec.DecodeError as error:
        raise CannotApply(f"cannot read {RECORD} of this root: {error}; move it away to go on without undo") from None


def _store(record: Record, tree: Directory) -> None:
    try:
        write_atomic(_inside(tree, RECORD), msgspec.json.encode(record))
    except OSError as error:
        raise CannotApply(f"cannot write {RECORD} below {tree.top}: {error.strerror}; nothing was changed") from None


def _do(change: Change, tree: Directory) -> None:
    path = _inside(tree, change.path)
    try:
        if change.what is What.REMOVE_LINK:
            path.unlink(missing_ok=True)
        elif change.what is What.LINK:
            _link(path, change.text)
        else:
            write_atomic(path, change.text.encode())
    except OSError as error:
        raise CannotApply(
            f"cannot {change.says}: {error.strerror}; what was done before is recorded, --undo takes it back"
        ) from None


def _take_back(change: Change, tree: Directory) -> None:
    path = _inside(tree, change.path)
    there = os.readlink(path) if path.is_symlink() else None
    if change.what is What.REMOVE_LINK:
        if change.before is not None and there is None and not path.exists():
            _link(path, change.before)
    elif change.what is What.LINK:
        if there == change.text:
            path.unlink()
            if change.before is not None:
                _link(path, change.before)
    elif path.is_file() and path.read_text() == change.text:
        if change.before is None:
            path.unlink()
            if path.parent.name.endswith(".d") and not os.listdir(path.parent):
                path.parent.rmdir()
        else:
            write_atomic(path, change.before.encode())


def _link(path: Path, target: str) -> None:
    """Made beside it and renamed over what is there: never neither."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.sexton")
    draft.unlink(missing_ok=True)
    draft.symlink_to(target)
    draft.replace(path)


def _inside(tree: Directory, path: str) -> Path:
    """The path on this machine, directories resolved inside the root; those that are missing are made by the writer."""
    above, name = posixpath.split(path)
    missing: list[str] = []
    while above != "/" and tree.real(above) is None:
        if tree.link(above) is not None:
            raise Unreadable(f"cannot use {above}: it is a link that leads nowhere", "Repair it, or remove it.")
        above, last = posixpath.split(above)
        missing.insert(0, last)
    return Path(tree.where(posixpath.join(tree.real(above) or "/", *missing, name)))
