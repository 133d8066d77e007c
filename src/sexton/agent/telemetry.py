"""TCS: the websocket on which this agent says how its containers and its engine are.

A round every 20 seconds: metrics in pages of ten tasks, the first round at once; and the engine's own status whenever
the other end has asked for health by a heartbeat. Every frame is signed. What cannot be sent is dropped: the next
round says the newer thing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
import uuid

import aiohttp
import msgspec

from sexton import __version__
from sexton.agent.engine import Engine
from sexton.agent.runner import Runner
from sexton.agent.session import Refused, dial, socket_url
from sexton.agent.stats import CgroupStats, Sums
from sexton.agent.steps.context import StepContext
from sexton.cloud.client import EcsClient, Unreachable
from sexton.cloud.credentials import CredentialSource, NoCredentials
from sexton.cloud.websocket import sign_frame
from sexton.core.task import ContainerStatus, KnownContainer
from sexton.kit.retry import Backoff
from sexton.kit.supervise import Nursery
from sexton.runtime.contract import EngineInfo
from sexton.wire import ecs, tcs
from sexton.wire.errors import EcsError, WireError

log = logging.getLogger(__name__)

ROUND_SECONDS = 20.0
# Two samples per round keep the cost at a few file reads per container.
SAMPLE_SECONDS = 10.0
TASKS_PER_PAGE = 10
SILENCE_SECONDS = 60.0
RECONNECT_BACKOFF = Backoff(first=1.0, cap=60.0)


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
        self._status_since: tuple[str, float] = ("", 0.0)

    async def run(self) -> None:
        """Stay connected, for ever."""
        delays = RECONNECT_BACKOFF.delays()
        while True:
            began = asyncio.get_running_loop().time()
            try:
                await self._once()
            except (Refused, Unreachable, EcsError, NoCredentials) as error:
                log.info("cannot report", extra={"channel": "tcs", "reason": str(error)})
            if asyncio.get_running_loop().time() - began >= SILENCE_SECONDS:
                delays = RECONNECT_BACKOFF.delays()
            await asyncio.sleep(next(delays))

    async def _once(self) -> None:
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
        nursery = Nursery("tcs")
        nursery.start("publish", self._publish(socket, url))
        try:
            await self._listen(socket, url)
        finally:
            await nursery.close()
            await socket.close()

    async def _listen(self, socket: aiohttp.ClientWebSocketResponse, url: str) -> None:
        silence = SILENCE_SECONDS * (1 + random.random())  # noqa: S311 - spreads load, guards nothing
        while True:
            try:
                frame = await socket.receive(timeout=silence)
            except TimeoutError:
                return
            if frame.type not in (aiohttp.WSMsgType.TEXT, aiohttp.WSMsgType.BINARY):
                return
            try:
                message = tcs.decode(frame.data)
            except WireError as error:
                log.warning("frame not understood", extra={"channel": "tcs", "reason": str(error)})
                continue
            if isinstance(message.body, tcs.HeartbeatMessage):
                await self._send(socket, url, self._status())
            elif isinstance(message.body, tcs.BadRequestException | tcs.InvalidParameterException):
                log.warning("report refused", extra={"channel": "tcs", "reason": message.body.message})

    async def _publish(self, socket: aiohttp.ClientWebSocketResponse, url: str) -> None:
        while True:
            for page in self._pages():
                await self._send(socket, url, page)
            for _ in range(round(ROUND_SECONDS / SAMPLE_SECONDS)):
                await asyncio.sleep(SAMPLE_SECONDS)
                self._sample()

    async def _send(self, socket: aiohttp.ClientWebSocketResponse, url: str, message: msgspec.Struct) -> None:
        try:
            keys = await self._credentials.current()
        except NoCredentials as error:  # they come back, or everything else says so as well
            log.info("cannot report", extra={"channel": "tcs", "reason": str(error)})
            return
        frame = sign_frame(url, tcs.encode(message), keys, region=self._region, now=time.time())
        with contextlib.suppress(ConnectionError, aiohttp.ClientError):  # the reading side notices the end
            await socket.send_str(frame.decode())

    def _sample(self) -> None:
        if not self._context.settings.disable_metrics:
            self._stats.read(
                [(one.runtime_id, path) for _, one, path in self._running()], asyncio.get_running_loop().time()
            )

    def _running(self) -> list[tuple[Runner, KnownContainer, str]]:
        cgroups = self._context.cgroups
        if cgroups is None:
            return []
        return [
            (runner, one, f"{cgroups.parent(runner.task_id)}/{one.runtime_id}")
            for runner in self._engine.runners()
            for one in runner.known.containers
            if one.status is ContainerStatus.RUNNING and one.runtime_id
        ]

    def _pages(self) -> list[tcs.PublishMetricsRequest]:
        tasks: dict[str, tuple[Runner, list[tcs.ContainerMetric]]] = {}
        for runner, one, _ in self._running():
            sums = self._stats.take(one.runtime_id)
            metrics = tasks.setdefault(runner.arn, (runner, []))[1]
            if sums is not None:
                metrics.append(_metric(one.name, *sums))
        filled = [
            tcs.TaskMetric(
                task_arn=arn,
                cluster_arn=runner.desired.task.task_cluster_arn,
                task_definition_family=runner.desired.task.family,
                task_definition_version=runner.desired.task.version,
                container_metrics=tuple(metrics),
            )
            for arn, (runner, metrics) in tasks.items()
            if metrics
        ]
        message_id = str(uuid.uuid4())
        starts = range(0, len(filled), TASKS_PER_PAGE) or range(1)
        return [
            tcs.PublishMetricsRequest(
                metadata=tcs.MetricsMetadata(
                    cluster=self._identity.cluster,
                    container_instance=self._identity.instance_arn,
                    idle=not tasks,
                    message_id=message_id,
                    fin=start + TASKS_PER_PAGE >= len(filled),
                ),
                task_metrics=tuple(filled[start : start + TASKS_PER_PAGE]) or None,
                timestamp=round(time.time(), 3),
            )
            for start in starts
        ]

    def _status(self) -> tcs.PublishInstanceStatusRequest:
        now = round(time.time(), 3)
        word = "OK" if self._engine.answering else "IMPAIRED"
        if self._status_since[0] != word:
            self._status_since = (word, now)
        status = tcs.InstanceStatus(
            type="ContainerRuntime", status=word, last_updated=now, last_status_change=self._status_since[1]
        )
        return tcs.PublishInstanceStatusRequest(
            metadata=tcs.InstanceStatusMetadata(
                cluster=self._identity.cluster,
                container_instance=self._identity.instance_arn,
                request_id=str(uuid.uuid4()),
            ),
            statuses=(status,),
            timestamp=now,
        )


def _metric(name: str, cpu: Sums, memory: Sums) -> tcs.ContainerMetric:
    return tcs.ContainerMetric(container_name=name, cpu_stats_set=_set(cpu), memory_stats_set=_set(memory))


def _set(sums: Sums) -> tcs.CWStatsSet:
    return tcs.CWStatsSet(min=sums.least, max=sums.most, sample_count=sums.samples, sum=sums.total)
