"""So many at once, for work that is done sooner when less of it is done at a time.

Nobody waits for one that hangs: whoever takes longer than ``patience`` still goes on, but is not counted any more, so
that the next one is let through. First come, first served.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Sluice:
    """Lets ``width`` through at a time; for one event loop."""

    def __init__(self, width: int, patience: float) -> None:
        self._patience = patience
        self._places = asyncio.Semaphore(width)

    @asynccontextmanager
    async def through(self) -> AsyncIterator[None]:
        """Wait for a place, and have it for the time of the block or until patience is over."""
        await self._places.acquire()
        place = _Place(self._places)
        overdue = asyncio.get_running_loop().call_later(self._patience, place.leave)
        try:
            yield
        finally:
            overdue.cancel()
            place.leave()


class _Place:
    """One of those that are counted; left once."""

    def __init__(self, places: asyncio.Semaphore) -> None:
        self._places = places
        self._left = False

    def leave(self) -> None:
        if not self._left:
            self._left = True
            self._places.release()
