"""From dead groups to who is behind them: the register of births and the package manager, asked once for each
answer."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path

from sexton.care.births import Births
from sexton.core.origin import Known, Origin, Roll, origins
from sexton.core.zombie import Group
from sexton.host.packages import owner_of

# Where a daemon keeps its register unless it was told otherwise.
REGISTER = "var/lib/sexton/care"
# Where a unit's file may lie, the administrator's own first: that one counts.
UNIT_FOLDERS = (
    "etc/systemd/system",
    "run/systemd/system",
    "usr/local/lib/systemd/system",
    "usr/lib/systemd/system",
    "lib/systemd/system",
)
# Packages are looked up for the units with the largest parts only: each question is a child process.
UNITS_LOOKED_UP = 8


class _Register:
    """The register of births as something to be asked, read when the first zombie of a container turns up."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._roll: Roll | None = None

    def get(self, short: str, /) -> Known | None:
        if self._roll is None:
            self._roll = Roll()
            for birth in Births(self._folder).containers():
                known = Known(name=birth.name, image=birth.image, unit=birth.unit, seen=birth.seen)
                self._roll.learn(birth.id, known)
        return self._roll.get(short)


def attribute(root: Path, groups: Iterable[Group], keep: Path | None = None) -> tuple[Origin, ...]:
    """Where these groups come from. Blocks: reads the register when containers are among them."""
    asked = 0

    @cache
    def package(unit: str) -> str:
        nonlocal asked
        asked += 1
        return package_of(root, unit) if asked <= UNITS_LOOKED_UP else ""

    return origins(groups, _Register(root / REGISTER if keep is None else keep), package)


def package_of(root: Path, unit: str) -> str:
    """The package that ships this unit; empty when none does, or the unit is no file."""
    for folder in UNIT_FOLDERS:
        if (root / folder / unit).is_file():
            return owner_of(root, f"/{folder}/{unit}") or ""
    return ""
