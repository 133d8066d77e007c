"""The clean-up of a host on a scripted engine: what goes, what stays whatever happens, and what the log says."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from sexton.agent.gc import Cleanup, Disk
from sexton.core.enginebody import INSTANCE_LABEL, LABEL
from sexton.core.task import ContainerStatus
from sexton.runtime.contract import Conflict, DiskUse, Refused
from sexton.runtime.fake import FakeRuntime
from sexton.wire import acs_task
from unit.agent.rig import IMAGE, INSTANCE, Host, arn, container, now, task, until

pytestmark = pytest.mark.looptime

HOUR = 3600.0
PLENTY = Disk(1000, 900)


def registry(*refs: str) -> FakeRuntime:
    return FakeRuntime(registry=refs or (IMAGE,), clock=now)


def rig(*refs: str, **settings: Any) -> Host:
    return Host(registry(*refs), **({"pull_behavior": "default"} | settings))


def cleanup(host: Host, disk: Disk = PLENTY) -> Cleanup:
    return Cleanup(host.context, host.engine, "/var/lib/fake", lambda _: disk)


async def used_up(host: Host, number: int = 1, image: str = IMAGE) -> None:
    """A task ran with the image and is gone."""
    await host.engine.take([task(number, container(image=image))], number)
    await host.until_running(number)
    host.runtime.exit(host.known("app", number).runtime_id)
    await host.until_stopped(number)
    runner = host.engine.find(arn(number))
    assert runner is not None
    runner.hurry()
    await host.until_gone()


async def here(host: Host) -> set[str]:
    return {name for one in await host.runtime.images() for name in one.tags}


async def test_an_image_goes_when_its_time_is_over_and_not_before(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with rig() as host:
        await used_up(host)
        await cleanup(host).cycle()
        assert await here(host) == {IMAGE}
        await asyncio.sleep(HOUR)
        assert "1 images" in await cleanup(host).cycle()
        assert await here(host) == set() and host.book.records() == {}
    (said,) = [vars(one) for one in caplog.records if one.msg == "image removed"]
    assert said["image"] == IMAGE and said["why"].startswith("no task has used it for")


async def test_what_a_task_uses_stays_as_long_as_its_containers() -> None:
    async with rig(cleanup_wait=5 * HOUR) as host:
        await host.engine.take([task()], 1)
        await host.until_running()
        await asyncio.sleep(9 * HOUR)
        await cleanup(host).cycle()
        host.runtime.exit(host.only().id)
        await host.until_stopped()
        await asyncio.sleep(HOUR)
        await cleanup(host).cycle()
        assert await here(host) == {IMAGE}
        await asyncio.sleep(5 * HOUR)
        await host.until_gone()
        await cleanup(host).cycle()
        assert await here(host) == set()


async def test_what_was_here_before_stays() -> None:
    async with Host(FakeRuntime(images=[IMAGE], clock=now), pull_behavior="default") as host:
        await used_up(host)
        await asyncio.sleep(9 * HOUR)
        await cleanup(host).cycle()
        await cleanup(host, Disk(1000, 0)).relieve()
        assert await here(host) == {IMAGE}


@pytest.mark.parametrize(
    "settings", [{"disable_image_cleanup": True}, {"pull_behavior": "prefer-cached"}, {"excluded_images": (IMAGE,)}]
)
async def test_what_the_operator_keeps_stays(settings: Any) -> None:
    async with rig(**settings) as host:
        await used_up(host)
        await asyncio.sleep(9 * HOUR)
        await cleanup(host).cycle()
        await cleanup(host, Disk(1000, 0)).relieve()
        assert await here(host) == {IMAGE}


async def test_an_image_whose_pull_is_under_way_stays() -> None:
    async with rig() as host:
        await used_up(host)
        await asyncio.sleep(HOUR)
        host.runtime.push(IMAGE)
        gate = host.runtime.hold("pull")
        await host.engine.take([task(2)], 2)
        await gate.reached.wait()
        await cleanup(host).cycle()
        await cleanup(host, Disk(1000, 0)).relieve()
        assert await here(host) == {IMAGE}
        gate.open()
        await host.until_running(2)


async def test_a_task_that_comes_while_its_image_goes_pulls_it_anew() -> None:
    async with rig() as host:
        await used_up(host)
        await asyncio.sleep(HOUR)
        gate = host.runtime.hold("remove_image")
        cycle = asyncio.get_running_loop().create_task(cleanup(host).cycle())
        await gate.reached.wait()
        await host.engine.take([task(2)], 2)
        await until(lambda: host.known("app", 2).status is ContainerStatus.MANIFEST_PULLED)
        gate.open()
        await cycle
        await host.until_running(2)
        assert host.runtime.count("pull") == 2 and host.known("app", 2).reason == ""


async def test_an_image_that_the_engine_will_not_remove_is_named_and_stays_ours(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    async with rig() as host:
        await used_up(host)
        await asyncio.sleep(HOUR)
        host.runtime.fail("remove_image", Conflict("image has dependent child images", 409))
        assert "0 images" in await cleanup(host).cycle()
        assert host.book.was_pulled(IMAGE)
        assert "1 images" in await cleanup(host).cycle()
    assert "image has dependent child images" in [vars(one).get("reason") for one in caplog.records]


async def test_images_and_containers_of_others_only_when_asked() -> None:
    async def foreign(host: Host) -> list[str]:
        host.runtime.add_image("other:1")
        return [await host.runtime.create(f"foreign-{number}", {"Image": "other:1"}) for number in range(7)]

    for asked in (False, True):
        async with rig(clean_untracked=asked, cleanup_wait=HOUR, images_per_cycle=9) as host:
            made = await foreign(host)
            await host.runtime.start(made[0])
            await cleanup(host).cycle()
            assert len(host.runtime.containers) == 7
            await asyncio.sleep(2 * HOUR)
            await cleanup(host).cycle()
            assert len(host.runtime.containers) == (2 if asked else 7)
            await cleanup(host).cycle()
            assert len(host.runtime.containers) == (1 if asked else 7)
            await host.runtime.remove(made[0], force=True)
            await cleanup(host).cycle()
            assert await here(host) == (set() if asked else {"other:1"})
            for left in host.runtime.containers:
                await host.runtime.remove(left.id, force=True)


async def test_a_short_disk_takes_the_heaviest_first_and_no_more_than_it_needs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    async with rig("a:1", "b:1", IMAGE, cleanup_wait=50 * HOUR) as host:
        for number, ref in enumerate(("a:1", "b:1"), start=1):
            await used_up(host, number, ref)
        await host.engine.take([task(3)], 3)
        await host.until_running(3)
        host.runtime.exit(host.only().id)
        await host.until_stopped(3)
        await until(lambda: host.engine.find(arn(3)).known.sent.value == "STOPPED")  # type: ignore[union-attr]
        ids = {name: one.id for one in await host.runtime.images() for name in one.tags}
        host.runtime.measured = DiskUse(
            images={ids["a:1"]: 10, ids["b:1"]: 500, ids[IMAGE]: 10**6}, containers={host.only().id: 40}
        )
        shortly = cleanup(host, Disk(10_000, 500))  # 500 are missing
        assert await shortly.relieve() == "1 of 1 removed"
        assert await here(host) == {"a:1", IMAGE}
        assert await shortly.relieve() == ""  # not measured again so soon

        await asyncio.sleep(60)
        worse = cleanup(host, Disk(10_000, 0))
        assert await worse.relieve() == "2 of 2 removed"
        await host.until_gone()  # the stopped task, which was kept for fifty hours
        assert await here(host) == {IMAGE}
        await asyncio.sleep(60)
        assert await worse.relieve() == "1 of 1 removed"
        assert await here(host) == set()
        await asyncio.sleep(60)
        await worse.relieve()
    said = [vars(one) for one in caplog.records if one.msg == "disk is short"]
    assert said[0]["missing"] == 500 and said[0]["going"] == 1


async def test_a_stopped_task_stays_until_its_end_is_known_upstream() -> None:
    async with rig(cleanup_wait=50 * HOUR) as host:
        await host.engine.take([task()], 1)
        await host.until_running()
        host.desk.seconds = 10**6
        host.runtime.exit(host.only().id)
        await until(lambda: host.known().status is ContainerStatus.STOPPED)
        await cleanup(host, Disk(1000, 0)).relieve()
        await asyncio.sleep(10)
        assert len(host.runtime.containers) == 1


async def test_volumes_of_tasks_that_nobody_knows_go(caplog: pytest.LogCaptureFixture) -> None:
    async with Host() as host:
        mine = {INSTANCE_LABEL: INSTANCE, LABEL + "task-arn": arn(9)}
        await host.runtime.create_volume("lost", driver="local", options={}, labels=mine)
        await host.runtime.create_volume("others", driver="local", options={}, labels={INSTANCE_LABEL: "another"})
        mounts = (acs_task.MountPoint(source_volume="v", container_path="/v"),)
        one = task(1, container(mount_points=mounts), volumes=(acs_task.Volume(name="v"),))
        await host.engine.take([one], 1)
        await host.until_running()
        await cleanup(host).cycle()
        left = {volume.name for volume in await host.runtime.volumes({})}
        assert "lost" not in left and "others" in left and len(left) == 2


async def test_the_loop_looks_at_the_disk_and_at_the_clock_and_outlives_the_engine() -> None:
    async with rig(image_cleanup_interval=600.0, image_minimum_age=900.0) as host:
        await used_up(host)
        disk = [PLENTY]
        looks: list[str] = []

        def look(root: str) -> Disk:
            looks.append(root)
            return disk[0]

        cleaning = Cleanup(host.context, host.engine, "/var/lib/fake", look)
        host.work.start("clean-up", cleaning.run())
        await asyncio.sleep(300)
        assert 8 <= len(looks) <= 12
        await asyncio.sleep(590)
        assert await here(host) == {IMAGE}
        host.runtime.down()
        await asyncio.sleep(330)
        host.runtime.up()
        await asyncio.sleep(60)
        assert await here(host) == set()


async def test_a_pull_that_finds_the_disk_full_gets_its_room() -> None:
    async with rig("a:1", "b:1") as host:
        await used_up(host, 1, "a:1")
        host.work.start("clean-up", cleanup(host).run())
        await asyncio.sleep(0)
        host.runtime.fail("pull", Refused("write /x: no space left on device"))
        await host.engine.take([task(2, container(image="b:1"))], 2)
        await host.until_running(2)
        assert await here(host) == {"b:1"}
