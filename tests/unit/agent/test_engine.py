"""Taking tasks in, and taking them up again: nothing is lost, doubled or kept for ever by a death at any instant."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from sexton.cloud.exchange import Unreachable
from sexton.core.task import TaskStatus
from sexton.runtime.fake import RUNS, Behaviour, FakeRuntime
from sexton.store.contract import StoreError
from sexton.wire import acs_task
from unit.agent.rig import IMAGE, Host, arn, container, exits, now, settle, task, until

pytestmark = pytest.mark.looptime


class Mortal(FakeRuntime):
    """An engine whose caller dies at its n-th call: just before the effect, or just after it."""

    def __init__(self, behave: Any) -> None:
        super().__init__(images=[IMAGE], clock=now, behave=behave)
        self.fatal = 0
        self.after = False
        self.dead = asyncio.Event()
        self._seen = 0

    @asynccontextmanager
    async def call(self, method: str, ref: str = "") -> AsyncIterator[None]:
        self._seen += 1
        if self._seen != self.fatal:
            async with super().call(method, ref):
                yield
            return
        if self.after:
            async with super().call(method, ref):
                yield
        self.dead.set()
        await asyncio.Event().wait()  # the answer reaches nobody


async def _live(host: Host, *, stop: bool) -> None:
    """From the payload to the last trace, with the deaths that the engine's script holds."""
    sent = asyncio.get_running_loop().create_task(_deliver(host, stop=stop))
    while not sent.done():
        dead = asyncio.get_running_loop().create_task(host.runtime.dead.wait())  # type: ignore[attr-defined]
        await asyncio.wait([sent, dead], return_when=asyncio.FIRST_COMPLETED)
        dead.cancel()
        if host.runtime.dead.is_set():  # type: ignore[attr-defined]
            host.runtime.dead.clear()  # type: ignore[attr-defined]
            await host.restart()
    await sent


async def _deliver(host: Host, *, stop: bool) -> None:
    """A control plane: it sends what it wants until it has been told, as one does that restarts or reconnects."""
    wish = task()
    while "STOPPED" not in host.desk.told():
        if stop and "RUNNING" in host.desk.told():
            wish = msgspec.structs.replace(wish, desired_status="STOPPED")
        await host.engine.take([wish], 1)
        await asyncio.sleep(1.0)
    await host.until_gone()


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("stop", [False, True])
@pytest.mark.parametrize("fatal", range(1, 25))
async def test_death_at_every_call(fatal: int, stop: bool, after: bool) -> None:
    def behave(body: Mapping[str, Any]) -> Behaviour:
        return RUNS if stop else Behaviour(exit_code=3)

    runtime = Mortal(behave)
    runtime.fatal, runtime.after = fatal, after
    async with Host(runtime, cleanup_wait=1.0) as host:
        await _live(host, stop=stop)
        end = host.desk.last()
    assert host.desk.told()[-1] == "STOPPED"
    # Whoever dies while removing finds the container gone; the end had been told before that.
    first = next(one for one in host.desk.taken if one.status == "STOPPED")
    assert first.containers is not None and first.containers[0].exit_code == (143 if stop else 3), end
    assert list(host.runs.values()) == [1]


@pytest.mark.parametrize("turn", range(60))
async def test_death_after_every_turn_of_the_loop(turn: int) -> None:
    """Between two calls as well: whatever was decided and not yet written is decided again."""
    async with Host(FakeRuntime(images=[IMAGE], clock=now, behave=exits(3)), cleanup_wait=1.0) as host:
        await host.engine.take([task()], 1)
        for _ in range(turn):
            await asyncio.sleep(0)
        await host.restart()
        await host.until_stopped()
        await host.until_gone()
    first = next(one for one in host.desk.taken if one.status == "STOPPED")
    assert first.containers is not None and first.containers[0].exit_code == 3
    assert list(host.runs.values()) == [1]


async def test_task_is_durable_before_it_is_taken() -> None:
    async with Host() as host:
        host.store.held = asyncio.Event()
        taking = asyncio.get_running_loop().create_task(host.engine.take([task()], 1))
        await settle()
        assert not taking.done() and not host.engine.runners() and not host.runtime.containers
        host.store.held.set()
        await taking
        assert host.engine.find(arn()) is not None


async def test_task_that_cannot_be_saved_is_not_taken() -> None:
    async with Host() as host:
        host.store.refusals = 1
        with pytest.raises(StoreError):
            await host.engine.take([task()], 1)
        assert not host.engine.runners()
        await host.engine.take([task()], 1)
        await host.until_running()


async def test_task_that_comes_twice_runs_once() -> None:
    async with Host(FakeRuntime(images=[IMAGE], clock=now, behave=exits(0))) as host:
        await host.engine.take([task(), task()], 1)
        await host.engine.take([task()], 1)
        await asyncio.gather(host.engine.take([task(2)], 2), host.engine.take([task(2)], 2))
        await host.until_stopped(1)
        await host.until_stopped(2)
        await host.engine.take([task()], 3)
        await settle()
    assert sorted(host.runs.values()) == [1, 1]
    assert host.desk.told(1).count("STOPPED") == 1


async def test_wish_only_moves_forward() -> None:
    async with Host() as host:
        await host.engine.take([task()], 1)
        await host.until_running()
        await host.engine.take([task(desired_status="STOPPED")], 2)
        await host.engine.take([task()], 3)
        await host.until_stopped()


async def test_wish_that_was_acknowledged_is_never_forgotten() -> None:
    """The stop is durable; an older state that is still to be written must not undo it."""
    async with Host() as host:
        await host.engine.take([task()], 1)
        await host.until_running()
        host.store.held = asyncio.Event()
        taking = asyncio.get_running_loop().create_task(host.engine.take([task(desired_status="STOPPED")], 2))
        await settle(0.1)
        runner = host.engine.find(arn())
        assert runner is not None
        host.checkpoint.changed(runner.desired, runner.known)  # as a report that was acknowledged just then does
        host.store.held.set()
        await taking
        for _ in range(20):
            assert (await host.checkpoint.load())[arn()].desired.stopped
            await asyncio.sleep(0)


async def test_stop_of_a_task_nobody_knows_is_answered_with_its_end() -> None:
    async with Host() as host:
        await host.engine.take([task(desired_status="STOPPED")], 1)
        await host.until_stopped()
        await host.until_gone()
    assert host.desk.told() == ["STOPPED"] and not host.runs


async def test_rejected_task_is_reported_and_leaves_nothing() -> None:
    async with Host() as host:
        host.engine.reject(arn(), "because")
        host.engine.reject("", "a task without a name")
        await host.until_stopped()
        assert host.desk.last().reason == "because"
        assert not host.reporter._last and not host.reporter._queues


async def test_end_that_was_acknowledged_before_a_restart_is_cleaned_up_after_it() -> None:
    """The commonest state of all: stopped, told, and waiting for the time of its containers to be over."""
    async with Host(cleanup_wait=3600.0) as host:
        await host.engine.take([task()], 1)
        await host.until_running()
        host.runtime.exit(host.only().id, 0)
        await host.until_stopped()
        await settle()
        await host.restart()
        await host.until_gone()
    assert host.desk.told() == ["RUNNING", "STOPPED"]  # and is not told again


async def test_restart_finds_what_happened_meanwhile() -> None:
    async with Host() as host:
        await host.engine.take([task(1), task(2), task(3)], 1)
        for number in (1, 2, 3):
            await host.until_running(number)
        await settle()
        await host.kill()
        host.runtime.exit(_named(host, 1), 5)
        host.runtime.vanish(_named(host, 2))
        await host.boot()
        assert (await host.until_stopped(1)).containers[0].exit_code == 5  # type: ignore[index]
        reason = (await host.until_stopped(2)).containers[0].reason  # type: ignore[index]
        assert reason is not None and reason.startswith("ContainerVanishedError")
        await settle()
        assert host.status(3) is TaskStatus.RUNNING
    assert list(host.runs.values()) == [1, 1, 1]


async def test_an_hour_without_a_control_plane_costs_no_task_and_every_end_is_told_once() -> None:
    policy = acs_task.RestartPolicy(enabled=True, restart_attempt_period=60)
    async with Host() as host:
        again = task(4, container(restart_policy=policy))
        await host.engine.take([task(1), task(2), task(3), again], 1)
        for number in (1, 2, 3, 4):
            await host.until_running(number)
        await settle()
        away = host.desk.tries
        host.desk.fails = lambda change: Unreachable("away")
        host.runtime.exit(_named(host, 1), 5)
        await settle(1200.0)
        host.runtime.exit(_named(host, 4), 1)
        await settle(1200.0)
        await host.restart()  # what nobody has taken is known after a restart as well
        host.runtime.exit(_named(host, 2), 6)
        await settle(1200.0)
        assert [host.status(number) for number in (1, 2, 3, 4)] == [
            *[TaskStatus.STOPPED] * 2,
            *[TaskStatus.RUNNING] * 2,
        ]
        # Nothing is removed before its end has been heard of; and nobody is called more often than the pauses allow.
        assert len(host.runtime.containers) == 4
        assert host.desk.tries - away < 2 * 3600 / 20
        host.desk.fails = lambda change: None
        ends = [await host.until_stopped(number) for number in (1, 2)]
        await settle(120.0)
        assert [one.containers[0].exit_code for one in ends if one.containers] == [5, 6]
        assert [host.desk.told(number) for number in (1, 2)] == [["RUNNING", "STOPPED"]] * 2
        assert [host.desk.told(number) for number in (3, 4)] == [["RUNNING"]] * 2
        assert len(host.runtime.containers) == 2
    assert sorted(host.runs.values()) == [1, 1, 1, 2]


def _named(host: Host, number: int) -> str:
    return next(one.id for one in host.runtime.containers if arn(number) in one.labels.values())


async def test_restart_with_the_engine_away_waits_for_it() -> None:
    async with Host() as host:
        await host.engine.take([task()], 1)
        await host.until_running()
        await settle()
        host.runtime.down()
        await host.restart()
        await settle(100.0)
        assert host.status() is TaskStatus.RUNNING
        host.runtime.up()
        host.runtime.exit(host.only().id, 2, silent=True)
        await host.until_stopped()


async def test_stop_reaches_a_task_that_is_still_being_looked_for() -> None:
    async with Host() as host:
        await host.engine.take([task()], 1)
        await host.until_running()
        await settle()
        host.runtime.down()
        await host.restart()
        await host.engine.take([task(desired_status="STOPPED")], 2)
        await settle(10.0)
        host.runtime.up()
        await host.until_stopped()


async def test_ports_are_known_after_a_restart_between_start_and_save() -> None:
    from sexton.wire import acs_task

    async with Host() as host:
        mapping = acs_task.PortMapping(container_port=80, host_port=0, protocol="tcp")
        host.desk.seconds = 5.0
        gate = host.runtime.hold("start")
        await host.engine.take([task(1, container(port_mappings=(mapping,)))], 1)
        await gate.reached.wait()
        host.store.rows = {key: value.replace(b'"bindings"', b'"was_bound"') for key, value in host.store.rows.items()}
        gate.open()
        host.store.refusals = 10**6
        await settle(0.001)
        host.store.refusals = 0
        await host.restart()
        await until(lambda: "RUNNING" in host.desk.told())
    (one,) = host.desk.last().containers or ()
    assert [bound.container_port for bound in one.network_bindings or ()] == [80]


async def test_fifty_at_once_with_the_engine_failing_at_random() -> None:
    import random

    draw = random.Random(11)

    class Flaky(FakeRuntime):
        @asynccontextmanager
        async def call(self, method: str, ref: str = "") -> AsyncIterator[None]:
            from sexton.runtime.contract import Unavailable

            if draw.random() < 0.2:
                self.fail(method, Unavailable, after=draw.random() < 0.5)
            self.delay(method, draw.random() / 10)
            async with super().call(method, ref):
                yield

    async with Host(Flaky(images=[IMAGE], clock=now, behave=exits(0)), cleanup_wait=1.0) as host:
        await host.engine.take([task(number) for number in range(1, 51)], 1)
        for _ in range(10):
            await settle(draw.random() * 2)
            await host.restart()
        for number in range(1, 51):
            await host.until_stopped(number)
        await host.until_gone()
    assert set(host.runs.values()) == {1} and len(host.runs) == 50


async def test_two_tasks_of_one_id_are_not_each_others_end() -> None:
    """Rows, cgroups and containers are named after the id."""
    async with Host() as host:
        other = arn(1).replace("/default/", "/other/")
        await host.engine.take([task(1), task(1, arn=other)], 1)
        await host.engine.take([task(1, arn=other)], 2)
        await host.until_running()
        await until(lambda: any(one.task == other for one in host.desk.taken))
        ends = [one for one in host.desk.taken if one.task == other]
        assert {one.status for one in ends} == {"STOPPED"} and arn(1) in (ends[0].reason or "")
        await host.restart()
        await settle()
        assert host.status() is TaskStatus.RUNNING and len(host.runtime.containers) == 1
