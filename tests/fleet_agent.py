"""An agent without an engine: it registers, stays connected and reports, and remembers what it was told to run.

For tests of the control plane under harm: it speaks the real protocol through the agent's own client, comes again
whenever its connection ends, and keeps one list of every task that it ever started, which is the evidence.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
import uuid
from collections.abc import Sequence

import aiohttp
from yarl import URL

from sexton.agent.session import socket_url
from sexton.cloud.client import EcsClient, Unreachable
from sexton.cloud.credentials import Credentials, CredentialSource
from sexton.cloud.websocket import signed_headers_for_websocket
from sexton.wire import acs, acs_task, ecs
from sexton.wire.errors import EcsError

REGION = "us-east-1"
CALL_SECONDS = 20.0


class Key(CredentialSource):
    """One key, whatever happens."""

    def __init__(self, key: Credentials) -> None:
        self._key = key

    async def current(self) -> Credentials:
        return self._key

    def forget(self, refused: Credentials) -> None: ...


class FleetAgent:
    """One container instance. ``lifetime`` is how long its tasks run; those of the family ``kept``, until told."""

    def __init__(
        self,
        name: str,
        endpoints: Sequence[str],
        key: Credentials,
        *,
        lifetime: float,
        kept: str = "",
        memory: int = 4096,
    ) -> None:
        self.name = name
        self.started: list[str] = []
        self.running: dict[str, int] = {}
        self.most_memory = 0
        self.memory = memory
        self.connections = 0
        self.connected_to = ""
        self.arn = ""
        self.kept = kept
        self._key = Key(key)
        self._endpoints = list(endpoints)
        self._lifetime = lifetime
        self._reports: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Until cancelled."""
        async with aiohttp.ClientSession() as http:
            client = EcsClient(",".join(self._endpoints), REGION, self._key, http)
            try:
                await self._register(client)
                while True:
                    with contextlib.suppress(
                        Unreachable, EcsError, aiohttp.ClientError, TimeoutError, OSError, ConnectionError
                    ):
                        await self._connect(http, client)
                    self.connected_to = ""
                    await asyncio.sleep(random.uniform(0.1, 0.4))
            finally:
                for task in self._reports:
                    task.cancel()
                await asyncio.gather(*self._reports, return_exceptions=True)

    async def _register(self, client: EcsClient) -> None:
        request = ecs.RegisterContainerInstanceRequest(
            cluster="default",
            instance_identity_document="",
            instance_identity_document_signature="",
            attributes=(
                ecs.Attribute(name="ecs.capability.full-sync"),
                ecs.Attribute(name="com.amazonaws.ecs.capability.docker-remote-api.1.18"),
            ),
            total_resources=(
                ecs.Resource(name="CPU", type="INTEGER", integer_value=64_000),
                ecs.Resource(name="MEMORY", type="INTEGER", integer_value=self.memory),
                ecs.Resource(name="PORTS", type="STRINGSET", string_set_value=()),
                ecs.Resource(name="PORTS_UDP", type="STRINGSET", string_set_value=()),
            ),
            client_token=str(uuid.uuid4()),
        )
        answer = await self._insist(client, "RegisterContainerInstance", request)
        self.arn = answer.container_instance.container_instance_arn

    async def _insist(self, client: EcsClient, operation: str, request: object) -> object:
        """Call until there is an answer that is not the service's own trouble."""
        while True:
            try:
                async with asyncio.timeout(CALL_SECONDS):
                    return await client.call(operation, request)
            except (Unreachable, TimeoutError):
                await asyncio.sleep(0.1)
            except EcsError as error:
                if error.status < 500:
                    raise
                await asyncio.sleep(0.1)

    async def _connect(self, http: aiohttp.ClientSession, client: EcsClient) -> None:
        async with asyncio.timeout(CALL_SECONDS):
            answer = await client.call(
                "DiscoverPollEndpoint",
                ecs.DiscoverPollEndpointRequest(cluster="default", container_instance=self.arn),
            )
        url = socket_url(
            answer.endpoint,
            {"clusterArn": "default", "containerInstanceArn": self.arn, "sendCredentials": "true", "seqNum": "1"},
        )
        headers = signed_headers_for_websocket(url, await self._key.current(), region=REGION, now=time.time())
        async with asyncio.timeout(CALL_SECONDS):
            socket = await http.ws_connect(URL(url, encoded=True), headers=headers, compress=0)
        async with socket:
            self.connections += 1
            self.connected_to = answer.endpoint
            async for frame in socket:
                if frame.type is not aiohttp.WSMsgType.TEXT:
                    return
                await self._take(client, socket, acs.decode(frame.data.encode()).body)

    async def _take(self, client: EcsClient, socket: aiohttp.ClientWebSocketResponse, message: object) -> None:
        if isinstance(message, acs.PayloadMessage):
            for task in message.tasks or ():
                self._told(client, task)
        if getattr(message, "message_id", None):
            ack = acs.AckRequest(cluster="default", container_instance=self.arn, message_id=message.message_id)
            if isinstance(message, acs.HeartbeatMessage):
                ack = acs.HeartbeatAckRequest(message_id=message.message_id)
            await socket.send_str(acs.encode(ack).decode())

    def _told(self, client: EcsClient, task: acs_task.Task) -> None:
        arn, desired = task.arn, task.desired_status
        memory = sum(one.memory or 0 for one in task.containers or ())
        if desired == "RUNNING" and arn not in self.started:
            self.started.append(arn)
            self.running[arn] = memory
            self.most_memory = max(self.most_memory, sum(self.running.values()))
            self._report(self._live(client, arn, 0.0 if task.family == self.kept else self._lifetime))
        elif desired == "STOPPED" and arn not in self.started:
            self.started.append(arn)
            self._report(self._end(client, arn))
        elif desired == "STOPPED" and arn in self.running:
            self._report(self._end(client, arn))

    def _report(self, work: object) -> None:
        task = asyncio.ensure_future(work)
        self._reports.add(task)
        task.add_done_callback(self._reports.discard)

    async def _live(self, client: EcsClient, arn: str, lifetime: float) -> None:
        await self._say(client, arn, "RUNNING")
        if lifetime:
            await asyncio.sleep(lifetime)
            await self._end(client, arn)

    async def _end(self, client: EcsClient, arn: str) -> None:
        # The room is free as soon as anybody may know it: nothing may be placed there before.
        self.running.pop(arn, None)
        await self._say(client, arn, "STOPPED")

    async def _say(self, client: EcsClient, arn: str, status: str) -> None:
        change = ecs.ContainerStateChange(
            container_name="main", status=status, exit_code=0 if status == "STOPPED" else None
        )
        request = ecs.SubmitTaskStateChangeRequest(cluster="default", task=arn, status=status, containers=(change,))
        await self._insist(client, "SubmitTaskStateChange", request)
