"""Which files the store opens, which it refuses and with what advice, and how it leaves them."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import stat
from pathlib import Path

import pytest

from sexton.store.contract import Durability, KeyValue, Put, StoreError
from sexton.store.image import Commit, Image, Lease
from sexton.store.opening import open_store
from sexton.store.sqlite import schema
from sexton.store.sqlite.file import FEW, StoreFile


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


def commit_of(*keys: str, revision: int = 1) -> Commit:
    return Commit({key: KeyValue(key, b"", revision, revision) for key in keys}, {}, revision, 0, ())


def written(path: Path, *keys: str) -> Path:
    """A store's file with these keys, closed."""
    file = StoreFile(path, Durability.FULL)
    file.open()
    file.write(commit_of(*keys))
    file.close()
    return path


def opened(path: Path) -> Image:
    file = StoreFile(path, Durability.FULL)
    try:
        return file.open()
    finally:
        file.close()


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_all_it_makes_is_for_its_owner_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        path = tmp_path / "made" / "store.db"
        file = StoreFile(path, Durability.FULL)
        file.open()
        file.write(commit_of("a"))
        modes = {entry.name: mode(entry) for entry in path.parent.iterdir()}
        file.close()
    finally:
        os.umask(before)

    assert mode(path.parent) == 0o700
    assert set(modes) >= {"store.db", "store.db.lock", "store.db-wal"}
    assert set(modes.values()) == {0o600}


def test_a_file_restored_with_a_wide_mode_is_made_private(path: Path) -> None:
    written(path, "a").chmod(0o644)
    opened(path)

    assert mode(path) == 0o600


def test_closing_leaves_one_file_and_the_lock(path: Path) -> None:
    written(path, "a")

    assert sorted(entry.name for entry in path.parent.iterdir()) == ["store.db", "store.db.lock"]


def test_the_file_says_whose_it_is_and_in_which_format(path: Path) -> None:
    with sqlite3.connect(written(path)) as connection:
        owner = connection.execute("PRAGMA application_id").fetchone()
        version = connection.execute("PRAGMA user_version").fetchone()
    connection.close()

    assert (owner, version) == ((schema.APPLICATION_ID,), (len(schema.STEPS),))


def test_a_file_left_empty_by_a_crash_at_its_making_is_begun_anew(path: Path) -> None:
    path.touch()

    assert opened(path).revision == 0


def test_a_file_from_a_newer_sexton_is_refused_and_left_alone(path: Path) -> None:
    connection = sqlite3.connect(written(path, "a"))
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    before = path.read_bytes()

    with pytest.raises(StoreError, match=rf"version 99 .* up to {len(schema.STEPS)}; install"):
        opened(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("mark", ["CREATE TABLE theirs (x)", "PRAGMA application_id = 7", "PRAGMA user_version = 1"])
def test_another_programs_database_is_refused_and_left_alone(path: Path, mark: str) -> None:
    connection = sqlite3.connect(path)
    connection.execute(mark)
    connection.close()
    before = path.read_bytes()

    with pytest.raises(StoreError, match="another program's database; give the store a path of its own"):
        opened(path)
    assert path.read_bytes() == before


def test_a_file_that_is_no_database_is_refused_and_left_alone(path: Path) -> None:
    path.write_bytes(b"not a database" * 1000)

    with pytest.raises(StoreError, match=r"cannot open .*store\.db: file is not a database; move it aside"):
        opened(path)
    assert path.read_bytes() == b"not a database" * 1000


@pytest.mark.parametrize("part", ["records", "sqlite_autoindex_records_1"])
def test_a_damaged_file_is_refused_even_where_reading_it_would_not_notice(path: Path, part: str) -> None:
    written(path, *(f"key/{number}" for number in range(2000)))
    connection = sqlite3.connect(path)
    (page,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (part,)).fetchone()
    (size,) = connection.execute("PRAGMA page_size").fetchone()
    connection.close()
    damaged = bytearray(path.read_bytes())
    damaged[(page - 1) * size : page * size] = b"\xff" * size
    path.write_bytes(damaged)

    with pytest.raises(StoreError, match=r"cannot open .*; move it aside to begin anew, or restore a backup"):
        opened(path)


@pytest.mark.parametrize("place", ["directory", "file/store.db", "loop"])
def test_a_path_that_cannot_be_written_is_refused_with_the_reason(tmp_path: Path, place: str) -> None:
    (tmp_path / "directory").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")

    with pytest.raises(StoreError, match=r"cannot open .*; it must be a file in a directory this process may write"):
        opened(tmp_path / place)


def test_a_second_opening_is_refused_until_the_first_closes(path: Path) -> None:
    first = StoreFile(path, Durability.FULL)
    first.open()

    with pytest.raises(StoreError, match=f"process {os.getpid()} is using it"):
        opened(path)
    first.write(commit_of("a"))
    first.close()
    assert len(opened(path)) == 1


def test_a_refused_opening_claims_nothing(path: Path) -> None:
    path.write_bytes(b"not a database" * 1000)
    with pytest.raises(StoreError):
        opened(path)
    path.unlink()

    assert opened(path).revision == 0


def test_a_commit_that_fails_leaves_the_file_as_it_was_and_usable(path: Path) -> None:
    file = StoreFile(path, Durability.FULL)
    file.open()
    spoiled = commit_of("a")
    with pytest.raises(StoreError, match="nothing of it was kept"):
        file.write(spoiled._replace(records={**spoiled.records, "b": KeyValue("b", [], 1, 1)}))  # type: ignore[arg-type]
    file.write(commit_of("c"))
    file.close()

    assert [record.key for record in opened(path).range("", "", 0).items] == ["c"]


def put(key: str, revision: int) -> KeyValue:
    return KeyValue(key, b"%d" % revision, revision, revision)


def test_the_revision_is_known_again_whatever_the_last_commit_did(path: Path) -> None:
    """What only writes records is kept without counting, so the count must be found in the records."""
    few = {key: put(key, 3) for key in ("a", "b")}
    many = {f"k/{number:03}": put(f"k/{number:03}", 5) for number in range(FEW + 1)}
    story = [
        (Commit({"a": put("a", 1)}, {}, 1, 0, ()), 1, 0),
        (Commit(few, {}, 3, 0, ()), 3, 0),
        (Commit({"a": None, "b": put("b", 4)}, {}, 4, 0, ()), 4, 0),
        (Commit(many, {}, 5, 0, ()), 5, 0),
        (Commit(dict.fromkeys([*many, "b"]), {}, 6, 0, ()), 6, 0),
        (Commit({}, {7: Lease(1.0, 2.0)}, 6, 7, ()), 6, 7),
        (Commit({"c": put("c", 9)}, {}, 9, 7, ()), 9, 7),
    ]
    here: dict[str, KeyValue] = {}
    for commit, revision, lease in story:
        file = StoreFile(path, Durability.FULL)
        file.open()
        file.write(commit)
        file.close()
        here = {key: record for key, record in {**here, **commit.records}.items() if record is not None}
        found = opened(path)

        assert (found.revision, found.last_lease) == (revision, lease)
        assert {record.key: record for record in found.range("", "", 0).items} == here


def test_a_file_of_the_first_format_is_taken_over(path: Path) -> None:
    connection = sqlite3.connect(path)
    for statement in schema.STEPS[0]:
        connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {schema.APPLICATION_ID}")
    connection.execute("PRAGMA user_version = 1")
    connection.execute("INSERT INTO records VALUES ('a', x'31', 2, 2, 0)")
    connection.execute("UPDATE progress SET revision = 5, last_lease = 3")
    connection.commit()
    connection.close()

    found = opened(path)

    assert (found.revision, found.last_lease, len(found)) == (5, 3, 1)


@pytest.mark.parametrize(("durability", "level"), [(Durability.FULL, 2), (Durability.NORMAL, 1)])
def test_durability_is_what_was_asked_for(path: Path, durability: Durability, level: int) -> None:
    file = StoreFile(path, durability)
    file.open()
    # No ordinary observer can tell before the power is cut: SQLite's own word has to do.
    assert file._connection is not None
    answer = file._connection.execute("PRAGMA synchronous").fetchone()
    file.close()

    assert answer == (level,)


async def test_an_opening_that_was_cancelled_claims_nothing(path: Path) -> None:
    opening = asyncio.ensure_future(open_store(f"sqlite://{path}"))
    await asyncio.sleep(0)
    opening.cancel()
    await asyncio.wait([opening])
    deadline = asyncio.get_running_loop().time() + 10.0
    while True:
        try:
            store = await open_store(f"sqlite://{path}")
            break
        except StoreError:
            assert asyncio.get_running_loop().time() < deadline
            await asyncio.sleep(0.005)
    await store.txn([], [Put("a", b"")])
    await store.close()
