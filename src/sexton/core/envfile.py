"""Environment files as the ECS agent reads them: ``NAME=value``, one a line, and nothing clever.

Lines that begin with ``#`` and lines without ``=`` are left out, and so is an empty name. Nothing is unquoted,
trimmed or expanded: what follows the first ``=`` is the value.
"""

from __future__ import annotations

from collections.abc import Iterable


def parse(content: bytes) -> dict[str, str]:
    """The variables of one file; a name that comes twice has its last value."""
    found = {}
    for line in content.decode("utf-8", "replace").splitlines():
        name, equals, value = line.partition("=")
        if equals and name and not line.startswith("#"):
            found[name] = value
    return found


def merge(files: Iterable[dict[str, str]]) -> dict[str, str]:
    """The variables of several files; an earlier file wins over a later one."""
    merged: dict[str, str] = {}
    for one in files:
        merged = {**one, **merged}
    return merged
