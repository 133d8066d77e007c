"""One look at the host: all probes at once, each with a deadline, then what they found.

    scene (root, engine, time, last look) -> probes, concurrently -> outcomes -> findings -> figures kept for next time

A probe that breaks or takes too long is reported as one that could not look, and the others go on. The round itself
never raises, writes one file (the figures, see ``memory.py``), changes nothing else and ends within five seconds.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

import msgspec

from sexton.care.memory import recall, remember, state_file
from sexton.care.probe import CouldNotLook, Looked, Outcome, Probe, Scene, Watcher
from sexton.care.probes import containers, disk, engine, group_churn, log_lines, memcg, oom, pressure, unit_turns, units
from sexton.core.finding import Finding, Severity, merged
from sexton.host.offload import in_thread
from sexton.host.proc import Boot, boot

T = TypeVar("T")
log = logging.getLogger(__name__)

PROBES: tuple[Probe, ...] = (
    memcg.PROBE,
    units.PROBE,
    containers.PROBE,
    unit_turns.PROBE,
    engine.PROBE,
    disk.PROBE,
    pressure.PROBE,
    oom.PROBE,
    log_lines.PROBE,
)

# What a daemon runs besides; one look has no use for them.
WATCHERS: tuple[Watcher, ...] = (unit_turns.WATCHER, containers.WATCHER, group_churn.WATCHER)

# Each probe ends in milliseconds on a healthy host and bounds itself on a sick one; this is for the one that does not.
PROBE_DEADLINE = 3.5
# The few files read and written around the probes; a disk that takes longer is given up on.
FILE_DEADLINE = 0.5


class Verdict(StrEnum):
    HEALTHY = "healthy"  # everything that is there was looked at, and nothing was found
    FINDINGS = "findings"
    UNSEEN = "unseen"  # nothing was found, but something could not be looked at


class Sight(msgspec.Struct, frozen=True):
    """How one probe's look ended, and how long it took."""

    probe: Probe
    outcome: Outcome
    seconds: float


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """Everything one look saw. Findings are sorted, the worst first."""

    at: float
    seconds: float
    boot: Boot
    sights: tuple[Sight, ...]
    findings: tuple[Finding, ...]
    notes: tuple[str, ...]

    @property
    def verdict(self) -> Verdict:
        if self.findings:
            return Verdict.FINDINGS
        blind = any(isinstance(sight.outcome, CouldNotLook) for sight in self.sights)
        seen = any(isinstance(sight.outcome, Looked) for sight in self.sights)
        return Verdict.UNSEEN if blind or not seen else Verdict.HEALTHY


async def look_around(root: Path, docker_host: str, state_dir: Path, probes: tuple[Probe, ...] = PROBES) -> Round:
    """Look once."""
    begun, now = time.monotonic(), time.time()
    this_boot = await _bounded("boot", lambda: boot(root)) or Boot()
    path = state_file(state_dir)
    known = await _bounded("recall", lambda: recall(path, this_boot))
    notes = [] if known is None else [known.note]
    last = None if known is None else known.look
    if known is None:
        notes.append(f"cannot read the last look {path} in time; growth is not known")

    def scene(probe: Probe) -> Scene:
        before = None if last is None or this_boot.uptime is None else last.before(probe.name, this_boot.uptime)
        return Scene(
            root=root, docker_host=docker_host, now=now, uptime=this_boot.uptime, before=before, data_dir=state_dir
        )

    sights = await asyncio.gather(*(take(probe, scene(probe)) for probe in probes))
    outcomes = ((sight.probe.name, sight.outcome) for sight in sights)
    figures = {name: outcome.figures for name, outcome in outcomes if isinstance(outcome, Looked)}
    kept = await _bounded("remember", lambda: remember(path, this_boot, now, last, figures))
    notes.append(f"cannot keep this look in {path} in time" if kept is None else kept)
    found = [finding for sight in sights if isinstance(sight.outcome, Looked) for finding in sight.outcome.findings]
    return Round(
        at=now,
        seconds=time.monotonic() - begun,
        boot=this_boot,
        sights=tuple(sights),
        findings=tuple(sorted(merged(found), key=lambda f: (f.severity is not Severity.CRITICAL, f.fingerprint))),
        notes=tuple(note for note in notes if note),
    )


async def take(probe: Probe, scene: Scene) -> Sight:
    """One probe's look, within its deadline; whatever happens in it becomes an outcome."""
    begun = time.monotonic()
    outcome: Outcome
    try:
        async with asyncio.timeout(PROBE_DEADLINE):
            outcome = await probe.look(scene)
    except TimeoutError:
        outcome = CouldNotLook(
            f"no answer within {PROBE_DEADLINE:g} s", "Look again; if it stays so, the host itself is stuck there."
        )
    except Exception as error:  # one broken probe must not hide what the others see
        log.debug("probe broke", extra={"probe": probe.name}, exc_info=True)
        outcome = CouldNotLook(
            f"the probe broke: {type(error).__name__}: {error}", "Report this as a bug, with this line."
        )
    return Sight(probe, outcome, time.monotonic() - begun)


async def _bounded(name: str, work: Callable[[], T]) -> T | None:
    """Blocking file work; None when the disk did not answer in time."""
    try:
        async with asyncio.timeout(FILE_DEADLINE):
            return await in_thread(name, work)
    except TimeoutError:
        return None
