"""Looks for processes the kernel killed because memory ran out: how many, who, and whose limit it was.

Flows in: the kernel's counter, and its log once the counter says there is something in it. Flows out: a finding for
each maker of victims of the last hour.
"""

from __future__ import annotations

from sexton.care.probe import CouldNotLook, Looked, NotPresent, Outcome, Probe, Scene
from sexton.core.shortage import OOM_RECENT, Kill, judge_kills
from sexton.host.errors import Absent, Unreadable
from sexton.host.kmsg import oom_kills, oom_kills_since_boot
from sexton.host.offload import in_thread


async def look(scene: Scene) -> Outcome:
    try:
        total = await in_thread("vmstat", lambda: oom_kills_since_boot(scene.root))
    except Absent as nothing:
        return NotPresent(str(nothing))
    except Unreadable as blind:
        return CouldNotLook(str(blind), blind.next_step)
    before = None if scene.before is None else scene.before.figures.get("kills")
    figures = {"kills": total}
    victims = f"{total:,} process was" if total == 1 else f"{total:,} processes were"
    if total == 0:
        return Looked(says="nothing was killed for want of memory since boot", figures=figures)
    try:
        logged = await in_thread("kernel log", lambda: oom_kills(scene.root))
    except Unreadable as blind:
        since = "" if before is None else f", {total - before:,} of them since the last look"
        killed = f"{victims} killed for want of memory since boot{since}"
        return CouldNotLook(f"{killed}; who, the kernel's log tells: {blind}", blind.next_step)
    uptime = scene.uptime if scene.uptime is not None else max((kill.at for kill in logged), default=0.0)
    kills = [
        Kill(ago=max(0.0, uptime - kill.at), pid=kill.pid, name=kill.name, group=kill.group, limit=kill.limit)
        for kill in logged
    ]
    findings = judge_kills(kills)
    recent = sum(1 for kill in kills if kill.ago <= OOM_RECENT)
    missing = f"; the log no longer tells {total - len(kills):,} of them" if total > len(kills) else ""
    return Looked(
        says=f"{victims} killed for want of memory since boot, {recent:,} within the hour{missing}",
        findings=findings,
        figures=figures,
    )


PROBE = Probe(
    name="oom",
    reads=("/proc/vmstat", "/dev/kmsg, only when something has been killed since boot"),
    cost="one small file; once something was killed, a pass over the kernel's log, some ten milliseconds",
    look=look,
)
