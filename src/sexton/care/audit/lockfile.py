"""Locks as files: made from an audit, written as sorted TOML that a person reviews and ``diff`` understands, read back.

One table for each unit, one value a line, lists one entry a line: a change of one gate is a change of one line.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Mapping
from pathlib import Path

import msgspec

from sexton.care.audit.auditing import Audit, Audited
from sexton.core.installed import Way, needs_started
from sexton.core.lock import Lock, LockedUnit, Outcome
from sexton.kit.atomicfile import write_atomic

_HEAD = """# What this host starts, through what, and behind which gates.
# Made by sexton audit --lock; review changes like code. Compare with: sexton drift OLD NEW
"""


class BadLock(Exception):  # noqa: N818
    """A file that is no lock."""


def make_lock(seen: Audit, states: Mapping[str, str] | None = None) -> Lock:
    """The lock of this audit. ``states``: what became of units on a live host."""
    states = states or {}
    outcomes: dict[str, Outcome] = {}
    audited = {unit.name: unit for unit in seen.units}
    for name in audited:
        _outcome(name, audited, seen, outcomes, states, frozenset())
    return Lock(
        live=bool(states),
        shape=seen.shape,
        default_target=seen.installed.default_target,
        units={name: _locked(unit, outcomes[name], seen, states.get(name, "")) for name, unit in audited.items()},
    )


def _outcome(
    name: str,
    audited: Mapping[str, Audited],
    seen: Audit,
    known: dict[str, Outcome],
    states: Mapping[str, str],
    above: frozenset[str],
) -> Outcome:
    """What becomes of a unit at boot; a required unit that does not start holds it back."""
    if name in known:
        return known[name]
    unit = audited.get(name)
    if unit is None:
        return Outcome.STARTS  # not audited: a mount, a target
    found = unit.assessment
    pulled = [origin for origin in unit.origins if origin.way is not Way.PRESET]
    outcome = Outcome.STARTS
    if unit.reached.unit.mask:
        outcome = Outcome.MASKED
    elif not pulled and not unit.reached.enabled:
        outcome = Outcome.NOT_ENABLED
    else:
        needs = [needed for needed in needs_started(unit.reached.unit, seen.installed.links) if needed not in above]
        for needed in needs:
            real = seen.installed.canonical(needed)
            there = _outcome(real, audited, seen, known, states, above | {name})
            if (
                there in (Outcome.MASKED, Outcome.CANNOT_START, Outcome.HELD_BACK)
                or states.get(real, "")[:6] == "failed"
            ):
                outcome = Outcome.HELD_BACK
        if outcome is Outcome.STARTS and any(gate.met is False for gate in found.gates):
            outcome = Outcome.GATED
        elif outcome is Outcome.STARTS and unit.file_lacks:
            outcome = Outcome.CANNOT_START
    known[name] = outcome
    return outcome


def _locked(unit: Audited, outcome: Outcome, seen: Audit, state: str) -> LockedUnit:
    found, plain = unit.assessment, unit.reached.unit
    preset = [origin.by for origin in unit.origins if origin.way is Way.PRESET]
    return LockedUnit(
        outcome=outcome,
        verdict=found.verdict,
        loops=found.loop.endless,
        because=found.reasons,
        gates=tuple(sorted(gate.what for gate in found.gates)),
        unmet=tuple(sorted(gate.what for gate in found.gates if gate.met is False)),
        lacks=tuple(sorted(unit.file_lacks)),
        needs=needs_started(plain, seen.installed.links),
        after=tuple(sorted({word for word, _ in plain.settings.words("Unit", "After")})),
        start=tuple(sorted({origin.says for origin in unit.origins if origin.way is not Way.PRESET})),
        preset=preset[0] if preset else "",
        fragment=plain.fragment,
        drop_ins=plain.drop_ins,
        mask=plain.mask,
        digest="" if plain.mask else hashlib.sha256("\n".join(plain.settings.lines()).encode()).hexdigest()[:16],
        state=state,
    )


def lock_text(lock: Lock) -> str:
    lines = [
        _HEAD,
        f"schema = {lock.schema}",
        f"live = {'true' if lock.live else 'false'}",
        f"shape = {_toml(lock.shape)}",
        f"default_target = {_toml(lock.default_target)}",
    ]
    for name in sorted(lock.units):
        lines += ["", f"[units.{_toml(name)}]"]
        for key, value in msgspec.to_builtins(lock.units[name]).items():
            if isinstance(value, (list, tuple)):
                lines += [f"{key} = [", *(f"  {_toml(entry)}," for entry in value), "]"]
            else:
                lines.append(f"{key} = {_toml(value)}")
    return "\n".join(lines) + "\n"


def _toml(text: str) -> str:
    """A basic string: JSON's escapes are TOML's, but for one character."""
    return json.dumps(str(text), ensure_ascii=False).replace("\x7f", "\\u007f")


def write_lock(lock: Lock, path: Path) -> None:
    write_atomic(path, lock_text(lock).encode())


def read_lock(path: Path) -> Lock:
    """BadLock when it is none."""
    try:
        lock = msgspec.convert(tomllib.loads(path.read_text("utf-8")), Lock)
    except OSError as error:
        raise BadLock(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise BadLock(f"cannot use {path} as a lock: {error}; make one with sexton audit --lock") from None
    if lock.schema != Lock.__struct_defaults__[0]:
        raise BadLock(f"cannot use {path}: it was written by another version (schema {lock.schema})")
    return lock


def is_lock(path: Path) -> bool:
    """Does this file call itself one? So that locks and archives can both be named."""
    try:
        with path.open("rb") as file:
            return file.read(2048).find(b"sexton audit --lock") >= 0
    except OSError:
        return False
