"""TCS: the websocket on which this agent says how its containers and its engine are.

Two halves that do not wait for each other. One makes rounds: counters are read every few seconds, and every 20 seconds
metrics and health go into a short queue in pages of ten tasks, the first round at once. The other keeps a connection
and sends what is in the queue, each frame signed. While nobody is there the queue fills, and what does not fit is
dropped: it would be too old to be taken.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections import deque
from collections.abc import Callable

import aiohttp
import msgspec

from sexton import __version__
from sexton.agent import reports
from sexton.agent.engine import Engine
from sexton.agent.instancehealth import InstanceHealth
from sexton.agent.reports import Seen
from sexton.agent.session import CONNECTION_ENDED, Refused, dial, socket_url
from sexton.agent.stats import CgroupStats, Interval, Subject
from sexton.agent.steps.context import StepContext
from sexton.cloud.client import EcsClient, Unreachable
from sexton.cloud.credentials import CredentialSource, NoCredentials
from sexton.cloud.websocket import sign_frame
from sexton.core.task import KnownContainer
from sexton.kit.retry import Backoff
from sexton.kit.supervise import Nursery
from sexton.runtime.cgroup_path import container_cgroup
from sexton.runtime.contract import EngineInfo
from sexton.wire import ecs_agent as ecs
from sexton.wire import tcs
from sexton.wire.errors import EcsError, WireError

log = logging.getLogger(__name__)

ROUND_SECONDS = 20.0
# Rounds that wait for a connection: five minutes, after which the other end does not take them any more.
MOST_ROUNDS = 15
# Neither heartbeat nor acknowledgement for this long, and up to as long again, means that nobody listens.
SILENCE_SECONDS = 60.0
LIFETIME_SECONDS = 30 * 60.0
LIFETIME_JITTER = 5 * 60.0
RECONNECT_BACKOFF = Backoff(first=1.0, cap=60.0)
# One that ended in order sooner than this is not dialled again at once: the other end may do so every time.
SHORT_SECONDS = 1.0

# A verdict of a health check is told this soon, together with those that come meanwhile, not only with the next round.
HEALTH_SECONDS = 0.5

# Network modes in which a container's network is not the host's.
_COUNTED = ("bridge", "awsvpc")

# Shorter waits than this are over: a clock need not be finer.
CLOCK_STEP = 0.01

_SIGNS_OF_LIFE = (tcs.HeartbeatMessage, tcs.AckPublishMetric, tcs.AckPublishHealth, tcs.AckPublishInstanceStatus)
_REFUSALS = (
    tcs.BadRequestException,
    tcs.InvalidParameterException,
    tcs.ResourceValidationException,
    tcs.ServerException,
)


class Telemetry:
    """Keeps the TCS connection of one container instance."""

    def __init__(
        self,
        http: aiohttp.ClientSession,
        client: EcsClient,
        credentials: CredentialSource,
        context: StepContext,
        region: str,
        info: EngineInfo,
        engine: Engine,
        stats: CgroupStats,
        health: InstanceHealth,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._http = http
        self._client = client
        self._credentials = credentials
        self._context = context
        self._identity = context.identity
        self._region = region
        self._info = info
        self._engine = engine
        self._stats = stats
        self._health = health
        self._clock = clock
        self.on_sample: Callable[[], None] = lambda: None
        self._rounds: deque[tuple[bytes, ...]] = deque(maxlen=MOST_ROUNDS)
        self._filled = asyncio.Event()
        self._restarts: dict[str, int] = {}  # told so far, by container
        self._began = clock()
        self.connected_at = 0.0
        self.reconnects = 0
        self.refusals = 0

    async def run(self) -> None:
        """Make rounds and stay connected, for ever."""
        nursery = Nursery("telemetry")
        nursery.start("rounds", self._make_rounds())
        try:
            await self._connect()
        finally:
            await nursery.close()

    async def _make_rounds(self) -> None:
        """Readings at their pace, rounds at theirs; a reading that falls together with a round comes first."""
        loop = asyncio.get_running_loop()
        interval = self._context.settings.metrics_interval
        reading = publishing = loop.time()
        while True:
            now = loop.time()
            if now >= reading:
                self._sample()
                reading = max(reading + interval, now)
            if now >= publishing:
                self._put(self._round())
                publishing = max(publishing + ROUND_SECONDS, now)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(min(reading, publishing) - loop.time(), CLOCK_STEP)):
                    await self._engine.health_changed.wait()
                    await asyncio.sleep(HEALTH_SECONDS)
                    self._engine.health_changed.clear()
                    if not self._context.settings.disable_health_checks:
                        self._put([*reports.health(self._identity, self._seen(), self._clock())])

    def _put(self, pages: list[msgspec.Struct]) -> None:
        if pages:
            if len(self._rounds) == MOST_ROUNDS:
                log.debug("oldest round of telemetry dropped", extra={"channel": "tcs"})
            self._rounds.append(tuple(tcs.encode(page) for page in pages))
            self._filled.set()

    def _round(self) -> list[msgspec.Struct]:
        settings = self._context.settings
        now = self._clock()
        tasks = self._seen()
        pages: list[msgspec.Struct] = []
        if not settings.disable_metrics:
            pages += reports.metrics(self._identity, tasks, self._take, self._new_restarts, now)
            there = {one.runtime_id for seen in tasks for one in seen.containers}
            self._restarts = {key: count for key, count in self._restarts.items() if key in there}
        if not settings.disable_health_checks:
            pages += reports.health(self._identity, tasks, now)
        statuses = self._health.take()
        if statuses:
            pages.append(reports.instance_status(self._identity, statuses, now))
        return pages

    def _sample(self) -> None:
        if not self._context.settings.disable_metrics:
            self._stats.read(self.subjects(), asyncio.get_running_loop().time())
            self.on_sample()

    def _seen(self) -> list[Seen]:
        found = [Seen(one.desired.task, reports.running(one.known.containers)) for one in self._engine.runners()]
        return [seen for seen in found if seen.containers]

    def subjects(self) -> list[Subject]:
        """Every running container with the place of its cgroup. One with the host's network or none has no counters of
        its own; with a task's own network each of its containers shows the whole of that."""
        return [
            Subject(one.runtime_id, self.cgroup(seen, one), (seen.task.network_mode or "bridge") in _COUNTED)
            for seen in self._seen()
            for one in seen.containers
        ]

    def cgroup(self, seen: Seen, one: KnownContainer) -> str:
        if self._context.cgroups is not None:
            return self._context.cgroups.container_group(_task_id(seen), one.runtime_id)
        return container_cgroup(one.runtime_id, "", self._info.cgroup_driver)

    def _take(self, one: KnownContainer) -> Interval | None:
        return self._stats.take(one.runtime_id)

    def _new_restarts(self, one: KnownContainer) -> int:
        """Since the last round. Those of a container that an earlier process made were told by that one."""
        told = self._restarts.get(one.runtime_id, 0 if one.created_at >= self._began else one.restarts)
        self._restarts[one.runtime_id] = one.restarts
        return max(one.restarts - told, 0)

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        delays = RECONNECT_BACKOFF.delays()
        while True:
            began = loop.time()
            in_order = False
            try:
                in_order = await self._once()
            except (Refused, Unreachable, EcsError, NoCredentials) as error:
                log.info("cannot report", extra={"channel": "tcs", "reason": str(error)})
            finally:
                self.connected_at = 0.0
            if loop.time() - began >= SILENCE_SECONDS:
                delays = RECONNECT_BACKOFF.delays()
            self.reconnects += 1
            await asyncio.sleep(0.0 if in_order and loop.time() - began > SHORT_SECONDS else next(delays))

    async def _once(self) -> bool:
        """One connection, from discovery to its end; whether it ended in order."""
        answer = await self._client.call(
            "DiscoverPollEndpoint",
            ecs.DiscoverPollEndpointRequest(
                cluster=self._identity.cluster, container_instance=self._identity.instance_arn, zone_id=""
            ),
            ecs.DiscoverPollEndpointResponse,
        )
        fields = {
            "agentHash": "sexton",
            "agentVersion": __version__,
            "cluster": self._identity.cluster,
            "containerInstance": self._identity.instance_arn,
            "dockerVersion": self._info.version,
        }
        url = socket_url(answer.telemetry_endpoint or "", fields)
        socket = await dial(self._http, url, self._credentials, self._region)
        self.connected_at = self._clock()
        nursery = Nursery("tcs")
        nursery.start("send", self._send_all(socket, url))
        try:
            return await self._listen(socket)
        finally:
            await nursery.close()
            await socket.close()

    async def _listen(self, socket: aiohttp.ClientWebSocketResponse) -> bool:
        loop = asyncio.get_running_loop()
        ends = loop.time() + LIFETIME_SECONDS + LIFETIME_JITTER * random.random()  # noqa: S311 - spreads load
        quiet = self._next_silence()
        while True:
            now = loop.time()
            left = min(quiet, ends) - now
            if left < CLOCK_STEP:
                if now < ends - CLOCK_STEP:
                    log.info("nothing is acknowledged any more", extra={"channel": "tcs"})
                await socket.close(code=1000, message=b"ConnectionExpired: Reconnect to continue")
                return now >= ends - CLOCK_STEP
            try:
                frame = await socket.receive(timeout=left)
            except TimeoutError:
                continue
            if frame.type not in (aiohttp.WSMsgType.TEXT, aiohttp.WSMsgType.BINARY):
                return socket.close_code in CONNECTION_ENDED
            if self._heard(frame.data):
                quiet = self._next_silence()

    def _next_silence(self) -> float:
        now = asyncio.get_running_loop().time()
        return now + SILENCE_SECONDS * (1 + random.random())  # noqa: S311 - spreads load, guards nothing

    def _heard(self, data: str | bytes) -> bool:
        """Whether a frame shows that somebody takes what is sent."""
        try:
            message = tcs.decode(data)
        except WireError as error:
            log.warning("frame not understood", extra={"channel": "tcs", "reason": str(error)})
            return False
        if isinstance(message.body, _REFUSALS):
            self.refusals += 1
            log.warning(
                "report refused",
                extra={"channel": "tcs", "kind": type(message.body).__name__, "reason": message.body.message},
            )
        return isinstance(message.body, _SIGNS_OF_LIFE)

    async def _send_all(self, socket: aiohttp.ClientWebSocketResponse, url: str) -> None:
        while True:
            while self._rounds:
                pages = self._rounds.popleft()
                if not await self._send(socket, url, pages):
                    if len(self._rounds) < MOST_ROUNDS:
                        self._rounds.appendleft(pages)  # it waits for the next connection
                    return  # the reading side notices the end
            self._filled.clear()
            await self._filled.wait()

    async def _send(self, socket: aiohttp.ClientWebSocketResponse, url: str, pages: tuple[bytes, ...]) -> bool:
        for page in pages:
            try:
                keys = await self._credentials.current()
            except NoCredentials as error:  # they come back, or everything else says so as well
                log.info("cannot report", extra={"channel": "tcs", "reason": str(error)})
                return True
            frame = sign_frame(url, page, keys, region=self._region, now=self._clock())
            try:
                await socket.send_str(frame.decode())
            except (ConnectionError, aiohttp.ClientError):
                return False
        return True


def _task_id(seen: Seen) -> str:
    return (seen.task.arn or "").rpartition("/")[2]
