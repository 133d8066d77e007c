"""Tells what a look saw: as text for a person, as JSON for a program.

The text starts with the verdict, then the findings with their evidence and next steps, then what was looked at, and
last what could not be seen. Names come from the host (units, containers, images), so control characters are made
visible: nobody's container name may drive the reader's terminal. The JSON's shape is documented in ``docs/doctor.md``
and carries its version as ``schema``; fields are added, never changed, within one.
"""

from __future__ import annotations

from datetime import UTC, datetime
from enum import IntEnum

import msgspec

from sexton.care.look import Round, Sight, Verdict
from sexton.care.probe import CouldNotLook, Looked, NotPresent
from sexton.core.finding import Finding, Severity

JSON_SCHEMA = 1


class Exit(IntEnum):
    """What the command's exit code says."""

    HEALTHY = 0
    FINDINGS = 1
    UNSEEN = 2


def exit_code(seen: Round) -> Exit:
    return {Verdict.HEALTHY: Exit.HEALTHY, Verdict.FINDINGS: Exit.FINDINGS, Verdict.UNSEEN: Exit.UNSEEN}[seen.verdict]


def as_json(seen: Round) -> bytes:
    """One object, keys in a fixed order."""
    return msgspec.json.encode(
        {
            "schema": JSON_SCHEMA,
            "verdict": seen.verdict,
            "exit_code": int(exit_code(seen)),
            "looked_at": datetime.fromtimestamp(seen.at, UTC).isoformat(timespec="milliseconds"),
            "took_seconds": round(seen.seconds, 4),
            "boot_id": seen.boot.id,
            "findings": seen.findings,
            "probes": [_probe_json(sight) for sight in seen.sights],
            "notes": seen.notes,
        }
    )


def _probe_json(sight: Sight) -> dict[str, object]:
    outcome, says, next_step = _told(sight)
    return {
        "name": sight.probe.name,
        "outcome": outcome,
        "says": says,
        "next_step": next_step,
        "figures": sight.outcome.figures if isinstance(sight.outcome, Looked) else {},
        "reads": sight.probe.reads,
        "cost": sight.probe.cost,
        "took_seconds": round(sight.seconds, 4),
    }


def _told(sight: Sight) -> tuple[str, str, str | None]:
    match sight.outcome:
        case Looked(says=says):
            return "looked", says, None
        case NotPresent(reason=reason):
            return "not-present", reason, None
        case CouldNotLook(reason=reason, next_step=next_step):
            return "could-not-look", reason, next_step


# What node-problem-detector keeps of a plugin's output unless it is told otherwise.
LINE = 80


def as_line(seen: Round) -> str:
    """One line, short enough for a node's condition; the exit code says the rest."""
    blind = [sight.probe.name for sight in seen.sights if isinstance(sight.outcome, CouldNotLook)]
    looked = [sight.probe.name for sight in seen.sights if isinstance(sight.outcome, Looked)]
    if seen.findings:
        more = f" (+{len(seen.findings) - 1} more)" if len(seen.findings) > 1 else ""
        told = seen.findings[0].title
        said = told if len(told) + len(more) <= LINE else told[: LINE - len(more) - 3] + "..."
        line = said + more
    elif blind or not looked:
        line = f"unknown: could not see {', '.join(blind) or 'anything'}"
    else:
        line = f"nothing found by {', '.join(looked)}"
    return "".join(char if char.isprintable() else "?" for char in line)[:LINE]


_RED, _YELLOW, _GREEN, _BOLD, _DIM, _PLAIN = "\x1b[31m", "\x1b[33m", "\x1b[32m", "\x1b[1m", "\x1b[2m", "\x1b[0m"


class _Pen:
    """Paints, or does not, and keeps foreign text from painting."""

    def __init__(self, colour: bool) -> None:
        self._colour = colour

    def __call__(self, text: str, *codes: str) -> str:
        clean = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
        return f"{''.join(codes)}{clean}{_PLAIN}" if self._colour and codes else clean


def as_text(seen: Round, *, colour: bool) -> str:
    """For a person; ends with a newline."""
    pen = _Pen(colour)
    blocks = [[_verdict_line(seen, pen)]]
    blocks += [_finding_lines(finding, pen) for finding in seen.findings]
    for title, kind in (("looked at", Looked), ("not on this host", NotPresent), ("could not see", CouldNotLook)):
        sights = [sight for sight in seen.sights if isinstance(sight.outcome, kind)]
        if sights:
            blocks.append([pen(title, _BOLD), *(line for sight in sights for line in _sight_lines(sight, pen))])
    if seen.notes:
        blocks.append([pen("notes", _BOLD), *(f"  {pen(note)}" for note in seen.notes)])
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def _verdict_line(seen: Round, pen: _Pen) -> str:
    blind = [sight.probe.name for sight in seen.sights if isinstance(sight.outcome, CouldNotLook)]
    but = f"; could not see: {', '.join(blind)}" if blind else ""
    if seen.verdict is Verdict.FINDINGS:
        critical = sum(1 for finding in seen.findings if finding.severity is Severity.CRITICAL)
        many = f"{len(seen.findings)} finding{'' if len(seen.findings) == 1 else 's'}, {critical} critical"
        return pen(f"{many}{but}", _BOLD, _RED if critical else _YELLOW)
    if seen.verdict is Verdict.UNSEEN:
        return pen(
            f"cannot say that this host is healthy: nothing found{but or '; nothing could be looked at'}",
            _BOLD,
            _YELLOW,
        )
    looked = sum(1 for sight in seen.sights if isinstance(sight.outcome, Looked))
    return pen(
        f"healthy: nothing found by {looked} of {len(seen.sights)} probes; the rest have nothing to look at here"
        if looked < len(seen.sights)
        else f"healthy: nothing found by {looked} probes",
        _BOLD,
        _GREEN,
    )


def _finding_lines(finding: Finding, pen: _Pen) -> list[str]:
    shade = _RED if finding.severity is Severity.CRITICAL else _YELLOW
    lines = [
        f"{pen(finding.severity.upper(), _BOLD, shade)}  {pen(finding.title, _BOLD)}",
        f"  culprit   {pen(finding.culprit)}",
    ]
    wide = max(len(item.what) for item in finding.evidence)
    for number, item in enumerate(finding.evidence):
        head = "evidence" if number == 0 else ""
        lines.append(f"  {head:<8}  {pen(item.what.ljust(wide))}  {pen(item.value)}  {pen(f'[{item.source}]', _DIM)}")
    lines.append(f"  next      {pen(finding.next_step)}")
    lines.append(f"  {pen(f'finding   {finding.fingerprint}', _DIM)}")
    return lines


def _sight_lines(sight: Sight, pen: _Pen) -> list[str]:
    _, says, next_step = _told(sight)
    lines = [f"  {sight.probe.name:<11} {pen(says)}  {pen(f'{sight.seconds * 1000:.1f} ms', _DIM)}"]
    if next_step is not None:
        lines.append(f"  {'':<11} {pen(next_step)}")
    return lines
