"""The audit of one root file system: every unit a boot would start, where it came from, and the verdict on it.

    source -> tree -> units (host/unitfiles.py) -> reached from the boot's goal (core/installed.py)
           -> facts (facts.py) + rules (rulebook.py) -> verdict (core/audit.py)

Nothing is booted, run or written. Following it on: ``report.py`` for text and JSON, ``applying.py`` for ``--apply``,
``lockfile.py`` for the lock.
"""

from __future__ import annotations

import time

import msgspec

from sexton.care.audit.facts import FactReader
from sexton.care.audit.rulebook import Rulebook
from sexton.core.audit import Assessment, Verdict, assess, rule_for
from sexton.core.installed import Installed, Origin, Reached, Way, is_installable, preset_for, reach
from sexton.core.unitfile import kind_of
from sexton.host.rootfs import Tree
from sexton.host.unitfiles import read_units

# What an audit is about. Targets, mounts and devices start no program of their own.
AUDITED = frozenset({"service", "timer", "socket", "path"})


class Audited(msgspec.Struct, frozen=True, kw_only=True):
    """One unit: how it is started and what is thought of it."""

    reached: Reached
    origins: tuple[Origin, ...]
    assessment: Assessment
    # What its files lack; the assessment's also counts what the shape does not offer.
    file_lacks: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.reached.unit.name


class Audit(msgspec.Struct, frozen=True, kw_only=True):
    """All of them, in the order of their names."""

    source: str
    shape: str
    units: tuple[Audited, ...]
    installed: Installed
    cannot_see: tuple[str, ...]
    seconds: float
    live: bool

    @property
    def to_change(self) -> tuple[Audited, ...]:
        return tuple(unit for unit in self.units if unit.assessment.verdict is not Verdict.KEEP)

    def unit(self, name: str) -> Audited | None:
        return next((unit for unit in self.units if unit.name == self.installed.canonical(name)), None)


def audit(tree: Tree, rulebook: Rulebook, *, live: bool = False, runtime: bool = True) -> Audit:
    """Audit this tree. Raises Unreadable when it cannot be read. ``live``: it runs, so that all its paths tell.
    ``runtime=False``: look at a running host as if it were the image it was made from."""
    begun = time.monotonic()
    installed = read_units(tree, runtime=runtime)
    facts = FactReader(tree, installed.defaults, live=live)
    found = []
    for reached in _audited(installed):
        rule = rule_for(reached.unit, rulebook.rules)
        known = facts.read(reached.unit, rule)
        found.append(
            Audited(
                reached=reached,
                origins=_origins(installed, reached),
                assessment=assess(reached, known, rulebook.shape, rule, rulebook.facilities),
                file_lacks=tuple(lack.says for lack in known.lacks),
            )
        )
    unseen = list(installed.unseen)
    if not installed.units:
        unseen.append("there are no unit files: nothing here is started by systemd")
    return Audit(
        source=tree.name,
        shape=rulebook.shape.name,
        units=tuple(found),
        installed=installed,
        cannot_see=tuple(unseen),
        seconds=time.monotonic() - begun,
        live=live,
    )


def _audited(installed: Installed) -> list[Reached]:
    """What is started or enabled, and what is masked: that, too, was somebody's decision."""
    found = {one.unit.name: one for one in reach(installed) if kind_of(one.unit.name) in AUDITED}
    for name, unit in installed.units.items():
        if unit.mask and kind_of(name) in AUDITED and name not in found:
            found[name] = Reached(unit=unit, origins=(), at_boot=False, enabled=False)
    return [found[name] for name in sorted(found)]


def _origins(installed: Installed, reached: Reached) -> tuple[Origin, ...]:
    """How it is started, and what would enable it again."""
    if not is_installable(reached.unit):
        return reached.origins
    enables, rule = preset_for(installed, reached.unit.name)
    return (*reached.origins, Origin(Way.PRESET, rule)) if enables else reached.origins
