"""An HTTP server on a Unix socket that answers like an engine a test made up: old, new, hanging, broken."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web

Responder = Callable[[web.Request], Awaitable[web.StreamResponse]]


class ScriptedEngine:
    """Routes are "METHOD path" without the version; ``requests`` is what arrived, version and quoting included."""

    def __init__(self, path: Path) -> None:
        self.url = f"unix://{path}"
        self.requests: list[str] = []
        self.versions: dict[str, Any] = {"Version": "99.0", "ApiVersion": "1.44", "MinAPIVersion": "1.24"}
        self.routes: dict[str, Responder] = {}
        self.leave = asyncio.Event()  # set at the end, so that hanging answers let go

    def answer(self, route: str, status: int = 200, text: str = "{}") -> None:
        async def respond(request: web.Request) -> web.StreamResponse:
            return web.Response(status=status, text=text, content_type="application/json")

        self.routes[route] = respond

    def hang(self, route: str) -> asyncio.Event:
        """This route never answers; the event is set once its client has hung up."""
        gone = asyncio.Event()

        async def respond(request: web.Request) -> web.StreamResponse:
            await self._until_hung_up(request)
            gone.set()
            return web.Response()

        self.routes[route] = respond
        return gone

    def stream(self, route: str, *pieces: bytes, then: str = "end") -> asyncio.Event:
        """Send these pieces, then "end" properly, "cut" the connection, or stay "open"; the event is as for hang."""
        gone = asyncio.Event()

        async def respond(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse()
            await response.prepare(request)
            for piece in pieces:
                await response.write(piece)
            if then == "cut":
                assert request.transport is not None
                request.transport.abort()
            if then == "open":
                await self._until_hung_up(request)
                gone.set()
            return response

        self.routes[route] = respond
        return gone

    async def _until_hung_up(self, request: web.Request) -> None:
        transport = request.transport
        while transport is not None and not transport.is_closing() and not self.leave.is_set():
            await asyncio.sleep(0.005)

    async def respond(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(f"{request.method} {request.raw_path.partition('?')[0]}")
        if request.path == "/version":
            if "GET /version" in self.routes:
                return await self.routes["GET /version"](request)
            return web.json_response(self.versions)
        bare = request.path.split("/", 2)[2]
        responder = self.routes.get(f"{request.method} /{bare}")
        if responder is None:
            return web.json_response({"message": f"page not found: {request.path}"}, status=404)
        return await responder(request)


@asynccontextmanager
async def scripted_engine(path: Path) -> AsyncIterator[ScriptedEngine]:
    engine = ScriptedEngine(path)
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", engine.respond)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    await web.UnixSite(runner, str(path)).start()
    try:
        yield engine
    finally:
        engine.leave.set()
        await runner.cleanup()
