"""Carries out a purge, one step at a time, each in a confined child, each proved by counting again.

    survey -> plan -> one step -> wait until the kernel has freed what it frees -> survey -> plan ... until none is left

Nothing is kept between steps but which means were tried, so being killed anywhere leaves nothing half-done: pages that
were dropped stay dropped, all others were not touched, and the next run looks with fresh eyes. A step that ran out of
its budget is given another after a rest as long as its work was, as long as it still frees something. So is a reclaim
that left some behind: a file system's own blocks cannot go while its journal is at work on them, and dropping dirty
pages just before is what puts them there.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from sexton.care.graves import HOST, Survey, survey
from sexton.core.purge import (
    COMMIT_SECONDS,
    Allowed,
    DropFiles,
    Plan,
    Reclaim,
    Step,
    Why,
    plan_located,
    plan_named,
    rest_before_more,
)
from sexton.core.zombie import Walk
from sexton.host.cgroup import census
from sexton.host.confined import Ended, run_confined
from sexton.host.memcg_walk import PROGRAM
from sexton.host.pinned_files import read_mounts

# A child is left to compute for so long at least; the timer that ends it has this grain.
LEAST = 0.01
# Reclaim is ended by the time it computes; while it sleeps, for a disk or for the core, it costs nobody anything.
RECLAIM_DEADLINE = 10.0
# Dropping exact pages sleeps while dirty ones are written back; its time in the kernel is bounded by the budget all the
# same, by its own count.
DROP_DEADLINE = 10.0
# Dropping the host's caches is one call that no signal ends; a child that takes this long is reported as stuck.
CACHES_DEADLINE = 30.0
# A step that runs out of its budget while it frees something is repeated so often at most.
ATTEMPTS = 12
# The kernel frees a group some time after its last page, about 30,000 a second, fewer on a busy host.
SETTLE_DEADLINE = 20.0
# The count is taken as settled when it has stood still for so long,
SETTLED = 0.15
# and none of the zombies in question is without a pin any more: such a one is on its way out.
LOOK_AGAIN = 0.3


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One child's work on a step, and what it changed. Freed zombies are those the step was for, where they have names;
    else by how many the host's count fell."""

    step: Step
    freed: int
    remaining: int
    seconds: float
    kernel: float
    killed: bool
    stuck: bool
    cached_before: int
    cached_after: int
    said: dict[str, int | str]


class Purge:
    """One purge of the zombies below ``within``. ``plan()`` before anything is done is the dry run."""

    def __init__(self, *, allowed: Allowed, within: str = "/", program: Path = PROGRAM) -> None:
        self._allowed = allowed
        self._within = within
        self._program = program
        self._tried: set[str] = set()
        self._tries: dict[str, int] = {}
        self._refused = False
        self._waited = False
        self.seen = self._look()

    def _look(self) -> Survey:
        return survey(pins=True, within=self._within, program=self._program)

    def plan(self) -> Plan:
        """What would be done now, and what would be left."""
        plan = self._plan()
        if not self._refused:
            return plan
        # What was refused was not tried in vain: nobody knows what it would have done.
        left = tuple(
            msgspec.structs.replace(one, why=Why.REFUSED) if one.why is Why.TRIED else one for one in plan.left
        )
        return msgspec.structs.replace(plan, left=left)

    def _plan(self) -> Plan:
        if self.seen.walk is not None:
            return plan_named(self.seen.walk, self._allowed, tried=self._tried, within=self._within, reach=self._within)
        return plan_located(
            self.seen.ghosts,
            self._allowed,
            zombies=self.seen.count.zombies,
            tried=self._tried,
            within=self._within,
            reach=self._within,
        )

    def run(self) -> Iterator[Attempt]:
        """Do it; each attempt is handed out once it is proved."""
        while steps := self.plan().steps:
            attempt = self._attempt(steps[0])
            yield attempt
            key = steps[0].key
            self._refused = self._refused or bool(attempt.said.get("error"))
            self._tries[key] = self._tries.get(key, 0) + 1
            rest = self._rest(attempt)
            if attempt.stuck or rest is None or self._tries[key] >= ATTEMPTS:
                self._tried.add(key)
            else:
                time.sleep(rest)
            if attempt.stuck:  # a child that cannot be killed still holds that core: do not add another
                return

    def _rest(self, attempt: Attempt) -> float | None:
        """Seconds until the same step is worth another attempt; None when it is not."""
        if attempt.killed or _out_of_budget(attempt.step, attempt.said):
            return attempt.seconds if attempt.freed > 0 else None
        seen = self.seen.walk
        in_journal = not self._waited and seen is not None and seen.pinned_by_blocks(self._within)
        rest = rest_before_more(attempt.step, attempt.freed, attempt.remaining, in_journal=in_journal)
        self._waited = self._waited or rest == COMMIT_SECONDS
        return rest

    def _attempt(self, step: Step) -> Attempt:
        before, cached = census(HOST).zombies, cached_bytes()
        groups = () if self.seen.walk is None else self.seen.walk.groups
        wanted = frozenset(groups[row].id for row in step.zombies)
        ended = self._carry_out(step)
        self._settle(wanted)
        if wanted and self.seen.walk is not None:
            remaining = sum(1 for group in self.seen.walk.groups if group.dead and group.id in wanted)
            freed = len(wanted) - remaining
        else:
            remaining = census(HOST).zombies
            freed = before - remaining
        return Attempt(
            step=step,
            freed=freed,
            remaining=remaining,
            seconds=ended.seconds,
            kernel=ended.kernel,
            killed=ended.killed,
            stuck=ended.stuck,
            cached_before=cached,
            cached_after=cached_bytes(),
            said=ended.said,
        )

    def _settle(self, wanted: frozenset[int]) -> None:
        """Wait until the kernel has freed what it is about to free, and look again."""
        until = time.monotonic() + SETTLE_DEADLINE
        _wait_until_still(until)
        self.seen = self._look()
        while _leaving(self.seen.walk, wanted) and time.monotonic() < until:
            time.sleep(LOOK_AGAIN)
            self.seen = self._look()

    def _carry_out(self, step: Step) -> Ended:
        if isinstance(step, DropFiles):
            return run_confined(_drop_order(step, self._allowed.budget), DROP_DEADLINE)
        if isinstance(step, Reclaim):
            place = self.seen.place
            order = {
                "do": "reclaim",
                "group": f"{place.mount}{step.group.rstrip('/')}",
                "version": place.version,
                "pages": step.pages,
                # The round that is under way when the time is up cannot be shortened: it is left its time.
                "seconds": max(LEAST, self._allowed.budget - step.one_round),
            }
            return run_confined(order, RECLAIM_DEADLINE)
        return run_confined({"do": "caches", "seconds": CACHES_DEADLINE}, CACHES_DEADLINE)


def _out_of_budget(step: Step, said: dict[str, int | str]) -> bool:
    """Did a drop of files stop before the last one?"""
    return isinstance(step, DropFiles) and said.get("next", len(step.files)) != len(step.files)


def _drop_order(step: DropFiles, budget: float) -> dict[str, object]:
    mounts = read_mounts()
    places: dict[tuple[int, int], str] = {}
    files = []
    for file in step.files:
        device = file.holder.device
        if device not in places:
            where = mounts.openable(device)
            # A device that is mounted nowhere here: its files cannot be opened, and that is told as an error of each.
            places[device] = (where or b"/dev/null").hex()
        files.append((places[device], file.holder.number, file.holder.generation, file.dirty, file.ranges))
    return {"do": "drop", "budget": budget, "files": files}


def _wait_until_still(until: float) -> None:
    last, since = census(HOST).tracked, time.monotonic()
    while time.monotonic() - since < SETTLED and time.monotonic() < until:
        time.sleep(0.02)
        now = census(HOST).tracked
        if now < last:
            since = time.monotonic()
        last = now


def _leaving(walk: Walk | None, wanted: frozenset[int]) -> bool:
    """Is the kernel about to free any of these zombies?"""
    return walk is not None and any(walk.groups[row].id in wanted for row in walk.leaving())


def cached_bytes() -> int:
    """The host's page cache."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("Cached:"):
            return int(line.split()[1]) * 1024
    return 0
