"""The coming and going of cgroups, by kind: what is made, removed, and not released by the kernel.

A kind is a parent and a name without its changing part, so all runs of one thing are one kind. Counting by kind keeps
the book small however many zombies there are: the ids of the newest turns are kept, of all others only numbers. A
group that was removed is a zombie if the kernel has not released it some seconds later.
"""

from __future__ import annotations

from collections import OrderedDict

import msgspec

from sexton.core.finding import name_pattern
from sexton.core.loop import Life, Loop, inner_loop
from sexton.core.maker import MakerKind, maker_of

# Hosts have some dozen kinds; names that defeat the pattern would make one for each group.
KINDS_KEPT = 512
TURNS_KEPT = 64
# The kernel releases a group some milliseconds after its removal, a second later when it is busy.
GRACE = 3.0


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """``who`` is the unit inside which these groups come and go; empty when they do not belong to one. ``unit`` is
    the one whose own group this is: that comes and goes with its starts, which systemd tells."""

    parent: str
    pattern: str
    who: str
    unit: str
    made: int
    removed: int
    released: int

    @property
    def path(self) -> str:
        return f"{self.parent.rstrip('/')}/{self.pattern}"


class _Turn(msgspec.Struct):
    began: float
    by: str
    ended: float | None = None
    released: bool = False


class _Kind(msgspec.Struct):
    parent: str
    pattern: str
    who: str
    made: int = 0
    removed: int = 0
    released: int = 0
    turns: dict[int, _Turn] = {}


def kind_of(path: str) -> tuple[str, str]:
    parent, _, name = path.rpartition("/")
    return parent or "/", name_pattern(name)


class Churn:
    """What has been seen since it began. Times are seconds since the epoch."""

    def __init__(self) -> None:
        self._kinds: OrderedDict[tuple[str, str], _Kind] = OrderedDict()

    def _kind(self, path: str) -> _Kind:
        key = kind_of(path)
        kind = self._kinds.get(key)
        if kind is None:
            maker = maker_of(key[0])
            # A unit's own group is not inside it, and scopes are made for one run of anything.
            inside = maker.kind is MakerKind.UNIT and maker.name.endswith(".service")
            kind = self._kinds[key] = _Kind(parent=key[0], pattern=key[1], who=maker.name if inside else "")
            while len(self._kinds) > KINDS_KEPT:
                self._kinds.popitem(last=False)
        else:
            self._kinds.move_to_end(key)
        return kind

    def made(self, ident: int, path: str, at: float, by: str) -> None:
        kind = self._kind(path)
        kind.made += 1
        kind.turns[ident] = _Turn(began=at, by=by)
        if len(kind.turns) > TURNS_KEPT:
            del kind.turns[next(iter(kind.turns))]

    def removed(self, ident: int, path: str, at: float) -> None:
        kind = self._kind(path)
        kind.removed += 1
        if (turn := kind.turns.get(ident)) is not None:
            turn.ended = at

    def released(self, ident: int, path: str) -> None:
        kind = self._kind(path)
        kind.released += 1
        if (turn := kind.turns.get(ident)) is not None:
            turn.released = True

    def kinds(self) -> tuple[Kind, ...]:
        return tuple(
            Kind(
                parent=kind.parent,
                pattern=kind.pattern,
                who=kind.who,
                unit=_unit_of(kind),
                made=kind.made,
                removed=kind.removed,
                released=kind.released,
            )
            for kind in self._kinds.values()
        )

    def lives(self, kind: Kind, now: float) -> tuple[Life, ...]:
        """The newest turns of a kind, in order."""
        turns = self._kinds[kind.parent, kind.pattern].turns.values()
        return tuple(Life(began=turn.began, ended=turn.ended, left=_left(turn, now)) for turn in turns)

    def makers(self, kind: Kind) -> tuple[str, ...]:
        """Names of the processes that made the newest groups of a kind."""
        turns = self._kinds[kind.parent, kind.pattern].turns.values()
        return tuple(dict.fromkeys(turn.by for turn in turns if turn.by))

    def loops(self, now: float) -> tuple[tuple[Kind, Loop], ...]:
        """Kinds that loop inside a service, and kinds of any sort of which most turns leave a zombie."""
        found = []
        for kind in self.kinds():
            who = kind.who or kind.unit or f"groups {kind.path}"
            loop = inner_loop(who, self.lives(kind, now), now)
            if loop is not None and (kind.who or loop.leaks):
                found.append((kind, loop))
        return tuple(found)

    def left(self) -> int:
        """How many were removed and not released since the book was begun; some of them a moment ago."""
        return sum(max(0, kind.removed - kind.released) for kind in self._kinds.values())


def _unit_of(kind: _Kind) -> str:
    """The unit whose own group this is; empty where it is none's, or that of several instances."""
    if not kind.pattern.endswith(".service") or "*" in kind.pattern:
        return ""
    maker = maker_of(f"{kind.parent.rstrip('/')}/{kind.pattern}")
    return maker.name if maker.kind is MakerKind.UNIT and maker.name == kind.pattern else ""


def _left(turn: _Turn, now: float) -> bool | None:
    if turn.released:
        return False
    if turn.ended is None or now - turn.ended < GRACE:
        return None
    return True
