"""A cluster of three real members under load: what is killed, frozen or restarted costs no accepted write.

Two stores write side by side, as two control planes do, each beginning with another member. Every write makes a key
of its own. What was acknowledged must be there afterwards, at the revision it was told; what was refused must not;
of what is unknown nothing is asked but that both stores, and one opened anew, agree about it.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from etcd import PrivateEtcd
from sexton.store.contract import Compacted, Compare, Distant, OutcomeUnknown, Page, Put, Store, StoreError
from sexton.store.opening import open_store

PATIENCE = 30.0
WRITERS = 8
PREFIX = "/cluster"


class Load:
    """Writers that never stop, and what they were told."""

    def __init__(self, stores: list[Store]) -> None:
        self.stores = stores
        self.accepted: dict[str, int] = {}
        self.refused: set[str] = set()
        self.unknown: set[str] = set()
        self._numbers = itertools.count()
        self._tasks: list[asyncio.Task[None]] = []

    async def _write(self, store: Store) -> None:
        while True:
            key = f"k/{next(self._numbers):06}"
            try:
                result = await store.txn([Compare(key, 0)], [Put(key, key.encode())])
            except OutcomeUnknown:
                self.unknown.add(key)
            except StoreError:
                self.refused.add(key)
                await asyncio.sleep(0.01)
            else:
                assert result.succeeded
                self.accepted[key] = result.revision

    async def grow(self, by: int) -> None:
        """Go on until so many more writes were accepted."""
        wanted = len(self.accepted) + by
        await until(lambda: len(self.accepted) >= wanted, f"{by} more writes")

    async def __aenter__(self) -> Load:
        self._tasks = [
            asyncio.ensure_future(self._write(self.stores[who % len(self.stores)])) for who in range(WRITERS)
        ]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        results = await asyncio.gather(*self._tasks, return_exceptions=True)
        assert [result for result in results if not isinstance(result, asyncio.CancelledError)] == []


class Follower:
    """What somebody who only watches believes the store to hold."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.state: dict[str, tuple[bytes, int]] = {}
        self.revision = 0

    async def run(self) -> None:
        while True:
            page = await self._store.range("k/")
            self.state = state_of(page)
            self.revision = page.revision
            try:
                async with self._store.watch("k/", page.revision) as watch:
                    async for batch in watch:
                        for change in batch:
                            assert change.revision > self.revision
                            assert change.value is not None
                            self.state[change.key] = (change.value, change.revision)
                        self.revision = batch[0].revision
            except Compacted:
                continue


def state_of(page: Page) -> dict[str, tuple[bytes, int]]:
    return {item.key: (item.value, item.mod_revision) for item in page.items}


async def until(happened: Callable[[], bool], what: str) -> None:
    try:
        async with asyncio.timeout(PATIENCE):
            while not happened():
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"waited {PATIENCE:g} s in vain for {what}") from None


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[PrivateEtcd]:
    with PrivateEtcd(tmp_path / "etcd", size=3) as etcd:
        yield etcd


@asynccontextmanager
async def opened(*urls: str) -> AsyncIterator[list[Store]]:
    stores: list[Store] = []
    try:
        for url in urls:
            stores.append(await open_store(url))
        yield stores
    finally:
        for store in stores:
            await store.close()


@asynccontextmanager
async def under_load(cluster: PrivateEtcd) -> AsyncIterator[Load]:
    """Load all the while; afterwards everybody must agree about what was told."""
    hosts = cluster.hosts.split(",")
    async with opened(
        f"etcd://{','.join(hosts)}{PREFIX}", f"etcd://{','.join([*hosts[1:], hosts[0]])}{PREFIX}"
    ) as stores:
        follower = Follower(stores[0])
        following = asyncio.ensure_future(follower.run())
        async with Load(stores) as load:
            await load.grow(100)
            yield load
            await load.grow(100)
        for store in stores:
            assert isinstance(store, Distant)
            await until(lambda store=store: store.healthy, "the store to be healthy")  # type: ignore[misc]
        # Behind this write, everything that is still on its way has arrived or never will.
        await stores[1].txn([], [Put("k/end", b"")])
        async with opened(f"{cluster.url}{PREFIX}") as (fresh,):
            truth = state_of(await fresh.range("k/"))
        for store in stores:
            await until(lambda store=store: store.revision >= truth["k/end"][1], "the image")  # type: ignore[misc]
            assert state_of(await store.range("k/")) == truth
        await until(lambda: follower.revision >= truth["k/end"][1], "the follower")
        assert follower.state == truth
        following.cancel()
        await asyncio.wait([following])
    assert {key: revision for key, (_, revision) in truth.items() if key in load.accepted} == load.accepted
    assert load.refused & truth.keys() == set()
    assert truth.keys() <= load.accepted.keys() | load.unknown | unanswered(load) | {"k/end"}


def unanswered(load: Load) -> set[str]:
    """Keys of the writes that were given up when the load ended."""
    told = load.accepted.keys() | load.unknown | load.refused
    return {f"k/{number:06}" for number in range(next(load._numbers))} - told


@pytest.mark.timeout(180)
async def test_members_killed_one_after_the_other_cost_no_accepted_write(cluster: PrivateEtcd) -> None:
    async with under_load(cluster) as load:
        for _ in range(2):
            # Always a leader, and in the second turn most likely the member that a store has moved to.
            victim = cluster.leader()
            victim.kill()
            await load.grow(50)
            cluster.start()
            await load.grow(50)


@pytest.mark.timeout(180)
async def test_a_restart_of_all_members_costs_no_accepted_write(cluster: PrivateEtcd) -> None:
    async with under_load(cluster) as load:
        for member in cluster.members:
            member.kill()
        accepted = len(load.accepted)
        await until(lambda: len(load.refused) > WRITERS, "writes to be refused")
        cluster.start()

        assert len(load.accepted) <= accepted + WRITERS
        await load.grow(50)


@pytest.mark.timeout(180)
async def test_a_silent_member_is_left_and_costs_no_accepted_write(cluster: PrivateEtcd) -> None:
    async with under_load(cluster) as load:
        for victim in (cluster.leader(), cluster.members[0], cluster.members[1]):
            victim.freeze()
            try:
                await load.grow(100)
            finally:
                victim.thaw()
            await load.grow(50)


@pytest.mark.timeout(60)
async def test_without_a_majority_writes_are_refused_and_reads_say_how_old_they_are(cluster: PrivateEtcd) -> None:
    async with opened(f"{cluster.url}{PREFIX}") as (store,):
        assert isinstance(store, Distant)
        await store.txn([], [Put("a", b"1")])
        await until(lambda: store.stale_for < 1.5, "a first pulse")
        assert (store.healthy, store.trouble) == (True, "")

        for member in cluster.members[:2]:
            member.kill()
        with pytest.raises(StoreError, match=r"cannot (reach|tell|use)"):
            await store.txn([], [Put("a", b"2")])
        await until(lambda: not store.healthy, "the store to say it is not healthy")
        read = await store.get("a")

        assert read is not None
        assert read.value == b"1"
        assert store.stale_for > 5
        assert "check that a majority of its members runs" in store.trouble

        cluster.start()
        await until(lambda: store.healthy, "the store to be healthy again")
        assert store.stale_for < 5
        assert (await store.txn([], [Put("a", b"3")])).succeeded


@pytest.mark.timeout(180)
async def test_random_harm_never_breaks_what_was_acknowledged(cluster: PrivateEtcd) -> None:
    chance = random.Random()
    async with under_load(cluster) as load:
        for _ in range(5):
            victim = chance.choice(cluster.members)
            if chance.random() < 0.5:
                victim.kill()
                await asyncio.sleep(chance.uniform(0, 1))
                cluster.start()
            else:
                victim.freeze()
                await asyncio.sleep(chance.uniform(0, 4))
                victim.thaw()
            await load.grow(20)
