"""Looks whether work gets done at all: time lost waiting for memory and for disks (PSI).

Processor pressure is only reported: on a host that computes for a living it is always high. And it is the whole
host's: a single starved core of many does not show here.
"""

from __future__ import annotations

from sexton.care.probe import CouldNotLook, Looked, NotPresent, Outcome, Probe, Scene
from sexton.core.finding import Finding
from sexton.core.shortage import judge_pressure
from sexton.host.cgroup import find_memory
from sexton.host.errors import Absent, HostFault, Unreadable
from sexton.host.offload import in_thread
from sexton.host.waiting import Pressure, pressure, waits_most


async def look(scene: Scene) -> Outcome:
    try:
        now = await in_thread("pressure", lambda: pressure(scene.root))
        found = await in_thread("pressure of groups", lambda: _judge(scene, now))
    except Absent as nothing:
        return NotPresent(str(nothing))
    except Unreadable as blind:
        return CouldNotLook(str(blind), blind.next_step)
    return Looked(
        says=(
            f"of the last minute, all work waited {now.memory.full:.0f} % for memory, {now.io.full:.0f} % for disks; "
            f"some waited {now.cpu.some:.0f} % for a processor"
        ),
        findings=found,
        figures={
            "memory_full_percent": round(now.memory.full),
            "io_full_percent": round(now.io.full),
            "cpu_some_percent": round(now.cpu.some),
        },
    )


def _judge(scene: Scene, now: Pressure) -> tuple[Finding, ...]:
    found = []
    for resource, waiting in (("memory", now.memory), ("io", now.io)):
        source = f"/proc/pressure/{resource}"
        if judge_pressure(resource, waiting.full, waiting.full_long, None, 0.0, source) is None:
            continue
        worst = None
        try:
            place = find_memory(scene.root)
            worst = waits_most(place.mount, resource) if place.version == 2 else None
        except HostFault:
            pass  # then nobody can say which group
        where, full = (None, 0.0) if worst is None else (worst[0], worst[1].full)
        finding = judge_pressure(resource, waiting.full, waiting.full_long, where, full, source)
        if finding is not None:
            found.append(finding)
    return tuple(found)


PROBE = Probe(
    name="pressure",
    reads=("/proc/pressure", "each live group's pressure on cgroup v2, only when the host waits"),
    cost="three small files; when the host waits, one more for each live group, 2,000 at most",
    look=look,
    every=30.0,
)
