"""A task's endpoint over a real socket, with the paths that a test adds, and what tasks send to it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import aiohttp
from yarl import URL

from sexton.agent.metadata.routes import Routes
from sexton.agent.metadata.server import TaskServer
from sexton.kit.allowance import Allowances
from sexton.kit.listener import Limits, Listener

UNLIMITED = Allowances(1e6, 1e6)
MANY = Limits(connections=1024, idle=5.0, body=5.0)


class Said(NamedTuple):
    """An answer."""

    status: int
    text: str
    headers: Any

    @property
    def json(self) -> Any:
        import json

        return json.loads(self.text)


class Port:
    """Where the endpoint is; each call is a connection of its own, as SDKs make them."""

    def __init__(self, port: int, server: TaskServer) -> None:
        self.port = port
        self.server = server

    async def ask(self, path: str, method: str = "GET", body: bytes | None = None, **headers: str) -> Said:
        url = URL(f"http://127.0.0.1:{self.port}{path}", encoded=True)
        async with (
            aiohttp.ClientSession() as session,
            session.request(method, url, data=body, headers=headers, allow_redirects=False) as answer,
        ):
            return Said(answer.status, await answer.text(), answer.headers)


@asynccontextmanager
async def serving(
    *parts: Any, allowances: Allowances = UNLIMITED, task: str = "", set_up: Callable[[TaskServer], None] | None = None
) -> AsyncIterator[Port]:
    """Serve these parts, each of which adds its paths."""
    routes = Routes()
    for part in parts:
        part.add_to(routes)
    server = TaskServer(routes, allowances)
    if set_up is not None:
        set_up(server)
    listener = Listener(server.at("bridge0", task), MANY)
    port = await listener.open("127.0.0.1", 0)
    try:
        yield Port(port, server)
    finally:
        await listener.close()
