"""Random ids, drawn from the system many at a time.

Each call of the system for a few bytes lets another thread have the interpreter, which costs the caller more than the
bytes do; a control plane under load makes thousands of ids a second. What is drawn is as good as before. A process
that forks and goes on in both would give the same ids twice; none here does.
"""

from __future__ import annotations

import os

ID_BYTES = 16
# About a second's worth under load, and a page of memory.
DRAWN = 256

_left: list[str] = []


def random_id() -> str:
    """32 hexadecimal digits that nobody else has or can foresee."""
    if not _left:
        drawn = os.urandom(ID_BYTES * DRAWN).hex()
        _left.extend([drawn[at : at + 2 * ID_BYTES] for at in range(0, len(drawn), 2 * ID_BYTES)])
    return _left.pop()


def random_uuid() -> str:
    """The same as a UUID, version 4."""
    drawn = random_id()
    variant = "89ab"[int(drawn[16], 16) & 3]
    return f"{drawn[:8]}-{drawn[8:12]}-4{drawn[13:16]}-{variant}{drawn[17:20]}-{drawn[20:]}"
