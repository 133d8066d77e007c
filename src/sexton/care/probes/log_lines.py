"""Looks whether what tasks write with the driver awslogs reaches its destination.

Flows in: one small file that the agent of this host writes beside its spool. Flows out: a finding for each
destination that takes nothing, and one for lines that were lost since the last look.
"""

from __future__ import annotations

import msgspec

from sexton.care.probe import CouldNotLook, Looked, NotPresent, Outcome, Probe, Scene
from sexton.core.finding import size
from sexton.core.logstanding import FILE, FOLDER, STALE, Standing, judge_logs
from sexton.host.offload import in_thread


async def look(scene: Scene) -> Outcome:
    if scene.data_dir is None:
        return NotPresent("no data directory of an agent is known in this view")
    path = scene.data_dir / FOLDER / FILE
    try:
        found = msgspec.json.decode(await in_thread("log standing", path.read_bytes), type=Standing)
    except FileNotFoundError:
        return NotPresent("no task of an agent here has used the log driver awslogs")
    except (OSError, msgspec.MsgspecError) as error:
        return CouldNotLook(f"cannot read {path}: {error}", "Run it as root, with the agent's data directory.")
    if scene.now - found.at > STALE and not found.quiet:
        return CouldNotLook(
            f"no agent has written {path} for {scene.now - found.at:.0f} s, and log lines waited then",
            "Start the agent of this host: it delivers what waits.",
        )
    before = scene.before.figures.get("dropped") if scene.before else None
    return Looked(
        says=f"{size(found.held)} of log lines wait, {found.dropped:,} lines were ever dropped",
        findings=judge_logs(found, scene.now, before, str(path)),
        figures={"dropped": found.dropped},
    )


PROBE = Probe(
    name="log lines",
    reads=("logspool/standing.json in the agent's data directory",),
    cost="one small file",
    look=look,
    every=30.0,
)
