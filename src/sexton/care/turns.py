"""From units' turns to findings: what a look at the journal and a watch over systemd's signals have in common.

moments -> book of lives -> the loop rule -> what each turn leaked -> who ships the unit -> finding
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from sexton.care.graves import culprits
from sexton.core.finding import Evidence, Finding
from sexton.core.lives import Lives
from sexton.core.loop import TURNS, Cause, Life, Loop, Shape, Toll, judge_loop, unit_loop
from sexton.core.maker import MakerKind
from sexton.host.cgroup import census
from sexton.host.errors import HostFault
from sexton.host.offload import in_thread
from sexton.host.packages import owner_of
from sexton.host.unit_signals import UnitPlan, UnitSignals

# A start so soon after its timer's is the timer's.
TRIGGERED_WITHIN = 2.0
# Services that were restarted within this time of a change of packages were restarted by it.
UPGRADE_SPAN = 120.0


def suspicious(book: Lives) -> tuple[str, ...]:
    """Units worth asking systemd about: their newest turns look bad, whoever asked for them."""
    return tuple(
        unit
        for unit in book.units()
        if sum(1 for life in book.of(unit) if life.failed or life.cut or life.cause is Cause.POLICY) >= TURNS - 1
    )


def loop_of(unit: str, lives: tuple[Life, ...], plan: UnitPlan, now: float) -> Loop | None:
    trigger = next(iter(plan.triggered_by), "")
    limit = plan.start_limit_interval <= 0 or plan.start_limit_burst <= 0
    endless = limit or plan.start_limit_burst * plan.restart_delay >= plan.start_limit_interval
    return unit_loop(unit, lives, now, policy=plan.restart, endless=endless, trigger=trigger)


async def cause_of(systemd: UnitSignals, plan: UnitPlan, began: float) -> Cause:
    """Who asked for a start that systemd did not make by itself."""
    for trigger in plan.triggered_by:
        if not trigger.endswith(".timer"):
            return Cause.TRIGGER  # a path or socket does not say when it last did
        try:
            if abs(await systemd.triggered_at(trigger) - began) <= TRIGGERED_WITHIN:
                return Cause.TRIGGER
        except KeyError:
            continue
    return Cause.HAND


def guessed(life: Life, plan: UnitPlan, changed: float) -> Life:
    """The journal does not say who asked for a start: of a unit that has a trigger, its trigger; of others,
    somebody."""
    if life.cause is not Cause.UNKNOWN:
        return life
    cause = Cause.TRIGGER if plan.triggered_by else Cause.HAND
    return msgspec.structs.replace(life, cause=cause, upgrade=abs(life.began - changed) <= UPGRADE_SPAN)


async def judge_book(
    root: Path, systemd: UnitSignals, book: Lives, now: float, *, source: str, changed: float, known: dict[str, Toll]
) -> tuple[Finding, ...]:
    """The loops in the book. ``known`` are tolls counted before; new ones are added."""
    loops: list[tuple[Loop, UnitPlan, str]] = []
    for unit in suspicious(book):
        try:
            plan = await systemd.plan(unit)
            if plan.masked:
                continue  # systemd starts it no more, whoever asks
            loop = loop_of(unit, tuple(guessed(life, plan, changed) for life in book.of(unit)), plan, now)
            if loop is not None:
                loops.append((loop, plan, await systemd.file_of(unit)))
        except KeyError:
            continue  # unloaded since: whoever looped is gone
    if not loops:
        return ()
    missing = {loop.who: book.turns(loop.who) for loop, _, _ in loops if loop.who not in known}
    if missing:
        known.update(await in_thread("tolls", lambda: tolls(root, missing)))

    def write() -> tuple[Finding, ...]:
        return tuple(finding_of(root, loop, plan, file, known.get(loop.who), now, source) for loop, plan, file in loops)

    return await in_thread("loops", write)


def tolls(root: Path, turns: Mapping[str, int]) -> dict[str, Toll]:
    """What each of these units' turns has left behind; empty where nobody can name zombies. Blocks."""
    try:
        count = census(root)
    except HostFault:
        return {}
    made: dict[str, int] = {}
    for origin in culprits(root, count.tracked):
        unit = origin.maker if origin.kind is MakerKind.UNIT else origin.unit
        made[unit] = made.get(unit, 0) + origin.zombies
    if not made and count.zombies:
        return {}
    return {
        unit: Toll(left=made.get(unit, 0), turns=max(many, 1), zombies=count.zombies) for unit, many in turns.items()
    }


def finding_of(
    root: Path, loop: Loop, plan: UnitPlan, file: str, toll: Toll | None, now: float, source: str
) -> Finding:
    """Blocks: asks the package manager."""
    extra = []
    if loop.shape is Shape.TIMER and plan.triggered_by:
        extra.append(Evidence("triggered by", ", ".join(plan.triggered_by), "systemd TriggeredBy"))
    if file:
        package = owner_of(root, file)
        shipped = f"{file}, of package {package}" if package else f"{file}, which no package ships"
        extra.append(Evidence("unit shipped by", shipped, "systemd FragmentPath, package manager"))
    return judge_loop(loop, now, source=source, toll=toll, extra=extra)
