"""Runs inside the guest (see ``guest.py``): real zombies on cgroup v2, counted, named, located and freed there."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from pathlib import Path

from guest import tell
from sexton.care import purging
from sexton.care.graves import survey
from sexton.core.purge import Allowed
from sexton.host import memcg_walk
from sexton.host.cgroup import census, find_memory
from sexton.host.errors import HostFault
from sexton.host.ghosts import find_ghosts
from sexton.host.taskcgroup import Limits, TaskCgroups
from sexton.host.waiting import pressure
from zombies import ROOT, Graveyard, graveyard, numbered

STUCK = 120
CLEAN = 100
WRITERS = 12


# The last group a processor worked for stays until the processor works for another (its "stock").
LINGERING = 1
BUDGET = 5.0


def settled(want: int) -> int:
    """The count, once it is what is waited for, or as it is after a while: the kernel frees in its own time."""
    deadline = time.monotonic() + 20
    while (now := census(ROOT).zombies) > want + LINGERING and time.monotonic() < deadline:
        time.sleep(0.05)
    return now


def dead_below(yard: Graveyard) -> int:
    counted = dict(line.split() for line in (yard.top / "cgroup.stat").read_text().splitlines())
    return int(counted["nr_dying_descendants"])


def look() -> dict[str, object]:
    # An emulated machine on a busy host is a hundred times slower; one zombie that lingers is not worth waiting for.
    purging.SETTLE_DEADLINE = 3.0
    memcg_walk.KERNEL_DEADLINE, memcg_walk.DEADLINE = 10.0, 60.0
    allowed = Allowed(budget=BUDGET)
    told: dict[str, object] = {"kernel": os.uname().release, "mode": census(ROOT).mode}
    scratch = Path("/disk/scratch")
    scratch.mkdir()
    with graveyard(scratch) as yard:
        before = census(ROOT).zombies
        yard.make(numbered("system.slice/nightly.service/run-*", STUCK), yard.tmpfs / "pages")
        yard.make([f"docker/{number:064x}" for number in range(CLEAN)], yard.disk / "log")
        os.sync()
        begun = time.perf_counter()
        told["made"] = census(ROOT).zombies - before
        told["count_seconds"] = time.perf_counter() - begun
        told["kernel_counts"] = dead_below(yard)
        seen = survey(within=yard.path)
        told["cannot_see"] = seen.cannot_see
        told["named"] = len(seen.rows)
        told["makers"] = {share.kind: share.zombies for share in seen.shares}
        blind = survey(within=yard.path, program=Path("/no/walk"))
        told["blind_says"] = blind.cannot_see[:1]
        found = find_ghosts(find_memory(ROOT))
        told["ghosts"] = {ghost.path.removeprefix(yard.path): ghost.zombies for ghost in found}
        # What nobody can free first: nothing may be tried in vain for long.
        told["attempts"] = [
            {"key": attempt.step.key.split()[0], "freed": attempt.freed, "kernel": attempt.kernel}
            for attempt in purging.Purge(allowed=allowed, within=yard.path).run()
        ]
        told["after_files"] = settled(before + STUCK) - before
        # And with a file that has no name any more: only reclaim on the group above reaches it.
        yard.make(numbered("loop/u*", 60), yard.disk / "gone")
        os.sync()
        handle = os.open(yard.disk / "gone", os.O_RDONLY)
        (yard.disk / "gone").unlink()
        told["reclaimed"] = [
            {"key": attempt.step.key.split()[0], "freed": attempt.freed, "kernel": attempt.kernel}
            for attempt in purging.Purge(allowed=allowed, within=yard.path).run()
        ]
        os.close(handle)
        told["after_reclaim"] = settled(before + STUCK) - before
    told["after_all"] = settled(before) - before
    try:
        told["pressure"] = pressure(ROOT).memory.full
    except HostFault as fault:
        told["pressure"] = str(fault)
    return told


async def one_task() -> dict[str, object]:
    """A task's cgroup with every limit, a container's below it that pins what it wrote, and the clean end."""
    groups = TaskCgroups(Path("/sys/fs/cgroup"))
    writable = await groups.writable()
    await groups.prepare("t", Limits(cpu_quota=0.5, memory=64 << 20, pids=77, cpu_period=0.05))
    place = Path("/sys/fs/cgroup/ecs/t")
    await groups.prepare("u", Limits(cpu_shares=1024))
    read = {name: (place / name).read_text().strip() for name in ("cpu.max", "memory.max", "pids.max")}
    read["cpu.weight"] = Path("/sys/fs/cgroup/ecs/u/cpu.weight").read_text().strip()
    for number in range(WRITERS):
        inside = place / f"c{number}"
        inside.mkdir()
        script = f"echo 0 > {inside}/cgroup.procs; head -c 65536 /dev/zero > /disk/written{number}"
        subprocess.run(["sh", "-c", script], check=True)
    os.sync()
    empty = groups.empty("t", "c0")
    for number in range(WRITERS):
        (place / f"c{number}").rmdir()
    counted = dict(line.split() for line in (place / "cgroup.stat").read_text().splitlines())
    gone = [await groups.reclaim(task) for task in ("t", "u")]
    return {
        "writable": writable,
        "limits": read,
        "empty": empty,
        "pinned": int(counted["nr_dying_descendants"]),
        "reclaimed": gone,
        "there": place.exists(),
        "written": [Path(f"/disk/written{number}").stat().st_size for number in range(WRITERS)],
    }


if __name__ == "__main__":
    told = look()
    before = census(ROOT).zombies
    told["task"] = asyncio.run(one_task()) | {"zombies": settled(before) - before}
    tell(told)
