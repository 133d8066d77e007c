"""TCS: one websocket per agent, on which it reports metrics and health.

Every frame is signed by itself; one whose signature is wrong is answered with an error and not believed. Metrics are
acknowledged and let go; the health of containers and the instance's own status are kept in their records, where
clients see them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from typing import Any

import msgspec

from sexton.cloud.sigv4_verify import SignatureRefused, Verifier
from sexton.control.context import Context
from sexton.control.link.acs import HEARTBEAT_SECONDS
from sexton.control.link.handshake import Peer, Refused, admit, open_socket
from sexton.control.link.socket import AgentSocket, Gone
from sexton.control.ops import agentcalls, instances
from sexton.control.records import Entry, InstanceRecord
from sexton.kit import web
from sexton.kit.supervise import Nursery
from sexton.wire import ecs, tcs
from sexton.wire.errors import EcsError, WireError
from sexton.wire.tcs_frame import split_frame

log = logging.getLogger(__name__)

# Agents check two or three things; a record must not grow with what one claims to check.
MOST_CHECKS = 16
_HEALTH = frozenset({"HEALTHY", "UNHEALTHY", "UNKNOWN"})
# The agents' spelling of what they check, and the API's.
_CHECKS = {"ContainerRuntime": "CONTAINER_RUNTIME"}


class TcsLink:
    """Every agent that reports."""

    def __init__(self, context: Context, verifier: Verifier) -> None:
        self._context = context
        self._verifier = verifier
        self._sockets: dict[AgentSocket, str] = {}  # whose each is
        self._closings = Nursery("tcs-closings")
        context.records.instances.listen(self._on_instance)

    def _on_instance(
        self, _key: str, before: Entry[InstanceRecord] | None, after: Entry[InstanceRecord] | None
    ) -> None:
        if before is None or after is not None:
            return
        for socket, arn in self._sockets.items():
            if arn == before.value.arn:
                self._closings.start("deregistered", socket.close("the container instance is inactive"))

    async def serve(self, request: web.BaseRequest) -> web.StreamResponse:
        """The handler of the TCS path."""
        try:
            peer = await admit(
                self._context, self._verifier, request, "cluster", "containerInstance", "ecs:StartTelemetrySession"
            )
            # Agents say nothing here for minutes when their metrics are switched off; a ping tells who is gone.
            socket = await open_socket(request, ping_seconds=HEARTBEAT_SECONDS)
        except Refused as refusal:
            log.log(refusal.level, "agent refused", extra={"channel": "tcs", "reason": str(refusal)})
            return refusal.response
        self._sockets[socket] = peer.instance_arn
        nursery = Nursery(f"tcs-{peer.instance_id}")
        nursery.start("heartbeat", self._heartbeat(socket))
        path, _, query = request.raw_path.partition("?")
        try:
            async for frame in socket.frames():
                await socket.say(tcs.encode(await self._take(peer, path, query, frame)))
        except Gone:
            pass  # as good an end as any
        finally:
            self._sockets.pop(socket, None)
            await nursery.close()
        return socket.response

    def send_away(self) -> None:
        for socket in self._sockets:
            self._closings.start("away", socket.close("this control plane has lost its store"))

    async def close(self) -> None:
        sockets = list(self._sockets)
        self._sockets.clear()
        await asyncio.gather(*(one.close("control plane is stopping") for one in sockets), return_exceptions=True)
        await self._closings.close()

    async def _heartbeat(self, socket: AgentSocket) -> None:
        with contextlib.suppress(Gone):  # the listening half ends by itself
            while True:
                await socket.say(tcs.encode(tcs.HeartbeatMessage(healthy=True)))
                await asyncio.sleep(HEARTBEAT_SECONDS)

    async def _take(self, peer: Peer, path: str, query: str, frame: bytes) -> msgspec.Struct:
        """The answer to one frame."""
        try:
            headers, body = split_frame(frame)
            self._verifier.verify("GET", path, query, list(headers.items()), body, time.time())
            message = tcs.decode(body)
        except SignatureRefused as error:
            return tcs.BadRequestException(message=error.message)
        except WireError as error:
            return tcs.BadRequestException(message=str(error))
        match message.body:
            case tcs.PublishMetricsRequest():
                return tcs.AckPublishMetric(message="")
            case tcs.PublishHealthRequest(tasks=found):
                await self._keep_health(peer, found or ())
                return tcs.AckPublishHealth(message="")
            case tcs.PublishInstanceStatusRequest(statuses=statuses):
                await self._keep_status(peer, statuses or ())
                return tcs.AckPublishInstanceStatus(message="")
            case _:
                return tcs.BadRequestException(message=f"cannot take a message of type {message.type}")

    async def _keep_health(self, peer: Peer, found: tuple[tcs.TaskHealth, ...]) -> None:
        for one in found:
            words = {
                container.container_name or "": container.health_status or ""
                for container in one.containers or ()
                if container.health_status in _HEALTH
            }
            try:
                await agentcalls.keep_health(
                    self._context, peer.call, peer.cluster, peer.instance_arn, one.task_arn or "", words
                )
            except EcsError as error:  # ended or forgotten meanwhile: its health is of no interest any more
                log.debug("health not kept", extra={"task": one.task_arn, "reason": error.message})

    async def _keep_status(self, peer: Peer, statuses: tuple[tcs.InstanceStatus, ...]) -> None:
        details = tuple(
            ecs.InstanceHealthCheckResult(
                type=_CHECKS.get(one.type or "", one.type),
                status=one.status,
                status_reason=one.status_reason,
                last_status_change=one.last_status_change,
            )
            for one in statuses[:MOST_CHECKS]
        )
        words = {one.status for one in details}
        overall = next((word for word in ("IMPAIRED", "INSUFFICIENT_DATA", "INITIALIZING") if word in words), "OK")
        health = ecs.ContainerInstanceHealthStatus(overall_status=overall, details=details)
        known: Any = instances.find(self._context, peer.call, peer.cluster, peer.instance_arn)
        # Only a change is worth a write; every agent says the same thing several times a minute.
        if known is not None and known.value.instance.health_status != health:
            await instances.change(self._context, peer.call, peer.cluster, peer.instance_arn, health_status=health)
