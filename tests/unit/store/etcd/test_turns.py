"""Who waits for whom when many use the same keys."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from hypothesis import given, settings
from hypothesis import strategies as st

from sexton.store.etcd.turns import Turn, Turns


def ready(turn: Turn) -> bool:
    return all(earlier.done() for earlier in turn.before)


async def test_writers_of_a_key_go_one_by_one_and_those_of_others_beside_them() -> None:
    turns = Turns()
    first, second, other = turns.take([], ["a"]), turns.take([], ["a"]), turns.take([], ["b"])

    assert (ready(first), ready(second), ready(other)) == (True, False, True)
    turns.done(first)
    assert ready(second)


async def test_readers_go_together_and_a_writer_waits_for_all_of_them() -> None:
    turns = Turns()
    writer = turns.take([], ["fence"])
    readers = [turns.take(["fence"], [f"k/{number}"]) for number in range(3)]
    last = turns.take([], ["fence"])

    assert not any(map(ready, readers))
    turns.done(writer)
    assert all(map(ready, readers))
    for reader in readers:
        assert not ready(last)
        turns.done(reader)
    assert ready(last)


async def test_who_gives_up_waiting_takes_nothing_from_those_beside() -> None:
    turns = Turns()
    first, second, third = (turns.take([], ["a"]) for _ in range(3))
    waiting = asyncio.ensure_future(second.come())
    await asyncio.sleep(0)
    waiting.cancel()
    with suppress(asyncio.CancelledError):
        await waiting
    turns.done(first)
    turns.done(second)

    await asyncio.wait_for(third.come(), 1)


requests = st.lists(st.tuples(st.sets(st.sampled_from("abc")), st.sets(st.sampled_from("abc"))), max_size=20)


@settings(max_examples=60, deadline=None)
@given(requests, st.randoms(use_true_random=False))
def test_any_mix_ends_keeps_the_order_of_each_key_and_leaves_nothing_behind(
    asked: list[tuple[set[str], set[str]]], chance: object
) -> None:
    choose: Callable[[list[int]], int] = chance.choice  # type: ignore[attr-defined]

    async def run() -> None:
        turns = Turns()
        waiting = {number: turns.take(reads, writes) for number, (reads, writes) in enumerate(asked)}
        while waiting:
            free = [number for number, turn in waiting.items() if ready(turn)]
            assert free, "everybody waits for somebody"
            number = choose(free)
            reads, writes = asked[number]
            for earlier in waiting:
                if earlier < number:
                    others_reads, others_writes = asked[earlier]
                    assert not writes & (others_reads | others_writes)
                    assert not reads & others_writes
            turns.done(waiting.pop(number))
        assert len(turns) == 0

    asyncio.run(run())
