"""Counts memory cgroups: tracked by the kernel, live, and the difference, the zombies.

Flows in: the kernel's counters, the live directories, the earlier count. Flows out: one finding at most.
"""

from __future__ import annotations

from sexton.care.probe import CouldNotLook, Looked, NotPresent, Outcome, Probe, Scene
from sexton.core.finding import Change, MemcgCount, judge_zombies
from sexton.host.cgroup import census
from sexton.host.errors import Absent, Unreadable
from sexton.host.offload import in_thread
from sexton.host.proc import kernel_memory


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
    finding = judge_zombies(
        MemcgCount(
            tracked=count.tracked,
            live=count.live,
            zombies=count.zombies,
            source=count.source,
            percpu_bytes=memory.percpu,
            slab_bytes=memory.slab_unreclaimable,
        ),
        change,
    )
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
    ),
    cost="the same with any number of zombies; on v1 a few microseconds for each live directory, 2 s at most",
    look=look,
)
