"""What every store promises, whoever keeps the data. Runs unchanged over each row of ``store_backends``."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from blockbuster import blockbuster_ctx

from contract.store_backends import BACKENDS, Backend
from sexton.store.contract import (
    Change,
    Compacted,
    Compare,
    Delete,
    KeyValue,
    Put,
    Store,
    StoreError,
    TxnResult,
    Watch,
)

PATIENCE = 10.0
"""Seconds until a thing that should have happened counts as not happening."""


@pytest.fixture(params=sorted(BACKENDS))
def backend(request: pytest.FixtureRequest) -> Backend:
    return BACKENDS[request.param]


@pytest.fixture(autouse=True)
def never_blocks_the_loop() -> Iterator[None]:
    """Every test of the suite fails when the store does blocking I/O on the event loop's thread."""
    with blockbuster_ctx("sexton"):
        yield


@pytest.fixture
async def reopen(backend: Backend, tmp_path: Path) -> AsyncIterator[Callable[[], Awaitable[Store]]]:
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
async def store(reopen: Callable[[], Awaitable[Store]]) -> Store:
    return await reopen()


async def put(store: Store, *keys: str, lease: int = 0) -> int:
    """Write each key in its own transaction, the key's own name as value."""
    for key in keys:
        assert (await store.txn([], [Put(key, key.encode(), lease)])).succeeded
    return store.revision


async def keys(store: Store, prefix: str = "", after: str = "", limit: int = 0) -> list[str]:
    return [item.key for item in (await store.range(prefix, after=after, limit=limit)).items]


async def next_batch(watch: Watch) -> tuple[Change, ...]:
    return await asyncio.wait_for(anext(aiter(watch)), PATIENCE)


class TestReading:
    async def test_a_new_store_is_empty_at_revision_zero(self, store: Store) -> None:
        page = await store.range("")

        assert store.revision == 0
        assert page == ((), 0, False)
        assert await store.get("absent") is None

    async def test_a_written_key_is_read_with_its_revisions(self, store: Store) -> None:
        await put(store, "other")
        created = await store.txn([], [Put("key", b"one")])
        changed = await store.txn([], [Put("key", b"two")])

        assert created.revision < changed.revision == store.revision
        assert await store.get("key") == KeyValue("key", b"two", created.revision, changed.revision, 0)

    async def test_a_key_made_again_after_removal_is_a_new_key(self, store: Store) -> None:
        await put(store, "key")
        await store.txn([], [Delete("key")])
        made = await store.txn([], [Put("key", b"again")])

        assert await store.get("key") == KeyValue("key", b"again", made.revision, made.revision, 0)

    async def test_values_are_kept_byte_for_byte(self, store: Store, reopen: Callable[[], Awaitable[Store]]) -> None:
        values = {"empty": b"", "zeros": b"\0\0", "all": bytes(range(256)), "large": random.randbytes(1_000_000)}
        await store.txn([], [Put(key, value) for key, value in values.items()])
        again = await reopen()

        assert {item.key: item.value for item in (await again.range("")).items} == values


class TestRange:
    async def test_keys_come_in_code_point_order_whatever_order_they_were_written_in(self, store: Store) -> None:
        written = ["b", "a", "a/", "a0", "a/1", "a\0", "A", "é", "z", "\uffff", "\U0001f600", "aa"]
        await put(store, *written)

        assert await keys(store) == sorted(written)

    async def test_a_prefix_takes_what_starts_with_it_and_nothing_else(self, store: Store) -> None:
        await put(store, "task", "task/", "task/1", "task/10", "task/2", "task0", "taskdef/1", "tas", "tasl")

        assert await keys(store, "task/") == ["task/", "task/1", "task/10", "task/2"]
        assert await keys(store, "task") == ["task", "task/", "task/1", "task/10", "task/2", "task0", "taskdef/1"]
        assert await keys(store, "task/3") == []

    async def test_prefixes_at_the_edges_of_unicode(self, store: Store) -> None:
        last = "\U0010ffff"
        edges = ["\ud7ff", "\ud7ff/1", "\ue000", last, last + last, last + "x", "é/1", "e\u0301/1"]
        await put(store, *edges)

        for prefix in [*edges, "e", "é", last]:
            assert await keys(store, prefix) == sorted(key for key in edges if key.startswith(prefix))

    async def test_a_page_begins_behind_after_whether_or_not_that_key_exists(self, store: Store) -> None:
        await put(store, "k/1", "k/2", "k/4", "l/1")

        assert await keys(store, "k/", after="k/2") == ["k/4"]
        assert await keys(store, "k/", after="k/3") == ["k/4"]
        assert await keys(store, "k/", after="k/4") == []
        assert await keys(store, "k/", after="z") == []
        assert await keys(store, "k/", after="a") == ["k/1", "k/2", "k/4"]

    async def test_a_limit_cuts_and_says_whether_there_is_more(self, store: Store) -> None:
        await put(store, "k/1", "k/2", "k/3", "l/1")

        first = await store.range("k/", limit=2)
        exact = await store.range("k/", limit=3)
        rest = await store.range("k/", after="k/2", limit=2)

        assert ([item.key for item in first.items], first.more) == (["k/1", "k/2"], True)
        assert ([item.key for item in exact.items], exact.more) == (["k/1", "k/2", "k/3"], False)
        assert ([item.key for item in rest.items], rest.more) == (["k/3"], False)

    async def test_paging_through_many_keys_visits_each_once(self, store: Store) -> None:
        written = [f"k/{number}" for number in range(1000)]
        random.Random(1).shuffle(written)
        await store.txn([], [Put(key, b"") for key in written])
        await store.txn([], [Delete(key) for key in written[:400]])
        seen: list[str] = []
        more = True
        while more:
            page = await store.range("k/", after=seen[-1] if seen else "", limit=37)
            seen += [item.key for item in page.items]
            more = page.more

        assert seen == sorted(written[400:])

    async def test_a_page_carries_the_revision_it_is_true_at(self, store: Store) -> None:
        revision = await put(store, "a", "b")

        assert (await store.range("nothing")).revision == revision


class TestTransaction:
    async def test_all_writes_share_one_new_revision(self, store: Store) -> None:
        before = await put(store, "old")
        result = await store.txn([], [Put("a", b"1"), Delete("old"), Put("b", b"2")])

        assert result == TxnResult(True, store.revision)
        assert result.revision > before
        assert {item.key: item.mod_revision for item in (await store.range("")).items} == {
            "a": result.revision,
            "b": result.revision,
        }

    async def test_one_failed_condition_leaves_everything_as_it_was(self, store: Store) -> None:
        revision = await put(store, "a", "b")
        before = await store.range("")
        held = await store.get("a")
        assert held is not None
        result = await store.txn(
            [Compare("a", held.mod_revision), Compare("b", held.mod_revision)], [Put("a", b"no"), Put("c", b"no")]
        )

        assert result == TxnResult(False, revision)
        assert await store.range("") == before

    async def test_conditions_may_name_other_keys_than_the_writes(self, store: Store) -> None:
        revision = await put(store, "leader")
        held = await store.txn([Compare("leader", revision), Compare("absent", 0)], [Put("work", b"1")])
        lost = await store.txn([Compare("leader", 0)], [Put("work", b"2")])

        assert (held.succeeded, lost.succeeded) == (True, False)

    async def test_an_absent_key_meets_no_condition_but_zero(self, store: Store) -> None:
        await put(store, "gone")
        await store.txn([], [Delete("gone")])

        for revision in (1, 2, 3):
            assert not (await store.compare_and_swap("gone", revision, b"no")).succeeded
        assert (await store.compare_and_swap("gone", 0, b"yes")).succeeded

    async def test_conditions_see_the_state_before_the_writes(self, store: Store) -> None:
        result = await store.txn([Compare("a", 0)], [Put("a", b"1")])

        assert result.succeeded

    async def test_what_changes_nothing_succeeds_without_a_revision(self, store: Store) -> None:
        revision = await put(store, "a")

        assert await store.txn([], []) == TxnResult(True, revision)
        assert await store.txn([], [Delete("absent")]) == TxnResult(True, revision)
        assert await store.txn([Compare("a", revision)], []) == TxnResult(True, revision)

    async def test_the_same_value_again_is_a_change(self, store: Store) -> None:
        revision = await put(store, "a")

        assert await put(store, "a") > revision

    @pytest.mark.parametrize(
        "writes",
        [[Put("", b"")], [Put("a", b"1"), Put("a", b"2")], [Put("a", b"1"), Delete("a")], [Put("\ud800", b"")]],
        ids=["empty key", "twice", "put and delete", "surrogate"],
    )
    async def test_writes_no_store_can_hold_are_refused_whole(self, store: Store, writes: list[Put]) -> None:
        with pytest.raises(StoreError, match="cannot write"):
            await store.txn([], [Put("innocent", b""), *writes])

        assert await keys(store) == []

    async def test_compare_and_swap_creates_changes_and_refuses(self, store: Store) -> None:
        made = await store.compare_and_swap("key", 0, b"one")
        again = await store.compare_and_swap("key", 0, b"no")
        changed = await store.compare_and_swap("key", made.revision, b"two")
        stale = await store.compare_and_swap("key", made.revision, b"no")
        value = await store.get("key")

        assert [made.succeeded, again.succeeded, changed.succeeded, stale.succeeded] == [True, False, True, False]
        assert value is not None
        assert (value.value, value.mod_revision) == (b"two", changed.revision)


class TestConcurrency:
    async def test_no_increment_is_lost(self, store: Store) -> None:
        tasks, increments = 20, 10

        async def increment() -> None:
            done = 0
            while done < increments:
                current = await store.get("counter")
                value, revision = (int(current.value), current.mod_revision) if current else (0, 0)
                done += (await store.compare_and_swap("counter", revision, b"%d" % (value + 1))).succeeded

        await asyncio.gather(*(increment() for _ in range(tasks)))
        total = await store.get("counter")

        assert total is not None
        assert int(total.value) == tasks * increments

    async def test_of_many_who_create_a_key_at_once_one_wins(self, store: Store) -> None:
        results = await asyncio.gather(*(store.compare_and_swap("lock", 0, b"%d" % who) for who in range(100)))
        winners = [who for who, result in enumerate(results) if result.succeeded]
        held = await store.get("lock")

        assert held is not None
        assert winners == [int(held.value)]

    async def test_writers_at_once_each_get_their_own_revision_and_read_their_own_write(self, store: Store) -> None:
        async def write(who: int) -> int:
            result = await store.txn([], [Put(f"k/{who}", b"%d" % who)])
            read = await store.get(f"k/{who}")
            assert read is not None
            assert (read.value, read.mod_revision) == (b"%d" % who, result.revision)
            assert store.revision >= result.revision
            return result.revision

        revisions = await asyncio.gather(*(write(who) for who in range(1200)))

        assert revisions == sorted(set(revisions))

    async def test_a_refused_request_does_not_disturb_those_beside_it(self, store: Store) -> None:
        results = await asyncio.gather(
            store.txn([], [Put("a", b"1")]),
            store.txn([], [Put("b", b"1", lease=999)]),
            store.txn([Compare("a", 12345)], [Put("c", b"1")]),
            store.txn([], [Put("d", b"1")]),
            return_exceptions=True,
        )

        assert isinstance(results[1], StoreError)
        assert await keys(store) == ["a", "d"]

    async def test_a_writer_that_gives_up_leaves_the_store_working(self, store: Store) -> None:
        tasks = [asyncio.ensure_future(store.txn([], [Put(f"k/{who}", b"")])) for who in range(50)]
        await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        await asyncio.wait(tasks)

        assert {f"k/{who}" for who in range(1, 50, 2)} <= set(await keys(store))
        await put(store, "after")


class TestWatch:
    async def test_a_transaction_arrives_as_one_batch(self, store: Store) -> None:
        await put(store, "k/old")
        async with store.watch("k/", store.revision) as watch:
            result = await store.txn([], [Put("k/new", b"1"), Delete("k/old"), Put("other", b"")])
            batch = await next_batch(watch)

        assert batch == (
            Change("k/new", b"1", result.revision),
            Change("k/old", None, result.revision),
        )

    async def test_changes_of_the_past_come_first_and_none_is_missed_or_doubled(self, store: Store) -> None:
        await put(store, *(f"k/{number}" for number in range(5)))
        async with store.watch("k/", 2) as watch:
            await put(store, *(f"k/{number}" for number in range(5, 10)))
            seen = [await next_batch(watch) for _ in range(8)]

        assert [batch[0].revision for batch in seen] == [3, 4, 5, 6, 7, 8, 9, 10]

    async def test_a_watch_from_the_revision_of_a_range_continues_it(self, store: Store) -> None:
        await put(store, "k/1", "k/2")
        page = await store.range("k/")
        await put(store, "k/3")
        async with store.watch("k/", page.revision) as watch:
            batch = await next_batch(watch)

        assert [change.key for change in batch] == ["k/3"]

    async def test_other_prefixes_and_refused_transactions_are_silent(self, store: Store) -> None:
        async with store.watch("k/", 0) as watch:
            await put(store, "l/1", "k")
            await store.txn([Compare("k", 99)], [Put("k/no", b"")])
            await store.txn([], [Delete("k/absent")])
            await put(store, "k/1")
            batch = await next_batch(watch)

        assert [change.key for change in batch] == ["k/1"]

    async def test_writers_at_once_are_watched_one_by_one_in_revision_order(self, store: Store) -> None:
        async with store.watch("", 0) as watch:
            results = await asyncio.gather(*(store.txn([], [Put(f"k/{who}", b"")]) for who in range(100)))
            batches = [await next_batch(watch) for _ in results]

        assert batches == [(Change(f"k/{who}", b"", result.revision),) for who, result in enumerate(results)]
        assert [batch[0].revision for batch in batches] == list(range(1, 101))

    async def test_a_watch_from_the_future_begins_there(self, store: Store) -> None:
        async with store.watch("", 2) as watch:
            await put(store, "a", "b", "c")
            batch = await next_batch(watch)

        assert batch == (Change("c", b"c", 3),)

    async def test_a_change_is_readable_when_its_watch_tells(self, store: Store) -> None:
        async with store.watch("", 0) as watch:
            writing = asyncio.ensure_future(store.txn([], [Put("a", b"1")]))
            (change,) = await next_batch(watch)
            read = await store.get("a")
            await writing

        assert read is not None
        assert read.mod_revision == change.revision <= store.revision

    async def test_waiting_that_was_given_up_loses_no_change(self, store: Store) -> None:
        async with store.watch("", 0) as watch:
            waiting = asyncio.ensure_future(anext(aiter(watch)))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait([waiting])
            await put(store, "a")
            batch = await next_batch(watch)

        assert [change.key for change in batch] == ["a"]

    async def test_every_watch_of_a_key_is_told(self, store: Store) -> None:
        async with store.watch("k/", 0) as narrow, store.watch("", 0) as wide, store.watch("k/1", 0) as exact:
            await put(store, "k/1")
            batches = [await next_batch(watch) for watch in (narrow, wide, exact)]

        assert batches == [(Change("k/1", b"k/1", 1),)] * 3

    async def test_history_that_is_no_longer_held_is_refused(self, store: Store, backend: Backend) -> None:
        revision = await put(store, "k/1", "k/2")
        await backend.forget(store)

        with pytest.raises(Compacted, match="read the range again"):
            async with store.watch("k/", revision - 1):
                pass
        async with store.watch("k/", store.revision) as watch:
            await put(store, "k/3")
            batch = await next_batch(watch)
        assert [change.key for change in batch] == ["k/3"]

    async def test_a_reader_too_far_behind_is_told_to_read_again(self, store: Store, backend: Backend) -> None:
        async with store.watch("", store.revision) as watch:
            await backend.forget(store)
            await backend.forget(store)
            with pytest.raises(Compacted, match="read the range again"):
                async for _ in watch:
                    pass

    async def test_a_quiet_watch_outlives_any_amount_of_other_traffic(self, store: Store, backend: Backend) -> None:
        async with store.watch("k/", store.revision) as watch:
            await backend.forget(store)
            await backend.forget(store)
            await put(store, "k/1")
            batch = await next_batch(watch)

        assert [change.key for change in batch] == ["k/1"]


class TestLeases:
    async def test_a_key_vanishes_with_its_lease_and_not_before(self, store: Store) -> None:
        lease = await store.grant(10.0, now=100.0)
        await put(store, "leased", lease=lease)
        await put(store, "free")
        early = await store.expire(now=109.9)
        before = await keys(store)
        late = await store.expire(now=110.0)

        assert (early, before) == (0, ["free", "leased"])
        assert (late, await keys(store)) == (1, ["free"])

    async def test_the_keys_of_a_lease_vanish_as_one_change(self, store: Store) -> None:
        lease = await store.grant(10.0, now=0.0)
        await put(store, "k/2", "k/1", lease=lease)
        async with store.watch("k/", store.revision) as watch:
            await store.expire(now=10.0)
            batch = await next_batch(watch)

        assert batch == (Change("k/1", None, store.revision), Change("k/2", None, store.revision))

    async def test_keeping_alive_begins_the_time_anew(self, store: Store) -> None:
        lease = await store.grant(10.0, now=0.0)
        await put(store, "leased", lease=lease)

        assert await store.keep_alive(lease, now=9.0)
        assert await store.expire(now=18.9) == 0
        assert await store.expire(now=19.0) == 1
        assert not await store.keep_alive(lease, now=19.0)

    async def test_a_lease_whose_time_is_over_cannot_be_kept_alive(self, store: Store) -> None:
        lease = await store.grant(10.0, now=0.0)

        assert not await store.keep_alive(lease, now=10.0)
        assert await store.expire(now=10.0) == 1

    async def test_expiry_ends_all_that_are_over_and_spares_the_rest(self, store: Store) -> None:
        leases = [await store.grant(ttl, now=0.0) for ttl in (1.0, 2.0, 30.0)]
        for lease in leases:
            await put(store, f"k/{lease}", lease=lease)

        assert await store.expire(now=5.0) == 2
        assert await keys(store) == [f"k/{leases[2]}"]

    async def test_revoking_removes_the_keys_at_once(self, store: Store) -> None:
        lease = await store.grant(10.0, now=0.0)
        await put(store, "leased", lease=lease)
        await store.revoke(lease)
        await store.revoke(lease)

        assert await keys(store) == []
        assert not await store.keep_alive(lease, now=1.0)
        assert await store.expire(now=100.0) == 0

    async def test_a_key_written_without_its_lease_is_free_of_it(self, store: Store) -> None:
        lease = await store.grant(10.0, now=0.0)
        other = await store.grant(100.0, now=0.0)
        await put(store, "freed", "moved", lease=lease)
        await put(store, "freed")
        await put(store, "moved", lease=other)
        await store.expire(now=50.0)

        assert await keys(store) == ["freed", "moved"]
        await store.expire(now=100.0)
        assert await keys(store) == ["freed"]

    async def test_a_lease_that_ended_takes_no_keys(self, store: Store) -> None:
        lease = await store.grant(1.0, now=0.0)
        await store.revoke(lease)

        with pytest.raises(StoreError, match="has ended; grant a new one"):
            await store.txn([], [Put("other", b""), Put("leased", b"", lease=lease)])
        assert await keys(store) == []

    @pytest.mark.parametrize("ttl", [0.0, -1.0, float("inf"), float("nan")])
    async def test_a_lease_needs_a_time_to_live(self, store: Store, ttl: float) -> None:
        with pytest.raises(StoreError, match="cannot grant a lease"):
            await store.grant(ttl, now=0.0)

    async def test_leases_asked_for_at_once_are_different(self, store: Store) -> None:
        leases = await asyncio.gather(*(store.grant(1.0, now=0.0) for _ in range(50)))

        assert len(set(leases)) == 50
        assert 0 not in leases

    async def test_revoke_and_write_at_once_leave_no_key_behind(self, store: Store) -> None:
        lease = await store.grant(10.0, now=0.0)
        written, _, refused = await asyncio.gather(
            store.txn([], [Put("before", b"", lease=lease)]),
            store.revoke(lease),
            store.txn([], [Put("behind", b"", lease=lease)]),
            return_exceptions=True,
        )

        assert isinstance(written, TxnResult)
        assert isinstance(refused, StoreError)
        assert await keys(store) == []


class TestLifetime:
    async def test_everything_is_there_after_closing_and_opening(
        self, store: Store, reopen: Callable[[], Awaitable[Store]]
    ) -> None:
        lease = await store.grant(10.0, now=100.0)
        await put(store, "a", "b", "ä\0\U0001f600")
        await put(store, "leased", lease=lease)
        await store.txn([], [Delete("b")])
        before = await store.range("")
        again = await reopen()

        assert await again.range("") == before
        assert await again.grant(1.0, now=105.0) != lease
        assert await again.expire(now=109.0) == 1
        assert await keys(again) == ["a", "leased", "ä\0\U0001f600"]
        assert await again.expire(now=110.0) == 1
        assert await keys(again) == ["a", "ä\0\U0001f600"]

    async def test_a_revision_is_never_used_twice(self, store: Store, reopen: Callable[[], Awaitable[Store]]) -> None:
        await put(store, "a")
        removed = await store.txn([], [Delete("a")])
        again = await reopen()

        assert again.revision == removed.revision
        assert (await again.txn([], [Put("a", b"")])).revision > removed.revision

    async def test_a_watch_goes_on_from_the_revision_the_store_was_opened_at(
        self, store: Store, reopen: Callable[[], Awaitable[Store]]
    ) -> None:
        revision = await put(store, "a", "b")
        again = await reopen()
        async with again.watch("", revision) as watch:
            await put(again, "c")
            batch = await next_batch(watch)

        assert [change.key for change in batch] == ["c"]

    async def test_closing_lets_waiting_writes_finish(
        self, store: Store, reopen: Callable[[], Awaitable[Store]]
    ) -> None:
        tasks = [asyncio.ensure_future(store.txn([], [Put(f"k/{who:04}", b"")])) for who in range(1500)]
        await asyncio.sleep(0)
        await asyncio.wait_for(store.close(), PATIENCE)
        results = await asyncio.gather(*tasks, return_exceptions=True)
        again = await reopen()
        kept = await keys(again)

        assert all(isinstance(result, (TxnResult, StoreError)) for result in results)
        acknowledged = [f"k/{who:04}" for who, result in enumerate(results) if isinstance(result, TxnResult)]
        assert acknowledged
        assert kept == acknowledged

    async def test_closing_while_writers_go_on_leaves_nobody_hanging(self, store: Store) -> None:
        async def write_until_refused(who: int) -> int:
            count = 0
            while True:
                try:
                    await store.txn([], [Put(f"k/{who}", b"%d" % count)])
                except StoreError:
                    return count
                count += 1

        writers = [asyncio.ensure_future(write_until_refused(who)) for who in range(20)]
        while store.revision < 100:
            await asyncio.sleep(0)
        await asyncio.wait_for(store.close(), PATIENCE)
        counts = await asyncio.wait_for(asyncio.gather(*writers), PATIENCE)

        assert sum(counts) >= 100

    async def test_closing_twice_and_at_once_is_no_error(self, store: Store) -> None:
        await asyncio.gather(store.close(), store.close())
        await store.close()

    async def test_closing_goes_on_when_its_caller_gives_up(
        self, store: Store, reopen: Callable[[], Awaitable[Store]]
    ) -> None:
        closing = asyncio.ensure_future(store.close())
        await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait([closing])
        again = await reopen()

        await put(again, "a")

    async def test_a_closed_store_says_so(self, store: Store) -> None:
        await store.close()
        calls: list[Callable[[], Awaitable[object]]] = [
            lambda: store.get("a"),
            lambda: store.range(""),
            lambda: store.txn([], []),
            lambda: store.compare_and_swap("a", 0, b""),
            lambda: store.grant(1.0, now=0.0),
            lambda: store.keep_alive(1, now=0.0),
            lambda: store.revoke(1),
            lambda: store.expire(now=0.0),
            lambda: store.watch("", 0).__aenter__(),
        ]

        for call in calls:
            with pytest.raises(StoreError, match="closed"):
                await call()

    async def test_an_open_watch_ends_when_the_store_closes(self, store: Store) -> None:
        async with store.watch("", 0) as watch:
            await put(store, "a")
            reading = asyncio.ensure_future(_drain(watch))
            await store.close()

            assert await asyncio.wait_for(reading, PATIENCE) == ["a"]


async def _drain(watch: Watch) -> list[str]:
    seen: list[str] = []
    with pytest.raises(StoreError, match="closed"):
        async for batch in watch:
            seen += [change.key for change in batch]
    return seen
