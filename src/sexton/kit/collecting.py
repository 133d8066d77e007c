"""When Python looks for garbage that refers to itself.

Left alone it looks whenever enough new objects have come, and then at every object there is: with a thousand agents
connected that stops everything for a tenth of a second and more, in the middle of whatever is going on. Most of what a
daemon holds is values that cannot refer to themselves, and what it loads at its start stays for ever. So that is set
aside, young objects are looked at less often, and all the others once in a while, by the clock.
"""

from __future__ import annotations

import asyncio
import gc

# Reference cycles come from failures and closed connections: a few kilobytes each, so minutes are soon enough.
COLLECT_SECONDS = 300.0
# New objects until the young are looked at, such looks until the middle-aged are, and so on. The last means never.
YOUNG, MIDDLE, OLD = 5_000, 5, 1_000_000


def begin() -> None:
    """To be called once the process has what it needs; a process that never calls it behaves as any other."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, MIDDLE, OLD)


async def collect_sometimes() -> None:
    """Until cancelled."""
    while True:
        await asyncio.sleep(COLLECT_SECONDS)
        gc.collect()
