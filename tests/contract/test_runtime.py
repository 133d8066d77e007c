"""The runtime contract, one suite over every driver: a real Docker engine and the scripted fake.

A ``Bench`` is a runtime plus the few things a test does around it: which bodies make a container behave in some way,
how its engine dies and returns, and where a pull fails in which way.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import pytest

from engine import PrivateEngine
from images import FakeRegistry, build_busybox
from sexton.runtime.contract import (
    Conflict,
    Event,
    EventKind,
    LogLine,
    NotFound,
    Refused,
    Runtime,
    State,
    Unavailable,
)
from sexton.runtime.fake import Behaviour, FakeRuntime
from sexton.runtime.opening import open_runtime

IMAGE = "sexton/busybox:latest"
RUNS = ["sleep", "1000"]
IGNORES_TERM = ["sh", "-c", "trap '' TERM; echo ready; while :; do sleep 1; done"]
WRITES = ["sh", "-c", "echo one; echo two >&2; sleep 0.1; echo three"]
ENDS_ON_TERM = ["sh", "-c", "trap 'exit 143' TERM; echo ready; while :; do sleep 0.05; done"]
CANNOT_START = ["/there/is/no/such/command"]


def exits(code: int) -> list[str]:
    return ["sh", "-c", f"exit {code}"]


class Bench(Protocol):
    runtime: Runtime

    def kill_engine(self) -> None: ...

    def start_engine(self) -> None: ...

    def registry(self, answer: str) -> AbstractAsyncContextManager[str]:
        """A reference whose pull ends with "unknown", "denied" or "broken"."""
        ...


class DockerBench:
    """A real engine; breaking it is left to the fixture that owns one for that."""

    def __init__(self, engine: PrivateEngine) -> None:
        self.engine = engine
        self.runtime = open_runtime(engine.url)

    def kill_engine(self) -> None:
        self.engine.kill()

    def start_engine(self) -> None:
        self.engine.start()

    @asynccontextmanager
    async def registry(self, answer: str) -> AsyncIterator[str]:
        async with FakeRegistry(answer) as registry:
            yield registry.ref("none:latest")


class FakeBench:
    """The fake, told what the commands of this suite do."""

    def __init__(self) -> None:
        self.runtime: FakeRuntime = FakeRuntime([IMAGE], behave=self._behave)

    def kill_engine(self) -> None:
        self.runtime.down()

    def start_engine(self) -> None:
        self.runtime.up()

    @asynccontextmanager
    async def registry(self, answer: str) -> AsyncIterator[str]:
        if answer == "denied":
            self.runtime.fail("pull", Refused("unauthorized: authentication required"))
        if answer == "broken":
            self.runtime.fail("pull", Unavailable("received unexpected HTTP status: 503"))
        yield "registry.example/none:latest"

    @staticmethod
    def _behave(body: Mapping[str, Any]) -> Behaviour:
        command = body.get("Cmd")
        if command == IGNORES_TERM:
            return Behaviour(ignore_term=True, log=(("stdout", "ready"),))
        if command == ENDS_ON_TERM:
            return Behaviour(log=(("stdout", "ready"),))
        if command == WRITES:
            return Behaviour(exit_code=0, log=(("stdout", "one"), ("stderr", "two"), ("stdout", "three")))
        if command == CANNOT_START:
            return Behaviour(start_error=f'exec: "{CANNOT_START[0]}": no such file or directory')
        if isinstance(command, list) and command[-1].startswith("exit "):
            return Behaviour(exit_code=int(command[-1].split()[1]))
        return Behaviour()


DRIVERS = [pytest.param("docker", marks=pytest.mark.docker), "fake"]


@pytest.fixture(params=DRIVERS)
async def bench(request: pytest.FixtureRequest) -> AsyncIterator[Bench]:
    """An engine that stays up; what the test made is removed after it."""
    made: DockerBench | FakeBench
    if request.param == "docker":
        request.getfixturevalue("busybox_image")
        made = DockerBench(request.getfixturevalue("engine_session"))
    else:
        made = FakeBench()
    yield made
    for brief in await made.runtime.list({"suite": "runtime"}):
        await made.runtime.remove(brief.id, force=True)
    await made.runtime.close()


@pytest.fixture(scope="module")
def mortal_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateEngine]:
    """An engine of this module's own, to be killed; containers survive it."""
    with PrivateEngine(tmp_path_factory.mktemp("mortal"), live_restore=True) as engine:
        build_busybox(engine.url)
        yield engine


@pytest.fixture(params=DRIVERS)
async def mortal(request: pytest.FixtureRequest) -> AsyncIterator[Bench]:
    """An engine the test may kill."""
    made: DockerBench | FakeBench
    made = DockerBench(request.getfixturevalue("mortal_engine")) if request.param == "docker" else FakeBench()
    yield made
    made.start_engine()
    for brief in await made.runtime.list({"suite": "runtime"}):
        await made.runtime.remove(brief.id, force=True)
    await made.runtime.close()


def body(command: list[str], **labels: str) -> dict[str, Any]:
    return {
        "Image": IMAGE,
        "Cmd": command,
        "Labels": {"suite": "runtime", **labels},
        "HostConfig": {"NetworkMode": "none"},
    }


async def run(runtime: Runtime, name: str, command: list[str]) -> str:
    made = await runtime.create(name, body(command))
    await runtime.start(made)
    return made


async def until(true: Callable[[], Any], what: str) -> Any:
    """Poll an async question until its answer is true."""
    deadline = time.monotonic() + 10
    while not (answer := await true()):
        assert time.monotonic() < deadline, f"not within 10 s: {what}"
        await asyncio.sleep(0.01)
    return answer


async def ended(runtime: Runtime, ref: str) -> int | None:
    async def state() -> bool:
        return (await runtime.inspect(ref)).state is State.EXITED

    await until(state, f"{ref} exited")
    return (await runtime.inspect(ref)).exit_code


async def wrote(runtime: Runtime, ref: str, text: str) -> None:
    """Wait until the container's own words show that it is as far as the test needs it."""

    async def said() -> bool:
        return text in [line.text async for line in runtime.logs(ref)]

    await until(said, f"{ref} wrote {text}")


async def take_until(stream: AsyncIterator[Event], kind: EventKind, ref: str) -> list[Event]:
    """The events of one container up to and including this one."""
    seen = []
    async with asyncio.timeout(10):
        async for event in stream:
            if event.container_id == ref:
                seen.append(event)
                if event.kind is kind:
                    break
    return seen


async def test_the_engine_says_what_it_is(bench: Bench) -> None:
    info = await bench.runtime.describe()

    assert info.name in ("docker", "fake")
    assert info.version
    assert info.api_version == info.api_versions[-1]
    assert "1.24" in info.api_versions
    assert "json-file" in info.log_drivers
    assert info.cgroup_driver in ("cgroupfs", "systemd")
    assert Path(info.root_dir).is_absolute()


async def test_a_container_lives_from_create_to_remove(bench: Bench) -> None:
    runtime, before = bench.runtime, time.time() - 1
    made = await runtime.create("life", body(RUNS, task="t1"))

    created = await runtime.inspect(made)
    assert (created.id, created.name, created.image) == (made, "life", IMAGE)
    assert created.image_id == (await runtime.image(IMAGE)).id
    assert (created.state, created.exit_code, created.error) == (State.CREATED, None, "")
    assert created.created_at >= before
    assert (created.started_at, created.finished_at, created.pid) == (0.0, 0.0, 0)
    assert created.labels["task"] == "t1"

    await runtime.start(made)
    running = await runtime.inspect("life")
    assert (running.state, running.exit_code, running.finished_at) == (State.RUNNING, None, 0.0)
    assert running.pid > 0
    assert running.started_at >= created.created_at

    await runtime.signal(made, "KILL")
    assert await ended(runtime, made) == 137
    dead = await runtime.inspect(made)
    assert dead.finished_at >= running.started_at
    assert dead.pid == 0

    await runtime.remove(made)
    with pytest.raises(NotFound):
        await runtime.inspect(made)


@pytest.mark.parametrize("code", [0, 3])
async def test_a_container_that_ends_by_itself_keeps_its_exit_code(bench: Bench, code: int) -> None:
    made = await run(bench.runtime, "ends", exits(code))

    assert await ended(bench.runtime, made) == code


async def test_stop_asks_with_term_first(bench: Bench) -> None:
    made = await run(bench.runtime, "polite", ENDS_ON_TERM)
    await wrote(bench.runtime, made, "ready")

    begun = time.monotonic()
    await bench.runtime.stop(made, 8)

    info = await bench.runtime.inspect(made)
    assert (info.state, info.exit_code) == (State.EXITED, 143)
    assert time.monotonic() - begun < 5


async def test_stop_kills_after_the_grace(bench: Bench) -> None:
    made = await run(bench.runtime, "stubborn", IGNORES_TERM)
    await wrote(bench.runtime, made, "ready")

    begun = time.monotonic()
    await bench.runtime.stop(made, 1)

    info = await bench.runtime.inspect(made)
    assert (info.state, info.exit_code) == (State.EXITED, 137)
    assert 0.9 < time.monotonic() - begun < 6


async def test_stop_and_start_can_be_repeated(bench: Bench) -> None:
    made = await run(bench.runtime, "again", RUNS)
    before = await bench.runtime.inspect(made)
    await bench.runtime.start(made)
    assert await bench.runtime.inspect(made) == before

    await bench.runtime.stop(made, 0)
    await bench.runtime.stop(made, 0)
    assert (await bench.runtime.inspect(made)).state is State.EXITED

    await bench.runtime.start(made)
    restarted = await bench.runtime.inspect(made)
    assert (restarted.state, restarted.exit_code) == (State.RUNNING, None)


async def test_signals_need_a_running_container(bench: Bench) -> None:
    made = await bench.runtime.create("quiet", body(RUNS))

    with pytest.raises(Conflict, match="not running"):
        await bench.runtime.signal(made, "TERM")


async def test_a_name_is_given_once(bench: Bench) -> None:
    await bench.runtime.create("taken", body(RUNS))

    with pytest.raises(Conflict, match="taken"):
        await bench.runtime.create("taken", body(RUNS))


async def test_a_create_that_was_interrupted_is_found_by_its_name(bench: Bench) -> None:
    creating = asyncio.create_task(bench.runtime.create("halfway", body(RUNS, task="half")))
    await asyncio.sleep(0)
    await asyncio.sleep(0.002)
    creating.cancel()
    await asyncio.gather(creating, return_exceptions=True)

    # Whatever became of it, creating again leaves one container, and its name leads to it.
    async def present() -> str:
        try:
            return await bench.runtime.create("halfway", body(RUNS, task="half"))
        except Conflict:
            return (await bench.runtime.inspect("halfway")).id
        except Unavailable:
            return ""

    async def listed() -> list[str]:
        return [brief.id for brief in await bench.runtime.list({"task": "half"})]

    made = await until(present, "the name leads to a container")
    assert await until(listed, "the container is listed") == [made]


async def test_what_is_absent_is_not_found(bench: Bench) -> None:
    runtime = bench.runtime
    for call in (
        runtime.inspect("absent"),
        runtime.inspect(""),
        runtime.start("absent"),
        runtime.stop("absent", 0),
        runtime.signal("absent", "TERM"),
        runtime.image("sexton/absent:latest"),
        runtime.create("imageless", {"Image": "sexton/absent:latest"}),
    ):
        with pytest.raises(NotFound, match=r"(?i)no such|cannot find"):
            await call
    with pytest.raises(NotFound):
        [line async for line in runtime.logs("absent")]


async def test_removing_twice_is_no_error_and_running_ones_need_force(bench: Bench) -> None:
    made = await run(bench.runtime, "removed", RUNS)

    with pytest.raises(Conflict):
        await bench.runtime.remove(made)
    await bench.runtime.remove(made, force=True)
    await bench.runtime.remove(made)
    await bench.runtime.remove("removed", force=True)

    assert await bench.runtime.list({"suite": "runtime"}) == ()


async def test_list_picks_by_all_labels_in_any_state(bench: Bench) -> None:
    runtime = bench.runtime
    idle = await runtime.create("first", body(RUNS, task="t1", role="web"))
    busy = await runtime.create("second", body(RUNS, task="t1"))
    await runtime.create("third", body(RUNS, task="t2"))
    await runtime.start(busy)

    found = {brief.id: brief for brief in await runtime.list({"task": "t1"})}
    assert {idle: ("first", State.CREATED), busy: ("second", State.RUNNING)} == {
        key: (brief.name, brief.state) for key, brief in found.items()
    }
    assert found[idle].image == IMAGE
    assert found[idle].labels["role"] == "web"
    assert found[idle].created_at > 0
    assert {brief.name for brief in await runtime.list({"task": ""})} == {"first", "second", "third"}
    assert [brief.name for brief in await runtime.list({"task": "t1", "role": "web"})] == ["first"]
    assert await runtime.list({"task": "t3"}) == ()


async def test_events_tell_a_container_s_life_in_order(bench: Bench) -> None:
    runtime = bench.runtime
    async with runtime.events() as stream:
        made = await runtime.create("told", body(exits(3), task="t1"))
        await runtime.start(made)
        await ended(runtime, made)
        await runtime.remove(made)
        seen = await take_until(stream, EventKind.DESTROY, made)

    assert [event.kind for event in seen] == [EventKind.CREATE, EventKind.START, EventKind.DIE, EventKind.DESTROY]
    assert [event.exit_code for event in seen] == [None, None, 3, None]
    assert {(event.name, event.image, event.labels["task"]) for event in seen} == {("told", IMAGE, "t1")}
    assert sorted(event.time for event in seen) == [event.time for event in seen]
    assert abs(seen[0].time - time.time()) < 10


async def test_events_resume_from_a_time_without_losing_any(bench: Bench) -> None:
    runtime = bench.runtime
    async with runtime.events() as stream:
        made = await run(runtime, "resumed", RUNS)
        started = (await take_until(stream, EventKind.START, made))[-1]

    await runtime.stop(made, 0)
    async with runtime.events(since=started.time) as stream:
        missed = await take_until(stream, EventKind.DIE, made)
        await runtime.remove(made)
        live = await take_until(stream, EventKind.DESTROY, made)

    assert [event.kind for event in missed] == [EventKind.START, EventKind.DIE]
    assert [event.kind for event in live] == [EventKind.DESTROY]


async def test_events_from_now_do_not_repeat_the_past(bench: Bench) -> None:
    runtime = bench.runtime
    past = await runtime.create("past", body(RUNS))
    async with runtime.events() as stream:
        made = await runtime.create("present", body(RUNS))
        async with asyncio.timeout(10):
            first = await anext(stream)

    assert (first.kind, first.container_id) == (EventKind.CREATE, made)
    assert first.container_id != past


async def test_a_command_that_does_not_exist_is_refused_with_the_engine_s_words(bench: Bench) -> None:
    runtime = bench.runtime
    made = await runtime.create("hopeless", body(CANNOT_START))

    with pytest.raises(Refused, match="no such file or directory") as refused:
        await runtime.start(made)

    assert not isinstance(refused.value, NotFound | Conflict)
    info = await runtime.inspect(made)
    assert (info.state, info.exit_code) == (State.EXITED, None)
    assert CANNOT_START[0] in info.error


async def test_logs_tell_the_streams_apart(bench: Bench) -> None:
    made = await run(bench.runtime, "wrote", WRITES)
    await ended(bench.runtime, made)

    lines = [line async for line in bench.runtime.logs(made)]

    assert {("stdout", "one"), ("stderr", "two"), ("stdout", "three")} == {(line.stream, line.text) for line in lines}
    assert lines[-1].text == "three"
    assert all(abs(line.time - time.time()) < 10 for line in lines)
    assert [line.text async for line in bench.runtime.logs(made, tail=1)] == ["three"]
    assert [line async for line in bench.runtime.logs(made, since=time.time() + 5)] == []


async def test_followed_logs_end_with_the_container(bench: Bench) -> None:
    made = await run(bench.runtime, "followed", ENDS_ON_TERM)
    seen: list[LogLine] = []

    async def follow() -> None:
        async for line in bench.runtime.logs(made, follow=True):
            seen.append(line)

    async def ready() -> bool:
        return bool(seen)

    following = asyncio.create_task(follow())
    await until(ready, "the first line is told while the container runs")
    still = (await asyncio.wait({following}, timeout=0.2))[1]
    assert following in still

    await bench.runtime.stop(made, 5)
    async with asyncio.timeout(10):
        await following
    assert [line.text for line in seen] == ["ready"]


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        ("unknown", NotFound, "manifest unknown"),
        ("denied", Refused, "(?i)unauthorized"),
        ("broken", Unavailable, "503"),
    ],
)
async def test_a_pull_that_fails_says_whether_to_try_again(
    bench: Bench, answer: str, kind: type[Exception], words: str
) -> None:
    async with bench.registry(answer) as ref:
        with pytest.raises(kind, match=words) as failed:
            [progress async for progress in bench.runtime.pull(ref)]

    assert type(failed.value) is kind


async def test_a_container_s_cgroup_is_below_its_parent(bench: Bench) -> None:
    await bench.runtime.describe()
    made = await bench.runtime.create("caged", {**body(RUNS), "HostConfig": {"CgroupParent": "/runtime-suite"}})

    path = bench.runtime.cgroup(await bench.runtime.inspect(made), "/runtime-suite")

    assert path == f"/runtime-suite/{made}"


async def test_a_dead_engine_is_unavailable_and_a_new_one_is_used(mortal: Bench) -> None:
    runtime = mortal.runtime
    made = await run(runtime, "survivor", RUNS)
    mortal.kill_engine()

    for call in (
        runtime.inspect(made),
        runtime.list({}),
        runtime.start(made),
        runtime.stop(made, 0),
        runtime.remove(made),
        runtime.create("late", body(RUNS)),
        runtime.describe(),
    ):
        with pytest.raises(Unavailable, match="cannot reach"):
            await call
    with pytest.raises(Unavailable):
        async with runtime.events():
            raise AssertionError("no stream can be open")

    await asyncio.to_thread(mortal.start_engine)
    assert (await runtime.inspect("survivor")).id == made
    assert (await runtime.describe()).api_versions
    await runtime.stop(made, 0)
    assert (await runtime.inspect(made)).state is State.EXITED


async def test_streams_end_when_the_engine_dies(mortal: Bench) -> None:
    runtime = mortal.runtime
    made = await run(runtime, "watched", IGNORES_TERM)
    await wrote(runtime, made, "ready")

    async def follow() -> None:
        async for _ in runtime.logs(made, follow=True):
            pass

    async with runtime.events() as stream:
        following = asyncio.create_task(follow())
        stopping = asyncio.create_task(runtime.stop(made, 60))
        await asyncio.sleep(0.2)  # all three are waiting for the engine by now; a later one fails just the same
        mortal.kill_engine()

        async with asyncio.timeout(10):
            for waiting in (following, stopping):
                with pytest.raises(Unavailable):
                    await waiting
            with pytest.raises(Unavailable):
                async for _ in stream:
                    pass

    await asyncio.to_thread(mortal.start_engine)
    async with runtime.events() as stream:
        await runtime.remove(made, force=True)
        assert (await take_until(stream, EventKind.DESTROY, made))[-1].kind is EventKind.DESTROY


@pytest.mark.docker
async def test_the_kernel_has_the_container_in_the_cgroup_that_is_named(
    engine_session: PrivateEngine, busybox_image: str
) -> None:
    runtime, parent = open_runtime(engine_session.url), f"{engine_session.cgroup_parent}/task"
    await runtime.describe()
    made = await runtime.create("caged", {**body(RUNS), "HostConfig": {"CgroupParent": parent, "NetworkMode": "none"}})
    await runtime.start(made)
    info = await runtime.inspect(made)

    lines = Path(f"/proc/{info.pid}/cgroup").read_text().splitlines()
    assert any(line.endswith(f":{runtime.cgroup(info, parent)}") for line in lines)

    await runtime.remove(made, force=True)
    await runtime.close()


@pytest.mark.docker
async def test_a_terminal_s_log_is_read_as_lines(engine_session: PrivateEngine, busybox_image: str) -> None:
    runtime = open_runtime(engine_session.url)
    made = await runtime.create("terminal", {**body(WRITES), "Tty": True})
    await runtime.start(made)
    await ended(runtime, made)

    assert [(line.stream, line.text) async for line in runtime.logs(made)] == [
        ("stdout", "one"),
        ("stdout", "two"),
        ("stdout", "three"),
    ]

    await runtime.remove(made)
    await runtime.close()


@pytest.mark.docker
async def test_a_published_port_is_reported_and_answers(engine_session: PrivateEngine, busybox_image: str) -> None:
    runtime = open_runtime(engine_session.url)
    command = ["sh", "-c", "echo hello > /tmp/index.html; exec httpd -f -p 80 -h /tmp"]
    host = {"PortBindings": {"80/tcp": [{"HostIp": "127.0.0.1", "HostPort": ""}]}}
    published = {**body(command), "ExposedPorts": {"80/tcp": {}}, "HostConfig": host}
    made = await runtime.create("published", published)
    await runtime.start(made)

    (port,) = (await runtime.inspect(made)).ports
    assert (port.container_port, port.bind_ip, port.protocol) == (80, "127.0.0.1", "tcp")

    async def fetched() -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port.host_port)
        try:
            writer.write(b"GET / HTTP/1.0\r\n\r\n")
            return await reader.read()
        except ConnectionError:
            return b""
        finally:
            writer.close()

    assert (await until(fetched, "the published port answers")).endswith(b"hello\n")

    await runtime.remove(made, force=True)
    await runtime.close()


@pytest.mark.docker
async def test_a_log_that_cannot_be_read_back_is_refused(engine_session: PrivateEngine, busybox_image: str) -> None:
    runtime = open_runtime(engine_session.url)
    made = await runtime.create("unlogged", {**body(RUNS), "HostConfig": {"LogConfig": {"Type": "none"}}})
    await runtime.start(made)

    with pytest.raises(Refused, match="does not support reading"):
        [line async for line in runtime.logs(made)]

    await runtime.remove(made, force=True)
    await runtime.close()


@pytest.mark.docker
async def test_a_dead_containerd_is_no_refusal(mortal_engine: PrivateEngine) -> None:
    runtime = open_runtime(mortal_engine.url)
    made = await runtime.create("waiting", body(RUNS))
    mortal_engine.kill_containerd()

    with pytest.raises(Unavailable, match=r"containerd\.sock|unavailable"):
        await runtime.start(made)

    await asyncio.to_thread(mortal_engine.start)

    async def started() -> bool:
        try:
            await runtime.start(made)
        except Unavailable:
            return False
        return True

    await until(started, "the engine found its containerd again")
    await runtime.remove(made, force=True)
    await runtime.close()
