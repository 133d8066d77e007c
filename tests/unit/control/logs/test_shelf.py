"""The shelf gives back what it was given, over seals, merges, restarts, kills at any point, and within its bound."""

from __future__ import annotations

import asyncio
import shutil
import threading
from contextlib import asynccontextmanager

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sexton.control.logs import group as group_module
from sexton.control.logs import tails
from sexton.control.logs.formats import GroupRecord
from sexton.control.logs.group import Gone
from sexton.control.logs.shelf import Shelf
from sexton.core.logpage import Wanted

DAY = 24 * 3600 * 1000
NOW = 1_800_000_000.0


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def shelf_at(folder, bound=1 << 30, clock=None):
    shelf = Shelf(folder, bound, clock or Clock())
    await shelf.open()
    try:
        yield shelf
    finally:
        await shelf.close()


async def stream_of(shelf, name="s", group="/g"):
    await shelf.create("r", GroupRecord(name=group, created=1))
    found = shelf.get("r", group)
    await found.create_stream(name, 1)
    return found, found.streams[name]


async def texts(group, **fields):
    return [one.text for one in (await group.page(Wanted(**fields))).events]


@pytest.fixture
def small_tails(monkeypatch):
    monkeypatch.setattr(tails, "MOST_BYTES", 2000)
    monkeypatch.setattr(tails, "MOST_FRAMES", 5)
    monkeypatch.setattr(group_module, "MERGED_AT", 3)


actions = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 2), st.lists(st.integers(0, 50), min_size=1, max_size=20)),
        st.tuples(st.just("long"), st.integers(0, 2), st.lists(st.integers(0, 50), min_size=1, max_size=3)),
        st.sampled_from([("seal",), ("restart",), ("kill",), ("delete", 0), ("delete", 1)]),
    ),
    max_size=25,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(actions)
def test_whatever_happens_the_lines_are_those_that_were_put(tmp_path_factory, small_tails, actions):
    asyncio.run(live(tmp_path_factory.mktemp("shelf"), actions))


@asynccontextmanager
async def standing_still(shelf):
    """Between two jobs of each thread."""
    go_on, begun = threading.Event(), [threading.Event(), threading.Event()]

    def hold(started):
        started.set()
        go_on.wait(10)

    for pool, started in zip((shelf._workers.writer, shelf._workers.sealer), begun, strict=True):
        pool.submit(hold, started)
        await asyncio.to_thread(started.wait, 10)
    try:
        yield
    finally:
        go_on.set()


async def live(root, actions):
    folder, life = root / "0", 0
    shelf = Shelf(folder, 1 << 30, Clock())
    await shelf.open()
    try:
        model: dict[str, list[tuple[int, int, str]]] = {}
        count = 0
        await shelf.create("r", GroupRecord(name="/g", created=1))
        for action in actions:
            group = shelf.get("r", "/g")
            match action:
                case ("put" | "long", number, stamps):
                    name = f"s{number}"
                    if name not in group.streams:
                        await group.create_stream(name, 1)
                    stamps = sorted(stamps)
                    rows = []
                    for stamp in stamps:
                        count += 1
                        rows.append((stamp, count, f"{count} " + "x" * (500 if action[0] == "long" else 3)))
                    await group.put(group.streams[name], stamps, [row[2] for row in rows], 1, "")
                    shelf.written(group)
                    model.setdefault(name, []).extend(rows)
                case ("seal",):
                    await group.seal_all()
                case ("delete", number):
                    await group.delete_stream(f"s{number}")
                    model.pop(f"s{number}", None)
                case ("restart" | "kill" as how,):
                    life += 1
                    if how == "kill":  # what another process would find at this moment
                        async with standing_still(shelf):
                            shutil.copytree(folder, root / str(life))
                        folder = root / str(life)
                    await shelf.close()
                    shelf = Shelf(folder, 1 << 30, Clock())
                    await shelf.open()
        group = shelf.get("r", "/g")
        expected = sorted(row for rows in model.values() for row in rows)
        assert await texts(group) == [row[2] for row in expected]
        for name, rows in model.items():
            one = frozenset((group.streams[name].id,))
            assert await texts(group, streams=one) == [row[2] for row in sorted(rows)]
            assert (group.streams[name].first, group.streams[name].last) == (min(rows)[0], max(rows)[0])
    finally:
        await shelf.close()


async def test_a_batch_that_names_itself_is_taken_once_even_after_a_restart(tmp_path):
    async with shelf_at(tmp_path) as shelf:
        group, stream = await stream_of(shelf)
        await group.put(stream, [1], ["a"], 1, "sexton:x:1")
        await group.put(stream, [1], ["a"], 1, "sexton:x:1")
        await group.put(stream, [2], ["b"], 1, "sexton:x:2")
        await group.put(stream, [3], ["c"], 1, "49")
        await group.put(stream, [3], ["c"], 1, "49")  # a token of the service's kind says nothing
        await group.put(stream, [4], ["d"], 1, "sexton:x:3")
    for sealed in (False, True):
        async with shelf_at(tmp_path) as shelf:
            group = shelf.get("r", "/g")
            await group.put(group.streams["s"], [4], ["d"], 1, "sexton:x:3")
            assert await texts(group) == ["a", "b", "c", "c", "d"], sealed
            await group.seal_all()


async def test_lines_that_are_older_than_the_group_keeps_leave_with_their_streams(tmp_path):
    clock = Clock()
    now = int(NOW * 1000)
    async with shelf_at(tmp_path, clock=clock) as shelf:
        await shelf.create("r", GroupRecord(name="/g", created=1, retention_days=1))
        group = shelf.get("r", "/g")
        for name, stamp in (("old", now), ("new", now + DAY)):
            await group.create_stream(name, 1)
            await group.put(group.streams[name], [stamp], [name], now, "")
            await group.seal_all()
        clock.now += 1.5 * 24 * 3600
        await shelf.sweep()

        assert await texts(group) == ["new"]
        assert list(group.streams) == ["new"] and len(group.segments) == 1
    async with shelf_at(tmp_path, clock=clock) as shelf:
        assert list(shelf.get("r", "/g").streams) == ["new"]


async def test_the_oldest_leave_when_the_shelf_is_full(tmp_path, monkeypatch):
    import random

    monkeypatch.setattr(tails, "MOST_BYTES", 40_000)
    draw = random.Random(1)
    async with shelf_at(tmp_path, bound=200_000) as shelf:
        group, stream = await stream_of(shelf)
        for number in range(100):
            text = f"{number:03} " + draw.randbytes(5000).hex()
            await group.put(stream, [number], [text], number, "")
            shelf.written(group)
            await asyncio.sleep(0)
        await group.tidy()
        await shelf.keep_bound()

        kept = [text[:3] for text in await texts(group, characters=10**9)]
        assert shelf.size <= 200_000
        assert kept == [f"{number:03}" for number in range(100 - len(kept), 100)] and len(kept) > 10


async def test_what_was_deleted_is_gone_from_the_disk_and_takes_nothing_more(tmp_path):
    async with shelf_at(tmp_path) as shelf:
        group, stream = await stream_of(shelf)
        await group.put(stream, [1], ["a"], 1, "")
        assert await shelf.delete("r", "/g") and not await shelf.delete("r", "/g")
        with pytest.raises(Gone):
            await group.put(stream, [1], ["a"], 1, "")
        with pytest.raises(Gone):
            await group.create_stream("t", 1)
        assert list((tmp_path / "r").iterdir()) == []
        group, stream = await stream_of(shelf)
        assert await texts(group) == []


async def test_what_a_crash_left_of_a_seal_a_merge_and_a_deletion_is_removed(tmp_path, small_tails):
    async with shelf_at(tmp_path) as shelf:
        group, stream = await stream_of(shelf)
        folder = group.folder
        for number in range(3):
            await group.put(stream, [number], [f"{number}"], 1, "")
            before = {path.name: path.read_bytes() for path in folder.iterdir()}
            await group.seal_all()
            assert len(group.segments) == (1 if number == 2 else number + 1)
    for name, data in before.items():  # the files that the last seal and the merge had not removed yet
        (folder / name).write_bytes(data)
    (folder / "0-1.draft").write_bytes(b"half")
    (tmp_path / "r" / ".trash-1").mkdir()
    async with shelf_at(tmp_path) as shelf:
        assert await texts(shelf.get("r", "/g")) == ["0", "1", "2"]
        names = sorted(path.suffix for path in folder.iterdir())
        assert names == [".json", ".log", ".seg"]
        assert not (tmp_path / "r" / ".trash-1").exists()


async def test_a_damaged_segment_costs_itself_and_is_kept_for_who_looks(tmp_path):
    async with shelf_at(tmp_path) as shelf:
        group, stream = await stream_of(shelf)
        for number in range(2):
            await group.put(stream, [number], [f"{number}"], 1, "")
            await group.seal_all()
        first = group.segments[0].path
    first.write_bytes(first.read_bytes()[:-5])
    async with shelf_at(tmp_path) as shelf:
        assert await texts(shelf.get("r", "/g")) == ["1"]
        assert first.with_suffix(".damaged").exists()


async def test_the_journal_of_streams_is_written_anew_when_most_are_gone(tmp_path, monkeypatch):
    monkeypatch.setattr(group_module, "SPARE_RECORDS", 10)
    async with shelf_at(tmp_path) as shelf:
        group, _ = await stream_of(shelf)
        for number in range(30):
            await group.create_stream(f"t{number}", 1)
            await group.delete_stream(f"t{number}")
        last = group._last_id
        journal = group.folder / "streams.log"
        before = journal.stat().st_size
    async with shelf_at(tmp_path) as shelf:
        group = shelf.get("r", "/g")
        assert journal.stat().st_size < before / 5
        assert list(group.streams) == ["s"]
        await group.create_stream("u", 1)
        assert group.streams["u"].id == last + 1
    async with shelf_at(tmp_path) as shelf:
        assert sorted(shelf.get("r", "/g").streams) == ["s", "u"]
