"""Followers: those who ask again and again what is new, told it as it comes.

    aws logs tail --follow:   asks; sleeps five seconds; asks from the newest line's time on; sleeps; ...

A line would be seen up to five seconds late, and nobody can tell the stock command line to sleep less. But it goes on
at once as long as an answer says that there is more. So whoever is seen to follow is told so for ever, and its next
request is held until there is something. To follow is to ask, by the same connection, from the very moment at which
one's last answer ended: who only wants to read to the end never does that, and is never told that there is no end.

What is new goes by the order in which it came, not by its time: lines of one task that arrive after younger ones of
another are told as well. Nothing here survives a restart; a follower is known again with its second request.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import NamedTuple

# What the stock command line calls itself when it follows, or only tails.
TAIL = "command#logs.tail"
# A follower's tokens begin with this.
FOLLOWS = "w"
# A request without news is answered after this, so that one whose client is gone does not stay.
HOLD_SECONDS = 5.0
# Lines that come at the same time are told together.
GATHER_SECONDS = 0.2
# A line may be so much older than the newest one that was told, and is told all the same.
LATE_MS = 60_000
# It sleeps for five seconds; who comes much later begins anew.
REMEMBER_SECONDS = 30.0
MOST = 1000


class Seen(NamedTuple):
    """How far a follower was told: up to which number, and the time of the newest line."""

    time: int
    number: int


class Followers:
    """Where each client's last answer ended."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._ends: OrderedDict[Hashable, tuple[int, float]] = OrderedDict()

    def ended(self, who: Hashable, at: int) -> None:
        """The last page that this client got to this question ended with a line of this time."""
        self._ends[who] = (at, self._clock())
        self._ends.move_to_end(who)
        if len(self._ends) > MOST:
            self._ends.popitem(last=False)

    def follows(self, who: Hashable, start: int | None) -> bool:
        """Whether a question from this time on goes on where the client's last answer ended."""
        at, when = self._ends.get(who, (None, 0.0))
        return start is not None and start == at and self._clock() - when < REMEMBER_SECONDS


def token(seen: Seen) -> str:
    return f"{FOLLOWS}/{seen.time:020d}{seen.number:036d}/s"
