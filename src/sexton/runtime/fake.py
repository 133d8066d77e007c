"""A container engine in memory, for tests of everything above the contract: it does what the test scripted.

It passes the same suite as the real drivers. On top a test can make any call fail (before or after its effect), hang
or be slow, take the engine down and up, break the event stream, let containers exit, and remove them behind the
agent's back, with or without an event. Containers run until told otherwise, unless a ``Behaviour`` says more.

The same script gives the same run: ids are counted, time comes from the ``clock`` that was handed in, and waiting
is asyncio's, so a fake loop time governs it. As with a real engine, containers survive ``down()`` and ``up()``, the
journal of events does not.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any

import msgspec

from sexton.runtime.cgroup_path import container_cgroup
from sexton.runtime.contract import (
    Conflict,
    ContainerBrief,
    ContainerInfo,
    EngineInfo,
    Event,
    EventKind,
    Joined,
    LogLine,
    NotFound,
    PortBinding,
    Refused,
    Runtime,
    State,
    Unavailable,
)
from sexton.runtime.deadlines import DEFAULTS, Deadlines
from sexton.runtime.fake_stores import FakeStores

FIRST_DYNAMIC_PORT = 32768
"""Where the kernel's range of ports for "any port" begins."""

_DEADLY = {"TERM": 143, "KILL": 137, "INT": 130, "HUP": 129, "QUIT": 131}
"""Signals that end a process by default, and the exit code an engine reports for it."""


class Behaviour(msgspec.Struct, frozen=True, kw_only=True):
    """What a container does by itself."""

    exit_code: int | None = None  # ends at once with this code; None: runs until told
    ignore_term: bool = False  # only KILL ends it
    start_error: str = ""  # the engine refuses to start it, in these words
    log: tuple[tuple[str, str], ...] = ()  # (stream, line) written at the start


RUNS = Behaviour()


class _Container:
    """What the engine knows of one container; ``changed`` is replaced at every change so that waiters wake."""

    def __init__(self, info: ContainerInfo, body: Mapping[str, Any], behaviour: Behaviour) -> None:
        self.info = info
        self.body = body
        self.behaviour = behaviour
        self.log: list[LogLine] = []
        self.changed = asyncio.Event()

    def touch(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()


def connect(url: str, deadlines: Deadlines = DEFAULTS) -> Runtime:
    """A fresh engine in memory, whatever the address says after fake://."""
    return FakeRuntime()


class FakeRuntime(FakeStores):
    """An engine a test scripts. ``registry`` is what can be pulled; ``images`` is what is here already."""

    def __init__(
        self,
        images: Iterable[str] = (),
        registry: Iterable[str] = (),
        clock: Callable[[], float] = time.time,
        behave: Callable[[Mapping[str, Any]], Behaviour] = lambda body: RUNS,
    ) -> None:
        super().__init__(images, registry, clock)
        self._behave = behave
        self._containers: dict[str, _Container] = {}
        self._journal: list[Event] = []
        self._followers: set[asyncio.Queue[Event | None]] = set()
        self._made = 0
        self._next_port = FIRST_DYNAMIC_PORT
        self.addresses: tuple[str, ...] = ("0.0.0.0",)  # noqa: S104 - where published ports are said to be

    # What a test scripts.

    def down(self) -> None:
        """The engine is gone: calls and streams end with Unavailable, containers stay as they are."""
        self.is_up = False
        self._journal.clear()
        self.break_events()
        for container in self._containers.values():
            container.touch()  # calls that wait for one find the engine gone

    def up(self) -> None:
        self.is_up = True

    def break_events(self) -> None:
        """Every event stream ends; the journal is kept, so that a follower can resume."""
        for queue in self._followers:
            queue.put_nowait(None)

    def exit(self, ref: str, code: int = 0, *, oom: bool = False, error: str = "", silent: bool = False) -> None:
        """The container's process ends; ``silent`` loses the events, as a broken stream does."""
        container = self._find(ref)
        if container.info.state is not State.RUNNING:
            raise AssertionError(f"cannot let {ref} exit: it does not run")
        if oom and not silent:
            self._say(EventKind.OOM, container)
        self._change(
            container, state=State.EXITED, exit_code=code, oom_killed=oom, error=error, finished_at=self._clock(), pid=0
        )
        if not silent:
            self._say(EventKind.DIE, container, exit_code=code)

    def health(self, ref: str, status: str) -> None:
        """The health check's verdict changes: "starting", "healthy" or "unhealthy"."""
        container = self._find(ref)
        self._change(container, health=status)
        self._say(EventKind.HEALTH, container, health=status)

    def write(self, ref: str, text: str, stream: str = "stdout") -> None:
        """The container writes a line."""
        container = self._find(ref)
        container.log.append(LogLine(stream=stream, text=text, time=self._clock()))
        container.touch()

    def vanish(self, ref: str, *, silent: bool = False) -> None:
        """Somebody else removes the container, running or not."""
        container = self._find(ref)
        if container.info.state is State.RUNNING:
            self.exit(ref, 137, silent=silent)
        self._drop(container, silent=silent)

    def body(self, ref: str) -> Mapping[str, Any]:
        """What the container was created with."""
        return self._find(ref).body

    @property
    def containers(self) -> tuple[ContainerInfo, ...]:
        """All containers, oldest first, without going through a call."""
        return tuple(container.info for container in self._containers.values())

    # The contract.

    async def describe(self) -> EngineInfo:
        async with self.call("describe"):
            return EngineInfo(
                name="fake",
                version="1.0",
                api_version="1.41",
                api_versions=tuple(f"1.{minor}" for minor in range(17, 42)),
                log_drivers=("json-file", "none"),
                root_dir="/var/lib/fake",
            )

    async def bridge(self) -> str:
        return ""  # its containers are on no host

    async def list(self, labels: Mapping[str, str]) -> tuple[ContainerBrief, ...]:
        async with self.call("list"):
            found = [container.info for container in self._containers.values() if _carries(container.info, labels)]
            return tuple(
                ContainerBrief(
                    id=info.id,
                    name=info.name,
                    image=info.image,
                    state=info.state,
                    labels=info.labels,
                    created_at=info.created_at,
                    image_id=info.image_id,
                )
                for info in reversed(found)
            )

    async def inspect(self, ref: str) -> ContainerInfo:
        async with self.call("inspect", ref):
            return self._find(ref).info

    async def create(self, name: str, body: Mapping[str, Any]) -> str:
        async with self.call("create", name):
            if any(container.info.name == name for container in self._containers.values()):
                raise Conflict(f'Conflict. The container name "/{name}" is already in use', 409)
            image = self._image(str(body.get("Image", "")))
            self._made += 1
            info = ContainerInfo(
                id=f"{self._made:064x}",
                name=name,
                image=str(body["Image"]),
                image_id=image.id,
                state=State.CREATED,
                labels=dict(body.get("Labels") or {}),
                created_at=self._clock(),
                networks=(_joined(body, self._made),),
            )
            container = _Container(info, body, self._behave(body))
            self._containers[info.id] = container
            self._say(EventKind.CREATE, container)
            return info.id

    async def start(self, ref: str) -> None:
        async with self.call("start", ref):
            container = self._find(ref)
            if container.info.state is State.RUNNING:
                return
            behaviour = container.behaviour
            if behaviour.start_error:
                self._change(container, state=State.EXITED, error=behaviour.start_error)
                raise Refused(behaviour.start_error, 400)
            self._change(
                container,
                state=State.RUNNING,
                exit_code=None,
                error="",
                oom_killed=False,
                started_at=self._clock(),
                finished_at=0.0,
                pid=1000 + int(container.info.id, 16),
                ports=self._bind(container.body),
            )
            self._say(EventKind.START, container)
            for stream, text in behaviour.log:
                self.write(ref, text, stream)
            if behaviour.exit_code is not None:
                self.exit(ref, behaviour.exit_code)

    async def signal(self, ref: str, signal: str) -> None:
        async with self.call("signal", ref):
            container = self._find(ref)
            if container.info.state is not State.RUNNING:
                raise Conflict(f"Cannot kill container: {ref}: Container {container.info.id} is not running", 409)
            self._deliver(container, signal.upper().removeprefix("SIG"))

    async def stop(self, ref: str, grace: float) -> None:
        async with self.call("stop", ref):
            container = self._find(ref)
            if container.info.state is not State.RUNNING:
                return
            self._deliver(container, "TERM")
            try:
                async with asyncio.timeout(grace):
                    while container.info.state is State.RUNNING and self.is_up:
                        await container.changed.wait()
            except TimeoutError:
                self._deliver(container, "KILL")

    async def rename(self, ref: str, name: str) -> None:
        async with self.call("rename", ref):
            container = self._find(ref)
            if any(one.info.name == name for one in self._containers.values()):
                raise Conflict(f'Conflict. The container name "/{name}" is already in use', 409)
            self._change(container, name=name)

    async def remove(self, ref: str, *, force: bool = False) -> None:
        async with self.call("remove", ref):
            try:
                container = self._find(ref)
            except NotFound:
                return
            if container.info.state is State.RUNNING:
                if not force:
                    raise Conflict(f"You cannot remove a running container {container.info.id}", 409)
                self._deliver(container, "KILL")
            self._drop(container)

    @asynccontextmanager
    async def events(self, since: float = 0.0) -> AsyncIterator[AsyncIterator[Event]]:
        queue: asyncio.Queue[Event | None] = asyncio.Queue()
        async with self.call("events"):
            for event in self._journal:
                if since and event.time >= since:
                    queue.put_nowait(event)
            self._followers.add(queue)
        try:
            async with aclosing(_drain(queue)) as stream:
                yield stream
        finally:
            self._followers.discard(queue)

    async def logs(
        self, ref: str, *, follow: bool = False, tail: int = 0, since: float = 0.0
    ) -> AsyncIterator[LogLine]:
        async with self.call("logs", ref):
            container = self._find(ref)
            told = max(0, len(container.log) - tail) if tail > 0 else 0
        while True:
            changed = container.changed
            while told < len(container.log):
                line = container.log[told]
                told += 1
                if line.time >= since:
                    yield line
            if not follow or container.info.state is not State.RUNNING:
                return
            self.answer()
            if told == len(container.log) and changed is container.changed:
                await changed.wait()

    def cgroup(self, info: ContainerInfo, parent: str) -> str:
        return container_cgroup(info.id, parent, "cgroupfs")

    async def close(self) -> None:
        self.break_events()

    # What the calls have in common.

    def _find(self, ref: str) -> _Container:
        for container in self._containers.values():
            if ref in (container.info.id, container.info.name):
                return container
        raise NotFound(f"No such container: {ref}", 404)

    def _used_images(self) -> set[str]:
        return {container.info.image_id for container in self._containers.values()}

    def _used_volumes(self) -> set[str]:
        return {
            bind.partition(":")[0]
            for container in self._containers.values()
            for bind in (container.body.get("HostConfig") or {}).get("Binds") or ()
        }

    def _deliver(self, container: _Container, signal: str) -> None:
        ignored = container.behaviour.ignore_term and signal != "KILL"
        if signal in _DEADLY and not ignored:
            self.exit(container.info.id, _DEADLY[signal])

    def _change(self, container: _Container, **fields: Any) -> None:
        container.info = msgspec.structs.replace(container.info, **fields)
        container.touch()

    def _drop(self, container: _Container, *, silent: bool = False) -> None:
        del self._containers[container.info.id]
        container.touch()
        if not silent:
            self._say(EventKind.DESTROY, container)

    def _say(self, kind: EventKind, container: _Container, *, exit_code: int | None = None, health: str = "") -> None:
        info = container.info
        event = Event(
            kind=kind,
            container_id=info.id,
            time=self._clock(),
            labels=info.labels,
            name=info.name,
            image=info.image,
            exit_code=exit_code,
            health=health,
        )
        if not self.is_up:
            return  # nobody notes what happens while the engine is gone
        self._journal.append(event)
        for queue in self._followers:
            queue.put_nowait(event)

    def _bind(self, body: Mapping[str, Any]) -> tuple[PortBinding, ...]:
        bound = []
        for inside, wanted in ((body.get("HostConfig") or {}).get("PortBindings") or {}).items():
            number, _, protocol = inside.partition("/")
            for binding in wanted or ():
                port = int(binding.get("HostPort") or 0)
                if not port:
                    port = self._next_port
                    self._next_port += 1
                bound += [
                    PortBinding(container_port=int(number), host_port=port, protocol=protocol or "tcp", bind_ip=address)
                    for address in self.addresses
                ]
        return tuple(bound)


async def _drain(queue: asyncio.Queue[Event | None]) -> AsyncGenerator[Event, None]:
    while (event := await queue.get()) is not None:
        yield event
    raise Unavailable("cannot follow the engine's events any further: it ended the stream; is it restarting?")


def _carries(info: ContainerInfo, labels: Mapping[str, str]) -> bool:
    return all(key in info.labels and value in ("", info.labels[key]) for key, value in labels.items())


def _joined(body: Mapping[str, Any], number: int) -> Joined:
    """An address of its own, unless it asks for another network than the engine's."""
    network = (body.get("HostConfig") or {}).get("NetworkMode") or "bridge"
    return Joined(name=network, ipv4=f"172.17.{number // 250}.{number % 250 + 2}" if network == "bridge" else "")
