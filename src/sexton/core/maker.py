"""Who made a zombie: from the path a cgroup had to the unit, ECS task, pod or container it belonged to.

Service managers and engines name their groups by rule, and a removed group keeps its name. So the maker of a zombie
that is older than this program can be told as well. Of several that match, the one closest to the cause wins:

    a unit inside a container  >  ECS task  >  pod  >  container  >  unit  >  the plain path

A crash loop makes a new container for each turn, so makers that differ in nothing but their id are told as one line
with the number of ids and one example. Who or what a removed container was, its engine has
forgotten; the path does not say.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import Enum, StrEnum, auto
from functools import lru_cache
from typing import NamedTuple

import msgspec

from sexton.core.finding import name_pattern
from sexton.core.zombie import Group

_SCOPE = re.compile(r"(?:[a-z]+(?:-[a-z]+)*)-([0-9a-f]{12,64})\.scope\Z")
_CONTAINER_ID = re.compile(r"[0-9a-f]{64}\Z")
_POD = re.compile(r"(?:kubepods[a-z-]*-)?pod([0-9a-f]{8}[-_0-9a-f]{4,})(?:\.slice)?\Z")
_TASK_SLICE = re.compile(r"ecstasks-([0-9a-f-]{32,36})\.slice\Z")
_TASK_ID = re.compile(r"[0-9a-f-]{32,36}\Z")

CONTAINER_ID_LENGTH = 64
# The agent's parent directory of all its tasks.
_TASKS = "ecs"


class MakerKind(StrEnum):
    UNIT = "unit"
    ECS_TASK = "ECS task"
    POD = "pod"
    CONTAINER = "container"
    GROUP = "cgroup"


class Maker(NamedTuple):
    """``name`` is the same for makers that differ only in ``id``; the id is empty where the name says it all."""

    kind: MakerKind
    name: str
    id: str = ""


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """One maker's part in all zombies. ``ids`` is how many different ones of this name there were."""

    kind: MakerKind
    maker: str
    zombies: int
    share: float
    pages: int
    ids: int
    example: str

    @property
    def says(self) -> str:
        """The maker as a person says it."""
        if self.kind is MakerKind.UNIT:
            return f"unit {self.maker}" + (f" in container {self.example[:12]}" if self.ids == 1 else "")
        if self.kind is MakerKind.GROUP:
            return f"cgroup {self.maker}"
        if self.ids == 1:
            return f"{self.kind} {self.example} below {self.maker}"
        return f"{self.ids:,} {self.kind}s below {self.maker}"


class _Part(Enum):
    """What one directory of a path means."""

    PLAIN = auto()
    UNIT = auto()
    TASK = auto()
    POD = auto()
    CONTAINER = auto()


class _Read(NamedTuple):
    """What a path told so far. The owner is whom the path's own group belongs to."""

    owner: Maker | None = None
    container: str = ""  # the innermost container's id
    tasks: bool = False  # directories below this one are tasks


_RANK = {MakerKind.UNIT: 0, MakerKind.CONTAINER: 1, MakerKind.POD: 2, MakerKind.ECS_TASK: 3}
_KIND = {_Part.TASK: MakerKind.ECS_TASK, _Part.POD: MakerKind.POD, _Part.CONTAINER: MakerKind.CONTAINER}


def _meaning(part: str, tasks: bool) -> tuple[_Part, str]:
    """What a directory means, and its id. ``tasks``: it lies where the agent keeps its tasks."""
    if part.endswith((".scope", ".slice", ".service", ".socket", ".mount", ".timer")):
        if found := _SCOPE.match(part):
            return _Part.CONTAINER, found.group(1)
        if found := _TASK_SLICE.match(part):
            return _Part.TASK, found.group(1)
        if found := _POD.match(part):
            return _Part.POD, found.group(1).replace("_", "-")
        return (_Part.PLAIN if part.endswith(".slice") else _Part.UNIT), ""
    if len(part) == CONTAINER_ID_LENGTH and _CONTAINER_ID.match(part):
        return _Part.CONTAINER, part
    if tasks and _TASK_ID.match(part):
        return _Part.TASK, part
    if part.startswith("pod") and (found := _POD.match(part)):
        return _Part.POD, found.group(1)
    return _Part.PLAIN, ""


def _owner(above: _Read, parent: str, part: str, meaning: _Part, ident: str) -> Maker | None:
    """Whom a group belongs to, from what its parent's path told and what its own name means."""
    if meaning is _Part.PLAIN:
        return above.owner
    if meaning is _Part.UNIT:
        if above.container:  # a container with a service manager of its own: closer to the cause than any above it
            return Maker(MakerKind.UNIT, part, above.container)
        if above.owner is not None and above.owner.kind is not MakerKind.UNIT:
            return above.owner
        # A scope is made for one run of something; its number says nothing.
        return Maker(MakerKind.UNIT, name_pattern(part) if part.endswith(".scope") else part)
    maker = Maker(_KIND[meaning], f"/{parent}", ident)
    return maker if above.owner is None or _RANK[maker.kind] > _RANK[above.owner.kind] else above.owner


# Zombies by the ten thousand lie below a few parents, and come in the tree's order: few are enough. Paths are long.
@lru_cache(maxsize=128)
def _read(path: str) -> _Read:
    if not path:
        return _Read()
    parent, _, part = path.rpartition("/")
    above = _read(parent)
    meaning, ident = _meaning(part, above.tasks)
    return _Read(
        owner=_owner(above, parent, part, meaning, ident),
        container=ident if meaning is _Part.CONTAINER else above.container,
        tasks=part == _TASKS,
    )


def maker_of(path: str) -> Maker:
    """Who made the group that has, or had, this path."""
    parent, _, last = path.strip("/").rpartition("/")
    above = _read(parent)
    owner = _owner(above, parent, last, *_meaning(last, above.tasks))
    if owner is not None:
        return owner
    return Maker(MakerKind.GROUP, f"/{parent}/{name_pattern(last)}" if parent else f"/{name_pattern(last)}")


def container_of(path: str) -> str:
    """The id of the innermost container of this path; empty when there is none."""
    parent, _, last = path.strip("/").rpartition("/")
    above = _read(parent)
    meaning, ident = _meaning(last, above.tasks)
    return ident if meaning is _Part.CONTAINER else above.container


def shares(groups: Iterable[Group]) -> tuple[Share, ...]:
    """Each maker's part in these zombies, the largest first."""
    counts: dict[tuple[MakerKind, str], list[int]] = {}
    ids: dict[tuple[MakerKind, str], set[str]] = {}
    total = 0
    for group in groups:
        maker = maker_of(group.path)
        key = maker[:2]
        if key not in counts:
            counts[key], ids[key] = [0, 0], set()
        counts[key][0] += 1
        counts[key][1] += group.file + group.anon + group.unevictable
        if maker.id:
            ids[key].add(maker.id)
        total += 1
    return tuple(
        sorted(
            (
                Share(
                    kind=key[0],
                    maker=key[1],
                    zombies=zombies,
                    share=zombies / total,
                    pages=pages,
                    ids=len(ids[key]),
                    example=min(ids[key], default=""),
                )
                for key, (zombies, pages) in counts.items()
            ),
            key=lambda share: (-share.zombies, share.kind, share.maker),
        )
    )
