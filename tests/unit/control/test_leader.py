"""One leader at a time, whatever breaks: on a driven clock, over a store whose wires break at will."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress

import looptime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sexton.control.leader import LEADER_KEY, LEASE_SECONDS, MARGIN, Leadership, Term
from sexton.store.contract import Delete, Put
from unit.control.shared_store import TICK, Server, View

pytestmark = pytest.mark.looptime

SOON = LEASE_SECONDS / 100
NEXT = LEASE_SECONDS * 1.5
"""Longer than a dead leader is ever waited for."""


class Candidate:
    """One process that wants to lead, with its own wire and its own, not quite true, clock."""

    def __init__(self, server: Server, name: str, rate: float = 1.0) -> None:
        loop = asyncio.get_running_loop()
        self.view = View(server)
        self.told: list[Term | None] = []
        self.leadership = Leadership(self.view, name, elapsed=lambda: loop.time() * rate, now=loop.time)
        self.leadership.listen(self.told.append)
        self.task = asyncio.ensure_future(self.leadership.run())

    @property
    def leads(self) -> bool:
        return self.leadership.is_leader

    async def kill(self) -> None:
        """As by SIGKILL: nothing is said to anybody."""
        self.view.cut = True
        self.view.silent = False
        await self.stop()

    async def stop(self) -> None:
        self.task.cancel()
        with suppress(asyncio.CancelledError):
            await self.task


@asynccontextmanager
async def candidates(*rates: float) -> AsyncIterator[tuple[Server, list[Candidate]]]:
    server = Server()
    clock = asyncio.ensure_future(server.run())
    made = [Candidate(server, f"process {number}", rate) for number, rate in enumerate(rates)]
    try:
        yield server, made
    finally:
        for one in made:
            one.view.silent = False
            await one.stop()
        clock.cancel()


async def led(made: list[Candidate], within: float = NEXT) -> Candidate:
    """The one leader, once there is one."""
    async with asyncio.timeout(within):
        while not any(one.leads for one in made):
            await asyncio.sleep(SOON)
    (leader,) = [one for one in made if one.leads]
    return leader


async def test_one_of_many_leads_and_stays() -> None:
    async with candidates(1, 1, 1) as (_, made):
        leader = await led(made, SOON * 2)
        term = leader.leadership.term
        for _ in range(500):
            await asyncio.sleep(LEASE_SECONDS / 10)
            assert [one for one in made if one.leads] == [leader]

        assert leader.leadership.term == term
        assert leader.told == [term]
        assert all(one.told == [] for one in made if one is not leader)
        assert {await one.leadership.leader() for one in made} == {f"process {made.index(leader)}"}


async def test_a_killed_leader_is_followed_when_its_lease_ends_and_not_before() -> None:
    async with candidates(1, 1) as (_, made):
        leader = await led(made)
        begun = asyncio.get_running_loop().time()
        await leader.kill()
        follower = await led([one for one in made if one is not leader])
        waited = asyncio.get_running_loop().time() - begun

        assert LEASE_SECONDS * 0.6 < waited < LEASE_SECONDS + 1
        assert follower.leadership.term is not None


async def test_a_leader_that_resigns_is_followed_at_once() -> None:
    async with candidates(1, 1) as (_, made):
        leader = await led(made)
        await leader.stop()

        assert leader.told[-1] is None
        assert await led(made, SOON * 3) is not leader


async def test_the_fence_of_a_deposed_leader_holds_its_writes_back() -> None:
    """Also when it does not know yet: it only stood still for a while."""
    async with candidates(1, 1) as (server, made):
        leader = await led(made)
        old = leader.leadership.term
        leader.view.silent = True
        follower = await led([one for one in made if one is not leader])
        new = follower.leadership.term
        assert old is not None
        assert new is not None
        fresh = View(server)
        late = await fresh.txn([old.fence], [Put("task", b"by the old one")])
        true = await fresh.txn([new.fence], [Put("task", b"by the new one")])

        assert (late.succeeded, true.succeeded) == (False, True)
        assert new.number > old.number


async def test_a_leader_cut_off_knows_before_anybody_else_may_lead() -> None:
    async with candidates(1, 1) as (_, made):
        leader = await led(made)
        leader.view.cut = True
        begun = asyncio.get_running_loop().time()
        while leader.told[-1] is not None:
            await asyncio.sleep(SOON)
        knew = asyncio.get_running_loop().time() - begun

        assert LEASE_SECONDS * (1 - MARGIN) * 0.6 < knew <= LEASE_SECONDS * (1 - MARGIN) + SOON
        assert not any(one.leads for one in made)
        leader.view.cut = False
        assert await led(made) is not None


async def test_failures_shorter_than_the_lease_cost_nobody_the_lead() -> None:
    async with candidates(1, 1) as (_, made):
        leader = await led(made)
        for way in ("cut", "silent") * 5:
            setattr(leader.view, way, True)
            await asyncio.sleep(LEASE_SECONDS / 2)
            setattr(leader.view, way, False)
            await asyncio.sleep(LEASE_SECONDS / 2)

        assert leader.leads
        assert len(leader.told) == 1


async def test_a_leader_whose_key_is_removed_gives_way_at_once() -> None:
    async with candidates(1, 1) as (server, made):
        leader = await led(made)
        await View(server).txn([], [Delete(LEADER_KEY)])
        await asyncio.sleep(SOON)

        assert leader.told[1] is None
        assert len([one for one in made if one.leads]) == 1


async def test_a_process_that_stood_still_does_not_believe_it_leads() -> None:
    """No task of it ran, so nobody told it: the clock alone must do."""
    async with candidates(1) as (server, (alone,)):
        loop = asyncio.get_running_loop()
        stood = 0.0
        still = Leadership(View(server), "still", elapsed=lambda: loop.time() + stood, now=loop.time)
        await alone.stop()
        running = asyncio.ensure_future(still.run())
        await asyncio.sleep(SOON)
        before = still.is_leader
        stood = LEASE_SECONDS

        assert (before, still.is_leader, still.term) == (True, False, None)
        running.cancel()
        await asyncio.wait([running])


async def test_who_waits_is_told_of_the_beginning_and_the_end() -> None:
    async with candidates(1) as (server, (candidate,)):
        await asyncio.wait_for(candidate.leadership.changed(), SOON)
        assert candidate.leads
        ending = asyncio.ensure_future(candidate.leadership.changed())
        await View(server).txn([], [Delete(LEADER_KEY)])
        await asyncio.wait_for(ending, SOON)


async def test_an_answer_that_was_lost_does_not_lock_the_winner_out() -> None:
    """The key was taken, but the process was told that the store failed: it must find its own key and go on."""
    async with candidates() as (server, _):
        view = LosesFirstAnswer(server)
        loop = asyncio.get_running_loop()
        candidate = Leadership(view, "me", elapsed=loop.time, now=loop.time)
        running = asyncio.ensure_future(candidate.run())
        await asyncio.sleep(1)

        assert candidate.is_leader
        running.cancel()
        await asyncio.wait([running])


class LosesFirstAnswer(View):
    """The first transaction happens, and its writer is told that it failed."""

    lost = False

    async def txn(self, compares, writes):  # type: ignore[no-untyped-def]
        result = await super().txn(compares, writes)
        if not self.lost:
            self.lost = True
            self.cut = True
            asyncio.get_running_loop().call_later(0.1, setattr, self, "cut", False)
            await super().txn([], [])
        return result


@contextmanager
def driven_loop() -> Iterator[asyncio.Runner]:
    def make() -> asyncio.AbstractEventLoop:
        loop = looptime.new_event_loop()
        loop.setup_looptime(_enabled=True)
        return loop

    with asyncio.Runner(loop_factory=make) as runner:
        yield runner


harms = st.lists(
    st.tuples(
        st.sampled_from(["cut", "silent", "heal", "kill", "remove the key"]),
        st.integers(0, 2),
        st.floats(0, LEASE_SECONDS * 1.2),
    ),
    max_size=8,
)
rates = st.lists(st.floats(0.94, 1.06), min_size=3, max_size=3)


@pytest.mark.timeout(120)
@settings(max_examples=40, deadline=None)
@given(harms, rates)
def test_never_two_leaders_and_one_again_when_all_is_well(
    harm: list[tuple[str, int, float]], rates: list[float]
) -> None:
    async def run() -> None:
        async with candidates(*rates) as (server, made):
            removals = [-NEXT]
            watching = asyncio.ensure_future(never_two(server, made, removals))
            alive = set(range(3))
            for what, who, pause in harm:
                one = made[who]
                if what == "heal":
                    one.view.cut = who not in alive
                    one.view.silent = False
                elif what == "kill":
                    if len(alive) > 1:
                        alive.discard(who)
                        await one.kill()
                elif what == "remove the key":
                    removals.append(asyncio.get_running_loop().time())
                    await View(server).txn([], [Delete(LEADER_KEY)])
                elif who in alive:
                    setattr(one.view, what, True)
                await asyncio.sleep(pause)
            for who in alive:
                made[who].view.cut = made[who].view.silent = False
            await asyncio.sleep(NEXT)
            leader = await led([made[who] for who in alive], SOON)
            await asyncio.sleep(LEASE_SECONDS * 2)
            assert leader.leads
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching

    with driven_loop() as runner:
        runner.run(run())


async def never_two(server: Server, made: list[Candidate], removals: list[float]) -> None:
    """At every moment: whoever believes to lead holds the key, unless somebody just took it away by force."""
    loop = asyncio.get_running_loop()
    while True:
        believers = [one for one in made if one.leads]
        record = server.image.get(LEADER_KEY)
        # A leader whose key an operator removed learns it by its watch; with a silent wire, by its clock.
        forced = loop.time() - removals[-1] < LEASE_SECONDS
        assert len(believers) <= 1 or forced
        holders = [one for one in believers if one.leadership.term.number == (record and record.mod_revision)]
        assert len(holders) <= 1
        assert forced or len(holders) == len(believers)
        await asyncio.sleep(TICK / 2)
