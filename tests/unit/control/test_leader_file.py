"""Leading over a file that only one process can hold: nobody is waited for who cannot be there."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from sexton.control.leader import LEADER_KEY, LEASE_SECONDS, Leadership
from sexton.store.contract import Store
from sexton.store.opening import open_store


async def test_over_one_file_the_next_process_leads_at_once(tmp_path: Path) -> None:
    """The lease of a killed process is still there, but nobody else can hold the file."""
    store = await open_store(f"sqlite://{tmp_path}/store.db")
    await dies_leading(store)
    store = await open_store(f"sqlite://{tmp_path}/store.db")
    candidate = Leadership(store, "second", alone=True)
    running = asyncio.ensure_future(candidate.run())
    await asyncio.wait_for(candidate.changed(), 5)

    assert candidate.is_leader
    assert await candidate.leader() == "second"
    running.cancel()
    await asyncio.wait([running])
    assert await store.get(LEADER_KEY) is None
    await store.close()


async def test_over_one_file_a_lease_ends_when_its_time_is_over(tmp_path: Path) -> None:
    """Nobody but the candidates tells such a store the time."""
    store = await open_store(f"sqlite://{tmp_path}/store.db")
    await dies_leading(store)
    store = await open_store(f"sqlite://{tmp_path}/store.db")
    later = time.time() + LEASE_SECONDS
    # A short lease only so that it looks often; its own clock stands, so that a slow machine costs it no term.
    candidate = Leadership(store, "second", ttl=0.3, elapsed=lambda: 0.0, now=lambda: later)
    running = asyncio.ensure_future(candidate.run())
    await asyncio.wait_for(candidate.changed(), 5)

    assert candidate.is_leader
    running.cancel()
    await asyncio.wait([running])
    await store.close()


async def dies_leading(store: Store) -> None:
    first = Leadership(store, "first")
    running = asyncio.ensure_future(first.run())
    await asyncio.wait_for(first.changed(), 5)
    # The store goes first, so nothing can be given back.
    await store.close()
    running.cancel()
    await asyncio.wait([running])
