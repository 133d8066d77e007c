"""What the contract suite's test modules share: the store under test, opened and closed, and how to use it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from blockbuster import blockbuster_ctx

from contract.store_backends import BACKENDS, Backend
from sexton.store.contract import Change, Put, Store, Watch

PATIENCE = 10.0
"""Seconds until a thing that should have happened counts as not happening."""

Reopen = Callable[[], Awaitable[Store]]
"""Close the store if it is open, and open it again."""


class OneStore:
    """A test's store. Which one is for the class that inherits this to say."""

    @pytest.fixture(autouse=True)
    def never_blocks_the_loop(self) -> Iterator[None]:
        """Every test fails when the store does blocking I/O on the event loop's thread."""
        with blockbuster_ctx("sexton"):
            yield

    @pytest.fixture
    async def reopen(self, backend: Backend, tmp_path: Path) -> AsyncIterator[Reopen]:
        opened: list[Store] = []

        async def close_and_open() -> Store:
            if opened:
                await opened[-1].close()
            opened.append(await backend.open(tmp_path))
            return opened[-1]

        yield close_and_open
        if opened:
            await opened[-1].close()

    @pytest.fixture
    async def store(self, reopen: Reopen) -> Store:
        return await reopen()


class StoreSuite(OneStore):
    """The tests of a class that inherits this run over every backend."""

    @pytest.fixture(params=sorted(BACKENDS))
    def backend(self, request: pytest.FixtureRequest) -> Backend:
        return BACKENDS[request.param]


class CallersClockSuite(OneStore):
    """Over every backend whose leases end by the time that callers tell."""

    @pytest.fixture(params=sorted(name for name, backend in BACKENDS.items() if backend.callers_clock))
    def backend(self, request: pytest.FixtureRequest) -> Backend:
        return BACKENDS[request.param]


class ServersClockSuite(OneStore):
    """Over every backend whose leases end by a clock of its own."""

    @pytest.fixture(params=sorted(name for name, backend in BACKENDS.items() if not backend.callers_clock))
    def backend(self, request: pytest.FixtureRequest) -> Backend:
        return BACKENDS[request.param]


async def put(store: Store, *keys: str, lease: int = 0) -> int:
    """Write each key in its own transaction, the key's own name as value."""
    for key in keys:
        assert (await store.txn([], [Put(key, key.encode(), lease)])).succeeded
    return store.revision


async def keys(store: Store, prefix: str = "", after: str = "", limit: int = 0) -> list[str]:
    return [item.key for item in (await store.range(prefix, after=after, limit=limit)).items]


async def next_batch(watch: Watch) -> tuple[Change, ...]:
    return await asyncio.wait_for(anext(aiter(watch)), PATIENCE)
