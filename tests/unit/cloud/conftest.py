"""A client session, and small HTTP servers on loopback that the tests script."""

from __future__ import annotations

import aiohttp
import pytest
from aiohttp import web


@pytest.fixture
async def session():
    async with aiohttp.ClientSession() as session:
        yield session


@pytest.fixture
async def serve():
    """Start a server that gives every request to a handler; return its address."""
    runners = []

    async def start(handler):
        app = web.Application(client_max_size=64 << 20)
        app.router.add_route("*", "/{tail:.*}", handler)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        runners.append(runner)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return f"http://127.0.0.1:{runner.addresses[0][1]}"

    yield start
    for runner in runners:
        await runner.cleanup()
