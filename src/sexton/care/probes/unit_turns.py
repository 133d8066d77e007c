"""Looks for units that turn in circles whoever turns them: systemd itself, a timer, or somebody by hand.

One look reads the journal's own record of the last days, by message id. A daemon watches systemd's signals instead and
tells a loop at its third turn; what was before it started, it takes from the journal where there is one. Both put
moments together to lives and ask the same rule (``core/loop.py``).
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import OrderedDict
from pathlib import Path

from sexton.care.probe import CouldNotLook, Looked, NotPresent, Outcome, Probe, Scene, Tell, Watcher
from sexton.care.turns import UPGRADE_SPAN, cause_of, judge_book, suspicious
from sexton.core.finding import Finding
from sexton.core.lives import Lives, UnitState, moments_of
from sexton.core.loop import Cause, Toll
from sexton.host.errors import Absent, HostFault, Unreadable
from sexton.host.journal import unit_moments
from sexton.host.offload import in_thread
from sexton.host.packages import last_change
from sexton.host.unit_signals import UnitPlan, UnitSignals, ask_units

# How far back the journal is read; a timer that fails once a day shows three turns in four.
BEHIND = 4 * 86400.0
# With a loop open, it is judged again after this time without news: that is how an ended loop ends.
PACE = 5.0
# A storm of signals is judged at this pace, not at each.
CALM = 0.2
# What turns leak is counted by a walk over all groups, and what is set about a unit by a few calls: not at each turn.
TOLL_AGE = 60.0
# Runs whose cause has been asked for; older ones do not start again.
CAUSES_KEPT = 1024

JOURNAL = "systemd's journal, by message id"
SIGNALS = "systemd's signals"


async def look(scene: Scene) -> Outcome:
    try:
        async with ask_units(scene.root) as systemd:
            book, changed = await in_thread("journal", lambda: _history(scene.root, scene.now))
            found = await judge_book(scene.root, systemd, book, scene.now, source=JOURNAL, changed=changed, known={})
    except Absent as nothing:
        return NotPresent(str(nothing))
    except Unreadable as blind:
        return CouldNotLook(str(blind), blind.next_step)
    turns = sum(book.turns(unit) for unit in book.units())
    return Looked(
        says=f"{turns:,} turns of {len(book.units()):,} units in the journal, {len(found):,} in a loop",
        findings=found,
        figures={"turns": turns},
    )


def _history(root: Path, now: float) -> tuple[Lives, float]:
    """What the journal knows, and when packages last changed. Blocks."""
    book = Lives()
    for moment in unit_moments(root, now - BEHIND):
        book.note(moment)
    return book, last_change(root)


async def watch(scene: Scene, tell: Tell) -> None:
    try:
        async with ask_units(scene.root, follow=True) as systemd:
            await _Watch(scene.root, systemd, tell).run()
    except Absent as nothing:
        tell(NotPresent(str(nothing)))
    except Unreadable as blind:
        tell(CouldNotLook(str(blind), blind.next_step))
    else:
        tell(CouldNotLook("systemd hung up", "It is asked again; if it stays so: systemctl status dbus."))


class _Watch:
    """One subscription's worth of watching."""

    def __init__(self, root: Path, systemd: UnitSignals, tell: Tell) -> None:
        self._root = root
        self._systemd = systemd
        self._tell = tell
        self._book = Lives()
        self._causes: OrderedDict[str, Cause] = OrderedDict()
        self._tolls: dict[str, Toll] = {}
        self._tolls_until = 0.0
        self._plans: dict[str, UnitPlan] = {}
        self._changed = 0.0
        self._heard = 0

    async def run(self) -> None:
        with contextlib.suppress(HostFault):  # no journal: then history begins now
            self._book, self._changed = await in_thread("journal", lambda: _history(self._root, time.time()))
        open_ = await self._say()
        while True:
            state = None
            # Sleeps for ever while no loop is open and nothing happens.
            with contextlib.suppress(TimeoutError):
                state = await asyncio.wait_for(self._systemd.next(), PACE if open_ else None)
                if state is None:
                    return
            if state is not None:
                self._changed = await in_thread("packages", lambda: last_change(self._root))
                await self._note(state)
                storm = time.monotonic() + CALM
                while not self._systemd.caught_up and time.monotonic() < storm:
                    if (state := await self._systemd.next()) is None:
                        return
                    await self._note(state)
            if open_ or suspicious(self._book):
                open_ = await self._say()
                await asyncio.sleep(CALM)

    async def _note(self, state: UnitState) -> None:
        self._heard += 1
        cause = self._causes.get(state.run)
        if cause is None and state.run:
            cause = await self._cause(state)
            self._causes[state.run] = cause
            while len(self._causes) > CAUSES_KEPT:
                self._causes.popitem(last=False)
        upgrade = abs(state.began - self._changed) <= UPGRADE_SPAN
        for moment in moments_of(state, cause or Cause.UNKNOWN, upgrade=upgrade):
            self._book.note(moment)

    async def _cause(self, state: UnitState) -> Cause:
        if state.restarts > 0:
            return Cause.POLICY
        try:
            plan = self._plans.get(state.unit)
            if plan is None:
                plan = self._plans[state.unit] = await self._systemd.plan(state.unit)
            return await cause_of(self._systemd, plan, state.began)
        except KeyError:
            return Cause.UNKNOWN

    async def _say(self) -> bool:
        now = time.time()
        if time.monotonic() > self._tolls_until:
            self._tolls.clear()
            self._plans.clear()
            self._tolls_until = time.monotonic() + TOLL_AGE
        found: tuple[Finding, ...] = await judge_book(
            self._root, self._systemd, self._book, now, source=SIGNALS, changed=self._changed, known=self._tolls
        )
        lost = f"; {self._systemd.lost:,} signals came too fast and were dropped" if self._systemd.lost else ""
        self._tell(
            Looked(
                says=f"{len(self._book.units()):,} units have turned, {len(found):,} in a loop{lost}",
                findings=found,
                figures={"signals": self._heard},
            )
        )
        return bool(found)


PROBE = Probe(
    name="unit-turns",
    reads=(
        "systemd's journal through journalctl, by message id: the newest 4,000 starts and ends of the last four days",
        "systemd over D-Bus, about units whose turns look bad",
        "the package manager's records, about units in a loop",
    ),
    cost="one child process, some 20 ms and never more than 2 s; a few calls for each unit that looks bad",
    look=look,
)

WATCHER = Watcher(
    name="unit-signals",
    reads=("systemd's PropertiesChanged signals over D-Bus", "its journal, once, for what was before"),
    cost="nothing while nothing happens; under a millisecond for each start or end of a unit",
    watch=watch,
)
