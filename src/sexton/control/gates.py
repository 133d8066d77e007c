"""One placement at a time in each cluster, where several control planes share a store.

What a replica has promised is known to it alone, so each placement there also changes the slots of its hosts, on the
condition that nobody else has since they were read: of two that want the same room, one is told to look again. Those
of one replica would only get into each other's way, so they wait here for their turn. A control plane that is alone
needs no gates: its promises are known to all its requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Gates:
    """A lock for each cluster in which tasks are being placed; nothing is kept for the others."""

    def __init__(self) -> None:
        self._locks: dict[str, tuple[asyncio.Lock, int]] = {}

    def __len__(self) -> int:
        return len(self._locks)

    @asynccontextmanager
    async def at(self, cluster: str) -> AsyncIterator[None]:
        lock, users = self._locks.get(cluster) or (asyncio.Lock(), 0)
        self._locks[cluster] = lock, users + 1
        try:
            async with lock:
                yield
        finally:
            lock, users = self._locks[cluster]
            if users > 1:
                self._locks[cluster] = lock, users - 1
            else:
                del self._locks[cluster]
