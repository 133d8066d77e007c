"""A control plane that says exactly what a test wants, to a real agent process, and notes all that it hears.

One port: the API by POST (registration echoes, discovery points back here, reports are taken), the two websockets by
GET. It runs in a thread of its own, so that tests stay plain functions. Signatures are not looked at.
"""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections import Counter
from collections.abc import Coroutine
from typing import Any, NamedTuple, TypeVar

from aiohttp import WSMsgType, web

from nethosts import inside
from node import REGION

ACCOUNT = "123456789012"
INSTANCE = f"arn:aws:ecs:{REGION}:{ACCOUNT}:container-instance/default/{'c' * 32}"
CLUSTER = f"arn:aws:ecs:{REGION}:{ACCOUNT}:cluster/default"
CALL_SECONDS = 30.0

Json = dict[str, Any]
T = TypeVar("T")


class Report(NamedTuple):
    """One SubmitTaskStateChange, and when it came."""

    body: Json
    at: float


def task_arn(number: int) -> str:
    return f"arn:aws:ecs:{REGION}:{ACCOUNT}:task/default/{number:032x}"


class ScriptedPlane:
    """A context manager; ``environment`` is what an agent needs to find it."""

    def __init__(self, instance: str = INSTANCE, namespace: str = "") -> None:
        self.instance = instance
        self._namespace = namespace
        self.greeting: tuple[str, ...] = ()  # what every new ACS connection is told first
        self.reports: list[Report] = []
        self.connections: list[float] = []  # when each ACS connection came
        self.heard: list[Json] = []  # frames of agents on ACS
        self.telemetry: list[str] = []  # frames on TCS, headers included
        self.calls: Counter[str] = Counter()
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._runner: web.AppRunner | None = None
        self._socket: web.WebSocketResponse | None = None
        self._sequence = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        return {"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_DEFAULT_REGION": REGION}

    def __enter__(self) -> ScriptedPlane:
        self._thread.start()
        self._do(self._open())
        return self

    def __exit__(self, *_: object) -> None:
        self._do(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CALL_SECONDS)
        self._loop.close()

    def say(self, kind: str, **message: Any) -> None:
        """One message on the newest ACS connection."""
        self.raw(json.dumps({"type": kind, "message": message}))

    def raw(self, *frames: str) -> None:
        self._do(self._send(frames))

    def payload(self, *tasks: Json) -> str:
        """Ask for these tasks; the message's id."""
        self._sequence += 1
        message_id = f"payload-{self._sequence}"
        self.say(
            "PayloadMessage",
            clusterArn=CLUSTER,
            containerInstanceArn=self.instance,
            messageId=message_id,
            generatedAt=int(time.time() * 1000),
            seqNum=self._sequence,
            tasks=list(tasks),
        )
        return message_id

    def acknowledged(self, message_id: str) -> bool:
        return any(
            one["type"] == "AckRequest" and one["message"].get("messageId") == message_id for one in list(self.heard)
        )

    def told(self, arn: str) -> list[str]:
        """The statuses that were reported of a task."""
        return [one.body.get("status", "") for one in list(self.reports) if one.body.get("task") == arn]

    def hang_up(self) -> None:
        """End the ACS connection in order."""
        if self._socket is not None:
            self._do(self._socket.close())

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(CALL_SECONDS)

    async def _open(self) -> None:
        app = web.Application(client_max_size=16 << 20)
        app.router.add_post("/", self._call)
        app.router.add_get("/acs/ws", self._acs)
        app.router.add_get("/tcs/ws", self._tcs)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        bound = self._listening()
        await web.SockSite(self._runner, bound).start()
        self.port = self._runner.addresses[0][1]

    def _listening(self) -> socket.socket:
        if not self._namespace:
            return socket.create_server(("127.0.0.1", 0))
        with inside(self._namespace):
            return socket.create_server(("127.0.0.1", 0))

    async def _close(self) -> None:
        if self._socket is not None:
            await self._socket.close()
        if self._runner is not None:
            await self._runner.cleanup()

    async def _send(self, frames: tuple[str, ...]) -> None:
        assert self._socket is not None
        for frame in frames:
            await self._socket.send_str(frame)

    async def _call(self, request: web.Request) -> web.Response:
        operation = request.headers["X-Amz-Target"].rpartition(".")[2]
        body = json.loads(await request.read())
        self.calls[operation] += 1
        match operation:
            case "RegisterContainerInstance":
                instance = {"containerInstanceArn": self.instance, "attributes": body["attributes"], "status": "ACTIVE"}
                return _json({"containerInstance": instance})
            case "DiscoverPollEndpoint":
                return _json({"endpoint": f"{self.url}/acs/", "telemetryEndpoint": f"{self.url}/tcs/"})
            case "SubmitTaskStateChange":
                self.reports.append(Report(body, time.monotonic()))
        return _json({"acknowledgment": "ok"})

    async def _acs(self, request: web.Request) -> web.WebSocketResponse:
        opened = web.WebSocketResponse()
        await opened.prepare(request)
        for frame in self.greeting:
            await opened.send_str(frame)
        self._socket = opened
        self.connections.append(time.monotonic())
        async for said in opened:
            if said.type is WSMsgType.TEXT:
                self.heard.append(json.loads(said.data))
        return opened

    async def _tcs(self, request: web.Request) -> web.WebSocketResponse:
        opened = web.WebSocketResponse()
        await opened.prepare(request)
        async for said in opened:
            if said.type is WSMsgType.TEXT:
                self.telemetry.append(said.data)
            await opened.send_str('{"type":"AckPublishMetric","message":{"message":""}}')
        return opened


def _json(body: Json) -> web.Response:
    return web.json_response(body, content_type="application/x-amz-json-1.1")
