"""Images without a registry: one made from the machine's busybox, and a registry that only ever says no.

``build_busybox`` imports a tar made in memory, so an engine has an image within a fraction of a second, offline.
``FakeRegistry`` listens on loopback, where engines accept plain HTTP, and fails pulls in the way a test asks for.
"""

from __future__ import annotations

import asyncio

from aiohttp import web
from local_image import build_busybox as import_busybox

IMAGE = "sexton/busybox:latest"


def build_busybox(engine_url: str, tag: str = IMAGE) -> str:
    """Make the image on this engine and return its tag; a second call makes it again."""
    return import_busybox(engine_url, tag)


class FakeRegistry:
    """A registry on 127.0.0.1 whose every answer is of one kind: "unknown", "denied", "broken" or "hang"."""

    def __init__(self, answer: str) -> None:
        self._answer = answer
        self._runner: web.AppRunner | None = None
        self._leave = asyncio.Event()
        self.port = 0

    def ref(self, image: str = "none:latest") -> str:
        """How an engine is asked for an image of this registry."""
        return f"127.0.0.1:{self.port}/{image}"

    async def __aenter__(self) -> FakeRegistry:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._respond)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._leave.set()
        assert self._runner is not None
        await self._runner.cleanup()

    async def _respond(self, request: web.Request) -> web.Response:
        if self._answer == "hang":
            await self._leave.wait()
        if self._answer == "broken":
            return web.json_response({"errors": []}, status=503)
        if self._answer == "denied":
            return _no(401, "UNAUTHORIZED", "authentication required")
        if request.path.rstrip("/") == "/v2":
            return web.json_response({})
        return _no(404, "MANIFEST_UNKNOWN", "manifest unknown")


def _no(status: int, code: str, message: str) -> web.Response:
    return web.json_response(
        {"errors": [{"code": code, "message": message}]},
        status=status,
        headers={"Docker-Distribution-Api-Version": "registry/2.0"},
    )
