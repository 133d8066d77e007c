"""The control plane's one port: the APIs by POST, the agents' websockets and a health check by GET.

Only shapes of HTTP are judged here; who may do what is decided behind, where the signature is verified.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

import msgspec

from sexton import __version__
from sexton.control.dispatch import Dispatcher
from sexton.control.logs.door import MOST_BODY as MOST_LOGS
from sexton.control.logs.door import PREFIX as LOGS_PREFIX
from sexton.control.logs.door import LogsDoor
from sexton.control.own.door import PREFIX
from sexton.control.query.door import FORM, XML, QueryDoor
from sexton.kit import web
from sexton.kit.listener import BodyBroken, BodyTooLarge, BodyTooSlow, read_body
from sexton.kit.quickhttp import Asked, Told
from sexton.wire.errors import (
    EcsError,
    InternalFailure,
    RequestEntityTooLargeException,
    SerializationException,
    UnknownOperationException,
    encode_error,
)

# Many times the largest request that the service model allows.
MOST_BODY = 1 << 20
JSON = "application/x-amz-json-1.1"
# Batches of log lines may be larger. So many of those that are larger than this are taken in at once, so that what
# strangers send fills no memory before it is known whose it is.
LARGE_BODY = 128 << 10
LARGE_AT_ONCE = 4

# On an answer from memory while the store is away: true when it was last seen, and perhaps no longer.
STALE_HEADER = "x-sexton-stale"

Upgrade = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class FrontDoor:
    """Routes requests; ``upgrades`` serves websockets by path, ``own`` what is no part of the ECS API."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        query: QueryDoor,
        logs: LogsDoor,
        upgrades: dict[str, Upgrade],
        body_seconds: float,
        own: Upgrade,
        trouble: Callable[[], str] = str,
    ) -> None:
        self._dispatcher = dispatcher
        self._query = query
        self._logs = logs
        self._large = asyncio.Semaphore(LARGE_AT_ONCE)
        self._upgrades = upgrades
        self._body_seconds = body_seconds
        self._own = own
        self._trouble = trouble

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.path.startswith(PREFIX):
            return await self._own(request)
        if request.method == "POST":
            return await self._api(request)
        if request.method == "GET":
            upgrade = self._upgrades.get(request.path)
            if upgrade is not None:
                return await upgrade(request)
            if request.path == "/health":
                return self._health()
        return refuse(UnknownOperationException("There is nothing here; the API takes POST requests to /."), 404)

    def _health(self) -> web.Response:
        """For whoever chooses between control planes: one that has lost its store can serve no agent."""
        lost = bool(self._trouble())
        body = msgspec.json.encode({"status": "store away" if lost else "ok", "version": __version__})
        return web.Response(status=503 if lost else 200, body=body, content_type="application/json")

    async def _api(self, request: web.BaseRequest) -> web.StreamResponse:
        if (request.headers.get("X-Amz-Target") or "").startswith(LOGS_PREFIX):
            if (request.content_length or MOST_LOGS) <= LARGE_BODY:
                return await self._answer(request, MOST_LOGS)
            async with self._large:
                return await self._answer(request, MOST_LOGS)
        return await self._answer(request, MOST_BODY)

    async def _answer(self, request: web.BaseRequest, most: int) -> web.StreamResponse:
        try:
            body = await read_body(request, most, self._body_seconds)
        except BodyTooLarge:
            return refuse(RequestEntityTooLargeException(f"The body is longer than {most} bytes."), 413)
        except BodyTooSlow:
            return refuse(EcsError("The body did not arrive in time.", code="RequestTimeout"), 408)
        except BodyBroken:
            return malformed(400, "The body is not framed as its head says.")
        if request.path_qs != "/":
            return refuse(UnknownOperationException("There is nothing here; the API takes POST requests to /."), 404)
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in request.raw_headers]
        target, form = request.headers.get("X-Amz-Target"), request.content_type == FORM
        peer = request.transport.get_extra_info("peername") if request.transport is not None else None
        port = int(peer[1]) if isinstance(peer, tuple) else 0
        told = await self._told(target, form, headers, body, request.remote or "", secure=request.secure, port=port)
        return web.Response(status=told.status, body=told.body, headers=told.headers)

    async def quick(self, asked: Asked) -> Told:
        """A request that came the short way."""
        headers = asked.headers
        target, form = headers.get("x-amz-target"), False
        if target is None:
            form = headers.get("content-type", "").partition(";")[0].strip().lower() == FORM
        return await self._told(
            target, form, headers.items(), asked.body, asked.remote, secure=asked.secure, port=asked.port
        )

    async def _told(
        self,
        target: str | None,
        form: bool,
        headers: Iterable[tuple[str, str]],
        body: bytes,
        remote: str,
        *,
        secure: bool,
        port: int,
    ) -> Told:
        if target is not None and target.startswith(LOGS_PREFIX):
            logged = await self._logs.serve(target, headers, body, remote, secure=secure, port=port)
            return Told(logged.status, {"Content-Type": JSON, "x-amzn-RequestId": logged.request_id}, logged.body)
        if target is None and form:
            said = await self._query.serve("/", headers, body, remote, secure=secure)
            return Told(said.status, {"Content-Type": XML, "x-amzn-RequestId": said.request_id}, said.body)
        reply = await self._dispatcher.serve(target, "/", headers, body, remote, secure=secure)
        answer_headers = {"Content-Type": JSON, "x-amzn-RequestId": reply.request_id}
        if reply.stale:
            answer_headers[STALE_HEADER] = "true"
        return Told(reply.status, answer_headers, reply.body)


def refuse(error: EcsError, status: int) -> web.Response:
    """An answer to what is no request of the API; the rest of the connection cannot be trusted to be in step."""
    response = web.Response(status=status, body=encode_error(error), headers={"Content-Type": JSON})
    response.force_close()
    return response


def malformed(status: int, message: str) -> web.Response:
    """The answer to what is no HTTP request, or to one whose handler failed."""
    failed = status >= 500
    return refuse(InternalFailure(message) if failed else SerializationException(message), status)
