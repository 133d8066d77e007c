"""What every store promises about leases, closing and opening again. Runs over each row of ``store_backends``."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest

from contract.store_fixtures import (
    PATIENCE,
    CallersClockSuite,
    Reopen,
    ServersClockSuite,
    StoreSuite,
    keys,
    next_batch,
    put,
)
from sexton.store.contract import Change, Delete, Put, Store, StoreError, TxnResult, Watch


class TestLeasesByTheCallersClock(CallersClockSuite):
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

    async def test_a_revoked_lease_does_not_end_again(self, store: Store) -> None:
        await store.revoke(await store.grant(10.0, now=0.0))

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

    async def test_leases_outlive_the_closing_of_the_store(self, store: Store, reopen: Reopen) -> None:
        lease = await store.grant(10.0, now=100.0)
        await put(store, "free")
        await put(store, "leased", lease=lease)
        again = await reopen()

        assert await again.grant(1.0, now=105.0) != lease
        assert await again.expire(now=109.0) == 1
        assert await keys(again) == ["free", "leased"]
        assert await again.expire(now=110.0) == 1
        assert await keys(again) == ["free"]


class TestLeasesByTheServersClock(ServersClockSuite):
    """A second is the shortest lease; when exactly the server ends it is not known, but that it is not sooner."""

    async def test_a_key_vanishes_with_its_lease_and_not_before(self, store: Store) -> None:
        begun = time.monotonic()
        lease = await store.grant(1.0, now=0.0)
        await put(store, "k/2", "k/1", lease=lease)
        await put(store, "free")
        async with store.watch("", store.revision) as watch:
            batch = await next_batch(watch)
        lived = time.monotonic() - begun

        assert lived >= 1.0
        assert batch == (Change("k/1", None, store.revision), Change("k/2", None, store.revision))
        assert await keys(store) == ["free"]
        assert not await store.keep_alive(lease, now=0.0)

    async def test_a_lease_that_is_kept_alive_outlives_one_that_is_not(self, store: Store) -> None:
        kept, left = [await store.grant(2.0, now=0.0) for _ in range(2)]
        await put(store, "kept", lease=kept)
        await put(store, "left", lease=left)
        async with store.watch("", store.revision) as watch:
            ended = asyncio.ensure_future(next_batch(watch))
            while not ended.done():
                assert await store.keep_alive(kept, now=0.0)
                await asyncio.wait([ended], timeout=0.5)

        assert [change.key for change in ended.result()] == ["left"]
        assert await keys(store) == ["kept"]

    async def test_the_time_a_caller_tells_ends_nothing(self, store: Store) -> None:
        lease = await store.grant(100.0, now=0.0)
        await put(store, "leased", lease=lease)

        assert await store.expire(now=1e9) == 0
        assert await store.keep_alive(lease, now=1e9)
        assert await keys(store) == ["leased"]


class TestLeases(StoreSuite):
    async def test_revoking_removes_the_keys_at_once(self, store: Store) -> None:
        lease = await store.grant(10.0, now=0.0)
        await put(store, "k/2", "k/1", lease=lease)
        async with store.watch("k/", store.revision) as watch:
            await store.revoke(lease)
            left = await keys(store)
            batch = await next_batch(watch)
        await store.revoke(lease)

        assert left == []
        assert batch == (Change("k/1", None, store.revision), Change("k/2", None, store.revision))
        assert not await store.keep_alive(lease, now=1.0)

    async def test_a_key_written_without_its_lease_outlives_it(self, store: Store) -> None:
        lease, other = [await store.grant(10.0, now=0.0) for _ in range(2)]
        await put(store, "freed", "moved", "leased", lease=lease)
        await put(store, "freed")
        await put(store, "moved", lease=other)
        await store.revoke(lease)

        assert [(item.key, item.lease) for item in (await store.range("")).items] == [("freed", 0), ("moved", other)]

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


class TestLifetime(StoreSuite):
    async def test_everything_is_there_after_closing_and_opening(
        self, store: Store, reopen: Callable[[], Awaitable[Store]]
    ) -> None:
        lease = await store.grant(10.0, now=100.0)
        await put(store, "a", "b", "ä\0\U0001f600")
        await put(store, "leased", lease=lease)
        await store.txn([], [Delete("b")])
        before = await store.range("")
        again = await reopen()
        after = await again.range("")

        assert after.items == before.items
        assert [item.key for item in after.items] == ["a", "leased", "ä\0\U0001f600"]
        assert after.revision >= before.revision

    async def test_a_revision_is_never_used_twice(self, store: Store, reopen: Reopen) -> None:
        await put(store, "a")
        removed = await store.txn([], [Delete("a")])
        again = await reopen()

        assert again.revision >= removed.revision
        assert (await again.txn([], [Put("a", b"")])).revision > removed.revision

    async def test_a_watch_goes_on_from_the_revision_the_store_was_opened_at(
        self, store: Store, reopen: Callable[[], Awaitable[Store]]
    ) -> None:
        await put(store, "a", "b")
        again = await reopen()
        async with again.watch("", again.revision) as watch:
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
        begun = store.revision
        while store.revision < begun + 100:
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
            lambda: store.watch("", store.revision).__aenter__(),
        ]

        for call in calls:
            with pytest.raises(StoreError, match="closed"):
                await call()

    async def test_an_open_watch_ends_when_the_store_closes(self, store: Store) -> None:
        async with store.watch("", store.revision) as watch:
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
