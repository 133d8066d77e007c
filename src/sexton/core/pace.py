"""How long the service scheduler waits, and how soon it repeats itself.

ECS does not let anybody tune these; here they are one value that whoever calls ``service.decide`` may replace, so that
a laptop need not wait as long as a region does and a test need not wait at all. Nothing here survives a restart.
"""

from __future__ import annotations

import msgspec

HOUR = 3600.0


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """Every delay of the service scheduler, in seconds."""

    # A task without a health check counts as healthy once it has run this long; ECS documents forty seconds.
    settle: float = 40.0
    # An event whose cause lasts, and the steady state itself, is said again after this long; ECS documents six hours.
    say_again: float = 6 * HOUR
    # The first failure is retried at once, the second after this long, then each time after twice as long...
    retry_first: float = 10.0
    # ...and never later than this. ECS has documented fifteen minutes, and 27 more recently.
    retry_most: float = 900.0
    # The first wait after a task found no room: a cluster that scales itself needs about this long to grow.
    place_first: float = 60.0
    # This many failing rounds in a row mean that the service cannot consistently start tasks.
    impaired_after: int = 3
    # A move between zones that has not come to its end by then is given up, and not tried again for as long.
    rebalance_patience: float = 600.0


ECS = Pace()


def backoff(first: float, most: float, rounds: int) -> float:
    """The wait after this many failing rounds in a row; the first one waits for nothing but itself."""
    # Past 30 doublings any first wait is beyond any last one; the bound keeps the power small.
    return 0.0 if rounds < 1 else min(most, first * 2.0 ** min(rounds - 1, 30))
