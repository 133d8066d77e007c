"""What an agent remembers is what was last true, through failing disks and cancelled writes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from sexton.agent.checkpoint import Checkpoint, Saved, Self
from sexton.core import task as core
from sexton.core.task import DesiredTask, KnownTask
from sexton.store.contract import Durability, StoreError
from sexton.store.opening import open_store
from unit.agent.rig import Memory, arn, task


def saved(number: int = 1, *, stopped: bool = False, reason: str = "") -> Saved:
    desired = DesiredTask(task=task(number), stopped=stopped)
    known = msgspec.structs.replace(core.accept(desired, 1.0), reason=reason)
    return Saved(desired=desired, known=known)


def over(store: object) -> Checkpoint:
    return Checkpoint(store)  # type: ignore[arg-type]


async def test_comes_back_from_disk(tmp_path: Path) -> None:
    store = await open_store(f"sqlite://{tmp_path}/agent.db", durability=Durability.NORMAL)
    checkpoint = Checkpoint(store)
    assert await checkpoint.load() == {}
    await checkpoint.become(Self(cluster="c", region="r", backend="b", instance_arn="i"))
    await checkpoint.accept([saved(1), saved(2)], 7)
    await store.close()
    store = await open_store(f"sqlite://{tmp_path}/agent.db", durability=Durability.NORMAL)
    again = Checkpoint(store)
    assert set(await again.load()) == {arn(1), arn(2)}
    assert again.self == Self(cluster="c", region="r", backend="b", instance_arn="i", sequence=7)
    await store.close()


async def test_sequence_never_goes_back() -> None:
    checkpoint = over(Memory())
    await checkpoint.accept((), 9)
    await checkpoint.accept([saved()], 3)
    again = over(checkpoint._store)
    await again.load()
    assert again.self.sequence == 9


async def test_newest_state_is_written_and_forgotten_tasks_are_gone() -> None:
    store = Memory()
    checkpoint = over(store)
    checkpoint.changed(*_of(saved(1, reason="old")))
    checkpoint.changed(*_of(saved(1, reason="new")))
    checkpoint.changed(*_of(saved(2)))
    await checkpoint.flush()
    await checkpoint.forget(arn(2))
    await checkpoint.flush()
    tasks = await over(store).load()
    assert {one: tasks[one].known.reason for one in tasks} == {arn(1): "new"}


async def test_failed_write_is_made_again_and_newer_states_win() -> None:
    store = Memory()
    checkpoint = over(store)
    checkpoint.changed(*_of(saved(1, reason="old")))
    checkpoint.changed(*_of(saved(2)))
    store.refusals = 1
    with pytest.raises(StoreError):
        await checkpoint.flush()
    checkpoint.changed(*_of(saved(1, reason="new")))
    await checkpoint.flush()
    tasks = await over(store).load()
    assert tasks[arn(1)].known.reason == "new" and arn(2) in tasks


async def test_cancelled_write_is_made_by_the_last_flush() -> None:
    """As at a shutdown: the writer is cancelled in the middle, and then everything is flushed once more."""
    store = Memory()
    store.held = asyncio.Event()
    checkpoint = over(store)
    checkpoint.changed(*_of(saved()))
    writer = asyncio.get_running_loop().create_task(checkpoint.run())
    await asyncio.sleep(0.01)
    writer.cancel()
    await asyncio.wait([writer])
    store.held.set()
    await checkpoint.flush()
    assert arn() in await over(store).load()


async def test_acceptance_that_fails_loses_no_older_state() -> None:
    store = Memory()
    checkpoint = over(store)
    checkpoint.changed(*_of(saved(1, reason="known")))
    store.refusals = 1
    with pytest.raises(StoreError):
        await checkpoint.accept([saved(1, stopped=True)], 4)
    assert checkpoint.self.sequence == -1
    await checkpoint.flush()
    assert (await over(store).load())[arn(1)].known.reason == "known"


@pytest.mark.looptime
async def test_disk_that_is_full_for_a_while() -> None:
    store = Memory()
    store.refusals = 20
    checkpoint = over(store)
    writer = asyncio.get_running_loop().create_task(checkpoint.run())
    checkpoint.changed(*_of(saved()))
    await asyncio.sleep(300.0)
    assert arn() in await over(store).load()
    writer.cancel()
    await asyncio.wait([writer])


@pytest.mark.parametrize("key", ["self", "tasks/" + "0" * 31 + "1"])
@pytest.mark.parametrize("value", [b"", b"{", b'{"desired":1,"sequence":[]}', b"[1]", b"[" * 100_000])
async def test_row_that_cannot_be_read_costs_itself_and_is_named(key: str, value: bytes) -> None:
    store = Memory()
    before = over(store)
    await before.accept([saved(1), saved(2)], 7)
    store.rows[key] = value
    again = over(store)
    assert arn(2) in await again.load()
    assert again.unreadable == (key,)
    await again.discard(again.unreadable)
    await again.load()
    assert again.unreadable == ()


def _of(one: Saved) -> tuple[DesiredTask, KnownTask]:
    return one.desired, one.known
