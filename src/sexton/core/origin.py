"""Where zombies come from, as far back as anybody knows: cgroup, container, image, the unit that asked, its package.

Paths alone tell the maker (``core/maker.py``). What was written down at a container's birth tells the rest. What
nobody saw stays empty: a container from before the caretaker, whose engine has forgotten it, has an id and a path and
no image.

Zombies are taken one by one and none is kept: there may be a hundred thousand. For the same reason births are kept as
a number for each container, since a loop's containers differ in nothing else.

Pure: births and packages are arguments.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Protocol

import msgspec

from sexton.core.finding import name_pattern
from sexton.core.maker import Maker, MakerKind, container_of, maker_of
from sexton.core.zombie import Group

# Births are looked up by this much of a container's id, which is what people and paths shorten it to.
SHORT_ID = 12


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen of a container's birth. ``unit`` asked for it; empty: not known. ``seen`` says how that is
    known."""

    name: str
    image: str
    unit: str = ""
    seen: str = ""


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """Zombies of one origin. Empty fields are not known, or do not apply to this kind of maker."""

    kind: MakerKind
    maker: str
    zombies: int
    share: float
    pages: int
    ids: int
    example: str
    image: str = ""
    name: str = ""
    unit: str = ""
    seen: str = ""
    package: str = ""

    @property
    def says(self) -> str:
        """The origin as a person says it, the nearest part first."""
        if self.kind is MakerKind.UNIT:
            said = f"unit {self.maker}" + (f" in container {self.example[:SHORT_ID]}" if self.ids == 1 else "")
        elif self.kind is MakerKind.GROUP:
            said = f"cgroup {self.maker}"
        elif self.ids == 1:
            said = f"{self.kind} {self.example} below {self.maker}"
        else:
            said = f"{self.ids:,} {self.kind}s below {self.maker}"
        if self.image:
            said += f", image {self.image}" + (f", named {self.name}" if self.name not in ("", "*") else "")
        if self.unit and self.unit != self.maker:
            said += f", asked for by {self.unit}"
        if self.package:
            said += f", shipped by package {self.package}"
        return said


class Births(Protocol):
    """What is known of containers, by shortened id."""

    def get(self, short: str, /) -> Known | None: ...


# Most different things that can be known of containers: so many fit beside an id's digits into one number.
_MOST_KNOWN = 1 << 16


class Roll:
    """What is known of very many containers, in eight bytes for each."""

    def __init__(self) -> None:
        self._known: dict[Known, int] = {}
        self._told: list[Known] = []
        self._rows = array("Q")
        self._sorted = True

    def learn(self, ident: str, known: Known) -> None:
        """An id that is none, and what no longer fits, is passed over."""
        known = msgspec.structs.replace(known, name=name_pattern(known.name))
        number = self._known.setdefault(known, len(self._told))
        if number == len(self._told):
            self._told.append(known)
        try:
            row = int(ident[:SHORT_ID], 16) * _MOST_KNOWN + number
        except ValueError:
            return
        if len(ident) >= SHORT_ID and number < _MOST_KNOWN:
            self._rows.append(row)
            self._sorted = False

    def get(self, short: str, /) -> Known | None:
        """Of several accounts of one container, one that knows who asked for it is the better."""
        if not self._sorted:
            self._rows = array("Q", sorted(self._rows))
            self._sorted = True
        first = int(short, 16) * _MOST_KNOWN
        best = None
        for place in range(bisect_left(self._rows, first), len(self._rows)):
            if self._rows[place] >= first + _MOST_KNOWN:
                break
            known = self._told[self._rows[place] - first]
            if best is None or known.unit:
                best = known
        return best


class _Sum:
    """``ids`` are fingerprints: the ids themselves, of every container of a loop, would be megabytes."""

    __slots__ = ("example", "ids", "last", "pages", "zombies")

    def __init__(self) -> None:
        self.zombies = 0
        self.pages = 0
        self.ids = array("q")
        self.last = ""
        self.example = ""

    def add(self, ident: str, pages: int) -> None:
        self.zombies += 1
        self.pages += pages
        if ident and ident != self.last:
            self.last = ident
            self.ids.append(hash(ident))
            self.example = min(ident, self.example or ident)

    @property
    def different(self) -> int:
        return sum(1 for _ in groupby(sorted(self.ids)))


def origins(
    groups: Iterable[Group], births: Births, package_of: Callable[[str], str] = lambda unit: ""
) -> tuple[Origin, ...]:
    """Each origin's part in these zombies, the largest first. ``births`` are asked about those of containers only;
    ``package_of`` tells the package that ships a unit, empty when none does."""
    sums: dict[tuple[MakerKind, str, str, str, str, str], _Sum] = {}
    total = 0
    for group in groups:
        maker = maker_of(group.path)
        container = container_of(group.path)
        known = births.get(container[:SHORT_ID]) if container else None
        sums.setdefault(_key(maker, known), _Sum()).add(maker.id, group.file + group.anon + group.unevictable)
        total += 1
    found = [
        Origin(
            kind=kind,
            maker=maker_name,
            zombies=sum_.zombies,
            share=sum_.zombies / total,
            pages=sum_.pages,
            ids=sum_.different,
            example=sum_.example,
            image=image,
            name=name,
            unit=unit,
            seen=seen,
            package=package_of(unit) if unit else "",
        )
        for (kind, maker_name, image, name, unit, seen), sum_ in sums.items()
    ]
    return tuple(sorted(found, key=lambda origin: (-origin.zombies, origin.kind, origin.maker, origin.image)))


def _key(maker: Maker, known: Known | None) -> tuple[MakerKind, str, str, str, str, str]:
    if known is not None:
        return (maker.kind, maker.name, known.image, name_pattern(known.name), known.unit, known.seen)
    # A unit of the host asked for its own groups; one inside a container is that container's business.
    unit = maker.name if maker.kind is MakerKind.UNIT and not maker.id else ""
    return (maker.kind, maker.name, "", "", unit, "its own cgroup" if unit else "")
