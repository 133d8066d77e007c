"""How the SQLite store groups writes, and what it does while the disk is slow or somebody holds the file."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from pathlib import Path

import pytest

from sexton.store.contract import Durability, Put, StoreError
from sexton.store.image import Commit
from sexton.store.opening import open_store
from sexton.store.sqlite.file import StoreFile
from sexton.store.sqlite.store import GROUP_LIMIT, SqliteStore
from sexton.store.sqlite.writer import Writer


class WatchedFile(StoreFile):
    """A real file that counts its commits, can be made to wait, and can be made to break."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, Durability.FULL)
        self.commits: list[Commit] = []
        self.may_write = threading.Event()
        self.may_write.set()
        self.writing = threading.Event()
        self.broken = False

    def write(self, commit: Commit) -> None:
        self.writing.set()
        assert self.may_write.wait(10.0)
        if self.broken:
            raise StoreError("cannot write to the file: the disk is gone; bring it back")
        super().write(commit)
        self.commits.append(commit)


@pytest.fixture
def file(tmp_path: Path) -> WatchedFile:
    return WatchedFile(tmp_path / "store.db")


async def store_over(file: WatchedFile) -> SqliteStore:
    writer = Writer(asyncio.get_running_loop())
    image = await writer.result(file.open)
    return SqliteStore(Path("store.db"), file, image, writer)


async def until_writing(file: WatchedFile) -> None:
    """Until a commit has reached the writer thread."""
    deadline = asyncio.get_running_loop().time() + 10.0
    while not file.writing.is_set():
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.001)


async def test_all_who_write_in_one_turn_share_a_commit(file: WatchedFile) -> None:
    store = await store_over(file)
    for _ in range(10):
        await asyncio.gather(*(store.txn([], [Put(f"k/{who}", b"")]) for who in range(64)))
    await store.close()

    assert len(file.commits) == 10
    assert store.revision == 640


async def test_those_who_ask_while_a_commit_is_under_way_share_the_next(file: WatchedFile) -> None:
    store = await store_over(file)
    file.may_write.clear()
    tasks = []
    for who in range(100):
        tasks.append(asyncio.ensure_future(store.txn([], [Put(f"k/{who}", b"")])))
        await asyncio.sleep(0)
    file.may_write.set()
    await asyncio.gather(*tasks)
    await store.close()

    assert len(file.commits) == 2


async def test_who_writes_with_others_waits_for_those_who_come_a_few_turns_later(file: WatchedFile) -> None:
    store = await store_over(file)
    await asyncio.gather(*(store.txn([], [Put(f"k/{who}", b"")]) for who in range(9)))
    tasks = []
    for who in range(8):
        tasks.append(asyncio.ensure_future(store.txn([], [Put(f"k/{who}", b"again")])))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    await asyncio.gather(*tasks)
    await store.close()

    assert [len(commit.records) for commit in file.commits] == [9, 8]


async def test_who_writes_with_others_waits_no_longer_than_until_as_many_are_there(file: WatchedFile) -> None:
    store = await store_over(file)
    await asyncio.gather(*(store.txn([], [Put(f"k/{who}", b"")]) for who in range(3)))
    file.writing.clear()
    tasks = []
    for who in range(6):
        tasks.append(asyncio.ensure_future(store.txn([], [Put(f"k/{who}", b"again")])))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        if who == 2:
            await until_writing(file)
    await asyncio.gather(*tasks)
    await store.close()

    assert [len(commit.records) for commit in file.commits] == [3, 3, 3]


async def test_newcomers_without_end_do_not_keep_a_write_from_the_disk(file: WatchedFile) -> None:
    store = await store_over(file)
    await asyncio.gather(*(store.txn([], [Put(f"k/{who}", b"")]) for who in range(GROUP_LIMIT)))
    first = asyncio.ensure_future(store.txn([], [Put("first", b"")]))
    others = []
    while not first.done():
        others.append(asyncio.ensure_future(store.txn([], [Put(f"k/{len(others)}", b"")])))
        assert len(others) < 100_000
        await asyncio.sleep(0)
    await asyncio.gather(*others)
    await store.close()

    assert "first" in file.commits[1].records
    assert len(file.commits[1].records) < GROUP_LIMIT


async def test_a_lone_writer_is_written_at_once(file: WatchedFile) -> None:
    store = await store_over(file)
    await store.txn([], [Put("a", b"")])
    writing = asyncio.ensure_future(store.txn([], [Put("b", b"")]))
    file.writing.clear()
    await asyncio.sleep(0)  # it asks
    await asyncio.sleep(0)  # its group is formed
    late = asyncio.ensure_future(store.txn([], [Put("c", b"")]))
    await asyncio.gather(writing, late)
    await store.close()

    assert [list(commit.records) for commit in file.commits] == [["a"], ["b"], ["c"]]


async def test_a_flood_is_cut_into_groups(file: WatchedFile) -> None:
    store = await store_over(file)
    await asyncio.gather(*(store.txn([], [Put(f"k/{who}", b"")]) for who in range(GROUP_LIMIT * 2 + 1)))
    await store.close()

    assert [len(commit.records) for commit in file.commits] == [GROUP_LIMIT, GROUP_LIMIT, 1]


async def test_nothing_is_seen_before_it_is_durable(file: WatchedFile) -> None:
    store = await store_over(file)
    file.may_write.clear()
    async with store.watch("", 0) as watch:
        writing = asyncio.ensure_future(store.txn([], [Put("a", b"")]))
        telling = asyncio.ensure_future(anext(aiter(watch)))
        await until_writing(file)

        assert (await store.get("a"), store.revision) == (None, 0)
        assert not writing.done()
        assert not telling.done()
        file.may_write.set()
        await writing
        await telling
    await store.close()


async def test_a_writer_that_gave_up_in_the_queue_writes_nothing(file: WatchedFile) -> None:
    store = await store_over(file)
    file.may_write.clear()
    first = asyncio.ensure_future(store.txn([], [Put("first", b"")]))
    await until_writing(file)
    second = asyncio.ensure_future(store.txn([], [Put("second", b"")]))
    await asyncio.sleep(0)
    second.cancel()
    file.may_write.set()
    await first
    await store.close()

    assert [item.key for commit in file.commits for item in commit.records.values() if item] == ["first"]


async def test_when_a_commit_fails_all_who_waited_for_it_are_told_and_the_state_stays(file: WatchedFile) -> None:
    store = await store_over(file)
    lease = await store.grant(10.0, now=0.0)
    await store.txn([], [Put("kept", b"old")])
    file.broken = True
    async with store.watch("", 1) as watch:
        results = await asyncio.gather(
            *(store.txn([], [Put("kept", b"%d" % who)]) for who in range(5)),
            store.txn([], []),
            store.revoke(lease),
            return_exceptions=True,
        )
        failed = await store.get("kept")
        file.broken = False
        again = await store.txn([], [Put("new", b"")])
        batch = await anext(aiter(watch))

    assert all(isinstance(result, StoreError) and "the disk is gone" in str(result) for result in results)
    assert failed is not None
    assert failed.value == b"old"
    assert again.revision == 2
    assert [change.key for change in batch] == ["new"]
    assert await store.keep_alive(lease, now=1.0)
    await store.close()


async def test_closing_over_a_broken_disk_ends(file: WatchedFile) -> None:
    store = await store_over(file)
    file.may_write.clear()
    file.broken = True
    writing = asyncio.ensure_future(store.txn([], [Put("a", b"")]))
    await asyncio.sleep(0)
    closing = asyncio.ensure_future(store.close())
    await asyncio.sleep(0)
    file.may_write.set()
    await asyncio.wait_for(closing, 10.0)

    with pytest.raises(StoreError):
        await writing


async def test_closing_answers_a_flood_that_changes_nothing(file: WatchedFile) -> None:
    store = await store_over(file)
    tasks = [asyncio.ensure_future(store.txn([], [])) for _ in range(GROUP_LIMIT * 4)]
    await asyncio.sleep(0)
    await asyncio.wait_for(store.close(), 10.0)

    assert all([(await asyncio.wait_for(task, 10.0)).succeeded for task in tasks])


async def test_an_operator_in_the_file_delays_a_write_and_no_read(tmp_path: Path) -> None:
    store = await open_store(f"sqlite://{tmp_path}/store.db")
    operator = sqlite3.connect(tmp_path / "store.db", isolation_level=None)
    operator.execute("BEGIN IMMEDIATE")
    writing = asyncio.ensure_future(store.txn([], [Put("a", b"")]))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(writing), 0.05)

    assert await store.get("a") is None
    operator.execute("ROLLBACK")
    assert (await writing).succeeded
    operator.close()
    await store.close()


async def test_closing_ends_the_writer_thread(tmp_path: Path) -> None:
    before = threading.active_count()
    store = await open_store(f"sqlite://{tmp_path}/store.db")
    await store.close()
    deadline = asyncio.get_running_loop().time() + 5.0
    while threading.active_count() > before:
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.001)
