"""Earlier figures of each probe, so that a daemon's look can tell growth over minutes rather than between two looks.

    figures of a look -> at most one set a minute, half an hour of them -> the oldest is the next look's ``Before``

They are kept in a file every few minutes (as ``care/memory.py`` does for a single look), so a restart of the caretaker
does not begin anew; a restart of the host does.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Mapping
from pathlib import Path

import msgspec

from sexton.care.memory import LastLook, Remembered, recall
from sexton.care.probe import Before
from sexton.host.proc import Boot
from sexton.kit.atomicfile import write_atomic

# One set of figures is kept for each minute,
STEP = 60.0
# for half an hour: long enough for slow growth, short enough to forget what is over.
SPAN = 1800.0
# What is on disk may be this old.
SAVED = 600.0


class Baselines:
    """The figures of one boot."""

    def __init__(self, path: Path, boot: Boot) -> None:
        self._path = path
        self._boot = boot
        self._kept: dict[str, deque[tuple[float, Mapping[str, int]]]] = {}
        self._saved = 0.0
        last = recall(path, boot).look
        for name, was in (last.probes if last is not None else {}).items():
            self._kept[name] = deque([(was.uptime, was.figures)])

    def before(self, probe: str, uptime: float) -> Before | None:
        """What this probe counted up to half an hour ago, if it did."""
        kept = self._kept.get(probe)
        while kept and len(kept) > 1 and uptime - kept[0][0] > SPAN:
            kept.popleft()
        if not kept or kept[0][0] >= uptime or uptime - kept[0][0] > 2 * SPAN:
            return None
        return Before(uptime - kept[0][0], kept[0][1])

    def keep(self, probe: str, uptime: float, figures: Mapping[str, int]) -> None:
        kept = self._kept.setdefault(probe, deque())
        if not kept or uptime - kept[-1][0] >= STEP:
            kept.append((uptime, dict(figures)))

    def save(self, uptime: float, now: float) -> None:
        """Write them down if it is time. Blocks; what goes wrong only costs the next start its baseline."""
        if 0 <= uptime - self._saved < SAVED or not self._kept or self._boot.id is None:
            return
        self._saved = uptime
        newest = {name: Remembered(kept[-1][0], dict(kept[-1][1])) for name, kept in self._kept.items() if kept}
        with contextlib.suppress(OSError):
            write_atomic(self._path, msgspec.json.encode(LastLook(boot_id=self._boot.id, at=now, probes=newest)))
