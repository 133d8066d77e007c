"""ACS: the websocket on which this agent is told what to run.

Each message is handled to its end before the next is read, and acknowledged only when what it asked for is durable. A
connection that is silent for too long is dropped, a lost one is dialled again with capped back-off, and one that ended
in order at once. An answer that says this instance is no member any more ends the agent's work here: it stands down.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import aiohttp
import msgspec
from yarl import URL

from sexton import __version__
from sexton.agent import payload
from sexton.agent.checkpoint import Checkpoint
from sexton.agent.engine import Engine
from sexton.agent.rolekeys import RoleKeys, Sent
from sexton.agent.standdown import StandDown
from sexton.agent.steps.context import Identity
from sexton.cloud.client import EcsClient, Unreachable
from sexton.cloud.credentials import CredentialSource, NoCredentials
from sexton.cloud.websocket import signed_headers_for_websocket
from sexton.core.task import TaskStatus
from sexton.core.taskroles import EXECUTION, TASK
from sexton.kit.retry import Backoff
from sexton.runtime.contract import EngineInfo
from sexton.store.contract import StoreError
from sexton.wire import acs, acs_task
from sexton.wire import ecs_agent as ecs
from sexton.wire.errors import UNREADABLE, EcsError, WireError
from sexton.wire.network import SextonNetworkMessage
from sexton.wire.refusal import decode_refusal

if TYPE_CHECKING:
    from sexton.agent.attachments import Attachments
    from sexton.agent.networks import Networks

log = logging.getLogger(__name__)

RECONNECT_BACKOFF = Backoff(first=0.25, cap=120.0, factor=1.5)
# Silence for this long, and up to as long again, means that the connection is dead.
SILENCE_SECONDS = 60.0
# A connection is renewed after this, and up to the jitter later, so that load can move.
LIFETIME_SECONDS = 30 * 60.0
LIFETIME_JITTER = 5 * 60.0
CONNECT_SECONDS = 30.0
MOST_FRAME = 16 << 20
# The other end closed in order, or its process died: both are answered by dialling again at once.
CONNECTION_ENDED = frozenset({1000, 1001, 1006, 1011})
# One that ended in order sooner than this is not dialled again at once: the other end may do so every time.
SHORT_SECONDS = 1.0
# Refusals that no waiting mends, of a dial and of the discovery before it.
_NO_MEMBER = frozenset({"InactiveInstanceException", "InvalidClusterException"})
_NOT_FOUND = frozenset({"ClusterNotFoundException", "InvalidParameterException"})


class Refused(Exception):  # noqa: N818 - one of the answers to a dial
    """The other end refused the upgrade; ``kind`` is the exception's name on the wire."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind


def socket_url(endpoint: str, fields: dict[str, str]) -> str:
    """The URL of a websocket below a discovered endpoint, with its query in the order in which it is signed."""
    base = endpoint if endpoint.endswith("/") else endpoint + "/"
    return f"{base}ws?{urlencode(sorted(fields.items()))}"


async def dial(
    http: aiohttp.ClientSession, url: str, credentials: CredentialSource, region: str
) -> aiohttp.ClientWebSocketResponse:
    """Open a signed websocket; Refused, Unreachable or NoCredentials when that does not work."""
    keys = await credentials.current()
    headers = signed_headers_for_websocket(url, keys, region=region, now=time.time())
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            return await http.ws_connect(
                URL(url, encoded=True), headers=headers, max_msg_size=MOST_FRAME, autoping=True, compress=0
            )
    except aiohttp.WSServerHandshakeError as error:
        raise await _refusal(http, url, headers, error) from None
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise Unreachable(f"cannot connect to {url.partition('?')[0]}: {error or type(error).__name__}") from None


async def _refusal(
    http: aiohttp.ClientSession, url: str, headers: dict[str, str], error: aiohttp.WSServerHandshakeError
) -> Exception:
    """Why an upgrade was refused. The websocket client drops the body that says so; a plain GET gets it again."""
    try:
        async with asyncio.timeout(CONNECT_SECONDS), http.get(URL(url, encoded=True), headers=headers) as answer:
            body = await answer.content.read(64 << 10)
        refusal = decode_refusal(body)
    except (aiohttp.ClientError, TimeoutError, OSError, WireError):
        return Unreachable(f"cannot connect to {url.partition('?')[0]}: the answer was HTTP {error.status}")
    return Refused(refusal.type, refusal.message)


class Session:
    """Keeps the ACS connection of one container instance."""

    def __init__(
        self,
        http: aiohttp.ClientSession,
        client: EcsClient,
        credentials: CredentialSource,
        identity: Identity,
        region: str,
        info: EngineInfo,
        engine: Engine,
        checkpoint: Checkpoint,
        roles: RoleKeys,
        on_heartbeat: Callable[[], None] = lambda: None,
        networks: Networks | None = None,
        attachments: Attachments | None = None,
    ) -> None:
        self._http = http
        self._client = client
        self._credentials = credentials
        self._identity = identity
        self._region = region
        self._info = info
        self._engine = engine
        self._checkpoint = checkpoint
        self._roles = roles
        self._candidates: tuple[str, frozenset[str]] = ("", frozenset())  # of the manifest that named them
        self._first = True
        self._heard = False  # whether anything was understood on this connection
        self._networks = networks
        self._attachments = attachments
        self._on_heartbeat = on_heartbeat  # when this host is to be looked at anew
        self.connected_at = 0.0
        self.reconnects = 0
        self.heard_at = 0.0

    async def run(self) -> None:
        """Stay connected, for ever; StandDown when this instance is not wanted any more."""
        loop = asyncio.get_running_loop()
        delays = RECONNECT_BACKOFF.delays()
        while True:
            began = loop.time()
            in_order = self._heard = False
            try:
                in_order = await self._once()
            except Refused as refusal:
                if refusal.kind in _NO_MEMBER:
                    raise _stand_down(refusal) from None
                log.warning("connection refused", extra={"channel": "acs", "reason": str(refusal)})
            except EcsError as error:
                if error.code in _NOT_FOUND:
                    raise _stand_down(error) from None
                log.warning("cannot connect", extra={"channel": "acs", "reason": str(error)})
            except (Unreachable, NoCredentials) as error:
                log.warning("cannot connect", extra={"channel": "acs", "reason": str(error)})
            finally:
                self.connected_at = 0.0
            if self._heard:
                # Somebody was there and spoke: what comes now is a first failure again, however short it was.
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
            "clusterArn": self._identity.cluster,
            "containerInstanceArn": self._identity.instance_arn,
            "dockerVersion": f"DockerVersion: {self._info.version}",
            "protocolVersion": "2",
            "sendCredentials": "true" if self._first else "false",
            "seqNum": "1",
        }
        socket = await dial(self._http, socket_url(answer.endpoint or "", fields), self._credentials, self._region)
        self._first = False
        self.connected_at = time.time()
        log.info("connected", extra={"channel": "acs", "endpoint": answer.endpoint})
        try:
            return await self._listen(socket)
        finally:
            await socket.close()
            log.info("disconnected", extra={"channel": "acs", "code": socket.close_code})

    async def _listen(self, socket: aiohttp.ClientWebSocketResponse) -> bool:
        loop = asyncio.get_running_loop()
        silence = SILENCE_SECONDS * (1 + random.random())  # noqa: S311 - spreads load, guards nothing
        ends = loop.time() + LIFETIME_SECONDS + LIFETIME_JITTER * random.random()  # noqa: S311
        while True:
            left = min(silence, ends - loop.time())
            if left <= 0:
                await socket.close(code=1000, message=b"ConnectionExpired: Reconnect to continue")
                return True
            try:
                frame = await socket.receive(timeout=left)
            except TimeoutError:
                if loop.time() < ends:
                    log.warning("connection is silent", extra={"channel": "acs", "seconds": round(silence)})
                    return False
                continue
            if frame.type in (aiohttp.WSMsgType.TEXT, aiohttp.WSMsgType.BINARY):
                await self._take(socket, frame.data)
            elif frame.type in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSING, aiohttp.WSMsgType.CLOSED):
                return socket.close_code in CONNECTION_ENDED
            elif frame.type is aiohttp.WSMsgType.ERROR:
                return False

    async def _take(self, socket: aiohttp.ClientWebSocketResponse, frame: str | bytes) -> None:
        data = frame.encode() if isinstance(frame, str) else frame
        try:
            kind = msgspec.json.decode(data, type=_Kind).type
            message = payload.read(data) if kind == "PayloadMessage" else acs.decode(data).body
        except (WireError, *UNREADABLE) as error:
            log.warning("frame not understood", extra={"channel": "acs", "reason": str(error)})
            return
        self._heard = True
        self.heard_at = time.time()
        try:
            if isinstance(message, payload.Payload):
                await self._payload(socket, message)
            else:
                await self._act(socket, message)
        except StoreError as error:
            # Not acknowledged, so it comes again; the tasks that run go on meanwhile.
            log.error("message cannot be saved", extra={"channel": "acs", "kind": kind, "reason": str(error)})

    async def _act(self, socket: aiohttp.ClientWebSocketResponse, body: Any) -> None:
        match body:
            case acs.HeartbeatMessage(message_id=message_id):
                await self._send(socket, acs.HeartbeatAckRequest(message_id=message_id))
                self._on_heartbeat()
            case acs.TaskManifestMessage():
                await self._reconcile(socket, body)
            case acs.TaskStopVerificationAck(message_id=message_id, stop_tasks=tasks):
                asked, candidates = self._candidates
                if message_id and message_id == asked:
                    self._candidates = ("", frozenset())
                    arns = [one.task_arn or "" for one in tasks or ()]
                    # Only what was asked about: a task that has come since is not meant.
                    self._engine.stop(
                        [arn for arn in arns if arn in candidates],
                        "the control plane does not list this task any more",
                    )
            case acs.IAMRoleCredentialsMessage():
                await self._renew(socket, body)
            case acs.StageUpdateMessage(message_id=message_id) | acs.PerformUpdateMessage(message_id=message_id):
                await self._send(socket, self._nack(message_id, "Updates are disabled"))
            case SextonNetworkMessage(message_id=message_id):
                if self._networks is not None and not self._networks.routing.knows(body):
                    await self._send(socket, self._nack(message_id, "this is a change of a state that is not here"))
                elif self._networks is not None and await self._networks.follow(body) and message_id:
                    await self._send(socket, self._ack(message_id))
            case acs.AttachTaskNetworkInterfacesMessage(message_id=message_id):
                problem = "this host cannot give tasks a network of their own"
                if self._attachments is not None:
                    problem = await self._attachments.announce(body)
                answer = self._nack(message_id, problem) if problem else self._ack(message_id or "")
                await self._send(socket, answer)
            case acs.AttachInstanceNetworkInterfacesMessage(message_id=message_id):
                await self._send(socket, self._nack(message_id, "this agent serves no trunk interfaces"))
            case _:
                pass  # known words that need no answer, and unknown ones

    async def _payload(self, socket: aiohttp.ClientWebSocketResponse, message: payload.Payload) -> None:
        # Stops first: what they free may be what the others need.
        for sent in message.roles:
            if not self._has_no_use(sent):
                self._roles.take(sent)
        ordered = sorted(message.tasks, key=lambda task: task.desired_status != "STOPPED")
        await self._engine.take(ordered, message.sequence)
        for sent in message.roles:
            if self._engine.find(sent.task) is None:  # not taken in after all
                self._roles.forget(sent.task)
        for bad in message.bad:
            self._engine.reject(bad.arn, bad.reason)
        if not message.bad:
            await self._send(socket, self._ack(message.message_id))
            for sent in message.roles:
                await self._send(socket, _have(message.message_id, sent.keys))

    async def _renew(self, socket: aiohttp.ClientWebSocketResponse, renewed: acs.IAMRoleCredentialsMessage) -> None:
        """Keys of a task that is here; others are not acknowledged, so that they come again with their task."""
        keys, arn = renewed.role_credentials, renewed.task_arn or ""
        if keys is None or not renewed.message_id or renewed.role_type not in (EXECUTION, TASK):
            return
        sent = Sent(arn, renewed.role_type, keys)
        if self._engine.find(arn) is None:
            log.warning("keys of a task that is not here", extra={"task": arn})
        elif self._has_no_use(sent):
            await self._send(socket, _have(renewed.message_id, keys))
        elif self._roles.take(sent):
            log.info("keys renewed", extra={"task": arn, "role": renewed.role_type})
            await self._send(socket, _have(renewed.message_id, keys))

    def _has_no_use(self, sent: Sent) -> bool:
        """Whether these are a task's own keys, and it has stopped."""
        runner = self._engine.find(sent.task)
        return sent.role == TASK and runner is not None and runner.known.status is TaskStatus.STOPPED

    async def _reconcile(self, socket: aiohttp.ClientWebSocketResponse, manifest: acs.TaskManifestMessage) -> None:
        timeline = manifest.timeline if manifest.timeline is not None else -1
        if timeline <= self._checkpoint.self.sequence or not manifest.message_id:
            return
        await self._checkpoint.accept((), timeline)
        wanted = {one.task_arn for one in manifest.tasks or () if one.desired_status == "RUNNING"}
        candidates = tuple(
            acs.TaskIdentifier(
                desired_status="STOPPED", task_arn=runner.arn, task_cluster_arn=runner.desired.task.task_cluster_arn
            )
            for runner in self._engine.runners()
            if runner.arn not in wanted and not runner.desired.stopped and runner.known.status is not TaskStatus.STOPPED
        )
        self._candidates = (manifest.message_id, frozenset(one.task_arn or "" for one in candidates))
        await self._send(socket, self._ack(manifest.message_id))
        if candidates:
            await self._send(
                socket, acs.TaskStopVerificationMessage(message_id=manifest.message_id, stop_candidates=candidates)
            )

    def _ack(self, message_id: str) -> acs.AckRequest:
        return acs.AckRequest(
            cluster=self._identity.cluster, container_instance=self._identity.instance_arn, message_id=message_id
        )

    def _nack(self, message_id: str | None, reason: str) -> acs.NackRequest:
        return acs.NackRequest(
            cluster=self._identity.cluster,
            container_instance=self._identity.instance_arn,
            message_id=message_id,
            reason=reason,
        )

    async def _send(self, socket: aiohttp.ClientWebSocketResponse, message: msgspec.Struct) -> None:
        try:
            await socket.send_str(acs.encode(message).decode())
        except (ConnectionError, aiohttp.ClientError) as error:
            # The reading side notices the end of the connection; the other end sends again on the next one.
            log.info("answer not sent", extra={"channel": "acs", "reason": str(error)})


def _have(message_id: str, keys: acs_task.IAMRoleCredentials) -> acs.IAMRoleCredentialsAckRequest:
    return acs.IAMRoleCredentialsAckRequest(
        message_id=message_id, expiration=keys.expiration, credentials_id=keys.credentials_id
    )


def _stand_down(error: Exception) -> StandDown:
    return StandDown(
        f"this host is no member of its cluster any more: {error}",
        "Remove the agent's state to register it anew, or disable the agent on this host",
    )


class _Kind(msgspec.Struct):
    type: str
