"""One look at the zombies of this host: how many, whose, and what is known about what pins them.

    census (always)  ->  walk in the kernel (names, pins)  or, where that cannot be, ghosts by arithmetic
                     ->  makers, and what the register of births knows of their containers  ->  survey

A survey says of itself what it could not see. It reads and changes nothing.
"""

from __future__ import annotations

import time
from pathlib import Path

import msgspec

from sexton.care.attribution import attribute
from sexton.core.finding import Evidence, Finding, MemcgCount, judge_zombies
from sexton.core.maker import Share, shares
from sexton.core.origin import Origin
from sexton.core.zombie import Ghosts, Walk, below
from sexton.host.cgroup import Census, MemoryHierarchy, census, find_memory
from sexton.host.errors import HostFault, Unreadable
from sexton.host.ghosts import find_ghosts
from sexton.host.memcg_walk import PROGRAM, each_dead, walk
from sexton.host.proc import KernelMemory, boot, kernel_memory

HOST = Path("/")


class Survey(msgspec.Struct, frozen=True, kw_only=True):
    """``walk`` is None where zombies could not be named; then ``blind`` says why and what would help, and ``ghosts``
    hold what arithmetic tells. ``within`` is the group to which names, ghosts and shares are limited."""

    place: MemoryHierarchy
    count: Census
    memory: KernelMemory
    within: str
    seconds: float
    walk: Walk | None
    blind: tuple[str, str] | None = None
    ghosts: tuple[Ghosts, ...] = ()
    ghosts_blind: tuple[str, str] | None = None
    shares: tuple[Share, ...] = ()
    origins: tuple[Origin, ...] = ()

    @property
    def rows(self) -> tuple[int, ...]:
        """Rows of the zombies in question."""
        if self.walk is None:
            return ()
        return tuple(row for row in self.walk.dead() if below(self.walk.groups[row].path, self.within))

    @property
    def finding(self) -> Finding | None:
        """What ``sexton doctor`` would find, with its culprit."""
        return with_makers(judge_zombies(memcg_count(self.count, self.memory), None), self.origins)

    @property
    def cannot_see(self) -> tuple[str, ...]:
        """What this survey could not see, in sentences."""
        unseen = [f"{said[0]}. {said[1]}" for said in (self.blind, self.ghosts_blind) if said is not None]
        if self.walk is not None and not self.walk.finished:
            why = "its deadline in the kernel" if self.walk.late else "a table that was too small"
            unseen.append(f"The walk ended early, at {why}: {len(self.walk.groups):,} groups were seen, not all.")
        return tuple(unseen)


def memcg_count(count: Census, memory: KernelMemory) -> MemcgCount:
    return MemcgCount(
        tracked=count.tracked,
        live=count.live,
        zombies=count.zombies,
        source=count.source,
        percpu_bytes=memory.percpu,
        slab_bytes=memory.slab_unreclaimable,
    )


def survey(*, pins: bool = False, within: str = "/", program: Path = PROGRAM) -> Survey:
    """Look once. Raises Absent or Unreadable when not even a count can be had."""
    begun = time.monotonic()
    place = find_memory(HOST)
    count = census(HOST)
    seen: Walk | None = None
    ghosts: tuple[Ghosts, ...] = ()
    blind = ghosts_blind = None
    try:
        seen = walk(count.tracked, pins=pins, program=program)
    except Unreadable as error:
        blind = (str(error), error.next_step)
        try:
            ghosts = tuple(ghost for ghost in find_ghosts(place) if below(ghost.path, within))
        except Unreadable as worse:
            ghosts_blind = (str(worse), worse.next_step)
    dead = () if seen is None else tuple(g for g in seen.groups if g.dead and below(g.path, within))
    return Survey(
        place=place,
        count=count,
        memory=kernel_memory(HOST),
        within=within,
        seconds=time.monotonic() - begun,
        walk=seen,
        blind=blind,
        ghosts=ghosts,
        ghosts_blind=ghosts_blind,
        shares=shares(dead),
        origins=attribute(HOST, dead),
    )


# A finding names so many makers; whoever wants all asks ``sexton zombies``.
MAKERS_NAMED = 3
# Origins are taken for known for so long, and while the number of zombies stays within this part of what it was.
NAMED_AGE = 600.0
NAMED_SLACK = 0.05


def with_makers(finding: Finding | None, found: tuple[Origin, ...]) -> Finding | None:
    """The same finding, its culprit known."""
    if finding is None or not found:
        return finding
    named = ", ".join(f"{share.says} ({share.share:.0%})" for share in found[:MAKERS_NAMED])
    more = len(found) - MAKERS_NAMED
    made = tuple(
        Evidence(f"made by {share.says}", f"{share.zombies:,} ({share.share:.1%})", "names of removed cgroups (BPF)")
        for share in found[:MAKERS_NAMED]
    )
    return msgspec.structs.replace(
        finding,
        culprit=named + (f" and {more} more" if more > 0 else ""),
        evidence=finding.evidence + made,
        next_step=(
            "First stop what makes them. Then 'sexton zombies --purge' says what would free them, and with --yes does."
        ),
    )


def culprits(root: Path, expected: int, keep: Path | None = None) -> tuple[Origin, ...]:
    """Origins of all zombies, or nothing where they cannot be named."""
    # A root directory may be another machine's, or a copy; the walk sees the kernel it runs on and no other.
    if boot(root).id != boot(HOST).id:
        return ()
    try:
        return attribute(root, each_dead(expected), keep)
    except HostFault:
        return ()


class Culprits:
    """The origins of all zombies, named anew only when they are no longer the same ones: a walk over 70,000 groups
    takes a tenth of a second of processor time, and a look a minute should not."""

    def __init__(self) -> None:
        self._at = -NAMED_AGE
        self._zombies = 0
        self._found: tuple[Origin, ...] = ()

    def of(self, root: Path, tracked: int, zombies: int, keep: Path | None = None) -> tuple[Origin, ...]:
        same = abs(zombies - self._zombies) <= NAMED_SLACK * self._zombies
        if not self._found or not same or time.monotonic() - self._at > NAMED_AGE:
            self._found = culprits(root, tracked, keep)
            self._at, self._zombies = time.monotonic(), zombies
        return self._found
