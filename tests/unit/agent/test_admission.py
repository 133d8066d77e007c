"""A host that is full: whoever does not fit waits alone, is told why, and is let in as soon as there is room."""

from __future__ import annotations

from typing import Any

import pytest

from sexton.agent.admission import Admission
from sexton.core.hostpool import Pool, Share
from sexton.core.resources import Resources
from sexton.core.task import TaskStatus
from sexton.runtime.fake import Behaviour, FakeRuntime
from sexton.wire import acs_task
from unit.agent.rig import IMAGE, Host, arn, container, now, settle, task

pytestmark = pytest.mark.looptime


def full(**more: Any) -> Host:
    """A host of one core and 100 MiB."""
    host = Host(**more)
    pool = Pool(capacity=Share(amount=Resources(cpu=1024, memory=100), gpus=frozenset({"g1"})))
    host.admission = lambda: Admission(pool, now)  # type: ignore[method-assign]
    return host


def sized(number: int, memory: int, **fields: Any) -> acs_task.Task:
    return task(number, container(memory=memory), **fields)


async def test_one_that_does_not_fit_holds_up_nobody_behind_it() -> None:
    async with full() as host:
        await host.engine.take([sized(1, 60)], 1)
        await host.until_running(1)
        await host.engine.take([sized(2, 80), sized(3, 40)], 2)
        await host.until_running(3)
        await settle(30.0)
        waiter = host.engine.find(arn(2))
        assert waiter is not None and waiter.waiting is not None
        assert waiter.waiting.lacking == ("RESOURCE:MEMORY",) and now() - waiter.waiting.since >= 30.0
        assert host.status(2) is TaskStatus.NONE and host.desk.told(2) == []
        host.engine.stop([arn(1)], "")
        await host.until_stopped(1)
        await settle()
        assert host.status(2) is TaskStatus.NONE  # 40 are still held
        host.engine.stop([arn(3)], "")
        await host.until_running(2)
        assert waiter.waiting is None


async def test_slow_stop_holds_back_nobody_but_who_needs_its_room() -> None:
    stubborn = FakeRuntime(images=[IMAGE], clock=now, behave=lambda body: Behaviour(ignore_term=True))
    async with full(runtime=stubborn, stop_timeout=300.0) as host:
        await host.engine.take([sized(1, 60)], 1)
        await host.until_running(1)
        host.engine.stop([arn(1)], "")
        await settle()
        await host.engine.take([sized(2, 60), sized(3, 10)], 2)
        await host.until_running(3)
        await settle(60.0)
        assert host.status(2) is TaskStatus.NONE
        await host.until_stopped(1)
        await host.until_running(2)


async def test_slow_pull_holds_back_nobody() -> None:
    async with full(runtime=FakeRuntime(images=[IMAGE], registry=["slow:1"], clock=now)) as host:
        gate = host.runtime.hold("pull")
        await host.engine.take([task(1, container(image="slow:1", memory=10)), sized(2, 10)], 1)
        await gate.reached.wait()
        await host.until_running(2)
        gate.open()
        await host.until_running(1)


async def test_task_that_is_stopped_while_it_waits_never_takes_anything() -> None:
    async with full() as host:
        await host.engine.take([sized(1, 60), sized(2, 60)], 1)
        await host.until_running(1)
        host.engine.stop([arn(2)], "not needed")
        await host.until_stopped(2)
        host.engine.stop([arn(1)], "")
        await host.until_stopped(1)
        await host.until_gone()
        assert host.engine.admission.pool is not None and not host.engine.admission.pool.held
    assert len(host.runs) == 1


async def test_after_a_restart_those_that_run_hold_their_share_first() -> None:
    async with full() as host:
        await host.engine.take([sized(2, 60)], 1)
        await host.until_running(2)
        await host.engine.take([sized(1, 60)], 2)
        for _ in range(3):
            await settle()
            await host.restart()
        await settle(60.0)
        assert host.status(2) is TaskStatus.RUNNING and host.status(1) is TaskStatus.NONE
        host.engine.stop([arn(2)], "")
        await host.until_running(1)


async def test_more_than_the_host_ever_had_waits_with_its_reason() -> None:
    async with full() as host:
        await host.engine.take([sized(1, 500), sized(2, 10)], 1)
        await host.until_running(2)
        await settle(600.0)
        assert host.status(1) is TaskStatus.NONE
        host.engine.stop([arn(1)], "")
        await host.until_stopped(1)


async def test_gpu_that_this_host_never_had_ends_the_task() -> None:
    async with full() as host:
        wish = acs_task.Association(name="g9", type="gpu", containers=("app",))
        await host.engine.take([sized(1, 10, associations=(wish,))], 1)
        end = await host.until_stopped()
    assert end.reason == "ResourceInitializationError: this host has no GPU g9"
    assert not host.runs


async def test_fixed_ports_are_taken_once() -> None:
    async with full() as host:
        mapping = acs_task.PortMapping(container_port=80, host_port=8080, protocol="tcp")
        given = [task(number, container(port_mappings=(mapping,))) for number in (1, 2)]
        await host.engine.take(given, 1)
        await host.until_running(1)
        await settle()
        assert host.status(2) is TaskStatus.NONE
        host.runtime.exit(host.only().id, 0)
        await host.until_running(2)
