"""What a PutLogEvents may hold, as the service has it: how much, in which order, how old and how new.

A batch that is too large, out of order or too long in time is refused as a whole. Of one that is none of this, events
that are too old or too new are left out, and the answer says where they were.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

# Of one batch: texts as UTF-8, and for each event so much besides.
MOST_BYTES = 1_048_576
EVENT_BYTES = 26
SPAN_MS = 24 * 3600 * 1000
AHEAD_MS = 2 * 3600 * 1000
BEHIND_MS = 14 * 24 * 3600 * 1000
DAY_MS = 24 * 3600 * 1000

RETENTION_DAYS = frozenset(
    (1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653)
)


class BadBatch(Exception):  # noqa: N818 - an answer for the client
    """The batch is refused as a whole."""


class Taken(NamedTuple):
    """Which events are kept, and what is said of the others."""

    first: int
    end: int
    too_old_end: int | None = None
    expired_end: int | None = None
    too_new_start: int | None = None


def judge(stamps: Sequence[int], texts: Sequence[str], now_ms: int, retention_days: int | None) -> Taken:
    """Decide about a batch's events; BadBatch when none of them can be taken."""
    size = sum(len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass")) for text in texts)
    size += EVENT_BYTES * len(texts)
    if size > MOST_BYTES:
        raise BadBatch(f"Upload too large: {size} bytes exceeds limit of {MOST_BYTES}")
    if any(later < earlier for earlier, later in pairwise(stamps)):
        raise BadBatch("Log events in a single PutLogEvents request must be in chronological order.")
    if stamps[-1] - stamps[0] > SPAN_MS:
        raise BadBatch("The batch of log events in a single PutLogEvents request cannot span more than 24 hours.")
    too_old = _before(stamps, now_ms - BEHIND_MS)
    expired = _before(stamps, oldest_kept(now_ms, retention_days)) if retention_days else 0
    end = _before(stamps, now_ms + AHEAD_MS + 1)
    return Taken(
        max(too_old, expired),
        end,
        too_old or None,
        expired or None,
        end if end < len(stamps) else None,
    )


def oldest_kept(now_ms: int, retention_days: int | None) -> int:
    """The time of the oldest event that is still shown."""
    return now_ms - retention_days * DAY_MS if retention_days else 0


def _before(stamps: Sequence[int], limit: int) -> int:
    """How many come before a time."""
    return next((place for place, stamp in enumerate(stamps) if stamp >= limit), len(stamps))
