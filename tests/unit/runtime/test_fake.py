"""What the fake engine does beyond the contract: fail, hang, break and change as a test scripts it."""

from __future__ import annotations

import asyncio
from itertools import count

import pytest

from sexton.runtime.contract import Conflict, Event, EventKind, NotFound, Refused, State, TimedOut, Unavailable
from sexton.runtime.fake import Behaviour, FakeRuntime

IMAGE = "app:1"
BODY = {"Image": IMAGE}


@pytest.fixture
def fake() -> FakeRuntime:
    ticks = count(1000)
    return FakeRuntime([IMAGE], clock=lambda: float(next(ticks)))


async def running(fake: FakeRuntime, name: str = "web") -> str:
    made = await fake.create(name, BODY)
    await fake.start(made)
    return made


async def collect(fake: FakeRuntime, since: float) -> list[Event]:
    seen: list[Event] = []
    async with fake.events(since) as stream:
        fake.break_events()
        with pytest.raises(Unavailable):
            async for event in stream:
                seen.append(event)
    return seen


async def test_a_call_fails_as_often_as_scripted(fake: FakeRuntime) -> None:
    await fake.create("web", BODY)
    fake.fail("start", Refused("no such device", 500), times=2)
    fake.fail("inspect", TimedOut)

    for _ in range(2):
        with pytest.raises(Refused, match="no such device"):
            await fake.start("web")
    with pytest.raises(TimedOut):
        await fake.inspect("web")

    await fake.start("web")
    assert (await fake.inspect("web")).state is State.RUNNING
    assert (fake.count("start"), fake.calls[0]) == (3, ("create", "web"))


async def test_an_answer_can_be_lost_after_the_effect(fake: FakeRuntime) -> None:
    fake.fail("create", Unavailable, after=True)

    with pytest.raises(Unavailable):
        await fake.create("web", BODY)

    assert [info.name for info in fake.containers] == ["web"]
    with pytest.raises(Conflict):
        await fake.create("web", BODY)


async def test_a_gate_holds_calls_before_their_effect(fake: FakeRuntime) -> None:
    gate = fake.hold("create")
    creating = asyncio.create_task(fake.create("web", BODY))
    await gate.reached.wait()
    assert fake.containers == ()

    gate.open()

    assert await creating == fake.containers[0].id


async def test_a_delay_is_waited_on_the_loop_s_clock(fake: FakeRuntime) -> None:
    fake.delay("create", 3600)

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await fake.create("web", BODY)

    assert fake.containers == ()


async def test_down_ends_everything_that_waits_and_up_finds_the_containers(fake: FakeRuntime) -> None:
    made = await running(fake)
    fake._containers[made].behaviour = Behaviour(ignore_term=True)
    stopping = asyncio.create_task(fake.stop(made, 60))
    following = asyncio.create_task(anext(aiter(fake.logs(made, follow=True))))
    async with fake.events() as stream:
        await asyncio.sleep(0)
        fake.down()
        for waiting in (stopping, following, asyncio.create_task(anext(stream))):
            with pytest.raises(Unavailable):
                await waiting
    with pytest.raises(Unavailable):
        await fake.inspect(made)

    fake.up()
    assert (await fake.inspect(made)).state is State.RUNNING
    assert await collect(fake, since=1) == [], "a real engine forgets its journal too"


async def test_a_broken_stream_can_be_resumed(fake: FakeRuntime) -> None:
    made = await running(fake)
    started = (await collect(fake, since=1))[-1]
    fake.exit(made, 3)

    resumed = await collect(fake, since=started.time)

    assert [(event.kind, event.exit_code) for event in resumed] == [(EventKind.START, None), (EventKind.DIE, 3)]


async def test_an_exit_can_be_silent_and_have_causes(fake: FakeRuntime) -> None:
    loud, quiet = await running(fake, "loud"), await running(fake, "quiet")
    begun = fake.containers[-1].started_at + 2

    fake.exit(loud, 137, oom=True, error="no memory")
    fake.exit(quiet, 1, silent=True)

    info = await fake.inspect(loud)
    assert (info.oom_killed, info.error, info.exit_code, info.state) == (True, "no memory", 137, State.EXITED)
    assert (await fake.inspect(quiet)).exit_code == 1
    assert [(event.kind, event.name) for event in await collect(fake, since=begun)] == [
        (EventKind.OOM, "loud"),
        (EventKind.DIE, "loud"),
    ]


async def test_health_changes_are_told(fake: FakeRuntime) -> None:
    made = await running(fake)
    fake.health(made, "unhealthy")

    assert (await fake.inspect(made)).health == "unhealthy"
    assert (await collect(fake, since=1))[-1].health == "unhealthy"


@pytest.mark.parametrize("silent", [False, True])
async def test_a_container_can_vanish(fake: FakeRuntime, silent: bool) -> None:
    made = await running(fake)
    fake.vanish(made, silent=silent)

    with pytest.raises(NotFound):
        await fake.inspect(made)
    kinds = [event.kind for event in await collect(fake, since=1)]
    assert kinds[2:] == ([] if silent else [EventKind.DIE, EventKind.DESTROY])


async def test_a_pull_brings_what_the_registry_has(fake: FakeRuntime) -> None:
    fake.registry.add("team/app:2")

    progress = [step async for step in fake.pull("team/app:2")]

    assert progress[-1].current == progress[-1].total
    image = await fake.image("team/app:2")
    assert image.digests == (f"team/app@{image.id}",)


async def test_published_ports_are_reported(fake: FakeRuntime) -> None:
    bindings = {"80/tcp": [{"HostPort": "8080"}], "53/udp": [{"HostPort": ""}, {}]}
    await fake.create("web", {**BODY, "HostConfig": {"PortBindings": bindings}})
    await fake.start("web")

    ports = (await fake.inspect("web")).ports

    assert [(port.container_port, port.protocol) for port in ports] == [(80, "tcp"), (53, "udp"), (53, "udp")]
    assert ports[0].host_port == 8080
    assert len({port.host_port for port in ports}) == 3


async def test_the_same_script_gives_the_same_run() -> None:
    runs = []
    for _ in range(2):
        ticks = count(1)
        fake = FakeRuntime([IMAGE], clock=lambda ticks=ticks: float(next(ticks)))
        fake.exit(await running(fake), 0)
        runs.append((fake.containers, await collect(fake, since=0.5)))

    assert runs[0] == runs[1]
