"""Counts memory cgroups: tracked by the kernel, live, and the difference, the zombies; when there are too many, whose.

Flows in: the kernel's counters, the live directories, the earlier count; names of removed cgroups, asked for only once
there is something to find. Flows out: one finding at most.
"""

from __future__ import annotations

from sexton.care.graves import Culprits, memcg_count, with_makers
from sexton.care.probe import CouldNotLook, Looked, NotPresent, Outcome, Probe, Scene
from sexton.core.finding import Change, judge_zombies
from sexton.host.cgroup import census
from sexton.host.errors import Absent, Unreadable
from sexton.host.offload import in_thread
from sexton.host.proc import kernel_memory

_culprits = Culprits()


async def look(scene: Scene) -> Outcome:
    try:
        count = await in_thread("memcg census", lambda: census(scene.root))
        memory = await in_thread("meminfo", lambda: kernel_memory(scene.root))
    except Absent as nothing:
        return NotPresent(str(nothing))
    except Unreadable as blind:
        return CouldNotLook(str(blind), blind.next_step)
    change = None
    if scene.before is not None and "zombies" in scene.before.figures:
        change = Change(count.zombies - scene.before.figures["zombies"], scene.before.seconds)
    finding = judge_zombies(memcg_count(count, memory), change)
    if finding is not None:
        named = await in_thread(
            "memcg walk", lambda: _culprits.of(scene.root, count.tracked, count.zombies, scene.keep)
        )
        finding = with_makers(finding, named)
    says = f"{count.tracked:,} memory cgroups tracked, {count.live:,} live, {count.zombies:,} zombies ({count.mode})"
    if change is not None:
        says += f", {change.by:+,} since the last look"
    if count.unsettled:
        says += f"; cgroups came and went meanwhile, the count may be off by {count.unsettled:,}"
    return Looked(
        says=says,
        findings=() if finding is None else (finding,),
        figures={"tracked": count.tracked, "live": count.live, "zombies": count.zombies},
    )


PROBE = Probe(
    name="memcg",
    reads=(
        "/proc/cgroups",
        "/proc/mounts",
        "the memory hierarchy's directories (v1) or cgroup.stat (v2)",
        "/proc/meminfo",
        "names of removed cgroups by a walk in the kernel (BPF), only when there are too many",
    ),
    cost=(
        "the same with any number of zombies; on v1 a few microseconds for each live directory, 2 s at most; "
        "to name their makers, a few microseconds for each zombie, 0.4 s in the kernel at most, once in ten minutes "
        "or when their number has changed"
    ),
    look=look,
)
