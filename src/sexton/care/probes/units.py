"""Looks for service units that crash and restart over and over, and for units that failed and were left like that.

Flows in: what systemd says of its units, the earlier restart counters. Flows out: a finding per unit, loop before
failure.
A unit that was not in an earlier look has restarted zero times since before it: its counter started there.
"""

from __future__ import annotations

from sexton.care.probe import CouldNotLook, Looked, NotPresent, Outcome, Probe, Scene
from sexton.core.finding import Change, FailedUnit, Finding, UnitRestarts, counted, judge_failed, judge_unit
from sexton.host.errors import Absent, Unreadable
from sexton.host.units import Services, Unit, read_services


async def look(scene: Scene) -> Outcome:
    try:
        services = await read_services(scene.root)
    except Absent as nothing:
        return NotPresent(str(nothing))
    except Unreadable as blind:
        return CouldNotLook(str(blind), blind.next_step)
    # Without the age of this boot no pace can be worked out; a day is long enough not to raise an alarm by itself.
    uptime = scene.uptime if scene.uptime is not None else 86400.0
    loops = tuple(found for unit in services.suspects if (found := judge_unit(_restarts(unit, scene), uptime)))
    failed = tuple(found for unit in _failed(services, scene.now) if (found := judge_failed(unit)))
    looping = {finding.culprit for finding in loops}
    down = counted(len(_failed(services, scene.now)), "unit")
    findings: tuple[Finding, ...] = (*loops, *(one for one in failed if one.culprit not in looping))
    return Looked(
        says=(
            f"{services.loaded:,} service units, {services.asked:,} active or failed, {len(loops):,} in a loop; "
            f"{down} failed"
        ),
        findings=findings,
        figures={unit.name: unit.restarts for unit in services.suspects if unit.restarts},
    )


def _failed(services: Services, now: float) -> tuple[FailedUnit, ...]:
    """Everything that is failed now, of whatever kind."""
    of_services = tuple(
        FailedUnit(name=unit.name, ago=max(0.0, now - unit.changed), result=unit.result, exit_status=unit.exit_status)
        for unit in services.suspects
        if unit.active_state == "failed"
    )
    return of_services + tuple(FailedUnit(name=one.name, ago=max(0.0, now - one.changed)) for one in services.others)


def _restarts(unit: Unit, scene: Scene) -> UnitRestarts:
    since_last = None
    if scene.before is not None:
        earlier = scene.before.figures.get(unit.name, 0)
        # A counter below its earlier value was reset (restarted by hand): all it shows happened since.
        by = unit.restarts - earlier if unit.restarts >= earlier else unit.restarts
        since_last = Change(by, scene.before.seconds)
    return UnitRestarts(
        name=unit.name,
        active_state=unit.active_state,
        sub_state=unit.sub_state,
        result=unit.result,
        restarts=unit.restarts,
        policy=unit.restart,
        delay=unit.restart_delay,
        limit_interval=unit.start_limit_interval,
        limit_burst=unit.start_limit_burst,
        exit_status=unit.exit_status,
        up=max(0.0, scene.now - unit.process_started) if unit.process_runs else None,
        since_last=since_last,
    )


PROBE = Probe(
    name="units",
    reads=("systemd over D-Bus: ListUnitsByPatterns, NRestarts, and details of units that restarted or failed",),
    cost="two calls, one more for each active or failed service unit, one more for each suspect; under 2 ms each",
    look=look,
)
