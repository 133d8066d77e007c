"""Work that several ask for is done once, goes on while anybody waits, and fails for each in its own exception."""

from __future__ import annotations

import asyncio

import pytest

from sexton.kit.supervise import Nursery
from sexton.kit.together import CalledOff, Together

pytestmark = pytest.mark.looptime


class Work:
    def __init__(self, error=None):
        self.runs = 0
        self.cancelled = 0
        self.error = error

    async def __call__(self):
        self.runs += 1
        try:
            await asyncio.sleep(1.0)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if self.error is not None:
            raise self.error
        return self.runs


@pytest.fixture
async def nursery():
    nursery = Nursery("test")
    yield nursery
    await nursery.close()


async def test_many_askers_one_run(nursery):
    together, work = Together(nursery), Work()

    assert await asyncio.gather(*(together.do("k", "w", work) for _ in range(50))) == [1] * 50
    assert await together.do("k", "w", work) == 2
    assert together.under_way() == ()


async def test_work_goes_on_while_anybody_waits_and_ends_with_the_last(nursery):
    together, work = Together(nursery), Work()
    loop = asyncio.get_running_loop()
    first, second = (loop.create_task(together.do("k", "w", work)) for _ in range(2))
    await asyncio.sleep(0.1)
    first.cancel()
    assert await second == 1

    third = loop.create_task(together.do("k", "w", work))
    await asyncio.sleep(0.1)
    third.cancel()
    await asyncio.sleep(0.1)
    assert (work.runs, work.cancelled) == (2, 1)
    assert await together.do("k", "w", work) == 3


async def test_each_gets_an_exception_of_its_own(nursery):
    together, work = Together(nursery), Work(ValueError("no"))
    got = await asyncio.gather(*(together.do("k", "w", work) for _ in range(2)), return_exceptions=True)

    assert [str(one) for one in got] == ["no", "no"] and got[0] is not got[1] and work.runs == 1


async def test_the_end_of_the_process_is_told_to_those_who_wait(nursery):
    together, work = Together(nursery), Work()
    waiting = asyncio.get_running_loop().create_task(together.do("k", "w", work))
    await asyncio.sleep(0.1)
    await nursery.close()
    with pytest.raises(CalledOff):
        await waiting
