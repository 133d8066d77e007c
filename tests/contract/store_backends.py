"""The stores the contract suite runs over: how to open each, and how to make it forget its history.

A new store is one more row; the suite itself stays as it is.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

from etcd import shared_etcd
from sexton.store.contract import Put, Store
from sexton.store.opening import open_store
from sexton.store.watching import HELD_CHANGES


class Backend(NamedTuple):
    open: Callable[[Path], Awaitable[Store]]
    """A store that keeps its state under this directory (or this name); opened again it has the same state."""

    forget: Callable[[Store], Awaitable[None]]
    """Let so much happen that the changes made before are no longer held. May write under ``forget/``."""

    callers_clock: bool
    """Leases end by the ``now`` a caller gives; otherwise by a server's own clock, which nobody can push."""


async def _open_sqlite(directory: Path) -> Store:
    return await open_store(f"sqlite://{directory}/store.db")


async def _open_etcd(directory: Path) -> Store:
    return await open_store(f"{shared_etcd().url}{directory}")


async def _overwrite_history(store: Store) -> None:
    for turn in range(0, HELD_CHANGES + 256, 256):
        await store.txn([], [Put(f"forget/{number}", b"%d" % turn) for number in range(256)])


BACKENDS = {
    "sqlite": Backend(_open_sqlite, _overwrite_history, callers_clock=True),
    "etcd": Backend(_open_etcd, _overwrite_history, callers_clock=False),
}
