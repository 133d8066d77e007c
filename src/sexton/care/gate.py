"""The gate of an image pipeline, run on the freshly booted build host: look, let it settle, look again, judge.

    look at once (baseline)  ->  half of the settling time  ->  count  ->  the other half  ->  look  ->  core/gate.py
    lock -> the host as the image it was made from -> drift

It boots nothing and changes nothing; the figures of its first look are kept in a directory that goes with it, so that a
host's own history neither helps nor hurts.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path

import msgspec

from sexton.care.audit.auditing import audit
from sexton.care.audit.lockfile import BadLock, make_lock, read_lock
from sexton.care.audit.rulebook import BadRules, open_rulebook
from sexton.care.audit.sources import live_states
from sexton.care.look import PROBES, Round, look_around
from sexton.care.probe import CouldNotLook, Looked, Probe
from sexton.care.probes import memcg
from sexton.core.gate import Blind, Check, Count, Limits, Result, judge, verdict
from sexton.core.lock import Difference, drift
from sexton.host.errors import HostFault
from sexton.host.offload import in_thread
from sexton.host.rootfs import Directory


class Gate(msgspec.Struct, frozen=True, kw_only=True):
    """What the gate saw, and its judgement."""

    checks: tuple[Check, ...]
    counts: tuple[Count, ...]
    limits: Limits
    started: float
    seconds: float

    @property
    def result(self) -> Result:
        return verdict(self.checks)

    @property
    def exit_code(self) -> int:
        return {Result.PASSED: 0, Result.FAILED: 1, Result.BLIND: 2}[self.result]


async def run_gate(
    root: Path,
    docker_host: str,
    limits: Limits,
    settle: float,
    *,
    lock: Path | None = None,
    shape: str | None = None,
    probes: tuple[Probe, ...] = PROBES,
) -> Gate:
    """Watch this host for ``settle`` seconds and judge it."""
    started, begun = time.time(), time.monotonic()
    counts: list[Count] = []
    with tempfile.TemporaryDirectory(prefix="sexton-gate-") as scratch:
        state = Path(scratch)
        for seen in (
            await look_around(root, docker_host, state, probes),
            await _after(settle / 2, root, docker_host, state, (memcg.PROBE,)),
            last := await _after(settle / 2, root, docker_host, state, probes),
        ):
            counts += _counted(seen, seen.at - started)
    drifted: tuple[Difference, ...] | None = None
    no_lock = ""
    if lock is not None:
        drifted, no_lock = await in_thread("drift", lambda: _drift(root, lock, shape))
    blind = tuple(
        Blind(sight.probe.name, f"{sight.outcome.reason}. {sight.outcome.next_step}")
        for sight in last.sights
        if isinstance(sight.outcome, CouldNotLook)
    )
    return Gate(
        checks=judge(tuple(counts), last.findings, blind, drifted, limits, no_lock),
        counts=tuple(counts),
        limits=limits,
        started=started,
        seconds=time.monotonic() - begun,
    )


async def _after(seconds: float, root: Path, docker_host: str, state: Path, probes: tuple[Probe, ...]) -> Round:
    await asyncio.sleep(seconds)
    return await look_around(root, docker_host, state, probes)


def _counted(seen: Round, at: float) -> list[Count]:
    return [
        Count(at=at, tracked=figures["tracked"], live=figures["live"], zombies=figures["zombies"])
        for sight in seen.sights
        if sight.probe.name == memcg.PROBE.name and isinstance(sight.outcome, Looked)
        for figures in [sight.outcome.figures]
    ]


def _drift(root: Path, path: Path, shape: str | None) -> tuple[tuple[Difference, ...] | None, str]:
    """How this host differs from its lock; or why that cannot be said."""
    try:
        lock = read_lock(path)
        states = live_states(root) if lock.live else {}
        seen = audit(Directory(root), open_rulebook(shape or lock.shape), live=lock.live, runtime=lock.live)
        return drift(lock, make_lock(seen, states)), ""
    except (BadLock, BadRules) as error:
        return None, str(error)
    except HostFault as fault:
        return None, f"{fault}. {getattr(fault, 'next_step', '')}".rstrip()
