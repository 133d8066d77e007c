"""One agent's engine room on a scripted container engine: what it needs around it, in memory, killable at will.

``Host`` starts an Engine with a Checkpoint over a ``Memory`` store and a Reporter that talks to a ``Desk``. ``kill``
drops everything an agent holds in memory, unsaved changes included; the next ``boot`` finds what was durable and
whatever the container engine did meanwhile. All waiting is on the loop's clock, so tests run with looptime.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sexton.agent.admission import Admission
from sexton.agent.checkpoint import Checkpoint
from sexton.agent.engine import Engine
from sexton.agent.imagebook import ImageBook
from sexton.agent.metadata.file import MetadataFiles
from sexton.agent.ports import PortAllocator
from sexton.agent.reporter import Reporter
from sexton.agent.rolekeys import RoleKeys
from sexton.agent.steps.context import Identity, StepContext
from sexton.agent.supplies import Supplies
from sexton.cloud.credential_files import Static
from sexton.cloud.credentials import Credentials, CredentialSource, Keyring
from sexton.cloud.services import Parameters, RegistryToken
from sexton.core.task import DesiredTask, KnownContainer, TaskStatus
from sexton.host.taskcgroup import Remains
from sexton.kit.supervise import Nursery
from sexton.runtime.contract import ContainerInfo, EventKind
from sexton.runtime.fake import Behaviour, FakeRuntime
from sexton.settings import Settings
from sexton.store.contract import Delete, KeyValue, Page, Put, StoreError, TxnResult
from sexton.wire import acs_task, ecs
from sexton.wire.errors import EcsError

INSTANCE = "arn:aws:ecs:us-east-1:000000000000:container-instance/default/" + "1" * 32
CLUSTER = "default"
IMAGE = "app:1"


def arn(number: int = 1) -> str:
    return f"arn:aws:ecs:us-east-1:000000000000:task/default/{number:032x}"


def container(name: str = "app", **fields: Any) -> acs_task.Container:
    return acs_task.Container(**({"name": name, "image": IMAGE, "essential": True} | fields))


def task(number: int = 1, *containers: acs_task.Container, **fields: Any) -> acs_task.Task:
    given = {
        "arn": arn(number),
        "family": "web",
        "version": "1",
        "desired_status": "RUNNING",
        "network_mode": "bridge",
        "containers": containers or (container(),),
    }
    return acs_task.Task(**(given | fields))


class Memory:
    """The part of a store that a checkpoint uses; it outlives whoever writes to it."""

    def __init__(self) -> None:
        self.rows: dict[str, bytes] = {}
        self.refusals = 0  # so many transactions fail
        self.held: asyncio.Event | None = None  # transactions wait for it
        self._order = asyncio.Lock()  # one after the other, as they were asked for

    async def get(self, key: str) -> KeyValue | None:
        return KeyValue(key, self.rows[key], 1, 1) if key in self.rows else None

    async def range(self, prefix: str, *, after: str = "", limit: int = 0) -> Page:
        rows = sorted(key for key in self.rows if key.startswith(prefix))
        return Page(tuple(KeyValue(key, self.rows[key], 1, 1) for key in rows), 1, False)

    async def txn(self, compares: Any, writes: Any) -> TxnResult:
        keys = [one.key for one in writes]
        if len(set(keys)) != len(keys):
            raise StoreError("cannot write a key twice")
        async with self._order:
            if self.held is not None:
                await self.held.wait()
            await asyncio.sleep(0)  # a durable write is never instantaneous
            if self.refusals:
                self.refusals -= 1
                raise StoreError("the disk is full")
            for one in writes:
                match one:
                    case Put(key, value):
                        self.rows[key] = value
                    case Delete(key):
                        self.rows.pop(key, None)
            return TxnResult(True, 1)


class Desk:
    """The control plane's end of reports: takes them in, or fails as scripted."""

    def __init__(self) -> None:
        self.taken: list[ecs.SubmitTaskStateChangeRequest] = []
        self.failures: list[Exception] = []
        self.fails: Callable[[ecs.SubmitTaskStateChangeRequest], Exception | None] = lambda change: None
        self.tries = 0
        self.under_way = 0
        self.most_under_way = 0
        self.seconds = 0.0

    async def call(self, operation: str, change: ecs.SubmitTaskStateChangeRequest) -> None:
        assert operation == "SubmitTaskStateChange"
        self.tries += 1
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            await asyncio.sleep(self.seconds)
            error = self.failures.pop(0) if self.failures else self.fails(change)
            if error is not None:
                raise error
            self.taken.append(change)
        finally:
            self.under_way -= 1

    def told(self, number: int = 1) -> list[str]:
        """The statuses that arrived for a task, in order."""
        return [str(one.status) for one in self.taken if one.task == arn(number)]

    def last(self, number: int = 1) -> ecs.SubmitTaskStateChangeRequest:
        return [one for one in self.taken if one.task == arn(number)][-1]


class Cgroups:
    """Task cgroups that are only counted; ``busy`` reclaims find something in the way."""

    def __init__(self) -> None:
        self.prepared: list[str] = []
        self.reclaimed: list[str] = []
        self.busy = 0
        self.unified = False
        self.limits: dict[str, Any] = {}
        self.left: dict[str, Remains] = {}  # what a test says is left of a container's start
        self.killed: list[tuple[str, str]] = []
        self.gone: set[str] = set()  # containers without a process, whatever the engine says of them

    def remains(self, task_id: str, container_id: str) -> Remains:
        return self.left.get(container_id, Remains.NONE)

    def empty(self, task_id: str, container_id: str) -> bool:
        return container_id in self.gone

    def kill(self, task_id: str, container_id: str = "") -> int:
        self.killed.append((task_id, container_id))
        return 1

    def parent(self, task_id: str) -> str:
        return f"/ecs/{task_id}"

    def group(self, task_id: str) -> str:
        return f"/ecs/{task_id}"

    def container_group(self, task_id: str, container_id: str) -> str:
        return f"/ecs/{task_id}/{container_id}"

    async def prepare(self, task_id: str, limits: Any) -> None:
        self.limits[task_id] = limits
        self.prepared.append(task_id)

    async def reclaim(self, task_id: str) -> bool:
        await asyncio.sleep(0)
        if self.busy:
            self.busy -= 1
            return False
        self.reclaimed.append(task_id)
        return True


class Cloud:
    """Other services as a test fills them; what is not there is refused as they refuse it."""

    def __init__(self) -> None:
        self.known: dict[str, str] = {}
        self.objects: dict[tuple[str, str], bytes] = {}
        self.asked: list[tuple[str, str]] = []  # what, and by whose key
        self.failures: list[Exception] = []

    async def _ask(self, what: str, keys: CredentialSource) -> None:
        self.asked.append((what, (await keys.current()).access_key_id))
        await asyncio.sleep(0.01)
        if self.failures:
            raise self.failures.pop(0)

    async def parameters(self, region: str, names: Sequence[str], keys: CredentialSource) -> Parameters:
        await self._ask(",".join(names), keys)
        found = {name: self.known[name] for name in names if name in self.known}
        return Parameters(found, tuple(name for name in names if name not in self.known))

    async def secret(
        self, region: str, name: str, keys: CredentialSource, *, stage: str = "", version: str = ""
    ) -> str | None:
        await self._ask(name, keys)
        if name not in self.known:
            raise EcsError("no such secret", code="ResourceNotFoundException")
        return self.known[name]

    async def registry_token(
        self, region: str, registry: str, keys: CredentialSource, endpoint: str = ""
    ) -> RegistryToken:
        await self._ask(f"token {registry}", keys)
        return RegistryToken("AWS", f"pw{len(self.asked)}", f"https://{registry}", now() + 12 * 3600)

    async def object(self, region: str, bucket: str, key: str, keys: CredentialSource) -> bytes:
        await self._ask(f"{bucket}/{key}", keys)
        if (bucket, key) not in self.objects:
            raise EcsError("The specified key does not exist.", code="NoSuchKey", status=404)
        return self.objects[bucket, key]


class Wires:
    """Networks of tasks' own: there at once, and it is known who has one. ``trouble`` is raised instead, and ``kept``
    instead of a release."""

    def __init__(self) -> None:
        self.joined: dict[str, str] = {}
        self.trouble: Exception | None = None
        self.asked = 0
        self.kept: Exception | None = None
        self.releases = 0

    def begin(self, desired: DesiredTask) -> None:
        pass

    async def join(self, desired: DesiredTask) -> str:
        self.asked += 1
        if self.trouble is not None:
            raise self.trouble
        return self.joined.setdefault(desired.arn, f"sandbox-{len(self.joined)}")

    async def wired(self, desired: DesiredTask) -> None:
        await self.join(desired)

    async def release(self, desired: DesiredTask) -> None:
        self.releases += 1
        if self.kept is not None:
            raise self.kept
        self.joined.pop(desired.arn, None)

    def gone(self, container_id: str) -> str:
        return next((arn for arn, one in self.joined.items() if one == container_id), "")


class Host:
    """One agent on one engine; use as a context manager."""

    def __init__(self, runtime: FakeRuntime | None = None, **settings: Any) -> None:
        self.runtime = runtime if runtime is not None else FakeRuntime(images=[IMAGE], clock=now)
        chosen = {"cleanup_wait": 60.0, "stop_timeout": 10.0, "pull_behavior": "prefer-cached"} | settings
        self.settings = Settings(**chosen)
        self.store = Memory()
        self.desk = Desk()
        self.cgroups = Cgroups()
        self.wires: Wires | None = Wires()
        self.services = Cloud()
        self.book = ImageBook()  # outlives the process, as what is written does
        self.failed: list[tuple[str, BaseException]] = []
        self.runs: dict[str, int] = {}  # how often each container was really started
        self._witness: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Host:
        ready = asyncio.Event()
        self._witness = asyncio.get_running_loop().create_task(self._watch(ready))
        await ready.wait()
        await self.boot()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.kill()
        assert self._witness is not None
        self._witness.cancel()
        await asyncio.wait([self._witness])
        if error[0] is None:
            assert self.failed == []

    async def _watch(self, ready: asyncio.Event) -> None:
        queue: asyncio.Queue[Any] = asyncio.Queue()
        self.runtime._followers.add(queue)  # beside the calls, which a test may let fail
        ready.set()
        while True:
            event = await queue.get()
            if event is not None and event.kind is EventKind.START:
                self.runs[event.name] = self.runs.get(event.name, 0) + 1

    def admission(self) -> Admission:
        """What the host has for its tasks: as much as they want, unless a test says otherwise."""
        return Admission()

    def files(self) -> MetadataFiles | None:
        """Metadata files, where a test wants them."""
        return None

    async def boot(self) -> None:
        """Start an agent on what is durable."""
        self.work = Nursery("tasks", lambda name, error: self.failed.append((name, error)))
        self.checkpoint = Checkpoint(self.store)  # type: ignore[arg-type]
        saved = await self.checkpoint.load()
        context = StepContext(
            runtime=self.runtime,
            settings=self.settings,
            identity=Identity(CLUSTER, INSTANCE),
            # Below those that the kernel gives to whoever asks: another program may hold any of them for a moment.
            ports=PortAllocator((23000, 23999), frozenset()),
            supplies=Supplies(
                self.runtime,
                self.settings,
                self.services,  # type: ignore[arg-type]
                RoleKeys(Keyring([Static(Credentials("AKID", "secret"))]), may_use_own=True, clock=now),
                self.work,
                book=self.book,
                clock=now,
            ),
            cgroups=self.cgroups,  # type: ignore[arg-type]
            networks=self.wires,  # type: ignore[arg-type]
            clock=now,
            files=self.files(),
        )
        self.context = context
        self.work.start("checkpoint", self.checkpoint.run())
        self.engine = Engine(context, self.checkpoint, self.work, self.admission())
        self.reporter = Reporter(self.desk, CLUSTER, self.work, self.engine.acknowledged)  # type: ignore[arg-type]
        self.engine.start(self.reporter, list(saved.values()))

    async def kill(self) -> None:
        """End the agent where it stands; what it had not saved is lost."""
        await self.work.close()

    async def restart(self) -> None:
        await self.kill()
        await self.boot()

    def known(self, name: str = "app", number: int = 1) -> KnownContainer:
        runner = self.engine.find(arn(number))
        assert runner is not None
        return runner.known.container(name)

    def status(self, number: int = 1) -> TaskStatus | None:
        runner = self.engine.find(arn(number))
        return runner.known.status if runner else None

    async def until_running(self, number: int = 1) -> None:
        await until(lambda: self.status(number) is TaskStatus.RUNNING)

    async def until_stopped(self, number: int = 1) -> ecs.SubmitTaskStateChangeRequest:
        """The report of the end, once it was taken."""
        await until(lambda: "STOPPED" in self.desk.told(number))
        return self.desk.last(number)

    async def until_gone(self) -> None:
        """Nothing of any task is left, in the agent, in the engine and in the store."""
        await until(
            lambda: not self.engine.runners() and not self.runtime.containers and not self._saved(), seconds=3600
        )

    def _saved(self) -> list[str]:
        return [key for key in self.store.rows if key.startswith("tasks/")]

    def only(self) -> ContainerInfo:
        (one,) = self.runtime.containers
        return one


def now() -> float:
    """A wall clock that goes with the loop's."""
    return 1_700_000_000.0 + asyncio.get_running_loop().time()


async def until(true: Callable[[], bool], seconds: float = 600.0) -> None:
    """Let the loop run until something holds; waiting costs no real time with looptime."""
    ends = asyncio.get_running_loop().time() + seconds
    step = 0.01
    while not true():
        assert asyncio.get_running_loop().time() < ends, "what was waited for did not happen"
        await asyncio.sleep(step)
        step = min(step * 1.02, 5.0)


async def settle(seconds: float = 5.0) -> None:
    """Let everything happen that is going to happen soon."""
    await asyncio.sleep(seconds)


def exits(code: int) -> Callable[[Mapping[str, Any]], Behaviour]:
    return lambda body: Behaviour(exit_code=code)
