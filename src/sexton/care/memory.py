"""What the last look counted, so that this one can tell growth from a standing number.

One small JSON file: the boot it belongs to and, for each probe, its figures and the host's uptime then. Uptime rather
than the clock measures the time between, because clocks are set. After a reboot the counters start anew, so figures
of another boot are not compared. Two sets are kept of each probe, ten minutes apart: somebody who looks each minute (a
cron job, node-problem-detector) would else compare with almost nothing, for ever, and never see slow growth.

The file is a convenience. Missing, corrupt, unreadable or unwritable, it is said in one sentence and the look goes on.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from sexton.care.probe import Before
from sexton.core.finding import GROWTH_SPAN
from sexton.host.proc import Boot
from sexton.kit.atomicfile import write_atomic

# Figures are replaced by newer ones only when they are at least this old: growth over less says nothing yet.
BASELINE_AGE = GROWTH_SPAN
# A file larger than this is not ours; reading it could only do harm.
LARGEST = 4 * 2**20


class Taken(msgspec.Struct, frozen=True):
    """Figures, and the host's uptime when they were taken."""

    uptime: float
    figures: dict[str, int]


class Remembered(Taken, frozen=True):
    """One probe's newest figures, and the ones before them."""

    earlier: Taken | None = None


class LastLook(msgspec.Struct, frozen=True, kw_only=True):
    schema: int = 1
    boot_id: str
    at: float
    probes: dict[str, Remembered]

    def before(self, probe: str, uptime: float) -> Before | None:
        """What this probe counted earlier in this boot, if it did."""
        newest = self.probes.get(probe)
        if newest is None or newest.uptime >= uptime:
            return None
        young = uptime - newest.uptime < BASELINE_AGE
        was = newest.earlier if young and newest.earlier is not None else newest
        return Before(uptime - was.uptime, was.figures)


class Recollection(msgspec.Struct, frozen=True):
    """The last look of this boot, or None and the sentence that says why there is none."""

    look: LastLook | None
    note: str


def state_file(state_dir: Path) -> Path:
    return state_dir / "care" / "last-look.json"


def recall(path: Path, boot: Boot) -> Recollection:
    """Read the last look. Never raises."""
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
    except FileNotFoundError:
        return Recollection(None, "first look: growth is known from the next one on")
    except OSError as error:
        return Recollection(None, f"cannot read the last look {path}: {error.strerror}; growth is not known")
    try:
        if len(data) > LARGEST:
            raise ValueError("too large")
        last = msgspec.json.decode(data, type=LastLook)
    except ValueError:  # msgspec's errors are ValueErrors
        return Recollection(
            None, f"the last look {path} is damaged and is replaced; growth is known from the next look on"
        )
    if last.schema != LastLook.__struct_defaults__[0]:
        return Recollection(None, f"the last look {path} was written by another version and is replaced")
    if boot.id is None or boot.uptime is None:
        return Recollection(None, "cannot tell this boot from the last one; growth is not known")
    if last.boot_id != boot.id:
        return Recollection(None, "the host has restarted since the last look: counters began anew")
    return Recollection(last, "")


def remember(
    path: Path, boot: Boot, now: float, last: LastLook | None, figures: Mapping[str, Mapping[str, int]]
) -> str:
    """Keep this look's figures for the next. Returns what went wrong as a sentence, or nothing. Never raises."""
    if boot.id is None or boot.uptime is None:
        return ""
    probes = dict(last.probes) if last is not None else {}
    for probe, numbers in figures.items():
        was = probes.get(probe)
        if was is None or not 0 <= boot.uptime - was.uptime < BASELINE_AGE:
            earlier = None if was is None or was.uptime > boot.uptime else Taken(was.uptime, was.figures)
            probes[probe] = Remembered(boot.uptime, dict(numbers), earlier)
    if last is not None and probes == last.probes:
        return ""
    try:
        write_atomic(path, msgspec.json.encode(LastLook(boot_id=boot.id, at=now, probes=probes)))
    except OSError as error:
        return (
            f"cannot keep this look in {path}: {error.strerror}; the next one cannot tell growth "
            "(name another place with --state-dir)"
        )
    return ""
