"""What every store promises about reads, transactions and watches, whoever keeps the data.

Runs unchanged over each row of ``store_backends``; leases and lifetime are in ``test_store_lifetime``.
"""

from __future__ import annotations

import asyncio
import random

import pytest

from contract.store_backends import Backend
from contract.store_fixtures import (
    Reopen,
    StoreSuite,
    keys,
    next_batch,
    put,
)
from sexton.store.contract import Change, Compacted, Compare, Delete, KeyValue, Put, Store, StoreError, TxnResult


class TestReading(StoreSuite):
    async def test_a_new_store_is_empty(self, store: Store) -> None:
        page = await store.range("")

        assert page == ((), store.revision, False)
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

    async def test_values_are_kept_byte_for_byte(self, store: Store, reopen: Reopen) -> None:
        values = {"empty": b"", "zeros": b"\0\0", "all": bytes(range(256)), "large": random.randbytes(1_000_000)}
        await store.txn([], [Put(key, value) for key, value in values.items()])
        again = await reopen()

        assert {item.key: item.value for item in (await again.range("")).items} == values


class TestRange(StoreSuite):
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


class TestTransaction(StoreSuite):
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
        removed = await store.txn([], [Delete("gone")])

        for revision in range(removed.revision - 1, removed.revision + 2):
            assert not (await store.compare_and_swap("gone", revision, b"no")).succeeded
        assert (await store.compare_and_swap("gone", 0, b"yes")).succeeded

    async def test_the_largest_transaction_every_store_takes(self, store: Store) -> None:
        revision = await put(store, *(f"condition/{number}" for number in range(4)))
        held = {item.key: item.mod_revision for item in (await store.range("condition/")).items}
        conditions = [Compare(key, modified) for key, modified in held.items()]
        conditions += [Compare(f"absent/{number}", 0) for number in range(60)]
        result = await store.txn(conditions, [Put(f"k/{number:04}", bytes(250)) for number in range(4096)])
        refused = await store.txn(conditions, [Put("k/0000", b""), *(Delete(f"k/{n:04}") for n in range(1, 4096))])
        await store.txn([], [Put("absent/7", b"")])
        late = await store.txn(conditions, [Delete(f"k/{number:04}") for number in range(4096)])
        page = await store.range("k/")

        assert (result.succeeded, refused.succeeded, late.succeeded) == (True, True, False)
        assert revision < result.revision < refused.revision
        assert [(item.key, item.mod_revision) for item in page.items] == [("k/0000", refused.revision)]

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


class TestConcurrency(StoreSuite):
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

        assert len(set(revisions)) == 1200

    async def test_writes_of_one_key_happen_in_the_order_they_were_asked_for(self, store: Store) -> None:
        results = await asyncio.gather(*(store.txn([], [Put(f"k/{who % 7}", b"%d" % who)]) for who in range(210)))
        page = await store.range("k/")

        for key in range(7):
            revisions = [result.revision for result in results[key::7]]
            assert revisions == sorted(set(revisions))
        assert [int(item.value) for item in page.items] == list(range(203, 210))

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


class TestWatch(StoreSuite):
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
        revisions = [await put(store, f"k/{number}") for number in range(5)]
        async with store.watch("k/", revisions[1]) as watch:
            revisions += [await put(store, f"k/{number}") for number in range(5, 10)]
            seen = [await next_batch(watch) for _ in range(8)]

        assert [batch[0].revision for batch in seen] == revisions[2:]

    async def test_a_watch_from_the_revision_of_a_range_continues_it(self, store: Store) -> None:
        await put(store, "k/1", "k/2")
        page = await store.range("k/")
        await put(store, "k/3")
        async with store.watch("k/", page.revision) as watch:
            batch = await next_batch(watch)

        assert [change.key for change in batch] == ["k/3"]

    async def test_other_prefixes_and_refused_transactions_are_silent(self, store: Store) -> None:
        async with store.watch("k/", store.revision) as watch:
            await put(store, "l/1", "k")
            await store.txn([Compare("k", 99)], [Put("k/no", b"")])
            await store.txn([], [Delete("k/absent")])
            await put(store, "k/1")
            batch = await next_batch(watch)

        assert [change.key for change in batch] == ["k/1"]

    async def test_writers_at_once_are_watched_one_by_one_in_revision_order(self, store: Store) -> None:
        async with store.watch("", store.revision) as watch:
            results = await asyncio.gather(*(store.txn([], [Put(f"k/{who}", b"")]) for who in range(100)))
            batches = [await next_batch(watch) for _ in results]

        written = sorted((result.revision, f"k/{who}") for who, result in enumerate(results))
        assert batches == [(Change(key, b"", revision),) for revision, key in written]

    async def test_a_watch_from_the_future_begins_there(self, store: Store) -> None:
        future = store.revision + 2
        async with store.watch("", future) as watch:
            written = [(await put(store, key), key) for key in "abc"]
            batch = await next_batch(watch)
        revision, key = next(one for one in written if one[0] > future)

        assert batch == (Change(key, key.encode(), revision),)

    async def test_a_change_is_readable_when_its_watch_tells(self, store: Store) -> None:
        async with store.watch("", store.revision) as watch:
            writing = asyncio.ensure_future(store.txn([], [Put("a", b"1")]))
            (change,) = await next_batch(watch)
            read = await store.get("a")
            await writing

        assert read is not None
        assert read.mod_revision == change.revision <= store.revision

    async def test_waiting_that_was_given_up_loses_no_change(self, store: Store) -> None:
        async with store.watch("", store.revision) as watch:
            waiting = asyncio.ensure_future(anext(aiter(watch)))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait([waiting])
            await put(store, "a")
            batch = await next_batch(watch)

        assert [change.key for change in batch] == ["a"]

    async def test_every_watch_of_a_key_is_told(self, store: Store) -> None:
        now = store.revision
        async with store.watch("k/", now) as narrow, store.watch("", now) as wide, store.watch("k/1", now) as exact:
            revision = await put(store, "k/1")
            batches = [await next_batch(watch) for watch in (narrow, wide, exact)]

        assert batches == [(Change("k/1", b"k/1", revision),)] * 3

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
