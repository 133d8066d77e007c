"""The format of the store's file: numbered steps, each taken once, in a transaction with the number it leads to.

A file is ours when it carries our application id, and current when its number is the count of the steps. An
empty file is where the first step begins. A file from a newer Sexton is refused, never guessed at. A step that
has been released is never edited: a change of format is a new step at the end.
"""

from __future__ import annotations

import sqlite3

from sexton.store.contract import StoreError

APPLICATION_ID = 0x53585453
"""Marks the file as a Sexton store ("SXTS"), for us and for file(1)."""

STEPS: tuple[tuple[str, ...], ...] = (
    (
        """
        CREATE TABLE records (
            key TEXT NOT NULL PRIMARY KEY,
            value BLOB NOT NULL,
            create_revision INTEGER NOT NULL,
            mod_revision INTEGER NOT NULL,
            lease INTEGER NOT NULL
        )
        """,
        "CREATE TABLE leases (id INTEGER PRIMARY KEY, ttl REAL NOT NULL, ends REAL NOT NULL)",
        # The counters outlive the rows they were counted for: neither a revision nor a lease is ever used twice.
        "CREATE TABLE progress (revision INTEGER NOT NULL, last_lease INTEGER NOT NULL)",
        "INSERT INTO progress VALUES (0, 0)",
    ),
    # From here on the revision in "progress" is only a lower bound: one that a record has may be larger.
    (),
)


def check(connection: sqlite3.Connection, path: str) -> int:
    """The number of the file's format. Reads only, so that a file that is not ours stays as it is."""
    owner = _number(connection, "PRAGMA application_id")
    version = _number(connection, "PRAGMA user_version")
    tables = _number(connection, "SELECT count(*) FROM sqlite_master")
    if owner != APPLICATION_ID and (owner or version or tables):
        raise StoreError(f"cannot open {path}: it is another program's database; give the store a path of its own")
    if version > len(STEPS):
        raise StoreError(
            f"cannot open {path}: its format is version {version} and this Sexton knows versions up to {len(STEPS)}; "
            "install the Sexton that wrote it, or restore a backup from before that one ran"
        )
    return version


def migrate(connection: sqlite3.Connection, version: int) -> None:
    """Take the steps the file has not had."""
    for number, statements in enumerate(STEPS[version:], start=version + 1):
        connection.execute("BEGIN IMMEDIATE")
        for statement in statements:
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {number}")
        connection.execute("COMMIT")


def _number(connection: sqlite3.Connection, statement: str) -> int:
    (value,) = connection.execute(statement).fetchone()
    return int(value)
