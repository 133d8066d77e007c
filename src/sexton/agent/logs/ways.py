"""The agent's side of ``awslogs``: a way from the engine through the relay to the destination for each container.

A way is on disk before its container is made, and its token follows from the task and a secret of this host, so an
interrupted creation finds the same way again. Whether the destination takes the lines is asked before: a group that
does not exist or may not be written to is the container's end, as with the driver itself; a destination that cannot be
reached is not, since what is written waits for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import secrets
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from sexton.agent.logs import spool
from sexton.agent.logs.delivery import Lane, Way, make_stream
from sexton.agent.logs.driver import NoWay
from sexton.agent.logs.keeper import Keeper, NoRelay
from sexton.cloud import places
from sexton.cloud.client import Unreachable
from sexton.cloud.credentials import Credentials, CredentialSource, NoCredentials
from sexton.cloud.logs import LogsClient
from sexton.cloud.transient import is_transient
from sexton.core import awslogs
from sexton.core.awslogs import Destination
from sexton.core.logstanding import FILE, Standing, Waiting
from sexton.kit.atomicfile import write_atomic
from sexton.kit.supervise import Nursery
from sexton.wire.errors import EcsError

log = logging.getLogger(__name__)

# How long a container waits for a destination that may be away.
ASK_SECONDS = 3.0
# Batches that are sent at the same time, each of a megabyte at most.
AT_ONCE = 4
STATE_SECONDS = 5.0
SECRET_FILE = "secret"  # noqa: S105 - its name


class Ways:
    """All ways of this host. ``keys`` gives whose keys sign what a task wrote; ``over`` says that nothing will come."""

    def __init__(
        self,
        root: Path,
        bound: int,
        client: LogsClient,
        environment: Mapping[str, str],
        keys: Callable[[str], CredentialSource | None],
        own: CredentialSource,
        over: Callable[[Way], bool],
        *,
        region: str,
        flush: bool,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._root = root
        self._bound = bound
        self._client = client
        self._environment = environment
        self._keys = keys
        self._own = own
        self._over = over
        self._region = region
        self._flush = flush
        self._clock = clock
        self._lanes: dict[str, Lane] = {}
        self._kept: dict[str, Kept] = {}
        self._keeper = Keeper(root, bound)
        self._nursery = Nursery("log-delivery")
        self._turn = asyncio.Semaphore(AT_ONCE)
        self._knocks: socket.socket | None = None
        self._refused = 0

    # Coming and going.

    def open(self) -> None:
        """Take up what earlier processes left; nothing is made where nobody ever used this driver."""
        left = sorted(path.parent for path in self._root.glob(f"*/{spool.WAY}"))
        if left:
            self._listen()
            self._keeper.begin_at_once()
        for folder in left:
            try:
                way = msgspec.json.decode((folder / spool.WAY).read_bytes(), type=Way)
            except (OSError, msgspec.MsgspecError) as error:
                log.error("way of log lines cannot be read", extra={"folder": str(folder), "reason": str(error)})
                continue
            self._begin(folder, way)
        self._nursery.start("relay", self._keeper.run())
        self._nursery.start("standing", self._write_down())

    async def close(self, *, leave_nothing: bool = False) -> None:
        """The relay goes on, unless nothing is to be left."""
        await self._nursery.close()
        if leave_nothing:
            self._keeper.end()
        self._keeper.close()
        if self._knocks is not None:
            asyncio.get_running_loop().remove_reader(self._knocks)
            self._knocks.close()

    async def deliver_all(self, seconds: float) -> None:
        """Wait until everything is delivered, or this long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                pending = True
                while pending:
                    await asyncio.sleep(0.1)
                    pending = any(lane.pending() for lane in self._lanes.values())

    def _listen(self) -> None:
        if self._knocks is not None:
            return
        self._root.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = self._root / spool.WAKE
        path.unlink(missing_ok=True)
        self._knocks = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._knocks.bind(str(path))
        path.chmod(0o600)
        asyncio.get_running_loop().add_reader(self._knocks, self._hear)

    def _hear(self) -> None:
        assert self._knocks is not None
        for _ in range(64):
            try:
                token = self._knocks.recv(64).decode("ascii", "replace")
            except OSError:
                return
            if token in self._lanes:
                self._lanes[token].knock()

    # One container.

    async def prepare(self, task: str, container: str, options: Mapping[str, str], auth: str | None) -> dict[str, str]:
        """The options for the engine; NoWay with the reason when the lines cannot go there."""
        to = awslogs.destination(options, self._region, auth)
        if not to.group:
            raise NoWay("must specify a value for log opt 'awslogs-group'")
        endpoint = to.endpoint or places.endpoint("CLOUDWATCH_LOGS", to.region, self._environment)
        to = to._replace(endpoint=endpoint)
        way = Way(task=task, container=container, **to._asdict())
        if to.stream:
            await self._ask(way, to)
        try:
            token = self._make(way)
            port = await self._keeper.port()
        except OSError as error:
            raise NoWay(f"cannot keep a spool in {self._root}: {error.strerror or error}") from None
        except NoRelay as error:
            raise NoWay(str(error)) from None
        return awslogs.through_relay(options, port, token, flush=self._flush)

    async def _ask(self, way: Way, to: Destination) -> None:
        try:
            await make_stream(self._client, to, self._keys_of(way), to.group, to.stream, ASK_SECONDS)
        except (EcsError, NoCredentials, Unreachable) as error:
            if isinstance(error, EcsError) and not is_transient(error):
                raise NoWay(f"failed to create Cloudwatch log stream: {error}") from None
            log.warning(
                "log destination cannot be asked, lines wait for it",
                extra={"task": way.task, "container": way.container, "reason": str(error)},
            )

    def _make(self, way: Way) -> str:
        self._listen()
        token = hmac.new(self._secret(), f"{way.task}\n{way.container}".encode(), "sha256").hexdigest()[:32]
        folder = self._root / token
        if token not in self._lanes:
            folder.mkdir(exist_ok=True, mode=0o700)
            (folder / spool.LOCK).touch(mode=0o600)
            write_atomic(folder / spool.WAY, msgspec.json.encode(way), 0o600)
            self._begin(folder, way)
        return token

    def _secret(self) -> bytes:
        path = self._root / SECRET_FILE
        with contextlib.suppress(FileNotFoundError):
            return path.read_bytes()
        write_atomic(path, secrets.token_bytes(32), 0o600)
        return path.read_bytes()

    def _begin(self, folder: Path, way: Way) -> None:
        lane = Lane(folder, way, self._client, self._keys_of, self._over, self._turn, self._clock)
        self._lanes[folder.name] = lane
        self._nursery.start(f"way-{folder.name[:8]}", self._run(folder.name, lane))

    async def _run(self, token: str, lane: Lane) -> None:
        try:
            await lane.run()
        finally:
            self._refused += lane.refused
            self._lanes.pop(token, None)
            if not any(one.way.task == lane.way.task for one in self._lanes.values()):
                self._kept.pop(lane.way.task, None)

    def _keys_of(self, way: Way) -> CredentialSource:
        """The execution role's where the definition has one, also for a while after the task; else the agent's own."""
        if not way.execution_role:
            return self._own
        kept = self._kept.get(way.task)
        if kept is None:
            kept = self._kept[way.task] = Kept(lambda: self._keys(way.task), self._own, self._clock)
        return kept

    # What is said of it.

    def standing(self) -> Standing:
        """How the deliveries are, now."""
        waiting: dict[str, Waiting] = {}
        for lane in self._lanes.values():
            if lane.trouble is not None:
                place, trouble = lane.way.endpoint, lane.trouble
                if place not in waiting or trouble.since < waiting[place].since:
                    waiting[place] = Waiting(place, trouble.since, trouble.reason)
        return Standing(
            at=self._clock(),
            held=spool.size_of(self._root),
            bound=self._bound,
            dropped=_dropped(self._root),
            refused=self._refused + sum(lane.refused for lane in self._lanes.values()),
            waiting=tuple(waiting.values()),
        )

    async def _write_down(self) -> None:
        """Say how the deliveries are, for the caretaker."""
        told: Standing | None = None
        while True:
            await asyncio.sleep(STATE_SECONDS)
            if self._knocks is None:
                continue  # nobody has used this driver
            now = self.standing()
            if told is not None and told.quiet and msgspec.structs.replace(now, at=told.at) == told:
                continue
            told = now
            draft = self._root / f".{FILE}"
            with contextlib.suppress(OSError):
                draft.write_bytes(msgspec.json.encode(now))
                draft.replace(self._root / FILE)


class Kept:
    """A role's keys, as they come; the last ones for as long as they are good when they come no more."""

    def __init__(
        self, find: Callable[[], CredentialSource | None], own: CredentialSource, clock: Callable[[], float]
    ) -> None:
        self._find = find
        self._own = own
        self._clock = clock
        self._last: Credentials | None = None

    async def current(self) -> Credentials:
        source = self._find()
        if source is not None:
            with contextlib.suppress(NoCredentials):
                self._last = await source.current()
                return self._last
        if self._last is not None and not self._last.expired(self._clock()):
            return self._last
        return await self._own.current()

    def forget(self, refused: Credentials) -> None:
        """They are renewed by the control plane alone."""


def _dropped(root: Path) -> int:
    try:
        return int((root / spool.DROPPED).read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 0
