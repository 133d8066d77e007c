"""History and slow watches are bounded by weight as well as by count."""

from __future__ import annotations

import asyncio

import pytest

from sexton.store.contract import Change, Compacted
from sexton.store.watching import HELD_BYTES, HELD_CHANGES, PrefixWatch, Watches


def batch(revision: int, size: int, key: str = "k") -> tuple[Change, ...]:
    return (Change(key, bytes(size), revision),)


async def read(watch: PrefixWatch) -> tuple[Change, ...]:
    return await asyncio.wait_for(anext(watch), 5.0)


async def test_large_values_are_forgotten_sooner_than_small_ones() -> None:
    watches = Watches(revision=0)
    watches.publish(batch(revision, HELD_BYTES // 4) for revision in range(1, 11))

    with pytest.raises(Compacted):
        watches.add("", after=6)
    watch = watches.add("", after=7)
    assert [(await read(watch))[0].revision for _ in range(3)] == [8, 9, 10]


async def test_the_last_held_changes_are_held_exactly() -> None:
    watches = Watches(revision=0)
    watches.publish(batch(revision, 0) for revision in range(1, HELD_CHANGES + 11))

    with pytest.raises(Compacted):
        watches.add("", after=9)
    assert (await read(watches.add("", after=10)))[0].revision == 11


async def test_without_history_only_what_comes_is_told() -> None:
    """A store that nobody watches must not hold megabytes for whoever might."""
    watches = Watches(revision=0, history=False)
    watches.publish([batch(1, 9)])

    with pytest.raises(Compacted):
        watches.add("", after=0)
    watch = watches.add("", after=1)
    watches.publish([batch(2, 9)])
    assert (await read(watch))[0].revision == 2
    assert len(watches._history) == 0


async def test_a_slow_reader_of_large_values_is_cut_off() -> None:
    watches = Watches(revision=0)
    watch = watches.add("", after=0)
    watches.publish(batch(revision, HELD_BYTES // 2) for revision in range(1, 4))

    with pytest.raises(Compacted):
        await read(watch)
    with pytest.raises(Compacted):
        await read(watch)


async def test_one_transaction_larger_than_the_bound_is_delivered_to_who_watches() -> None:
    watches = Watches(revision=0)
    watch = watches.add("", after=0)
    watches.publish([batch(1, HELD_BYTES + 1)])

    assert (await read(watch))[0].revision == 1
    with pytest.raises(Compacted):
        watches.add("", after=0)


async def test_a_watch_that_was_left_is_told_nothing_more() -> None:
    watches = Watches(revision=0)
    watch = watches.add("", after=0)
    watches.publish([batch(1, 0)])
    watches.discard(watch)
    watches.publish([batch(2, 0)])

    await read(watch)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(anext(watch), 0.01)
