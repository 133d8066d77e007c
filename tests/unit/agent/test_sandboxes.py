"""The pool of sandboxes over a scripted engine: claimed once, found again, filled when wanted, gone when not."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from sexton.agent import sandboxes as module
from sexton.agent.sandboxes import Sandboxes
from sexton.core import sandbox
from sexton.core.wiring import tag_of
from sexton.host.taskcgroup import TaskCgroups
from sexton.runtime.contract import Refused, State
from sexton.runtime.fake import FakeRuntime
from sexton.settings import Settings

ARN = "arn:aws:ecs:us-east-1:123456789012:container-instance/default/1"
TAG = tag_of(ARN)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(module, "_lives", lambda pid: True)


def make(runtime: FakeRuntime, pool: int = 2, idle: float = 600.0, refill: float = 0.001) -> Sandboxes:
    return Sandboxes(runtime, Settings(sandbox_pool=pool, sandbox_idle=idle, sandbox_refill=refill), ARN, None)


@asynccontextmanager
async def running(pool: Sandboxes) -> AsyncIterator[None]:
    task = asyncio.ensure_future(pool.run())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def soon(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not true():
            await asyncio.sleep(0.001)


def names(runtime: FakeRuntime) -> set[str]:
    return {one.name for one in runtime.containers}


async def test_nothing_is_made_before_it_is_wanted():
    runtime = FakeRuntime()
    async with running(make(runtime)):
        await asyncio.sleep(0.02)

        assert runtime.containers == ()


async def test_a_task_claims_a_warm_one_and_the_pool_is_filled_again():
    runtime = FakeRuntime()
    pool = make(runtime)
    async with running(pool):
        pool.want()
        await soon(lambda: pool.warm == 2)
        before = {one.id for one in runtime.containers}
        taken = await pool.take("t1")
        await soon(lambda: pool.warm == 2)

    assert taken.id in before
    assert sandbox.task_name(TAG, "t1") in names(runtime) and len(runtime.containers) == 3


async def test_while_tasks_come_the_pool_waits_but_not_for_ever():
    """What fills it takes the engine's time from the task that starts."""
    runtime = FakeRuntime()
    pool = make(runtime, refill=0.05)
    async with running(pool):
        begin = asyncio.get_running_loop().time()
        number = 0
        while not pool.warm:
            number += 1
            await pool.take(f"t{number}")
            await asyncio.sleep(0.02)
        waited = asyncio.get_running_loop().time() - begin

    assert waited >= module.PATIENCE * 0.05 and number == len(runtime.containers) - 1


async def test_a_task_has_one_however_often_it_asks():
    runtime = FakeRuntime()
    first = await make(runtime).take("t1")
    again = make(runtime)  # another process
    async with running(again):
        again.want()
        await soon(lambda: again.warm == 2)
        found = await again.take("t1")

        assert found.id == first.id and again.warm == 2


async def test_one_that_has_ended_is_made_anew():
    runtime = FakeRuntime()
    pool = make(runtime, pool=0)
    first = await pool.take("t1")
    runtime.exit(first.id, 137)
    second = await pool.take("t1")

    assert second.id != first.id and len(runtime.containers) == 1


async def test_another_ones_container_of_that_name_is_left_alone():
    runtime = FakeRuntime(images=("other",))
    await runtime.create(sandbox.task_name(TAG, "t1"), {"Image": "other"})

    with pytest.raises(Refused, match="is taken by another container"):
        await make(runtime).take("t1")
    assert len(runtime.containers) == 1


async def test_what_a_dead_process_left_is_kept_for_tasks_and_removed_otherwise():
    runtime = FakeRuntime()
    old = make(runtime)
    await old.take("here")
    await old.take("gone")
    await old._make("")

    await make(runtime).sweep({"here"})
    assert {one.name for one in runtime.containers} >= {sandbox.task_name(TAG, "here")}
    assert sandbox.task_name(TAG, "gone") not in names(runtime)

    await make(runtime).sweep(set())
    assert runtime.containers == ()


async def test_cgroups_of_sandboxes_that_are_no_more_go_and_no_others(tmp_path):
    top = tmp_path / "systemd"
    top.mkdir()
    (top / "cgroup.procs").touch()
    runtime = FakeRuntime()
    held = await Sandboxes(runtime, Settings(sandbox_pool=0), ARN, TaskCgroups(tmp_path)).take("t1")
    mine = [sandbox.cgroup_of(TAG, one) for one in (held.sandbox_id, "deadbeef")]
    for name in (*mine, sandbox.cgroup_of("other000", "deadbeef"), "a-task"):
        (top / "ecs" / name).mkdir(parents=True)
    await Sandboxes(runtime, Settings(), ARN, TaskCgroups(tmp_path)).sweep({"t1"})

    left = {path.name for path in (top / "ecs").iterdir()}
    assert left == {mine[0], sandbox.cgroup_of("other000", "deadbeef"), "a-task"}


async def test_a_pool_that_nobody_needs_goes():
    runtime = FakeRuntime()
    pool = make(runtime, idle=0.05)
    async with running(pool):
        pool.want()
        await soon(lambda: pool.warm == 2)
        await soon(lambda: pool.warm == 0 and runtime.containers == ())


async def test_giving_back_twice_is_no_error():
    runtime = FakeRuntime()
    pool = make(runtime, pool=0)
    await pool.take("t1")
    await pool.give_back("t1")
    await pool.give_back("t1")

    assert runtime.containers == ()


async def test_an_image_that_somebody_removed_is_loaded_again():
    runtime = FakeRuntime()
    pool = make(runtime, pool=0)
    await pool.take("t1")
    await pool.give_back("t1")
    await runtime.remove_image(sandbox.image_name())

    assert (await runtime.inspect((await pool.take("t2")).id)).state is State.RUNNING


def test_a_process_that_is_no_sandbox_is_not_taken_for_one(monkeypatch):
    monkeypatch.undo()

    assert not module._lives(os.getpid()) and not module._lives(0)
