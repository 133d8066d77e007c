"""Takes requests of tasks in: cleans the path, limits, finds who answers.

Everybody has an allowance of requests for each path, so that one that asks too much is told so and costs the others
nothing. Whoever goes from path to path is held up as well, before he costs this host more than he should. A path with
needless slashes or dots is sent on to the clean one, as Amazon's agent does. What nobody answers is not found. Any verb
will do, and bodies are for whoever answers to read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from urllib.parse import quote, unquote

from sexton.agent.metadata.routes import LOOPBACK, Call, Caller, Routes
from sexton.kit import web
from sexton.kit.allowance import Allowances
from sexton.kit.listener import Handler, Limits

LIMITS = Limits(connections=1024, idle=5.0, body=5.0, per_peer=128)
# Of all paths together, so many times as much as of one.
PATHS_AT_ONCE = 10
# Whoever asks more than that waits so long for each refusal, so that its connections bound what it can cost.
HELD_SECONDS = 0.25
LIMITED = "You have reached maximum request limit."
_NOT_FOUND = "404 page not found\n"


class TaskServer:
    """Answers every task. ``on_limited`` hears of each request that was too many."""

    def __init__(self, routes: Routes, allowances: Allowances, whole: Allowances | None = None) -> None:
        self._routes = routes
        self._allowances = allowances
        self._whole = whole  # of all paths together
        self.on_limited: Callable[[web.BaseRequest, Caller], None] = lambda request, caller: None

    def at(self, interface: str, task: str = "") -> Handler:
        """The handler for a socket on an interface, which only one task can reach or several share."""

        async def answer(request: web.BaseRequest) -> web.StreamResponse:
            return await self._answer(request, caller_of(request)._replace(task=task, interface=interface))

        return answer

    async def _answer(self, request: web.BaseRequest, caller: Caller) -> web.Response:
        if not self._may_ask(caller):
            await asyncio.sleep(HELD_SECONDS)
            self.on_limited(request, caller)
            return web.Response(status=429, text=LIMITED)
        target, mark, query = request.raw_path.partition("?")
        path = unquote(target)
        found = self._routes.find(path)
        # What nobody answers shares one allowance: paths that are made up must not fill the memory.
        if not self._allowances.take((caller.task, caller.address, path if found else "")):
            self.on_limited(request, caller)
            return web.Response(status=429, text=LIMITED)
        clean = clean_path(path)
        if clean != path:
            return web.Response(status=301, headers={"Location": quote(clean) + mark + query})
        if found is None:
            return web.Response(status=404, text=_NOT_FOUND, headers={"X-Content-Type-Options": "nosniff"})
        handler, holes = found
        return await handler(Call(request, path, holes, caller))

    def _may_ask(self, caller: Caller) -> bool:
        """Whether a task may ask anything now. What the host itself sends is of many, and not told apart."""
        if self._whole is None or caller.interface == LOOPBACK:
            return True
        return self._whole.take((caller.task, caller.address))


def caller_of(request: web.BaseRequest) -> Caller:
    peer = request.transport.get_extra_info("peername") if request.transport is not None else None
    return Caller(str(peer[0]), int(peer[1])) if isinstance(peer, tuple) else Caller("")


def clean_path(path: str) -> str:
    """The shortest path that means the same; one that ends in a slash still does."""
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            parts = parts[:-1]
        elif part not in ("", "."):
            parts.append(part)
    return "/" + "/".join(parts) + ("/" if parts and path.endswith("/") else "")
