"""Everything that touches the disk: the lock, the file, reading it whole once, and writing one commit at a time.

All of it blocks, so all of it runs on the store's writer thread, which owns the connection. In flow commits;
out flow, at opening, the image of what is there. A commit is one SQLite transaction in the write-ahead log:
after a crash it is there whole or not at all.

A file belongs to one process: the image in memory is only true while nobody else writes. The claim is an
advisory lock on ``<path>.lock``, which the kernel drops when its holder dies, however it dies. The lock file
stays behind on purpose: removing it would let two processes lock two different files of that name.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Iterator
from functools import cache
from itertools import chain
from pathlib import Path

from sexton.store.contract import Damaged, Durability, InUse, KeyValue, StoreError
from sexton.store.image import Commit, Image, Lease
from sexton.store.sqlite import schema

BUSY_SECONDS = 5.0
"""How long a commit waits for an operator's own sqlite3 shell before it fails; longer would look like a hang."""

CACHE_KIB = 512
"""SQLite's page cache. Reads never come here, so it only has to hold the inner pages of the trees."""

LOG_LIMIT_BYTES = 8 * 1024 * 1024
"""The write-ahead log is cut to this after a checkpoint, or one burst would keep its disk space for ever."""

FEW = 16
"""So many records at most are written by one statement; each number of them is a statement that SQLite keeps ready."""


class StoreFile:
    """One store on disk, claimed by this process from ``open`` to ``close``."""

    def __init__(self, path: Path, durability: Durability) -> None:
        self._path = path
        self._durability = durability
        self._lock: int | None = None
        self._connection: sqlite3.Connection | None = None

    def open(self) -> Image:
        """Claim the file, bring its format up to date and read it; on failure nothing stays open or claimed."""
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = _claim(self._path)
            _make_private(self._path)
            return self._read(self._connect())
        except StoreError:
            self.close()
            raise
        except OSError as error:
            self.close()
            raise StoreError(
                f"cannot open {self._path}: {error.strerror}; it must be a file in a directory this process may "
                "write to, with space left"
            ) from error
        except (sqlite3.Error, UnicodeDecodeError) as error:
            self.close()
            kind = Damaged if _is_damage(error) else StoreError
            raise kind(
                f"cannot open {self._path}: {error}; move it aside to begin anew, or restore a backup"
            ) from error

    def write(self, commit: Commit) -> None:
        """Make one commit durable, or leave the file as it was and raise."""
        connection = self._connection
        if connection is None:
            raise StoreError(f"cannot write to {self._path}: it is closed; open the store again")
        try:
            written = [record for record in commit.records.values() if record is not None]
            if 0 < len(written) == len(commit.records) <= FEW and not commit.leases:
                # The usual commit is one statement, a transaction by itself. Each statement waits for its turn
                # among the process's threads, twice: with five of them that was most of what a commit took.
                connection.execute(_upsert(len(written)), list(chain.from_iterable(written)))
                return
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany("DELETE FROM records WHERE key = ?", _removed(commit))
            connection.executemany(_upsert(1), written)
            for lease, state in commit.leases.items():
                if state is None:
                    connection.execute("DELETE FROM leases WHERE id = ?", (lease,))
                else:
                    connection.execute("INSERT OR REPLACE INTO leases VALUES (?, ?, ?)", (lease, *state))
            connection.execute("UPDATE progress SET revision = ?, last_lease = ?", (commit.revision, commit.last_lease))
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            # SQLite has rolled back by itself after the worst of them; the others leave the transaction to us.
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise StoreError(
                f"cannot write to {self._path}: {error}; nothing of it was kept, make sure the disk has space and "
                "works, then try again"
            ) from error

    def close(self) -> None:
        """Let go of the file. Closing the connection folds the write-ahead log back into it."""
        connection, self._connection = self._connection, None
        lock, self._lock = self._lock, None
        try:
            if connection is not None:
                connection.close()
        finally:
            if lock is not None:
                os.close(lock)

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, timeout=BUSY_SECONDS, isolation_level=None)
        self._connection = connection
        version = schema.check(connection, str(self._path))
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {self._durability.value.upper()}")
        connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        connection.execute(f"PRAGMA journal_size_limit = {LOG_LIMIT_BYTES}")
        schema.migrate(connection, version)
        return connection

    def _read(self, connection: sqlite3.Connection) -> Image:
        for (finding,) in connection.execute("PRAGMA quick_check(1)"):
            if finding != "ok":
                found = " ".join(finding.split())
                raise Damaged(
                    f"cannot open {self._path}: damaged, {found}; move it aside to begin anew, or restore a backup"
                )
        # What only writes records leaves no trace in "progress": the largest revision is one that a record has.
        (revision, last_lease) = connection.execute(
            "SELECT max(revision, (SELECT coalesce(max(mod_revision), 0) FROM records)), last_lease FROM progress"
        ).fetchone()
        leases = {
            lease: Lease(ttl, ends) for lease, ttl, ends in connection.execute("SELECT id, ttl, ends FROM leases")
        }
        rows = connection.execute("SELECT key, value, create_revision, mod_revision, lease FROM records")
        return Image(map(KeyValue._make, rows), leases, revision, last_lease)


def _is_damage(error: Exception) -> bool:
    """Whether the file itself is at fault, not the disk, its mode or somebody who holds it."""
    if isinstance(error, sqlite3.Error):
        code = getattr(error, "sqlite_errorcode", None)
        # A table that should be there and is not has no code of its own.
        return code is None or code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR)
    return True


def _claim(path: Path) -> int:
    """Lock the file for this process, saying in the lock file who we are."""
    lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.read(lock, 32).decode(errors="replace").strip() or "unknown"
        os.close(lock)
        raise InUse(
            f"cannot open {path}: process {holder} is using it; stop that process or give this one another path"
        ) from None
    except OSError:
        os.close(lock)
        raise
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    return lock


def _make_private(path: Path) -> None:
    """Only the owner may read it, also when a backup was restored with a wider mode; SQLite's side files follow it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.fchmod(descriptor, 0o600)
    finally:
        os.close(descriptor)


def _removed(commit: Commit) -> Iterator[tuple[str]]:
    return ((key,) for key, record in commit.records.items() if record is None)


@cache
def _upsert(count: int) -> str:
    """The statement that writes so many records."""
    places = ", ".join(["(?, ?, ?, ?, ?)"] * count)
    return f"""
        INSERT INTO records (key, value, create_revision, mod_revision, lease)
        VALUES {places}
        ON CONFLICT (key) DO UPDATE SET value = excluded.value, create_revision = excluded.create_revision,
            mod_revision = excluded.mod_revision, lease = excluded.lease
    """  # noqa: S608 - nothing but question marks is put in
