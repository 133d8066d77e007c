"""Records are what the store holds, whoever wrote it, and a write is seen by its writer."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest

from sexton.control.records import ClusterRecord
from sexton.store.contract import Put, StoreError
from sexton.store.watching import HELD_CHANGES
from sexton.wire import ecs
from unit.control.world import open_world, world_over


def cluster(name: str) -> ClusterRecord:
    return ClusterRecord(region="r", cluster=ecs.Cluster(cluster_name=name, status="ACTIVE"))


async def settle(world, true):
    """Let what is on its way arrive."""
    async with asyncio.timeout(10):
        while not true():
            await asyncio.sleep(0.001)


async def test_a_write_is_seen_by_its_writer_at_once_and_by_others_soon(world):
    async with world_over(world.store) as other:
        table = world.records.clusters
        await world.records.commit([], [world.records.put(table, cluster("a"), "r", "a")])

        assert table.get("r", "a").value == cluster("a")
        await settle(other, lambda: other.records.clusters.get("r", "a"))
        assert other.records.clusters.get("r", "a").value == cluster("a")


async def test_a_writer_waits_until_its_own_write_shows_however_late_the_store_tells(world):
    watch = world.store.watch

    @asynccontextmanager
    async def late(prefix, after):
        async def slowly(changes):
            async for batch in changes:
                for _ in range(20):
                    await asyncio.sleep(0)
                yield batch

        async with watch(prefix, after) as changes:
            yield slowly(changes)

    world.store.watch = late
    async with world_over(world.store) as other:
        table = other.records.clusters
        await other.records.commit([], [other.records.put(table, cluster("a"), "r", "a")])

        assert table.get("r", "a") is not None


async def test_a_conflict_is_known_to_the_loser_when_it_is_told(world):
    async with world_over(world.store) as other:

        async def claim(one):
            table = one.records.clusters
            result = await one.records.commit(
                [one.records.unchanged(table, None, "r", "a")], [one.records.put(table, cluster("a"), "r", "a")]
            )
            return result.succeeded, table.get("r", "a") is not None

        outcomes = await asyncio.gather(claim(world), claim(other))

    assert sorted(outcomes) == [(False, True), (True, True)]


async def test_under_gives_what_is_below_in_order_and_nothing_beside(world):
    table = world.records.clusters
    for key in ("r/b", "r/a", "r2/a", "r-x/a", "r/a-b", "q/z"):
        await world.records.commit([], [world.records.put(table, cluster(key), key)])

    assert [key for key, _ in table.under("r")] == ["r/a", "r/a-b", "r/b"]
    await world.records.commit([], [world.records.delete(table, "r", "a")])
    assert [key for key, _ in table.under("r")] == ["r/a-b", "r/b"]


async def test_falling_behind_the_store_loses_and_leaks_nothing(world):
    """More changes than the store holds for a slow watcher, while this loop did not get to run."""
    records = world.records
    await records.commit([], [records.put(records.clusters, cluster("old"), "r", "old")])
    told = []
    records.clusters.listen(lambda key, before, after: told.append((key, before is not None, after is not None)))
    store, table = world.store, records.clusters
    flood = [[Put(f"other/{number}", b"x") for number in range(256)] for _ in range(HELD_CHANGES // 256 + 2)]
    await asyncio.gather(
        store.txn([], [records.delete(table, "r", "old")]),
        records.commit([], [records.put(table, cluster("first"), "r", "new")]),
        records.commit([], [records.put(table, cluster("second"), "r", "new")]),
        *(store.txn([], batch) for batch in flood),
    )
    await settle(world, lambda: records.revision >= store.revision)

    assert [entry.value for _, entry in table.under("r")] == [cluster("second")]
    assert ("r/old", True, False) in told
    assert not records._written


async def test_a_failed_write_leaves_nothing_behind(world):
    txn = world.store.txn

    async def failing(*_):
        raise StoreError("cannot write: the disk is full")

    world.store.txn = failing
    with pytest.raises(StoreError):
        await world.do("CreateCluster", clusterName="a")
    world.store.txn = txn

    assert world.records.clusters.get("us-east-1", "a") is None
    assert not world.records._written
    await world.do("CreateCluster", clusterName="a")


async def test_everything_is_there_again_after_a_restart(tmp_path):
    async with open_world(tmp_path) as world:
        await world.define()
        instance = await world.join()
        task = await world.run_one(clientToken="t", tags=[{"key": "a", "value": "b"}])
        await world.report(task, "RUNNING")
        before = await world.task(task), await world.instance(instance)
    async with open_world(tmp_path) as world:
        assert (await world.task(task), await world.instance(instance)) == before
