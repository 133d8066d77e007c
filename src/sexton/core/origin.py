"""Where zombies come from, as far back as anybody knows: cgroup, container, image, the unit that asked, its package.

Paths alone tell the maker (``core/maker.py``). What was written down at a container's birth tells the rest. What
nobody saw stays empty: a container from before the caretaker, whose engine has forgotten it, has an id and a path and
no image.

Pure: births and packages are arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

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


class _Sum:
    __slots__ = ("ids", "pages", "zombies")

    def __init__(self) -> None:
        self.zombies = 0
        self.pages = 0
        self.ids: set[str] = set()


def containers_of(groups: Iterable[Group]) -> frozenset[str]:
    """Ids of the containers these groups were part of."""
    return frozenset(ident for group in groups if (ident := container_of(group.path)))


def origins(
    groups: Iterable[Group], births: Mapping[str, Known], package_of: Callable[[str], str] = lambda unit: ""
) -> tuple[Origin, ...]:
    """Each origin's part in these zombies, the largest first. ``births`` are by shortened container id; ``package_of``
    tells the package that ships a unit, empty when none does."""
    sums: dict[tuple[MakerKind, str, str, str, str, str], _Sum] = {}
    total = 0
    for group in groups:
        maker = maker_of(group.path)
        known = births.get(container_of(group.path)[:SHORT_ID]) if births else None
        sum_ = sums.setdefault(_key(maker, known), _Sum())
        sum_.zombies += 1
        sum_.pages += group.file + group.anon + group.unevictable
        if maker.id:
            sum_.ids.add(maker.id)
        total += 1
    found = [
        Origin(
            kind=kind,
            maker=maker_name,
            zombies=sum_.zombies,
            share=sum_.zombies / total,
            pages=sum_.pages,
            ids=len(sum_.ids),
            example=min(sum_.ids, default=""),
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
