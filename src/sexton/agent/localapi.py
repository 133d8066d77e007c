"""What the command line on this host asks the agent: a small HTTP API on a socket file that only root can open.

GET /health                                   is it connected, since when, does the engine answer
GET /use                                      what its tasks are promised and have used so far, read now
GET /sizes                                    what each definition needed over time
GET /why?task=ID                              what this host knows of a task, and what happened around it
GET /net[?counts=0]                           tasks' networks here, and what their groups' rules have counted
GET /logs?task=ID[&container=NAME&tail=N&since=T]   lines of a task's containers, as JSON lines; follow=1 stays open
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from sexton import __version__
from sexton.agent.engine import Engine
from sexton.agent.history import History
from sexton.agent.runner import Runner
from sexton.agent.session import Session
from sexton.agent.sizing import Sizing
from sexton.agent.steps.context import Identity as Member
from sexton.core.names import last_part
from sexton.core.task import KnownContainer
from sexton.kit import web
from sexton.kit.supervise import Nursery
from sexton.runtime.contract import LogLine, NotFound, Refused, Runtime, Unavailable

if TYPE_CHECKING:
    from sexton.agent.networks import Networks

# How soon a reader that has hung up is noticed.
READER_SECONDS = 1.0


class LocalApi:
    """Serves the local socket."""

    def __init__(
        self,
        engine: Engine,
        session: Session,
        runtime: Runtime,
        member: Member,
        history: History | None = None,
        sizing: Sizing | None = None,
        networks: Networks | None = None,
    ) -> None:
        self._engine = engine
        self._session = session
        self._runtime = runtime
        self._member = member
        self._history = history or History()
        self._sizing = sizing
        self._networks = networks

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.method == "GET" and request.path == "/health":
            return _json(
                {
                    "version": __version__,
                    "containerInstanceArn": self._member.instance_arn,
                    "connectedSince": self._session.connected_at or None,
                    "engineAnswers": self._engine.answering,
                    "tasks": len(self._engine.runners()),
                }
            )
        if request.method == "GET" and request.path == "/net":
            if self._networks is None:
                return _json({"error": "this agent makes no networks for tasks"}, status=404)
            return _json(await self._networks.routing.shown(counted=request.query.get("counts") != "0"))
        if request.method == "GET" and request.path == "/logs":
            return await self._logs(request)
        if request.method == "GET" and request.path == "/why":
            found = self._find(request)
            if isinstance(found, web.Response):
                return found
            from sexton.agent import why  # rarely asked, and it takes the shapes of the whole API

            return _json(why.answer(found, self._history, self._member.instance_arn, self._member.cluster))
        if request.method == "GET" and self._sizing is not None:
            if request.path == "/use":
                return _json(self._sizing.use())
            if request.path == "/sizes":
                return _json({"followed": self._sizing.followed, "sizes": await self._sizing.measured()})
        return _json({"error": "there is nothing here"}, status=404)

    def _find(self, request: web.BaseRequest) -> Runner | web.Response:
        """The one task that is meant, or the answer that says why there is none."""
        wanted = last_part(request.query.get("task", ""))
        found = [one for one in self._engine.runners() if one.task_id.startswith(wanted)] if wanted else []
        if len(found) != 1:
            known = "no task on this host matches" if not found else f"{len(found)} tasks on this host match"
            return _json({"error": f"{known} '{wanted}'; 'sexton ps --all' lists tasks"}, status=404)
        return found[0]

    async def _logs(self, request: web.BaseRequest) -> web.StreamResponse:
        runner = self._find(request)
        if isinstance(runner, web.Response):
            return runner
        name = request.query.get("container")
        containers = [one for one in runner.known.containers if one.runtime_id and name in (None, one.name)]
        if not containers:
            return _json({"error": _nothing(runner, name)}, status=404)
        tail = request.query.get("tail", "0")
        since = _number(request.query.get("since", ""))
        follow = request.query.get("follow") == "1"
        response = web.StreamResponse(headers={"Content-Type": "application/jsonl"})
        await response.prepare(request)
        lock = asyncio.Lock()
        copying = Nursery("logs")
        try:
            copies = [
                copying.start(
                    one.name, _copy(runner, one, self._lines(one, tail, since, follow=follow), response, lock)
                )
                for one in containers
            ]
            # A reader that hangs up is noticed even while the containers write nothing.
            left = copying.start("reader", _reader_left(request))
            await asyncio.wait({left, copying.start("all", _all(copies))}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await copying.close()
        with contextlib.suppress(ConnectionError):
            await response.write_eof()
        return response

    def _lines(self, one: KnownContainer, tail: str, since: float, *, follow: bool) -> AsyncIterator[LogLine]:
        lines = int(tail) if tail.isascii() and tail.isdigit() else 0
        return self._runtime.logs(one.runtime_id, follow=follow, tail=lines, since=since)


def _number(text: str) -> float:
    return float(text) if re.fullmatch(r"[0-9]{1,12}(\.[0-9]{1,9})?", text) else 0.0


async def _all(tasks: Sequence[asyncio.Task[None]]) -> None:
    await asyncio.wait(tasks)


async def _reader_left(request: web.BaseRequest) -> None:
    while True:
        await asyncio.sleep(READER_SECONDS)
        if request.transport is None or request.transport.is_closing():
            return


async def _copy(
    runner: Runner,
    one: KnownContainer,
    lines: AsyncIterator[LogLine],
    response: web.StreamResponse,
    lock: asyncio.Lock,
) -> None:
    """One container's lines into the answer; a log that cannot be read back says why in its own place."""
    try:
        async for line in lines:
            async with lock:
                await response.write(_line(one.name, line))
    except (Refused, NotFound, Unavailable) as error:
        told = {"container": one.name, "error": _unread(runner, one, error)}
        async with lock:
            await response.write(msgspec.json.encode(told) + b"\n")
    except ConnectionError:
        pass  # the reader has gone away


def _unread(runner: Runner, one: KnownContainer, error: Exception) -> str:
    from sexton.core.taskview import logging_of  # with all that tasks are told, which this host may never need

    asked = next(each for each in runner.desired.task.containers or () if each.name == one.name)
    driver, _ = logging_of(asked)
    return f"its log driver is {driver}, and {error}" if driver and isinstance(error, Refused) else str(error)


def _line(name: str, line: LogLine) -> bytes:
    fields = {"container": name, "stream": line.stream, "text": line.text, "time": line.time}
    return msgspec.json.encode(fields) + b"\n"


def _nothing(runner: Runner, name: str | None) -> str:
    if name is not None and name not in {one.name for one in runner.known.containers}:
        return f"task {runner.task_id} has no container {name}"
    return f"task {runner.task_id} has not created a container yet"


def _json(value: object, status: int = 200) -> web.Response:
    return web.Response(status=status, body=msgspec.json.encode(value), content_type="application/json")
