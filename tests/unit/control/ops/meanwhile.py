"""Races, forced: something else happens between an operation's decision and its write."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from unit.control.world import World


def before_next_write(world: World, happening: Callable[[], Awaitable[object]]) -> None:
    """Let ``happening`` complete just before the next transaction reaches the store."""
    txn = world.store.txn

    async def interrupted(compares, writes):
        world.store.txn = txn
        await happening()
        return await txn(compares, writes)

    world.store.txn = interrupted
