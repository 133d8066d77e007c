"""Looks how full local file systems are, in space and in inodes; whose it is, once one of them is short.

Flows in: the kernel's counters of each file system; the engine's directories, only in trouble. Flows out: a finding
for each shortage.
"""

from __future__ import annotations

from functools import partial

from sexton.care.probe import CouldNotLook, Looked, NotPresent, Outcome, Probe, Scene
from sexton.core.finding import Finding, size
from sexton.core.shortage import Fill, judge_disk
from sexton.host.disk import Volume, engine_use, is_on, volumes
from sexton.host.errors import Unreadable
from sexton.host.offload import in_thread

# Where Docker keeps everything unless its settings say otherwise.
ENGINE_ROOT = "/var/lib/docker"


async def look(scene: Scene) -> Outcome:
    try:
        found = await in_thread("disks", lambda: volumes(scene.root))
    except Unreadable as blind:
        return CouldNotLook(str(blind), blind.next_step)
    if not found:
        return NotPresent("no local file system is mounted for writing in this view")
    findings: list[Finding] = []
    for volume in found:
        if judge_disk(_fill(volume)):
            uses = await in_thread("disk use", partial(_uses, scene, volume))
            findings += judge_disk(_fill(volume, uses))
    fullest = found[0]
    return Looked(
        says=(
            f"{len(found):,} local file systems; the fullest is {fullest.mount}: {fullest.used:.0%} of its space, "
            f"{fullest.inodes_used:.0%} of its inodes"
        ),
        findings=tuple(findings),
        figures={f"free {volume.mount}": volume.free for volume in found},
    )


def _fill(volume: Volume, uses: tuple[str, ...] = ()) -> Fill:
    return Fill(
        mount=volume.mount,
        device=volume.device,
        size=volume.size,
        free=volume.free,
        used=volume.used,
        inodes=volume.inodes,
        inodes_used=volume.inodes_used,
        uses=uses,
    )


def _uses(scene: Scene, volume: Volume) -> tuple[str, ...]:
    """What of it the engine takes. Blocks, within a bound."""
    if not is_on(scene.root, ENGINE_ROOT, volume):
        return ()
    return tuple(
        f"{use.what} of the container engine: {'' if use.whole else 'at least '}{size(use.size)}"
        for use in engine_use(scene.root, ENGINE_ROOT)
        if use.size
    )


PROBE = Probe(
    name="disk",
    reads=(
        "/proc/mounts",
        "statvfs of each local file system",
        "sizes below /var/lib/docker, only when that one is short",
    ),
    cost="a system call for each local file system; when one is short, up to 0.8 s to sum up what the engine takes",
    look=look,
)
