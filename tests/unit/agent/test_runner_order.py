"""Containers of one task that wait for each other, come back, and are healthy or not, on a scripted engine."""

from __future__ import annotations

from typing import Any

import pytest

from sexton.core.task import ContainerStatus, TaskStatus
from sexton.runtime.contract import State
from sexton.runtime.fake import Behaviour, FakeRuntime
from sexton.wire import acs_task
from unit.agent.rig import IMAGE, Host, arn, container, now, settle, task, until

pytestmark = pytest.mark.looptime


def waits(*pairs: tuple[str, str]) -> tuple[acs_task.ContainerDependency, ...]:
    return tuple(acs_task.ContainerDependency(container_name=on, condition=what) for on, what in pairs)


CHECK = {
    "health_check_type": "docker",
    "docker_config": acs_task.DockerConfig(config='{"Healthcheck":{"Test":["CMD","true"]}}'),
}


def made(host: Host) -> list[str]:
    """Container names in the order in which they were created."""
    names = [one.labels["com.amazonaws.ecs.container-name"] for one in host.runtime.containers]
    assert len(set(names)) == len(names)
    return names


def of(host: Host, name: str) -> str:
    label = "com.amazonaws.ecs.container-name"
    return next(one.id for one in host.runtime.containers if one.labels[label] == name)


async def test_one_container_after_the_other() -> None:
    async with Host() as host:
        given = task(
            1,
            container("app", depends_on=waits(("init", "SUCCESS"), ("db", "HEALTHY"))),
            container("init", essential=False),
            container("db", **CHECK),
        )
        await host.engine.take([given], 1)
        await until(lambda: {*made(host)} == {"init", "db"} and host.known("db").status is ContainerStatus.RUNNING)
        await settle(30.0)
        assert host.status() is not TaskStatus.RUNNING
        host.runtime.exit(of(host, "init"), 0)
        await settle(30.0)
        assert "app" not in made(host)
        host.runtime.health(of(host, "db"), "healthy")
        await host.until_running()
        assert made(host)[-1] == "app"
        known = host.known("db").health
        assert known is not None and known.status == "HEALTHY"


async def test_lost_events_do_not_hold_up_whoever_waits() -> None:
    async with Host() as host:
        given = task(1, container("app", depends_on=waits(("init", "COMPLETE"))), container("init", essential=False))
        await host.engine.take([given], 1)
        await until(lambda: host.known("init").status is ContainerStatus.RUNNING)
        host.runtime.exit(of(host, "init"), 3, silent=True)
        await until(lambda: host.status() is TaskStatus.RUNNING, seconds=6.0)


async def test_failed_dependency_ends_the_task_with_its_reason() -> None:
    async with Host() as host:
        given = task(1, container("app", depends_on=waits(("init", "SUCCESS"))), container("init", essential=False))
        await host.engine.take([given], 1)
        await until(lambda: host.known("init").status is ContainerStatus.RUNNING)
        host.runtime.exit(of(host, "init"), 2)
        end = await host.until_stopped()
        await host.until_gone()
    told = {one.container_name: one for one in end.containers or ()}
    assert told["app"].exit_code == 143 and told["init"].exit_code == 2
    assert (told["app"].reason or "").startswith("CannotStartContainerError: dependency graph: ")


async def test_start_timeout_counts_on_while_the_clock_is_set_back_and_forth() -> None:
    offset = [0.0]

    def clock() -> float:
        return now() + offset[0]

    async with Host() as host:
        host.context = host.context._replace(clock=clock)
        host.engine._context = host.context
        given = task(
            1, container("app", depends_on=waits(("db", "HEALTHY"))), container("db", start_timeout=100, **CHECK)
        )
        await host.engine.take([given], 1)
        await until(lambda: host.known("db").status is ContainerStatus.RUNNING)
        offset[0] = 7200.0
        await settle(60.0)
        assert host.status() is not TaskStatus.STOPPED
        offset[0] = -7200.0
        end = await host.until_stopped()
    told = {one.container_name: one for one in end.containers or ()}
    assert "timed out" in (told["app"].reason or "")


@pytest.mark.parametrize("dies", [False, True])
async def test_stop_goes_the_other_way_round(dies: bool) -> None:
    async with Host() as host:
        given = task(
            1,
            container("a", depends_on=waits(("b", "START"))),
            container("b", links=("c",)),
            container("c"),
            container("d", volumes_from=(acs_task.VolumeFrom(source_container="a"),)),
        )
        await host.engine.take([given], 1)
        await host.until_running()
        assert made(host) == ["c", "b", "a", "d"]
        await settle()
        if dies:
            await host.restart()
        host.engine.stop([arn()], "enough")
        await host.until_stopped()
        ends = sorted(host.runtime.containers, key=lambda one: one.finished_at)
        stops = [call.ref for call in host.runtime.calls if call.method == "stop"]
        assert stops == [of(host, name) for name in ("d", "a", "b", "c")]
        assert all(one.exit_code == 143 for one in ends)


async def test_each_container_has_its_own_time_to_stop() -> None:
    async with Host(FakeRuntime(images=[IMAGE], clock=now, behave=lambda body: Behaviour(ignore_term=True))) as host:
        given = task(1, container("slow", stop_timeout=50), container("quick", stop_timeout=2), container("usual"))
        await host.engine.take([given], 1)
        await host.until_running()
        began = now()
        host.engine.stop([arn()], "")
        await host.until_stopped()
        took = {
            one.labels["com.amazonaws.ecs.container-name"]: round(one.finished_at - began)
            for one in host.runtime.containers
        }
    assert took == {"slow": 50, "quick": 2, "usual": 10}


def _restarting(**fields: Any) -> acs_task.Container:
    policy = acs_task.RestartPolicy(enabled=True, ignored_exit_codes=(0,), restart_attempt_period=60)
    return container("app", restart_policy=policy, **fields)


async def test_restart_in_place_is_told_to_nobody_and_outlives_the_agent() -> None:
    async with Host() as host:
        await host.engine.take([task(1, _restarting())], 1)
        await host.until_running()
        for count in (1, 2):
            await settle(100.0)
            first = host.only().id
            host.runtime.exit(first, 1)
            await until(lambda: host.only().state is State.RUNNING)
            await settle()
            assert (host.only().id, host.known().restarts) == (first, count)
        await host.restart()
        await settle()
        assert host.known().restarts == 2
        assert host.desk.told() == ["RUNNING"]
        await settle(100.0)
        await host.kill()
        host.runtime.exit(host.only().id, 1)  # while nobody looks
        await host.boot()
        await until(lambda: host.only().state is State.RUNNING)
        await settle()
        assert host.known().restarts == 3
        await settle(100.0)
        host.runtime.exit(host.only().id, 0)
        end = await host.until_stopped()
    assert end.containers is not None and end.containers[0].exit_code == 0
    assert host.desk.told() == ["RUNNING", "STOPPED"]


async def test_end_too_soon_after_a_start_is_final() -> None:
    async with Host() as host:
        await host.engine.take([task(1, _restarting())], 1)
        await host.until_running()
        await settle(59.0)
        host.runtime.exit(host.only().id, 1)
        end = await host.until_stopped()
    assert end.containers is not None and end.containers[0].exit_code == 1
    assert list(host.runs.values()) == [1]


async def test_stop_beats_a_restart() -> None:
    async with Host() as host:
        await host.engine.take([task(1, _restarting())], 1)
        await host.until_running()
        await settle(100.0)
        gate = host.runtime.hold("start")
        host.runtime.exit(host.only().id, 9)
        await gate.reached.wait()
        host.engine.stop([arn()], "enough")
        await settle()
        gate.open()
        await host.until_stopped()
        await settle()
        assert host.only().state is State.EXITED


async def test_whoever_waits_for_an_end_waits_on_through_a_restart() -> None:
    async with Host() as host:
        given = task(1, _restarting(essential=False), container("after", depends_on=waits(("app", "COMPLETE"))))
        await host.engine.take([given], 1)
        await until(lambda: host.known("app").status is ContainerStatus.RUNNING)
        await settle(100.0)
        host.runtime.exit(of(host, "app"), 1)
        await settle(100.0)
        assert made(host) == ["app"]
        host.runtime.exit(of(host, "app"), 0)
        await host.until_running()


async def test_health_is_known_and_ends_nothing() -> None:
    async with Host() as host:
        await host.engine.take([task(1, container("app", **CHECK))], 1)
        await host.until_running()
        for word, known in (("starting", "UNKNOWN"), ("healthy", "HEALTHY"), ("unhealthy", "UNHEALTHY")):
            host.runtime.health(host.only().id, word)
            await settle()
            health = host.known().health
            assert health is not None and health.status == known
        since = health.since
        host.runtime.health(host.only().id, "unhealthy")
        await settle()
        assert host.known().health is not None and host.known().health.since == since  # type: ignore[union-attr]
        assert host.status() is TaskStatus.RUNNING
