"""What a ruleset has counted, out of ``nft --json list table``: packets by rule, and what was dropped by interface.

Counters sit in elements of sets and in lines of chains, each with a comment that names a rule or an interface
(``core/ruleset.py``); a rule has one for every protocol and range of ports it was cut into.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from sexton.core.judgement import EGRESS, INGRESS
from sexton.wire.ownnetwork import Count

SPOOFED = "spoofed"
# What a comment means in these sets is told by the set.
_MEANING = {
    f"refused-{EGRESS}4": EGRESS,
    f"refused-{EGRESS}6": EGRESS,
    f"refused-{INGRESS}4": INGRESS,
    f"refused-{INGRESS}6": INGRESS,
    "own-devices": SPOOFED,
}


def dropped(interface: str, word: str) -> str:
    """Under what name packets are counted that an interface's groups (or its addresses) did not let pass."""
    return f"{interface} {word}"


def read(listing: bytes) -> dict[str, Count]:
    """The counts in one listing."""
    found: dict[str, Count] = {}
    for part in msgspec.json.decode(listing).get("nftables", ()):
        for kind, body in part.items():
            meaning = _MEANING.get(body.get("name", ""), "") if isinstance(body, dict) else ""
            for comment, packets, size in _counters(body, "") if kind in ("rule", "set", "map") else ():
                name = dropped(comment, meaning) if meaning else comment
                before = found.get(name, Count())
                found[name] = Count(before.packets + packets, before.bytes + size)
    return found


def _counters(part: Any, comment: str) -> Iterator[tuple[str, int, int]]:
    """Every counter below a part of the listing, with the comment that is nearest above it."""
    if isinstance(part, list):
        for one in part:
            yield from _counters(one, comment)
    elif isinstance(part, dict):
        comment = part["comment"] if isinstance(part.get("comment"), str) else comment
        for key, value in part.items():
            if key == "counter" and isinstance(value, dict) and comment:
                yield comment, value.get("packets", 0), value.get("bytes", 0)
            else:
                yield from _counters(value, comment)
