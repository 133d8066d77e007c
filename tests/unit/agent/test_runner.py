"""A task's whole life on a scripted engine: right ends, whatever the engine does meanwhile."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sexton.agent.steps.look import look
from sexton.core.task import ContainerStatus, Happened, TaskStatus
from sexton.host.taskcgroup import Limits, Remains
from sexton.runtime.contract import Refused, State, TimedOut, Unavailable
from sexton.runtime.fake import Behaviour, FakeRuntime
from sexton.wire import acs_task
from unit.agent.rig import IMAGE, Host, arn, container, exits, now, settle, task, until

pytestmark = pytest.mark.looptime


def engine(**more: Any) -> FakeRuntime:
    return FakeRuntime(**({"images": [IMAGE], "clock": now} | more))


async def test_runs_reports_and_removes() -> None:
    async with Host() as host:
        await host.engine.take([task()], 1)
        await host.until_running()
        host.runtime.exit(host.only().id, 3)
        end = await host.until_stopped()
        await host.until_gone()
    assert host.desk.told() == ["RUNNING", "STOPPED"]
    assert end.containers is not None and end.containers[0].exit_code == 3 and not end.containers[0].reason
    assert host.cgroups.reclaimed == [f"{1:032x}"]


async def test_own_start_is_no_news_and_the_engine_is_not_asked_about_it() -> None:
    async with Host() as host:
        await host.engine.take([task()], 1)
        await host.until_running()
        await settle()
        assert host.runtime.count("inspect") == 0
        ran = host.known("app")
        assert ran.running_since
        # Somebody else's start of the same container is news.
        host.runtime.exit(host.only().id, 0, silent=True)
        await host.runtime.start(host.only().id)
        await until(lambda: host.runtime.count("inspect") == 1)
        await until(lambda: host.known("app").running_since > ran.running_since)


async def test_start_of_one_with_a_health_check_is_looked_at() -> None:
    async with Host() as host:
        config = acs_task.DockerConfig(config='{"Healthcheck": {"Test": ["CMD", "true"]}}')
        checked = container("app", health_check_type="docker", docker_config=config)
        await host.engine.take([task(1, checked)], 1)
        await host.until_running()
        await until(lambda: host.runtime.count("inspect") == 1)


async def test_end_at_once_is_an_end_and_no_second_start() -> None:
    async with Host(engine(behave=exits(0))) as host:
        await host.engine.take([task()], 1)
        end = await host.until_stopped()
        await settle()
    assert end.containers is not None and end.containers[0].exit_code == 0
    assert list(host.runs.values()) == [1]


@pytest.mark.parametrize("method", ["image", "create", "start", "inspect", "stop", "remove", "list"])
@pytest.mark.parametrize("after", [False, True])
async def test_step_is_repeated_after_silence_and_has_its_effect_once(method: str, after: bool) -> None:
    async with Host() as host:
        host.runtime.fail(method, Unavailable, 3, after=after)
        await host.engine.take([task()], 1)
        await host.until_running()
        host.engine.stop([arn()], "enough")
        end = await host.until_stopped()
        await host.until_gone()
    assert end.containers is not None and end.containers[0].exit_code == 143
    assert host.runtime.count("create") <= 5 and list(host.runs.values()) == [1]


async def test_start_whose_answer_was_lost_is_not_made_twice() -> None:
    """The container started and ended while nobody listened: starting it again would run its work twice."""
    async with Host(engine(behave=exits(4))) as host:
        host.runtime.fail("start", Unavailable, after=True)
        await host.engine.take([task()], 1)
        end = await host.until_stopped()
    assert end.containers is not None and end.containers[0].exit_code == 4
    assert list(host.runs.values()) == [1]


async def test_start_on_an_engine_that_dies_is_not_made_twice() -> None:
    async with Host() as host:
        host.runtime.delay("start", 1.0)
        await host.engine.take([task()], 1)
        await until(lambda: host.runtime.count("start") == 1)
        host.runtime.fail("start", Unavailable, after=True)
        await until(lambda: host.only().state is State.RUNNING)
        host.runtime.exit(host.only().id, 137, silent=True)
        end = await host.until_stopped()
    assert end.containers is not None and end.containers[0].exit_code == 137
    assert list(host.runs.values()) == [1]


async def test_task_that_is_to_stop_is_not_started_once_the_engine_is_back() -> None:
    async with Host() as host:
        gate = host.runtime.hold("start")
        await host.engine.take([task()], 1)
        await gate.reached.wait()
        host.runtime.down()
        gate.open()
        await settle(1.0)
        host.engine.stop([arn()], "not needed any more")
        await settle(30.0)
        host.runtime.up()
        await host.until_stopped()
        await host.until_gone()
    assert host.runs == {}


async def test_image_reference_that_is_none_ends_the_task() -> None:
    async with Host() as host:
        host.runtime.fail("image", Refused("invalid reference format", 400), 9)
        host.runtime.fail("digest", Refused("invalid reference format", 400), 9)
        host.runtime.fail("pull", Refused("invalid reference format", 400), 9)
        host.runtime.fail("create", Refused("invalid reference format", 400), 9)
        await host.engine.take([task()], 1)
        end = await host.until_stopped()
    assert end.containers is not None
    assert end.containers[0].reason == "CannotPullImageManifestError: invalid reference format"


async def _engine_dies_in_a_start(host: Host, *remains: Remains, tidied: Remains = Remains.NONE) -> str:
    """A start without an answer, what is seen of it while the engine is away, and what is left once it is back."""
    gate = host.runtime.hold("start")
    await host.engine.take([task()], 1)
    await gate.reached.wait()
    first = host.only().id
    host.runtime.down()
    gate.open()
    for left in remains:
        host.cgroups.left[first] = left
        await settle(3.0)
    host.cgroups.left[first] = tidied
    host.runtime.up()
    return first


@pytest.mark.parametrize("tidied", [Remains.WAITING, Remains.NONE])
async def test_container_that_a_dying_engine_half_started_runs_once(tidied: Remains) -> None:
    async with Host() as host:
        first = await _engine_dies_in_a_start(host, Remains.WAITING, tidied=tidied)
        await host.until_running()
        if tidied is Remains.WAITING:  # such a container can never be started again
            assert host.cgroups.killed == [(f"{1:032x}", first)]
            assert host.known().runtime_id == host.only().id != first
        host.runtime.exit(host.only().id, 5)
        end = await host.until_stopped()
    (one,) = end.containers or ()
    assert (one.exit_code, one.reason) == (5, None)
    assert list(host.runs.values()) == [1]


async def test_container_whose_start_was_called_off_runs_once() -> None:
    async with Host(engine(behave=exits(0))) as host:
        await _engine_dies_in_a_start(host, Remains.WAITING, Remains.ENDED, Remains.NONE)
        end = await host.until_stopped()
    assert end.containers is not None and end.containers[0].exit_code == 0
    assert list(host.runs.values()) == [1]


@pytest.mark.parametrize(
    ("seen", "tidied", "exit_code", "words"),
    [
        ([Remains.RUNNING], Remains.RUNNING, 137, "it ran and was killed"),
        ([Remains.WAITING, Remains.RUNNING], Remains.NONE, None, "it may have run"),
        ([Remains.RUNNING, Remains.ENDED], Remains.NONE, None, "it may have run"),
        ([Remains.ENDED], Remains.ENDED, None, "it may have run"),
    ],
)
async def test_container_that_ran_out_of_its_engines_sight_is_not_started_again(
    seen: list[Remains], tidied: Remains, exit_code: int | None, words: str
) -> None:
    async with Host() as host:
        first = await _engine_dies_in_a_start(host, *seen, tidied=tidied)
        end = await host.until_stopped()
        await host.until_gone()
    (one,) = end.containers or ()
    assert one.exit_code == exit_code and words in (one.reason or "")
    assert host.runs == {} and host.runtime.count("create") == 1
    assert ((f"{1:032x}", first) in host.cgroups.killed) == (tidied is Remains.RUNNING)


async def test_container_that_ran_out_of_sight_is_not_started_by_the_next_agent_either() -> None:
    async with Host() as host:
        gate = host.runtime.hold("start")
        await host.engine.take([task()], 1)
        await gate.reached.wait()
        await settle()
        host.cgroups.left[host.only().id] = Remains.RUNNING
        await host.kill()
        gate.open()
        await host.boot()
        end = await host.until_stopped()
    assert end.containers is not None and end.containers[0].exit_code == 137 and host.runs == {}


async def test_container_that_runs_out_of_its_engines_sight_is_ended_by_a_stop() -> None:
    async with Host() as host:
        gate = host.runtime.hold("create")
        await host.engine.take([task()], 1)
        await gate.reached.wait()
        host.runtime.fail("start", Unavailable)
        host.runtime.fail("inspect", Unavailable)
        gate.open()
        await until(lambda: bool(host.runtime.containers))
        host.engine.stop([arn()], "enough")
        host.cgroups.left[host.only().id] = Remains.RUNNING
        end = await host.until_stopped()
    assert end.containers is not None and end.containers[0].exit_code == 137


async def test_command_that_is_none_ends_the_task() -> None:
    async with Host(engine(behave=lambda body: Behaviour(start_error="exec: no such file"))) as host:
        await host.engine.take([task()], 1)
        end = await host.until_stopped()
        await host.until_gone()
    assert end.containers is not None
    assert end.containers[0].reason == "CannotStartContainerError: exec: no such file"
    assert end.containers[0].exit_code is None


async def test_unknown_image_ends_the_task() -> None:
    async with Host(engine(images=[])) as host:
        await host.engine.take([task()], 1)
        end = await host.until_stopped()
    assert end.containers is not None and "CannotPullImageManifestError: manifest for" in (
        end.containers[0].reason or ""
    )


@pytest.mark.parametrize("method", ["image", "pull", "create", "start"])
async def test_stop_in_the_middle_of_a_step(method: str) -> None:
    """A pull is called off; a creation and a start are left to end, and what they made is removed."""
    async with Host(engine(images=[], registry=[IMAGE])) as host:
        gate = host.runtime.hold(method)
        await host.engine.take([task()], 1)
        await gate.reached.wait()
        host.engine.stop([arn()], "changed my mind")
        await settle()
        if method != "start":  # nothing to stop yet in the engine: the end is told at once
            assert host.status() is TaskStatus.STOPPED
        gate.open()
        await host.until_stopped()
        await host.until_gone()
    assert host.desk.last().reason == "changed my mind"


async def test_container_that_ignores_term_is_killed() -> None:
    async with Host(engine(behave=lambda body: Behaviour(ignore_term=True))) as host:
        await host.engine.take([task(1, container(stop_timeout=7))], 1)
        await host.until_running()
        host.engine.stop([arn()], "")
        end = await host.until_stopped()
    assert end.containers is not None and end.containers[0].exit_code == 137


async def test_container_that_somebody_removed() -> None:
    async with Host() as host:
        await host.engine.take([task()], 1)
        await host.until_running()
        host.runtime.vanish(host.only().id, silent=True)
        end = await host.until_stopped()
    assert end.containers is not None
    assert (end.containers[0].reason or "").startswith("ContainerVanishedError")


async def test_lost_events_are_made_up_for_by_comparing() -> None:
    async with Host() as host:
        await host.engine.take([task()], 1)
        await host.until_running()
        host.runtime.exit(host.only().id, 9, silent=True)
        end = await host.until_stopped()
    assert end.containers is not None and end.containers[0].exit_code == 9


async def test_end_in_the_middle_of_a_look_is_left_to_the_engine() -> None:
    """The process goes between two questions; the engine notices a moment later, with its exit code."""
    async with Host() as host:
        await host.engine.take([task()], 1)
        await host.until_running()
        answers = iter([False])
        host.cgroups.empty = lambda task_id, container_id: next(answers, True)  # type: ignore[method-assign]
        (runner,) = host.engine.runners()
        (known,) = runner.known.containers
        seen = await look(runner._context, runner.desired, container(), known)
    assert seen.happened is Happened.STARTED


@pytest.mark.parametrize("finds_out", [True, False])
async def test_container_that_its_engine_wrongly_calls_running_is_over(finds_out: bool) -> None:
    """As after the death of containerd, which takes the news of an end with it."""
    async with Host() as host:
        await host.engine.take([task()], 1)
        await host.until_running()
        host.cgroups.gone.add(host.only().id)
        if not finds_out:
            host.runtime.fail("stop", Refused("did not receive an exit event", 500), 100)
        end = await host.until_stopped()
        await host.until_gone()
    (one,) = end.containers or ()
    if finds_out:
        assert one.exit_code is not None and not one.reason
    else:
        assert one.exit_code is None and (one.reason or "").startswith("DockerStateError: its process is gone")


async def test_engine_that_needs_its_time_to_find_out_is_not_pushed() -> None:
    """A second signal would make it find out twice, and the second time it has no exit code any more."""
    async with Host(engine(behave=lambda body: Behaviour(ignore_term=True))) as host:
        await host.engine.take([task()], 1)
        await host.until_running()
        host.cgroups.gone.add(host.only().id)
        await until(lambda: host.runtime.count("stop") == 1)
        await settle(10.0)  # what dockerd waits for an event before it looks by itself
        host.runtime.exit(host.only().id, 3)
        end = await host.until_stopped()
    (one,) = end.containers or ()
    assert (one.exit_code, one.reason) == (3, None)


async def test_container_that_ends_while_it_is_looked_at_keeps_its_exit_code() -> None:
    """Its last process is gone a moment before its engine says so: no reason to believe that the engine missed it."""
    async with Host() as host:
        await host.engine.take([task()], 1)
        await host.until_running()
        looks = iter([False])
        host.cgroups.empty = lambda *_: next(looks, True)  # type: ignore[method-assign]
        runner = host.engine.find(arn())
        assert runner is not None
        runner._look("app")
        await settle(0.3)  # before the engine's own news
        host.runtime.exit(host.only().id, 7)
        end = await host.until_stopped()
    (one,) = end.containers or ()
    assert (one.exit_code, one.reason) == (7, None)


async def test_every_task_has_the_hosts_own_limits_beside_its_own() -> None:
    async with Host(task_limits=True, pids_limit=77, cpu_period=0.02) as host:
        await host.engine.take([task(1, container(cpu=100)), task(2, cpu=0.5, memory=64)], 1)
        await host.until_running(1)
        await host.until_running(2)
    assert host.cgroups.limits == {
        f"{1:032x}": Limits(cpu_shares=100, pids=77, cpu_period=0.02),
        f"{2:032x}": Limits(cpu_quota=0.5, memory=64 << 20, pids=77, cpu_period=0.02),
    }


async def test_without_task_limits_no_cgroup_is_touched() -> None:
    async with Host(task_limits=False, pids_limit=77) as host:
        await host.engine.take([task(1, cpu=0.5)], 1)
        await host.until_running()
    assert host.cgroups.limits == {}


@pytest.mark.parametrize(("unified", "memory"), [(True, 64 << 20), (False, 0)])
async def test_a_container_without_a_limit_inherits_its_tasks_where_it_is_asked_for(unified: bool, memory: int) -> None:
    async with Host(task_limits=True, propagate_memory_limit=True) as host:
        host.cgroups.unified = unified
        await host.engine.take([task(1, container(), container("own", memory=8), memory=64)], 1)
        await host.until_running()
        asked = {one.name.split("-")[3]: host.runtime.body(one.id)["HostConfig"] for one in host.runtime.containers}
    assert asked["app"].get("Memory", 0) == memory
    assert asked["own"]["Memory"] == 8 << 20


@pytest.mark.parametrize(("excluded", "addresses"), [(True, ["0.0.0.0"]), (False, ["0.0.0.0", "::"])])
async def test_where_it_is_published_for_the_other_family_is_told_when_asked_for(
    excluded: bool, addresses: list[str]
) -> None:
    async with Host(exclude_ipv6_bindings=excluded) as host:
        host.runtime.addresses = ("0.0.0.0", "::")
        mapping = acs_task.PortMapping(container_port=80, host_port=8080)
        await host.engine.take([task(1, container(port_mappings=(mapping,)))], 1)
        await host.until_running()
        await until(lambda: bool(host.desk.told()))
    (one,) = host.desk.last().containers or ()
    assert sorted(str(bound.bind_ip) for bound in one.network_bindings or ()) == addresses


async def test_removal_is_drawn_apart_by_the_jitter() -> None:
    async with Host(cleanup_wait=60.0, cleanup_jitter=600.0) as host:
        await host.engine.take([task(number) for number in range(1, 9)], 1)
        for number in range(1, 9):
            await host.until_running(number)
        for one in host.runtime.containers:
            host.runtime.exit(one.id, 0)
        await settle(65.0)
        early = len(host.runtime.containers)
        await settle(600.0)
        late = len(host.runtime.containers)
    assert early >= 5 and late == 0


async def test_out_of_memory_is_said() -> None:
    async with Host() as host:
        await host.engine.take([task()], 1)
        await host.until_running()
        host.runtime.exit(host.only().id, 137, oom=True)
        end = await host.until_stopped()
    assert end.containers is not None and end.containers[0].exit_code == 137
    assert (end.containers[0].reason or "").startswith("OutOfMemoryError")


async def test_engine_away_during_a_task_costs_nothing() -> None:
    async with Host() as host:
        await host.engine.take([task()], 1)
        await host.until_running()
        host.runtime.down()
        await settle(120.0)
        assert host.status() is TaskStatus.RUNNING and not host.engine.answering
        host.runtime.up()
        await until(lambda: host.engine.answering)
        host.runtime.exit(host.only().id, 0)
        await host.until_stopped()


async def test_end_of_an_essential_container_ends_the_others() -> None:
    async with Host() as host:
        await host.engine.take([task(1, container("a"), container("b", essential=False))], 1)
        await host.until_running()
        host.runtime.exit(host.known("a").runtime_id, 1)
        end = await host.until_stopped()
    codes = {one.container_name: one.exit_code for one in end.containers or ()}
    assert codes == {"a": 1, "b": 143}


async def test_containers_of_others_are_left_alone() -> None:
    """Another's container of the same name is neither used nor removed."""
    async with Host() as host:
        await host.engine.take([task()], 1)
        await host.until_running()
        name = host.only().name
        host.runtime.vanish(name)
        await host.runtime.create(name, {"Image": IMAGE, "Labels": {"owner": "somebody"}})
        await host.until_stopped()
        await until(lambda: not host.engine.runners(), seconds=3600)
        await settle(120.0)
        assert host.only().labels == {"owner": "somebody"}


async def test_renamed_container_is_removed_all_the_same() -> None:
    async with Host() as host:
        await host.engine.take([task()], 1)
        await host.until_running()
        found = host.runtime._find(host.only().id)
        host.runtime._change(found, name="pet")
        host.engine.stop([arn()], "")
        await host.until_stopped()
        await host.until_gone()


async def test_container_of_ours_that_no_task_owns_is_removed() -> None:
    """As an interrupted creation leaves it that the engine finished only after its task was forgotten."""
    async with Host() as host:
        await host.engine.take([task()], 1)
        await host.until_running()
        body, name = dict(host.runtime.body(host.only().id)), host.only().name
        host.engine.stop([arn()], "")
        await host.until_gone()
        await host.runtime.create(name, body)
        # The same labels under another name: an image made from a container hands its labels on.
        await host.runtime.create("mine", body)
        await until(lambda: len(host.runtime.containers) == 1)
        await settle(300.0)
        assert host.only().name == "mine"


async def test_cgroup_that_is_busy_is_tried_again_and_never_for_ever() -> None:
    async with Host() as host:
        host.cgroups.busy = 14  # longer than the first round of tries
        await host.engine.take([task()], 1)
        await host.until_running()
        host.engine.stop([arn()], "")
        await host.until_gone()
        assert host.cgroups.reclaimed == [f"{1:032x}"]
        assert host.cgroups.killed == [(f"{1:032x}", "")]  # what the engine lost sight of


async def test_engine_that_cannot_stop_a_container_is_asked_five_times() -> None:
    async with Host() as host:
        await host.engine.take([task()], 1)
        await host.until_running()
        host.runtime.fail("stop", Refused("did not receive an exit event", 500), 1000)
        host.engine.stop([arn()], "")
        end = await host.until_stopped()
        assert host.runtime.count("stop") == 5
        (one,) = end.containers or ()
        assert (one.exit_code, one.reason) == (None, "CannotStopContainerError: did not receive an exit event")
        await host.until_gone()


async def test_container_that_is_slow_to_stop_is_not_over_while_the_engine_is_away() -> None:
    async with Host() as host:
        await host.engine.take([task()], 1)
        await host.until_running()
        host.runtime.fail("stop", TimedOut("no answer", 150.0), 3)
        host.engine.stop([arn()], "")
        await settle(0.5)
        host.runtime.down()
        await settle(3600.0)
        assert host.status() is TaskStatus.RUNNING
        host.runtime.up()
        end = await host.until_stopped()
    assert end.containers is not None and end.containers[0].exit_code == 143


@pytest.mark.parametrize(
    ("method", "reason"),
    [
        ("create", "DockerTimeoutError: Could not transition to created; timed out after waiting 4m0s"),
        ("start", "DockerTimeoutError: Could not transition to started; timed out after waiting 4m0s"),
    ],
)
async def test_step_that_takes_too_long_ends_the_container(method: str, reason: str) -> None:
    """Its effect may still come: what is made or started then is ended and removed all the same."""
    async with Host() as host:
        host.runtime.fail(method, TimedOut("no answer", 240.0), after=True)
        await host.engine.take([task()], 1)
        end = await host.until_stopped()
        await host.until_gone()
    (one,) = end.containers or ()
    assert one.reason == reason


async def test_container_that_somebody_starts_after_its_end_is_stopped_once() -> None:
    async with Host(engine(behave=lambda body: Behaviour()), cleanup_wait=3600.0) as host:
        await host.engine.take([task()], 1)
        await host.until_running()
        host.runtime.exit(host.only().id, 0)
        await host.until_stopped()
        await settle()
        assert host.runtime.count("stop") == 0
        await host.runtime.start(host.only().id)
        await until(lambda: host.only().state is State.EXITED)
        await settle()
        assert host.runtime.count("stop") == 1
        await host.runtime.start(host.only().id)
        await settle(300.0)
        assert host.only().state is State.RUNNING  # whoever insists is left alone until the task is removed
    assert host.desk.told() == ["RUNNING", "STOPPED"]


async def test_dynamic_ports_are_reported() -> None:
    async with Host() as host:
        mapping = {"container_port": 80, "host_port": 0}
        await host.engine.take([_with_port(mapping)], 1)
        await host.until_running()
        await until(lambda: "RUNNING" in host.desk.told())
    (one,) = host.desk.last().containers or ()
    (bound,) = one.network_bindings or ()
    assert bound.container_port == 80 and 23000 <= (bound.host_port or 0) <= 23999


@pytest.mark.parametrize("method", ["create", "start"])
async def test_ports_are_reported_though_the_answer_was_lost(method: str) -> None:
    async with Host() as host:
        host.runtime.fail(method, Unavailable, after=True)
        await host.engine.take([_with_port({"container_port": 80, "host_port": 0})], 1)
        await host.until_running()
        await until(lambda: "RUNNING" in host.desk.told())
    (one,) = host.desk.last().containers or ()
    assert [bound.container_port for bound in one.network_bindings or ()] == [80]


def _with_port(mapping: dict[str, Any]) -> Any:
    from sexton.wire import acs_task

    return task(1, container(port_mappings=(acs_task.PortMapping(**mapping, protocol="tcp"),)))


async def test_leaving_nothing_stops_and_removes_without_the_control_plane() -> None:
    async with Host(cleanup_wait=3600.0) as host:
        host.desk.fails = lambda change: ConnectionError("away")
        await host.engine.take([task(1), task(2)], 1)
        await host.until_running(1)
        await host.until_running(2)
        host.failed.clear()
        assert await host.engine.leave_nothing(45.0)
        assert host.runtime.containers == ()
        host.failed.clear()


async def test_leaving_nothing_is_bounded() -> None:
    async with Host() as host:
        await host.engine.take([task()], 1)
        await host.until_running()
        host.runtime.down()
        began = asyncio.get_running_loop().time()
        assert not await host.engine.leave_nothing(45.0)
        assert asyncio.get_running_loop().time() - began < 46


async def test_known_state_never_goes_back() -> None:
    async with Host() as host:
        await host.engine.take([task()], 1)
        await host.until_running()
        host.runtime.exit(host.only().id, 0)
        await host.until_stopped()
        host.runtime._change(host.runtime._find(host.only().id), state=State.RUNNING)
        await host.engine.compare()
        await settle()
        assert host.known().status is ContainerStatus.STOPPED


async def test_engine_that_cannot_start_for_a_while_is_not_asked_in_a_tight_loop() -> None:
    """Its containerd is away: it answers everything else, and refuses at once."""
    async with Host() as host:
        host.runtime.fail("start", Unavailable, 1000)
        await host.engine.take([task()], 1)
        await settle(60.0)
        assert 5 < host.runtime.count("start") <= 61
        host.runtime._failures.clear()
        await host.until_running()
    assert list(host.runs.values()) == [1]
