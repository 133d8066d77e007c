"""A task's volumes are there before its container is, go with the task, and shared ones never go."""

from __future__ import annotations

from typing import Any

import pytest

from sexton.core.enginebody import INSTANCE_LABEL
from sexton.core.volumes import of_task_scope
from sexton.runtime.contract import Refused, Unavailable
from sexton.wire import acs_task
from unit.agent.rig import Host, container, task

pytestmark = pytest.mark.looptime

MOUNT = (acs_task.MountPoint(source_volume="data", container_path="/data", read_only=True),)


def docker(**given: Any) -> acs_task.Volume:
    return acs_task.Volume(
        name="data", type="docker", docker_volume_configuration=acs_task.DockerVolumeConfiguration(**given)
    )


def with_volume(volume: acs_task.Volume) -> acs_task.Task:
    return task(1, container(mount_points=MOUNT), volumes=(volume, acs_task.Volume(name="unused")))


async def names(host: Host) -> list[str]:
    return [one.name for one in await host.runtime.volumes({})]


async def test_an_anonymous_volume_lives_as_long_as_its_task() -> None:
    async with Host() as host:
        await host.engine.take([with_volume(acs_task.Volume(name="data"))], 1)
        await host.until_running()
        (made,) = await host.runtime.volumes({INSTANCE_LABEL: ""})
        assert host.runtime.body(host.only().id)["HostConfig"]["Binds"] == [f"{made.name}:/data:ro"]
        host.runtime.exit(host.only().id)
        await host.until_gone()
        assert await names(host) == []


async def test_a_shared_volume_is_made_once_and_stays() -> None:
    async with Host() as host:
        for number in (1, 2):
            one = container(mount_points=MOUNT)
            volume = docker(scope="shared", autoprovision=True, labels={"l": "1"})
            await host.engine.take([task(number, one, volumes=(volume,))], number)
            await host.until_running(number)
        (made,) = await host.runtime.volumes({})
        assert (made.name, made.labels) == ("data", {"l": "1"})
        for info in host.runtime.containers:
            host.runtime.exit(info.id)
        await host.until_gone()
        assert await names(host) == ["data"]


async def test_a_shared_volume_that_must_be_there_is_not_made() -> None:
    async with Host() as host:
        await host.engine.take([with_volume(docker(scope="shared"))], 1)
        end = await host.until_stopped()
        assert await names(host) == []
        assert (end.reason or "").startswith("CannotInspectVolumeError: get data: no such volume")

        await host.runtime.create_volume("data", driver="local", options={}, labels={"anybody": "s"})
        await host.engine.take([task(2, container(mount_points=MOUNT), volumes=(docker(scope="shared"),))], 2)
        await host.until_running(2)


@pytest.mark.parametrize("match", [True, False])
async def test_an_existing_shared_volume_must_be_alike_only_where_that_is_asked(match: bool) -> None:
    async with Host(shared_volume_match=match) as host:
        await host.runtime.create_volume("data", driver="local", options={}, labels={"l": "2"})
        await host.engine.take([with_volume(docker(scope="shared", autoprovision=True, labels={"l": "1"}))], 1)
        if match:
            end = await host.until_stopped()
            assert (end.reason or "").startswith(
                "CannotCreateVolumeError: volume data is there already, but its labels"
            )
        else:
            await host.until_running()


async def test_an_engine_s_no_ends_the_task_with_its_words() -> None:
    async with Host() as host:
        host.runtime.fail("create_volume", Refused("no space left on device", 500))
        await host.engine.take([with_volume(acs_task.Volume(name="data"))], 1)
        end = await host.until_stopped()
    assert end.reason == "CannotCreateVolumeError: no space left on device"


@pytest.mark.parametrize("method", ["create_volume", "remove_volume", "volume"])
@pytest.mark.parametrize("after", [True, False])
async def test_a_silent_engine_is_asked_again(method: str, after: bool) -> None:
    async with Host() as host:
        host.runtime.fail(method, Unavailable, 3, after=after)
        await host.engine.take([with_volume(acs_task.Volume(name="data"))], 1)
        await host.until_running()
        host.runtime.exit(host.only().id)
        await host.until_gone()
        assert await names(host) == []


async def test_a_volume_of_the_same_name_that_is_not_ours_is_left_alone() -> None:
    wanted = with_volume(acs_task.Volume(name="data"))
    (name, _) = of_task_scope(wanted)
    async with Host() as host:
        await host.runtime.create_volume(name, driver="local", options={}, labels={})
        await host.engine.take([wanted], 1)
        end = await host.until_stopped()
        await host.until_gone()
        assert await names(host) == [name]
        assert "is taken by another volume" in (end.reason or "")
