"""When the caretaker looks again, and the one sentence it says about a round.

A probe declares how often it wants to look. Its look also costs something, more on a sick host than on a healthy one;
what it cost decides how long it must rest, so that all probes together never take more than their share of a core.
"""

from __future__ import annotations

from collections.abc import Iterable

from sexton.core.finding import Severity
from sexton.core.ledger import Eye, Record, Sight

# All probes together may take this share of one core; the rest of the half per cent is the round's own.
SHARE = 0.003
# However dear a look was, it is not put off for longer than this many times what the probe asked for.
LONGEST = 20.0


def rest(every: float, cpu_seconds: float, probes: int) -> float:
    """Seconds until a probe's next look, from what it wants and what its last look cost."""
    return max(every, min(cpu_seconds * max(probes, 1) / SHARE, every * LONGEST))


def sentence(records: Iterable[Record], eyes: Iterable[Eye], done: Iterable[str], now: float) -> str:
    """What a round found, without any figure that moves by itself: it is logged when it changes."""
    held = [record for record in records if record.open]
    heard = [record for record in held if not record.is_muted(now)]
    critical = sum(1 for record in heard if record.finding.severity is Severity.CRITICAL)
    eyes = tuple(eyes)
    blind = [eye.probe for eye in eyes if eye.sight is Sight.BLIND]
    looked = [eye.probe for eye in eyes if eye.sight is Sight.LOOKED]
    if heard:
        names = ", ".join(sorted(record.fingerprint for record in heard)[:5])
        more = f" and {len(heard) - 5} more" if len(heard) > 5 else ""
        bad = f", {critical} of them critical" if critical else ""
        parts = [f"{len(heard)} finding{'' if len(heard) == 1 else 's'} open{bad}: {names}{more}"]
    elif not looked:
        parts = ["nothing could be looked at: no health is claimed"]
    elif blind:
        parts = ["nothing found, but not everything could be seen: no health is claimed"]
    else:
        parts = [f"healthy: nothing found by {', '.join(looked)}"]
    absent = [eye.probe for eye in eyes if eye.sight is Sight.NOT_PRESENT]
    if absent and not heard:
        parts.append(f"not on this host: {', '.join(absent)}")
    if len(held) > len(heard):
        parts.append(f"{len(held) - len(heard)} muted")
    if blind:
        parts.append(f"could not see: {', '.join(blind)}")
    return "; ".join([*parts, *done])
