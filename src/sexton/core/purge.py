"""The purge's plan: which means frees which zombies, at what cost to others, and which zombies no means may free.

Flows in: a walk's account (who pins whom) or, where nothing could be named, ghosts told by arithmetic; what is allowed;
what was already tried. Flows out: a plan, the gentlest step first. After each step the host is looked at again and
planned for again, so a plan is never older than one step and running it twice does no more.

    1. exact files   the very pages that pin a zombie, nothing else of the file; only where they are all that pins it
    2. reclaim       on the narrowest live group above zombies; spends the live page cache below that group as well, so
                     it is only done where that is small beside what it frees, or with consent
    3. drop caches   the clean page cache of the whole host: only with consent

Pages without a place on a disk (tmpfs, anonymous, locked) are freed by their holder's end alone. Zombies they pin are
left, with the holder's name, and for their sake nothing is touched. No means is ever used on a zombie that it cannot
free.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

import msgspec

from sexton.core.zombie import (
    BY_HANDLE,
    MEMORY_ONLY,
    Ghosts,
    Holder,
    HolderKind,
    PinFlag,
    Walk,
    below,
)

# Reclaim on a live group may cost live groups this part of what it frees,
COLLATERAL_SHARE = 0.05
# or so many pages (4 MiB), which any of them reads again within milliseconds.
COLLATERAL_PAGES = 1024
# One round of reclaim visits every zombie it cannot free, and a signal ends it only when it is over: so long for each,
# on a slow core. 30,000 were measured to take 0.32 s, and 0.47 s on a busy host.
VISIT_SECONDS = 16e-6


class Range(NamedTuple):
    """Pages of a file: the first, and how many."""

    first: int
    pages: int


class FileDrop(msgspec.Struct, frozen=True, kw_only=True):
    """Pages to drop from one file. ``dirty``: some must be written back first."""

    holder: Holder
    ranges: tuple[Range, ...]
    dirty: bool

    @property
    def pages(self) -> int:
        return sum(part.pages for part in self.ranges)


class DropFiles(msgspec.Struct, frozen=True, kw_only=True, tag="drop-files"):
    files: tuple[FileDrop, ...]
    zombies: tuple[int, ...]

    @property
    def key(self) -> str:
        return "files"


class Reclaim(msgspec.Struct, frozen=True, kw_only=True, tag="reclaim"):
    """``pages`` is what it is meant to free, ``collateral`` the live page cache below the group that it may take along,
    ``walked`` how many zombies in its way it cannot free. ``zombies`` is empty where they have no names."""

    group: str
    pages: int
    collateral: int
    walked: int
    zombies: tuple[int, ...]

    @property
    def key(self) -> str:
        return f"reclaim {self.group}"

    @property
    def one_round(self) -> float:
        """Seconds that nothing can shorten once it has begun."""
        return self.walked * VISIT_SECONDS


class DropCaches(msgspec.Struct, frozen=True, kw_only=True, tag="drop-caches"):
    """``collateral`` is all the page cache of live groups."""

    pages: int
    collateral: int
    zombies: tuple[int, ...]

    @property
    def key(self) -> str:
        return "caches"


Step = DropFiles | Reclaim | DropCaches


class Why(StrEnum):
    """Why zombies are left."""

    MEMORY = "memory"  # pages of a file that lives in memory only
    ANONYMOUS = "anonymous"  # memory of a process that was in the group and went on elsewhere
    LOCKED = "locked"  # pages locked in memory, which the kernel keeps on no list
    BELOW = "below"  # zombies below it are left
    BUDGET = "budget"  # one round of reclaim past the zombies in its way would outlast the budget
    CONSENT = "consent"  # a means exists, but it costs others too much to use unasked
    TRIED = "tried"  # every means was used in vain: somebody uses the pages right now
    REFUSED = "refused"  # the means there is was refused: by the kernel, or by how this host is set up
    UNSEEN = "unseen"  # something pins it that is on no list: pages on their way, or kernel objects


# A file system's journal commits this often unless it was told otherwise; the blocks it holds can go afterwards.
COMMIT_SECONDS = 5.5
# A reclaim that made headway goes on after so long.
BREATH_SECONDS = 0.1


def rest_before_more(step: Step, freed: int, remaining: int, *, in_journal: bool) -> float | None:
    """How long to wait until a reclaim that left some behind is worth another attempt; None when it is not. A file
    system's own blocks (tables of inodes, directories) cannot go while its journal has them, and writing back dirty
    pages is what puts them there: then ``in_journal`` says that such blocks pin what is left."""
    if not isinstance(step, Reclaim) or not step.zombies or remaining <= 0:
        return None
    if freed > 0:
        return BREATH_SECONDS
    return COMMIT_SECONDS if in_journal else None


class Left(msgspec.Struct, frozen=True, kw_only=True):
    """Zombies that stay, and who holds them. One zombie stands in one entry, under its first holder."""

    why: Why
    zombies: int
    pages: int
    holder: Holder | None = None
    group: str = ""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """``named`` is False where zombies could not be told apart; then steps go by bytes and nothing can be said of
    each."""

    named: bool
    zombies: int | None
    steps: tuple[Step, ...]
    left: tuple[Left, ...]


class Allowed(msgspec.Struct, frozen=True):
    """``caches``: others' clean page cache may be dropped. ``budget``: longest stay of one step in the kernel."""

    caches: bool = False
    budget: float = 0.5


def plan_named(walk: Walk, allowed: Allowed, *, tried: Iterable[str] = (), within: str = "/", reach: str = "/") -> Plan:
    """Plan for the zombies below ``within``. Reclaim is used on no group outside ``reach``."""
    done = frozenset(tried)
    cases = _cases(walk, within)
    steps: list[Step] = []
    exact = frozenset(row for row, case in cases.items() if case.exact)
    if exact and "files" not in done:
        steps.append(_drop_files(walk, exact))
    # One without pages of its own goes by itself when those below it are gone.
    rest = {row for row, case in cases.items() if case.why is None and case.pins}
    if "files" not in done:
        rest -= exact
    out_of_reach: dict[int, Why] = {}
    for above in sorted({walk.groups[row].above for row in rest}):
        mine = tuple(sorted(row for row in rest if walk.groups[row].above == above))
        step = _reclaim(walk, above, mine, cases)
        if step.key in done:
            out_of_reach.update(dict.fromkeys(mine, Why.TRIED))
        elif why := _refused(step, allowed, reach):
            out_of_reach.update(dict.fromkeys(mine, why))
        else:
            steps.append(step)
    # Wider means come last, and are never planned beside narrower ones that may do.
    if out_of_reach and allowed.caches and not steps:
        caches = _drop_caches(walk, tuple(sorted(out_of_reach)))
        if caches.key not in done:
            steps.append(caches)
            out_of_reach = {}
        else:
            out_of_reach = dict.fromkeys(out_of_reach, Why.TRIED)
    return Plan(named=True, zombies=len(cases), steps=tuple(steps), left=_left(walk, cases, out_of_reach))


def _refused(step: Reclaim, allowed: Allowed, reach: str) -> Why | None:
    """Why this reclaim may not be tried; None when it may."""
    if step.group == "/" or not below(step.group, reach):  # the kernel reclaims below no root
        return Why.CONSENT
    if step.one_round >= allowed.budget:
        return Why.BUDGET
    cheap = step.collateral <= max(COLLATERAL_PAGES, COLLATERAL_SHARE * step.pages)
    return None if cheap or allowed.caches else Why.CONSENT


class _Case(msgspec.Struct, kw_only=True):
    """One zombie: the pages that pin it by what may be done about them."""

    file_pages: int = 0
    pins: int = 0
    only_exact: bool = True
    why: Why | None = None
    holder: int | None = None

    @property
    def exact(self) -> bool:
        return self.why is None and self.only_exact and self.pins > 0


def _cases(walk: Walk, within: str) -> dict[int, _Case]:
    cases = {row: _Case() for row in walk.dead() if below(walk.groups[row].path, within)}
    for pin in walk.pins:
        case = cases.get(pin.group)
        if case is None:
            continue
        case.pins += 1
        holder = walk.holders[pin.holder]
        why = _why(holder, pin.flags)
        if why is None:
            case.file_pages += pin.pages
            # A mapped page is in use this moment; dropping the file's page does not reach it, reclaim does.
            if holder.magic not in BY_HANDLE or holder.links == 0 or pin.flags & PinFlag.MAPPED:
                case.only_exact = False
        elif case.why is None:
            case.why, case.holder = why, pin.holder
    for row, case in cases.items():
        if walk.groups[row].unevictable and case.why is None:
            case.why = Why.LOCKED
    _spread_upwards(walk, cases)
    return cases


def _why(holder: Holder, flags: int) -> Why | None:
    """Why a page cannot be freed; None when it can."""
    if holder.kind is HolderKind.FILE:
        return Why.MEMORY if holder.magic in MEMORY_ONLY or flags & PinFlag.SWAPBACKED else None
    return Why.ANONYMOUS


def _spread_upwards(walk: Walk, cases: Mapping[int, _Case]) -> None:
    """A zombie above others is pinned by them: it goes when they go, and stays when one of them stays."""
    dead_above: list[int] = []
    for row in sorted(cases):
        path = walk.groups[row].name
        while dead_above and not path.startswith(walk.groups[dead_above[-1]].name + b"/"):
            dead_above.pop()
        dead_above.append(row)
        case = cases[row]
        if case.why is not None:
            for above in dead_above[:-1]:
                if cases[above].why is None:
                    cases[above].why = Why.BELOW
    for row, case in cases.items():
        if case.why is None and case.pins == 0 and not walk.has_below(row):
            case.why = Why.UNSEEN


def _drop_files(walk: Walk, zombies: frozenset[int]) -> DropFiles:
    pages: dict[int, list[Range]] = {}
    dirty: set[int] = set()
    for pin in walk.pins:
        if pin.group in zombies:
            pages.setdefault(pin.holder, []).append(Range(pin.page, pin.pages))
            if pin.flags & PinFlag.DIRTY:
                dirty.add(pin.holder)
    return DropFiles(
        files=tuple(
            FileDrop(holder=walk.holders[holder], ranges=merged(ranges), dirty=holder in dirty)
            for holder, ranges in sorted(pages.items())
        ),
        zombies=tuple(sorted(zombies)),
    )


def merged(ranges: Sequence[Range]) -> tuple[Range, ...]:
    """The same pages in as few ranges as there can be, in order."""
    joined: list[Range] = []
    for part in sorted(ranges):
        if joined and part.first <= joined[-1].first + joined[-1].pages:
            last = joined[-1]
            joined[-1] = Range(last.first, max(last.pages, part.first + part.pages - last.first))
        else:
            joined.append(part)
    return tuple(joined)


def _reclaim(walk: Walk, above: int, zombies: tuple[int, ...], cases: Mapping[int, _Case]) -> Reclaim:
    path = walk.groups[above].path
    under = [(row, group) for row, group in enumerate(walk.groups) if below(group.path, path)]
    return Reclaim(
        group=path,
        pages=sum(cases[row].file_pages for row in zombies),
        collateral=sum(group.file for _, group in under if not group.dead),
        walked=sum(1 for row, group in under if group.dead and (row not in cases or cases[row].why is not None)),
        zombies=zombies,
    )


def _drop_caches(walk: Walk, zombies: tuple[int, ...]) -> DropCaches:
    return DropCaches(
        pages=sum(walk.groups[row].file for row in zombies),
        collateral=sum(group.file for group in walk.groups if not group.dead),
        zombies=zombies,
    )


def _left(walk: Walk, cases: Mapping[int, _Case], out_of_reach: Mapping[int, Why]) -> tuple[Left, ...]:
    counts: Counter[tuple[Why, int | None, str]] = Counter()
    pages: Counter[tuple[Why, int | None, str]] = Counter()
    for row, case in cases.items():
        why = case.why or out_of_reach.get(row)
        if why is None:
            continue
        group = walk.groups[row]
        # Who could allow more wants to know below which group; for all others the holder says it.
        where = walk.groups[group.above].path if why in (Why.CONSENT, Why.TRIED, Why.BUDGET) else ""
        key = (why, case.holder, where)
        counts[key] += 1
        pages[key] += group.file + group.anon + group.unevictable
    return tuple(
        Left(
            why=why,
            zombies=zombies,
            pages=pages[why, holder, where],
            holder=None if holder is None else walk.holders[holder],
            group=where,
        )
        for (why, holder, where), zombies in sorted(counts.items(), key=lambda item: (-item[1], str(item[0])))
    )


def plan_located(
    ghosts: Sequence[Ghosts],
    allowed: Allowed,
    *,
    zombies: int,
    tried: Iterable[str] = (),
    within: str = "/",
    reach: str = "/",
) -> Plan:
    """Plan where zombies have no names, by what dead groups below each live one hold. The exact files are not known, so
    the gentlest means is reclaim, and whoever holds what cannot be reclaimed is not known either. ``zombies`` is how
    many the host has: where nobody can say which of them are in the way, all of them may be."""
    done = frozenset(tried)
    mine = [ghost for ghost in ghosts if below(ghost.path, within)]
    steps: list[Step] = []
    left: list[Left] = []
    wide = 0
    for ghost in mine:
        step = Reclaim(
            group=ghost.path,
            pages=ghost.file,
            collateral=ghost.live_file,
            walked=_in_the_way(ghost, zombies),
            zombies=(),
        )
        if ghost.anon:
            left.append(Left(why=Why.ANONYMOUS, zombies=0, pages=ghost.anon, group=ghost.path))
        if ghost.unevictable:
            left.append(Left(why=Why.LOCKED, zombies=0, pages=ghost.unevictable, group=ghost.path))
        if not ghost.file:
            continue
        if step.key in done:
            wide += ghost.file
            left.append(Left(why=Why.TRIED, zombies=0, pages=ghost.file, group=ghost.path))
        elif why := _refused(step, allowed, reach):
            wide += ghost.file
            left.append(Left(why=why, zombies=0, pages=ghost.file, group=ghost.path))
        else:
            steps.append(step)
    if wide and allowed.caches and not steps and "caches" not in done:
        steps.append(DropCaches(pages=wide, collateral=sum(ghost.live_file for ghost in mine), zombies=()))
        left = [entry for entry in left if entry.why not in (Why.TRIED, Why.CONSENT, Why.BUDGET)]
    counted = [ghost.zombies for ghost in mine if ghost.zombies is not None]
    return Plan(named=False, zombies=sum(counted) if counted else None, steps=tuple(steps), left=tuple(left))


def _in_the_way(ghost: Ghosts, zombies: int) -> int:
    """How many zombies a reclaim there may have to visit in vain. Where dead groups hold page cache only, none."""
    if not ghost.anon and not ghost.unevictable:
        return 0
    return zombies if ghost.zombies is None else ghost.zombies
