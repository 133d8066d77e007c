"""Tells what an audit found: as text for a person, as JSON for a program.

The text names first what has to change and why, then what deserves a look, then counts the rest (``--all`` lists it).
The JSON's shape is documented in ``docs/audit.md`` and carries its version as ``schema``.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from sexton.care.audit.applying import Change
from sexton.care.audit.auditing import Audit, Audited
from sexton.core.audit import Gate, Verdict

JSON_SCHEMA = 1
Clean = Callable[[str], str]


def exit_code(seen: Audit) -> int:
    """0: nothing to change. 1: something is. 2: nothing was found to judge."""
    if seen.to_change:
        return 1
    return 2 if not seen.installed.units else 0


def as_text(seen: Audit, *, every: bool, clean: Clean) -> str:
    """For a person; ends with a newline."""
    changes = seen.to_change
    verdicts = {verdict: sum(1 for unit in changes if unit.assessment.verdict is verdict) for verdict in Verdict}
    said = ", ".join(f"{many} to {verdict}" for verdict, many in verdicts.items() if many) or "nothing to change"
    lines = [f"{len(seen.units)} units that {seen.source} starts or has set up, shape {seen.shape}: {said}"]
    for unit in changes:
        lines += ["", *_unit_lines(unit, clean)]
    for unit in seen.units:
        kept = unit.assessment.verdict is Verdict.KEEP
        if kept and (every or _deserves_a_look(unit)):
            lines += ["", *_unit_lines(unit, clean)]
    if seen.cannot_see:
        lines += ["", *(f"cannot see: {clean(sentence)}" for sentence in seen.cannot_see)]
    return "\n".join(lines) + "\n"


def _deserves_a_look(unit: Audited) -> bool:
    """Kept, and yet worth a line: it could loop and leak, or a rule knows its like."""
    found = unit.assessment
    return bool(found.rule) or (found.loops_for_ever and bool(found.leaks))


def _unit_lines(unit: Audited, clean: Clean) -> list[str]:
    found = unit.assessment
    lines = [f"{found.verdict.upper():<8} {clean(unit.name)}"]
    lines += [f"  {'because' if at == 0 else '':<9}{clean(why)}" for at, why in enumerate(found.reasons)]
    lines += [f"  {'from' if at == 0 else '':<9}{clean(origin.says)}" for at, origin in enumerate(unit.origins)]
    if unit.reached.unit.drop_ins:
        lines.append(f"  {'drop-ins':<9}{clean(', '.join(unit.reached.unit.drop_ins))}")
    lines += [f"  {'note' if at == 0 else '':<9}{clean(note)}" for at, note in enumerate(found.notes)]
    return lines


def changes_text(changes: tuple[Change, ...], *, dry: bool, clean: Clean) -> str:
    """What is or would be changed in the root file system; ends with a newline."""
    if not changes:
        return "nothing to write: everything is as it should be\n"
    head = "would write, below the root file system:" if dry else "wrote, below the root file system:"
    lines = [head, *(f"  {clean(change.says)}" for change in changes)]
    if dry:
        lines.append("this was a dry run: --yes does it, --undo takes it back")
    return "\n".join(lines) + "\n"


def as_json(seen: Audit, changes: tuple[Change, ...] | None, *, applied: bool, code: int) -> bytes:
    """One object, keys in a fixed order."""
    return msgspec.json.encode(
        {
            "schema": JSON_SCHEMA,
            "exit_code": code,
            "source": seen.source,
            "shape": seen.shape,
            "default_target": seen.installed.default_target,
            "took_seconds": round(seen.seconds, 4),
            "units": [_unit_json(unit) for unit in seen.units],
            "cannot_see": seen.cannot_see,
            "changes": None if changes is None else [change.says for change in changes],
            "applied": applied,
        }
    )


def _unit_json(unit: Audited) -> dict[str, object]:
    found, reached = unit.assessment, unit.reached
    return {
        "name": unit.name,
        "verdict": found.verdict,
        "reasons": found.reasons,
        "notes": found.notes,
        "enabled": reached.enabled,
        "at_boot": reached.at_boot,
        "masked": bool(reached.unit.mask),
        "fragment": reached.unit.fragment or None,
        "drop_ins": reached.unit.drop_ins,
        "aliases": reached.unit.aliases,
        "from": [{"way": origin.way, "by": origin.by, "path": origin.path or None} for origin in unit.origins],
        "loop": {"endless": found.loop.endless, "why": found.loop.why},
        "lacks": found.lacks,
        "leaks": found.leaks,
        "gates": [_gate_json(gate) for gate in found.gates],
        "rule": found.rule or None,
    }


def _gate_json(gate: Gate) -> dict[str, object]:
    return {"what": gate.what, "met": gate.met, "where": gate.where or None}
