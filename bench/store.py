"""Writes a second through the store, beside the floor: a bare sqlite3 loop with the same commits.

The floor does in one thread, with no event loop, no conditions, no watch and no image, what the store's file
sees: with one writer a commit per write, with N writers a commit per N writes. Below that is the disk: how often a
second it makes eight kilobytes durable, about what a small commit writes. With an etcd at hand the same writes go
through one as well, whose floor is one client that puts a value whenever the one before is there. Reads and memory
are printed too, over as many records as a large control plane holds.

Run: ``python -m bench.store``
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gc
import http.client
import json
import os
import shutil
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from etcd import PrivateEtcd
from sexton.store.contract import Durability, Put, Store
from sexton.store.opening import open_store

VALUE = b"x" * 800
WRITERS = (1, 4, 64)
SECONDS = 2.0
RECORDS = 100_000


def floor(path: Path, durability: Durability, group: int, seconds: float = SECONDS) -> float:
    """Writes a second of the bare loop."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(f"PRAGMA synchronous = {durability.value.upper()}")
    connection.execute("CREATE TABLE records (key TEXT PRIMARY KEY, value BLOB, created INT, modified INT, lease INT)")
    written = 0
    began = time.perf_counter()
    while (took := time.perf_counter() - began) < seconds:
        connection.execute("BEGIN IMMEDIATE")
        rows = [(f"w/{writer}/{written % 1000}", VALUE, written, written, 0) for writer in range(group)]
        connection.executemany("INSERT OR REPLACE INTO records VALUES (?, ?, ?, ?, ?)", rows)
        connection.execute("COMMIT")
        written += group
    connection.close()
    return written / took


def bare_syncs(path: Path, seconds: float = 1.0) -> float:
    """How often a second the disk makes two pages durable that are written over others of the same file."""
    size, pages = 4 * 1024 * 1024, b"x" * 8192
    with path.open("w+b", buffering=0) as file:
        file.write(bytes(size))
        os.fsync(file.fileno())
        done = 0
        began = time.perf_counter()
        while (took := time.perf_counter() - began) < seconds:
            os.pwrite(file.fileno(), pages, done * len(pages) % size)
            os.fdatasync(file.fileno())
            done += 1
    return done / took


async def writes(store: Store, writers: int, seconds: float = SECONDS) -> tuple[float, float]:
    """Writes a second through the store, and the median time of one in microseconds."""
    latencies: list[float] = []
    began = time.perf_counter()

    async def write(writer: int) -> None:
        turn = 0
        while (asked := time.perf_counter()) - began < seconds:
            await store.txn([], [Put(f"w/{writer}/{turn % 1000}", VALUE)])
            latencies.append(time.perf_counter() - asked)
            turn += 1

    await asyncio.gather(*(write(writer) for writer in range(writers)))
    took = time.perf_counter() - began
    return len(latencies) / took, statistics.median(latencies) * 1e6


async def compare_writes(directory: Path) -> Iterator[str]:
    lines = []
    for durability in Durability:
        for writers in WRITERS:
            name = f"{durability.value}-{writers}"
            bare = floor(directory / f"floor-{name}.db", durability, writers)
            store = await open_store(f"sqlite://{directory}/store-{name}.db", durability=durability)
            rate, median = await writes(store, writers)
            await store.close()
            lines.append(
                f"{durability.value:>6} {writers:>3} writers: {rate:>8,.0f} writes/s, {median:>6,.0f} us each; "
                f"floor {bare:>8,.0f} writes/s ({rate / bare:.0%})"
            )
    return iter(lines)


def bare_puts(port: int, seconds: float = SECONDS) -> float:
    """How many values a second one client of etcd puts, one after the other."""
    key, value = (base64.b64encode(one).decode() for one in (b"bare", VALUE))
    body = json.dumps({"key": key, "value": value})
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    with contextlib.closing(connection):
        done = 0
        began = time.perf_counter()
        while (took := time.perf_counter() - began) < seconds:
            connection.request("POST", "/v3/kv/put", body)
            connection.getresponse().read()
            done += 1
    return done / took


async def over_etcd(directory: Path) -> list[str]:
    """The same writes over a real etcd on this disk."""
    if shutil.which("etcd") is None:
        return []
    lines = []
    with PrivateEtcd(directory / "etcd") as etcd:
        puts = bare_puts(etcd.members[0].port)
        for writers in WRITERS:
            store = await open_store(etcd.url)
            rate, median = await writes(store, writers)
            await store.close()
            lines.append(
                f"  etcd {writers:>3} writers: {rate:>8,.0f} writes/s, {median:>6,.0f} us each; "
                f"one bare client {puts:,.0f} puts/s"
            )
    return lines


async def large_store(directory: Path) -> Iterator[str]:
    url = f"sqlite://{directory}/large.db"
    store = await open_store(url, durability=Durability.NORMAL)
    for first in range(0, RECORDS, 1000):
        await store.txn([], [Put(f"task/{number:06}", VALUE) for number in range(first, first + 1000)])
    await store.close()

    gc.collect()
    before = resident_kib()
    began = time.perf_counter()
    store = await open_store(url, durability=Durability.NORMAL)
    opened = time.perf_counter() - began
    memory = resident_kib() - before

    began = time.perf_counter()
    for number in range(RECORDS):
        await store.get(f"task/{number:06}")
    got = (time.perf_counter() - began) / RECORDS
    began = time.perf_counter()
    for number in range(0, RECORDS, 100):
        await store.range(f"task/{number // 100:04}", limit=100)
    ranged = (time.perf_counter() - began) / (RECORDS / 100)
    rate, _ = await writes(store, 64, seconds=1.0)
    await store.close()
    return iter(
        [
            f"{RECORDS:,} records of {len(VALUE)} bytes: opened in {opened:.2f} s, {memory / 1024:.0f} MB resident",
            f"{RECORDS:,} records: get {got * 1e6:.2f} us, range of 100 {ranged * 1e6:.0f} us, "
            f"64 writers {rate:,.0f} writes/s (normal)",
        ]
    )


def resident_kib() -> int:
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:"))


async def main() -> None:
    with tempfile.TemporaryDirectory(prefix="sexton-bench-") as directory:
        print(f"the disk: {bare_syncs(Path(directory) / 'bare'):,.0f} times a second 8 KiB made durable")
        for line in await compare_writes(Path(directory)):
            print(line)
        print(f"the disk: {bare_syncs(Path(directory) / 'bare'):,.0f} times a second 8 KiB made durable")
        for line in await over_etcd(Path(directory)):
            print(line)
        for line in await large_store(Path(directory)):
            print(line)


if __name__ == "__main__":
    asyncio.run(main())
