"""The lock of a host: which units it starts, through what, behind which gates; and how two locks differ.

A lock is reviewed and kept beside the image's recipe, so it holds what matters and nothing that changes by itself: no
times, no counts, no order of discovery. ``outcome`` says what becomes of a unit at boot as far as files tell; on a live
host ``state`` adds what did become of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec


class Outcome(StrEnum):
    STARTS = "starts"
    GATED = "gated"  # a condition or assertion is not met
    CANNOT_START = "cannot start"  # a program, file or user is missing
    HELD_BACK = "held back"  # by a required unit that does not start
    NOT_ENABLED = "not enabled"
    MASKED = "masked"
    NOT_THERE = "not there"


class LockedUnit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One unit. Lists are sorted. ``needs`` are the units without which it does not start, ``digest`` of all its
    settings; ``state`` and ``restarts`` are of a live host."""

    outcome: Outcome
    verdict: str = "keep"
    loops: str = "no"
    because: tuple[str, ...] = ()
    gates: tuple[str, ...] = ()
    unmet: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    start: tuple[str, ...] = ()
    preset: str = ""
    fragment: str = ""
    drop_ins: tuple[str, ...] = ()
    mask: str = ""
    digest: str = ""
    state: str = ""


class Lock(msgspec.Struct, frozen=True, kw_only=True):
    schema: int = 1
    live: bool = False
    shape: str
    default_target: str
    units: Mapping[str, LockedUnit] = {}


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """One unit that ends differently, or is made differently. ``why`` names the gate, the worst reason first."""

    unit: str
    was: str
    now: str
    why: tuple[str, ...]
    outcome: bool
    warning: str = ""
    file: str = ""


NOTHING = LockedUnit(outcome=Outcome.NOT_THERE)


def outcome_says(unit: LockedUnit) -> str:
    said = str(unit.outcome)
    if unit.outcome is Outcome.STARTS and unit.loops == "for ever":
        said = "starts, and can loop for ever"
    return f"{said}; is {unit.state}" if unit.state else said


def drift(first: Lock, second: Lock) -> tuple[Difference, ...]:
    """What differs from the first to the second: other outcomes first."""
    found = []
    for name in sorted({*first.units, *second.units}):
        was, now = first.units.get(name, NOTHING), second.units.get(name, NOTHING)
        why = _why(name, was, now, first, second)
        both = bool(was.state and now.state)
        other = was.outcome is not now.outcome or (both and _ended(was) != _ended(now))
        if why or other:
            found.append(
                Difference(
                    unit=name,
                    was=outcome_says(was),
                    now=outcome_says(now),
                    why=why or ("nothing in its files or gates explains it: look at its journal on both",),
                    outcome=other,
                    warning=_warning(name, was, now),
                    file=now.fragment or was.fragment,
                )
            )
    return tuple(sorted(found, key=lambda one: (not one.outcome, not one.warning, one.unit)))


def _ended(unit: LockedUnit) -> str:
    """A live state as far as it tells good from bad: what is running now and what is done are the same."""
    return "bad" if unit.state.startswith(("failed", "auto-restart")) else "good"


def _why(name: str, was: LockedUnit, now: LockedUnit, first: Lock, second: Lock) -> tuple[str, ...]:
    said: list[str] = []
    if was.mask != now.mask:
        said.append(f"mask: {was.mask or 'none'} -> {now.mask or 'none'}")
    for gate in sorted({*was.unmet, *now.unmet} - ({*was.unmet} & {*now.unmet})):
        side = "first" if gate in was.unmet else "second"
        known = gate in (now.gates if side == "first" else was.gates)
        said.append(f"condition: {gate} is not met in the {side}" + ("" if known else ", the other has no such gate"))
    said += _changed("missing", was.lacks, now.lacks)
    said += _held_back(was, first, "first") + _held_back(now, second, "second")
    said += _changed("gate", was.gates, now.gates)
    said += _changed("required before it", was.needs, now.needs)
    said += _changed("ordered after", was.after, now.after)
    said += _changed("started by", was.start, now.start)
    if was.outcome is not Outcome.NOT_THERE and now.outcome is not Outcome.NOT_THERE:
        if was.preset != now.preset:
            said.append(f"preset: {was.preset or 'none'} -> {now.preset or 'none'}")
        if was.fragment != now.fragment:
            said.append(f"unit file: {was.fragment or 'none'} -> {now.fragment or 'none'}")
        said += _changed("drop-in", was.drop_ins, now.drop_ins)
        if was.digest != now.digest and not said:
            said.append("settings: they differ, see the unit file and its drop-ins on both")
    return tuple(dict.fromkeys(said))


def _changed(what: str, was: tuple[str, ...], now: tuple[str, ...]) -> list[str]:
    gone = [f"{what}: only in the first: {one}" for one in was if one not in now]
    return gone + [f"{what}: only in the second: {one}" for one in now if one not in was]


def _held_back(unit: LockedUnit, lock: Lock, side: str) -> list[str]:
    """The chain from a unit that does not start to the cause, in the order of the boot's own refusals."""
    if unit.outcome is not Outcome.HELD_BACK:
        return []
    said = []
    for name in unit.needs:
        needed = lock.units.get(name, NOTHING)
        if needed.outcome is Outcome.STARTS and not _failed(needed):
            continue
        cause = _cause(name, lock, frozenset())
        said.append(f"bootstrap order: in the {side} it waits for {name}, which does not start: {cause}")
    return said


def _failed(unit: LockedUnit) -> bool:
    return unit.state.startswith("failed")


def _cause(name: str, lock: Lock, seen: frozenset[str]) -> str:
    unit = lock.units.get(name, NOTHING)
    if unit.mask:
        return f"masked by {unit.mask}"
    if unit.unmet:
        return f"{unit.unmet[0]} is not met"
    if unit.lacks:
        return unit.lacks[0]
    if unit.outcome is Outcome.HELD_BACK and name not in seen:
        for other in unit.needs:
            needed = lock.units.get(other, NOTHING)
            if needed.outcome is not Outcome.STARTS or _failed(needed):
                return f"it waits for {other}: {_cause(other, lock, seen | {name})}"
    if _failed(unit):
        return f"it is {unit.state}"
    return str(unit.outcome)


def _warning(name: str, was: LockedUnit, now: LockedUnit) -> str:
    """A side that is well only because something else is broken there."""
    for unit, side in ((was, "first"), (now, "second")):
        other, sick = (now, "second") if side == "first" else (was, "first")
        held = unit.outcome in (Outcome.GATED, Outcome.HELD_BACK, Outcome.CANNOT_START)
        if held and other.outcome is Outcome.STARTS and other.verdict in ("mask", "disable"):
            return (
                f"the {side} is spared by that alone, not by being sound: repairing it would start {name} there and "
                f"make it like the {sick}"
            )
    return ""
