"""From cgroup files to samples, to the answer of the socket and to the history, on a scripted engine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import aiohttp
import msgspec
import pytest

from sexton.agent.groups import Groups
from sexton.agent.localapi import LocalApi
from sexton.agent.sampling import Sampler
from sexton.agent.sizing import follow
from sexton.agent.stats import MIB, CgroupStats, Subject
from sexton.core.sizewindow import Measured
from sexton.core.task import ContainerStatus
from sexton.core.usage import Throttled, Usage
from sexton.kit.listener import Listener
from unit.agent.rig import CLUSTER, INSTANCE, Host, arn, container, task
from unit.agent.test_stats import v1, v2

TASK = f"{1:032x}"


class Room:
    """A host with one running task, and the files of its cgroups."""

    def __init__(self, host: Host, root: Path, write: Callable[..., None]) -> None:
        self.host = host
        self.root = root
        self._write = write
        write(root, "anything", 0, 0, 0)  # decides the version
        self.stats = CgroupStats(root, cores=2)
        self.seconds = 0.0

    def place(self, name: str) -> str:
        return f"ecs/{TASK}/{self.host.known(name).runtime_id}"

    def use(self, name: str, cpu_ns: int, memory: int) -> None:
        self._write(self.root, self.place(name), cpu_ns, memory, 0)

    def quota(self, periods: int, used_up: int) -> None:
        v2_ = (self.root / "cgroup.controllers").exists()
        place = self.root / ("" if v2_ else "cpu") / "ecs" / TASK
        place.mkdir(parents=True, exist_ok=True)
        (place / "cpu.stat").write_text(f"nr_periods {periods}\nnr_throttled {used_up}\nthrottled_time 0\n")
        if v2_:
            (place / "io.pressure").write_text("some avg10=0 avg60=0 avg300=0 total=3000000\n")

    def read(self) -> None:
        self.seconds += 10.0
        names = [one.name for one in self.host.engine.runners()[0].known.containers]
        self.stats.read([Subject(self.host.known(one).runtime_id, self.place(one)) for one in names], self.seconds)


async def room(host: Host, root: Path, write: Callable[..., None]) -> Room:
    await host.engine.take([task(1, container("app", cpu=256, memory=64), container("side"), cpu=0.5)], 1)
    await host.until_running()
    return Room(host, root, write)


@pytest.mark.looptime
@pytest.mark.parametrize("write", [v1, v2])
async def test_samples_of_a_task_and_its_containers(write: Callable[..., None], tmp_path: Path) -> None:
    async with Host() as host:
        here = await room(host, tmp_path, write)
        sampler = Sampler(host.engine, Groups(host.context.cgroups, "cgroupfs"), here.stats)
        here.use("app", 0, 10 * MIB)
        here.use("side", 0, MIB)
        here.quota(100, 50)
        here.read()
        assert sampler.samples() == []  # nothing to compare with yet
        here.use("app", 5_000_000_000, 20 * MIB)
        here.use("side", 2_500_000_000, MIB)
        here.read()
        (one,) = sampler.samples()
        assert (one.family, one.seconds, one.cpu, one.held) == ("web", 10.0, 768.0, 21 * MIB)
        assert one.reserved.cpu_limit == 512
        assert {part.name: part.cpu for part in one.containers} == {"app": 512.0, "side": 256.0}
        assert one.throttled == Throttled()  # its first look at the quota
        here.quota(150, 70)
        here.read()
        (one,) = sampler.samples()
        assert (one.throttled.periods, one.throttled.throttled) == (50, 20)
        assert [part.reserved.cpu for part in one.containers] == [256, 0]


@pytest.mark.looptime
async def test_one_that_could_not_be_read_this_time_has_no_sample(tmp_path: Path) -> None:
    async with Host() as host:
        here = await room(host, tmp_path, v1)
        sampler = Sampler(host.engine, Groups(host.context.cgroups, "cgroupfs"), here.stats)
        for number in range(3):
            here.use("app", number, MIB)
            here.use("side", number, MIB)
            here.read()
        (tmp_path / "cpuacct" / here.place("side") / "cpuacct.usage").unlink()
        here.read()
        (one,) = sampler.samples()
        assert [part.name for part in one.containers] == ["app"]


def test_without_a_group_of_its_own_a_task_has_those_of_its_containers() -> None:
    groups = Groups(None, "systemd")
    running = SimpleNamespace(runtime_id="c1", status=ContainerStatus.RUNNING, restarting=False)
    assert groups.container("t", "c1") == "/system.slice/docker-c1.scope"
    assert groups.of_task("t", [running]) == ["/system.slice/docker-c1.scope"]  # type: ignore[list-item]
    assert not groups.limited


async def test_the_socket_answers_what_is_used_now_and_what_was_over_time(tmp_path: Path) -> None:
    async with Host() as host:
        here = await room(host, tmp_path, v2)
        sizing = follow(host.context, host.engine, here.stats, "cgroupfs", None)
        for second in range(3):
            here.use("app", second * 1_000_000_000, 40 * MIB)
            here.use("side", 0, MIB)
            here.quota(second, 0)
            here.read()
            sizing.sample()
            await asyncio.sleep(0.01)
        sizing.killed(host.engine.runners()[0], "app")
        sizing.killed(host.engine.runners()[0], "side")  # no limit of its own: its task's was reached
        session = SimpleNamespace(connected_at=1.0)
        api = LocalApi(host.engine, session, host.runtime, host.context.identity, None, sizing)  # type: ignore[arg-type]
        listener = Listener(api)
        await listener.open_unix(tmp_path / "agent.sock")
        connector = aiohttp.UnixConnector(str(tmp_path / "agent.sock"))
        try:
            async with aiohttp.ClientSession(connector=connector) as http:
                async with http.get("http://agent/use") as answer:
                    usage = msgspec.json.decode(await answer.read(), type=Usage)
                async with http.get("http://agent/sizes") as answer:
                    sizes = msgspec.json.decode(await answer.read(), type=dict)
        finally:
            await listener.close()
    (it,) = usage.tasks
    assert (usage.cluster, usage.instance, it.arn, it.id) == (CLUSTER, INSTANCE, arn(1), TASK)
    assert (it.containers[0].cpu_seconds, it.containers[0].held) == (2.0, 40 * MIB)
    assert it.throttled is not None and it.throttled.periods == 2
    assert it.stalled == {"io": 3.0}
    assert usage.host.memory > 0 and usage.host.cores == 2
    assert sizes["followed"] is True
    found = {one.container: one for one in msgspec.convert(sizes["sizes"], list[Measured]) if one.family}
    assert (found["app"].oom_kills, found["side"].oom_kills, found[""].oom_kills) == (1, 0, 1)
    assert found["app"].memory is not None and found["app"].memory.max == 40.0
    assert found["app"].samples == 2


@pytest.mark.looptime
async def test_a_kill_that_two_witnesses_saw_is_one(tmp_path: Path) -> None:
    async with Host() as host:
        here = await room(host, tmp_path, v2)
        sizing = follow(host.context, host.engine, here.stats, "cgroupfs", None)
        (runner,) = host.engine.runners()

        async def kills() -> int:
            return next((one.oom_kills for one in await sizing.measured() if one.container == "app"), 0)

        async def counted(total: int) -> int:
            here.use("app", 0, MIB)
            (tmp_path / here.place("app") / "memory.events").write_text(f"oom 9\noom_kill {total}\n")
            here.read()
            sizing.sample()
            return await kills()

        assert await counted(3) == 0  # of a container that is older than this process
        assert await counted(4) == 1  # seen by the counter alone
        sizing.killed(runner, "app")
        assert await kills() == 1  # the engine's word of it
        sizing.killed(runner, "app")
        assert await kills() == 2
        assert await counted(5) == 2
        assert await counted(8) == 5
        await asyncio.sleep(1)
        # Another process, which made the container itself: all its kills are news.
        again = follow(host.context, host.engine, here.stats, "cgroupfs", None)
        again._began = 0.0
        here.read()
        again.sample()
        assert [one.oom_kills for one in await again.measured() if one.container == "app"] == [8]


@pytest.mark.looptime
async def test_what_has_ended_is_not_shown(tmp_path: Path) -> None:
    async with Host() as host:
        here = await room(host, tmp_path, v1)
        sizing = follow(host.context, host.engine, here.stats, "cgroupfs", None)
        assert len(sizing.use().tasks) == 1
        host.engine.stop([arn(1)], "test")
        await host.until_stopped()
        assert sizing.use().tasks == ()


@pytest.mark.looptime
async def test_whoever_asks_all_the_time_is_told_the_last_readings_and_what_has_none_is_read(tmp_path: Path) -> None:
    async with Host() as host:
        here = await room(host, tmp_path, v1)
        sizing = follow(host.context, host.engine, here.stats, "cgroupfs", None)
        here.use("app", 0, MIB)
        here.use("side", 0, MIB)
        app = host.known("app").runtime_id
        here.stats.read([Subject(app, here.place("app"))], 10.0)
        here.use("app", 0, 7 * MIB)
        here.use("side", 0, 7 * MIB)
        held = {one.name: one.held for one in sizing.use_of_late().tasks[0].containers}
        assert held == {"app": MIB, "side": 7 * MIB}
        assert [one.held for one in sizing.use().tasks[0].containers] == [7 * MIB, 7 * MIB]
