"""A sluice: so many at once, in order, and nobody waits for one that hangs."""

from __future__ import annotations

import asyncio

from sexton.kit.sluice import Sluice


async def test_no_more_than_its_width_are_inside_at_once() -> None:
    sluice, inside, most, order = Sluice(3, 60.0), 0, 0, []

    async def one(number: int) -> None:
        nonlocal inside, most
        async with sluice.through():
            inside += 1
            most = max(most, inside)
            order.append(number)
            await asyncio.sleep(0)
            inside -= 1

    await asyncio.gather(*(one(number) for number in range(20)))
    assert most == 3
    assert order == list(range(20))


async def test_one_that_hangs_lets_the_next_through() -> None:
    sluice, go = Sluice(1, 0.01), asyncio.Event()

    async def hangs() -> None:
        async with sluice.through():
            await go.wait()

    hanging = [asyncio.ensure_future(hangs()) for _ in range(3)]
    async with asyncio.timeout(10), sluice.through():
        go.set()
        await asyncio.gather(*hanging)


async def test_whoever_was_overdue_gives_its_place_back_once() -> None:
    sluice = Sluice(1, 0.01)
    for _ in range(5):
        async with asyncio.timeout(10), sluice.through():
            await _pass(sluice)  # which is let in once the first is overdue
    async with sluice.through():
        other = asyncio.ensure_future(_pass(sluice))
        await asyncio.sleep(0)
        assert not other.done()
    await other


async def test_whoever_fails_or_is_called_off_leaves_its_place() -> None:
    sluice = Sluice(1, 60.0)
    waiting = asyncio.ensure_future(_pass(sluice))
    waiting.cancel()
    await asyncio.wait([waiting])
    try:
        async with sluice.through():
            raise ValueError
    except ValueError:
        pass
    async with asyncio.timeout(10), sluice.through():
        pass


async def _pass(sluice: Sluice) -> None:
    async with sluice.through():
        pass
