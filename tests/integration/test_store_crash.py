"""What is left of a store when its process is killed at any instant, or its disk fills up.

The writers are processes of their own, killed with SIGKILL. Each transaction n writes its number into slot
n modulo SLOTS and under "last", so the whole state is known from the last number alone: whatever survives a
crash must be exactly the state after some transaction, and not before the last that was acknowledged.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sexton.store.contract import Durability, StoreError
from sexton.store.opening import open_store

ROUNDS = 100 if os.environ.get("SEXTON_SOAK") == "1" else 15
# Start-up takes a quarter of a second and more: in the long form most deaths come while it writes.
LONGEST = 1.2 if ROUNDS == 100 else 0.6
SLOTS = 500
WRITERS = 16

WRITE_FOR_EVER = """
import asyncio, itertools, os, sys
from sexton.store.contract import Durability, Put
from sexton.store.opening import open_store

async def main(url, durability, slots, writers):
    store = await open_store(url, durability=Durability(durability))
    last = await store.get("last")
    numbers = itertools.count(int(last.value) + 1 if last else 1)

    async def write():
        while True:
            number = next(numbers)
            text = b"%d" % number
            await store.txn([], [Put(f"slot/{number % slots}", text), Put("last", text)])
            os.write(1, text + b"\\n")

    await asyncio.gather(*(write() for _ in range(writers)))

asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
"""

HOLD = """
import asyncio, sys
from sexton.store.contract import Put
from sexton.store.opening import open_store

async def main(url):
    store = await open_store(url)
    await store.txn([], [Put("held", b"")])
    print("held", flush=True)
    await asyncio.Event().wait()

asyncio.run(main(sys.argv[1]))
"""

FILL_THE_DISK = """
import asyncio, json, os, sys
from sexton.store.contract import Put, StoreError
from sexton.store.opening import open_store

async def main(directory):
    url = f"sqlite://{directory}/store.db"
    ballast = f"{directory}/ballast"
    store = await open_store(url)
    await store.txn([], [Put("first", b"kept")])
    written = 0
    with open(ballast, "wb", buffering=0) as file:
        try:
            while True:
                written += file.write(bytes(4096))
        except OSError:
            pass
    refusals = []
    while not refusals:
        before = store.revision
        writes = [store.txn([], [Put(f"k/{before}/{who}", bytes(2000))]) for who in range(8)]
        results = await asyncio.gather(*writes, return_exceptions=True)
        refusals = [str(result) for result in results if isinstance(result, StoreError)]
    state = await store.range("")
    still = {
        "refusals": refusals,
        "revision_stays": store.revision == before,
        "first": (await store.get("first")).value.decode(),
        "shows_refused": any(item.key.startswith(f"k/{before}/") for item in state.items),
    }
    os.unlink(ballast)
    still["writes_again"] = (await store.txn([], [Put("after", b"")])).revision == before + 1
    state = await store.range("")
    await store.close()
    again = await open_store(url)
    still["same_when_reopened"] = await again.range("") == state
    await again.close()
    print(json.dumps(still))

asyncio.run(main(sys.argv[1]))
"""


@contextmanager
def running(program: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", program, *arguments], stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def acknowledged_until_killed(process: subprocess.Popen[bytes], after: float) -> tuple[int, float]:
    """Kill the writer after so many seconds; the highest number it printed in full, or 0, and for how long it wrote."""
    assert process.stdout is not None
    ends = time.monotonic() + after
    wrote = 0.0
    printed = bytearray()
    os.set_blocking(process.stdout.fileno(), False)
    while (left := ends - time.monotonic()) > 0:
        # Drained all the while, or the writer would stand still at a full pipe instead of being killed at work.
        printed += process.stdout.read(1 << 20) or b""
        if printed and not wrote:
            wrote = time.monotonic()
        time.sleep(min(left, 0.002))
    process.send_signal(signal.SIGKILL)
    process.wait()
    seconds = time.monotonic() - wrote if wrote else 0.0
    os.set_blocking(process.stdout.fileno(), True)
    printed += process.stdout.read()
    complete = bytes(printed).rpartition(b"\n")[0].split()
    return max((int(number) for number in complete), default=0), seconds


def syncs_of_the_disk(path: Path, seconds: float = 0.5) -> float:
    """How often a second it makes two pages durable, which bounds what commits there can be: each has one sync."""
    with path.open("w+b", buffering=0) as file:
        file.write(bytes(1 << 20))
        os.fsync(file.fileno())
        done = 0
        began = time.monotonic()
        while (took := time.monotonic() - began) < seconds:
            os.pwrite(file.fileno(), b"x" * 8192, done * 8192 % (1 << 20))
            os.fdatasync(file.fileno())
            done += 1
    return done / took


def state_after(last: int) -> dict[str, bytes]:
    """The whole state when transaction ``last`` was the last to happen."""
    state = {f"slot/{number % SLOTS}": b"%d" % number for number in range(max(1, last - SLOTS + 1), last + 1)}
    return state | ({"last": b"%d" % last} if last else {})


@pytest.mark.timeout(300)
@pytest.mark.parametrize("durability", list(Durability))
async def test_no_instant_to_be_killed_at_loses_or_tears_a_write(tmp_path: Path, durability: Durability) -> None:
    url = f"sqlite://{tmp_path}/store.db"
    chance = random.Random()
    survived = 0
    wrote = 0.0
    for _ in range(ROUNDS):
        with running(WRITE_FOR_EVER, url, durability.value, str(SLOTS), str(WRITERS)) as process:
            acknowledged, seconds = acknowledged_until_killed(process, after=chance.uniform(0.0, LONGEST))
            wrote += seconds
        store = await open_store(url)
        page = await store.range("")
        await store.close()
        last = max((int(item.value) for item in page.items), default=0)

        assert {item.key: item.value for item in page.items} == state_after(last)
        assert all(item.mod_revision == int(item.value) for item in page.items)
        assert page.revision == last
        assert max(acknowledged, survived) <= last
        # What was not acknowledged may be there, but only what was on its way.
        assert last <= max(acknowledged, survived) + 2 * WRITERS
        survived = last

    assert survived > 0
    rate, disk = survived / max(wrote, 0.001), syncs_of_the_disk(tmp_path / "bare")
    print(f"{durability}: {ROUNDS} deaths, {survived} writes, {rate:.0f} a second; the disk syncs {disk:.0f} times")


async def test_a_held_store_is_refused_and_free_again_when_its_holder_is_killed(tmp_path: Path) -> None:
    url = f"sqlite://{tmp_path}/store.db"
    with running(HOLD, url) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(StoreError, match=rf"store\.db: process {holder.pid} is using it; stop that process"):
            await open_store(url)
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        store = await open_store(url)

    assert await store.get("held") is not None
    await store.close()


@pytest.mark.timeout(60)
def test_a_full_disk_refuses_writes_until_there_is_space_again(tmp_path: Path) -> None:
    # The small disk lives in a mount namespace of its own, so that nothing stays mounted however this ends.
    mounted = 'mount -t tmpfs -o size=1m,mode=700 tmpfs "$1" && exec "$2" -c "$3" "$1"'
    filling = subprocess.run(
        ["unshare", "--mount", "sh", "-c", mounted, "sh", str(tmp_path), sys.executable, FILL_THE_DISK],
        check=True,
        capture_output=True,
        timeout=50,
    )
    outcome = json.loads(filling.stdout)
    refusals = outcome.pop("refusals")

    assert len(refusals) == 8
    assert all("cannot write to" in refusal and "is full" in refusal and "try again" in refusal for refusal in refusals)
    assert outcome == {
        "revision_stays": True,
        "first": "kept",
        "shows_refused": False,
        "writes_again": True,
        "same_when_reopened": True,
    }
