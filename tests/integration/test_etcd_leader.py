"""Leaders in processes of their own over one real etcd: killed or frozen, each is followed within its lease.

Every leader writes its term into one key under its fence, as fast as it can. Whoever watches that key must never see
an older term behind a newer one.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from etcd import PrivateEtcd
from sexton.store.contract import Store
from sexton.store.opening import open_store

TTL = 3.0
LATE = 3.0
"""Seconds that etcd may take to notice the end of a lease, and a loaded machine to notice etcd."""

PATIENCE = 20.0

CANDIDATE = """
import asyncio, os, sys
from sexton.control.leader import Leadership
from sexton.store.contract import Put, StoreError
from sexton.store.opening import open_store

async def main(url, ttl):
    store = await open_store(url)
    leadership = Leadership(store, str(os.getpid()), ttl=float(ttl))
    leadership.listen(lambda term: print(f"leads {term.number}" if term else "deposed", flush=True))
    running = asyncio.ensure_future(leadership.run())
    print("stands", flush=True)
    while True:
        # Not asked whether it is sure: the fence alone must keep a late leader from writing.
        term = leadership._term
        if term is None:
            await leadership.changed()
            continue
        try:
            await store.txn([term.fence], [Put("term", b"%d" % term.number)])
        except StoreError:
            await asyncio.sleep(0.01)

asyncio.run(main(sys.argv[1], sys.argv[2]))
"""


class Candidate:
    """A process that wants to lead."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    async def says(self, word: str) -> list[str]:
        """Read on to the line that begins with this word."""
        assert self._process.stdout is not None
        async with asyncio.timeout(PATIENCE):
            while line := await self._process.stdout.readline():
                words = line.decode().split()
                if words[0] == word:
                    return words[1:]
        raise AssertionError(f"the candidate ended without saying {word!r}")

    async def end(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
        await self._process.communicate()


@asynccontextmanager
async def candidates(url: str, count: int) -> AsyncIterator[list[Candidate]]:
    """The first of them leads."""
    made: list[Candidate] = []
    try:
        for _ in range(count):
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-c", CANDIDATE, url, str(TTL), stdout=asyncio.subprocess.PIPE, env=dict(os.environ)
            )
            made.append(Candidate(process))
            await made[-1].says("stands" if len(made) > 1 else "leads")
        yield made
    finally:
        for one in made:
            await one.end()


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[PrivateEtcd]:
    with PrivateEtcd(tmp_path / "etcd") as etcd:
        yield etcd


async def terms(store: Store, seen: list[int]) -> None:
    async with store.watch("term", store.revision) as watch:
        async for batch in watch:
            assert batch[0].value is not None
            seen.append(int(batch[0].value))


async def first_of(*waiting: Candidate) -> tuple[Candidate, int]:
    """Who begins to lead, and its term."""
    tasks = {asyncio.ensure_future(one.says("leads")): one for one in waiting}
    done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    await asyncio.gather(*pending, return_exceptions=True)
    (winner,) = done
    return tasks[winner], int(winner.result()[0])


@pytest.mark.timeout(60)
async def test_a_killed_leader_is_followed_within_its_lease(etcd: PrivateEtcd) -> None:
    async with candidates(etcd.url, 3) as made:
        store = await open_store(etcd.url)
        seen: list[int] = []
        watching = asyncio.ensure_future(terms(store, seen))
        made[0].send(signal.SIGKILL)
        begun = time.monotonic()
        follower, first = await first_of(*made[1:])
        waited = time.monotonic() - begun
        follower.send(signal.SIGKILL)
        (last,) = [one for one in made[1:] if one is not follower]
        (second,) = await last.says("leads")
        async with asyncio.timeout(PATIENCE):
            while int(second) not in seen:
                await asyncio.sleep(0.01)
        watching.cancel()
        await store.close()

    assert waited <= TTL + LATE
    assert int(second) > first
    assert seen == sorted(seen)


@pytest.mark.timeout(60)
async def test_a_leader_that_stood_still_is_deposed_and_writes_nothing_more(etcd: PrivateEtcd) -> None:
    async with candidates(etcd.url, 2) as (leader, other):
        store = await open_store(etcd.url)
        seen: list[int] = []
        watching = asyncio.ensure_future(terms(store, seen))
        leader.send(signal.SIGSTOP)
        (number,) = await other.says("leads")
        async with asyncio.timeout(PATIENCE):
            while int(number) not in seen:
                await asyncio.sleep(0.01)
        leader.send(signal.SIGCONT)
        await leader.says("deposed")
        before = len(seen)
        async with asyncio.timeout(PATIENCE):
            while len(seen) < before + 50:
                await asyncio.sleep(0.01)
        watching.cancel()
        await store.close()

    assert seen == sorted(seen)
    assert seen[-1] == int(number)
