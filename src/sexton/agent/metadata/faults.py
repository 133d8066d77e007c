"""Fault injection: a task whose definition allows it disturbs its own network, to see how it takes that.

    POST .../fault/v1/network-blackhole-port | network-latency | network-packet-loss / start | stop | status

Only tasks whose network is not shared with others by the engine's bridge can: those with a network of their own, and
those in the host's, where a fault hits the whole host. Words and codes are those of Amazon's agent; a kernel that
cannot do what is asked is named.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import msgspec

from sexton.agent.metadata.faultrunner import HOST, FaultRunner, Running
from sexton.agent.metadata.identity import Names
from sexton.agent.metadata.origin import Origin
from sexton.agent.metadata.routes import Call, Handler, Routes
from sexton.agent.runner import Runner
from sexton.core import fault
from sexton.core.fault import BadFault, Kind
from sexton.host.nettool import ToolError
from sexton.kit import web
from sexton.kit.allowance import Allowances
from sexton.kit.listener import BodyBroken, BodyTooLarge, BodyTooSlow, read_body
from sexton.wire.errors import UNREADABLE

log = logging.getLogger(__name__)

PATH = "/api/{name}/fault/v1/"
OPERATIONS = ("start", "stop", "status")
# All commands of a request together.
REQUEST_SECONDS = 5.0
# One request in five seconds, of each caller to each path.
RATE = 0.2
LARGEST_BODY = 64 << 10
LIMITED = "You have reached maximum request limit"

NamespaceOf = Callable[[Runner], Awaitable[str | None]]
"""The network of a task with one of its own; None while it has none."""


class FaultPaths:
    """Faults for every task here."""

    def __init__(self, names: Names, origin: Origin, runner: FaultRunner, namespace_of: NamespaceOf) -> None:
        self._names = names
        self._origin = origin
        self._runner = runner
        self._namespace_of = namespace_of
        self._allowances = Allowances(RATE, 1.0)

    def add_to(self, routes: Routes) -> None:
        for kind in Kind:
            for operation in OPERATIONS:
                routes.add(f"{PATH}{kind}/{operation}", self._handler(kind, operation))

    def _handler(self, kind: Kind, operation: str) -> Handler:
        async def serve(call: Call) -> web.Response:
            if call.request.method != "POST":
                return web.Response(status=405, headers={"Allow": "POST"})
            if not self._allowances.take((call.caller.task, call.caller.address, call.path)):
                return web.Response(status=429, text=LIMITED)
            return await self._serve(call, kind, operation)

        return serve

    async def _serve(self, call: Call, kind: Kind, operation: str) -> web.Response:
        try:
            wanted = fault.read(kind, await _body(call.request), start=operation == "start")
        except BadFault as error:
            return _refused(400, str(error))
        name = call.found["name"]
        subject = self._names.find(name)
        if subject is None or not await self._origin.is_of(call.caller, subject.runner):
            unknown = f"unable to get task Arn from v3 endpoint ID: {name}"
            return _refused(404, f"unable to get task arn from request: {unknown}")
        task = subject.runner.desired.task
        if not task.enable_fault_injection:
            return _refused(400, f"enableFaultInjection is not enabled for task: {subject.runner.arn}")
        mode = task.network_mode or "bridge"
        if mode not in ("host", "awsvpc"):
            return _refused(400, f"{mode} mode is not supported. Please use either host or awsvpc mode.")
        namespace = HOST if mode == "host" else await self._namespace_of(subject.runner)
        if namespace is None:
            return _refused(500, f"failed to get task metadata due to internal server error for container: {name}")
        return await self._do(operation, kind, namespace, subject.runner, wanted)

    async def _do(
        self, operation: str, kind: Kind, namespace: str, runner: Runner, wanted: fault.Fault
    ) -> web.Response:
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                word = await self._done(operation, namespace, runner, wanted)
        except Running as error:
            return _refused(409, str(error))
        except TimeoutError:
            words = "check status" if operation == "status" else operation
            return _refused(500, f"{words} {kind}: request timed out")
        except ToolError as error:
            log.warning("fault cannot be done", extra={"task": runner.arn, "what": str(kind), "reason": str(error)})
            return _refused(500, str(error))
        log.info("fault", extra={"task": runner.arn, "what": str(kind), "fault": wanted.name, "status": word})
        return _json(200, {"Status": word})

    async def _done(self, operation: str, namespace: str, runner: Runner, wanted: fault.Fault) -> str:
        match operation:
            case "start":
                await self._runner.start(namespace, runner.task_id, wanted)
                return "running"
            case "stop":
                await self._runner.stop(namespace, runner.task_id, wanted)
                return "stopped"
            case _:
                found = await self._runner.runs(namespace, runner.task_id, wanted)
                return "running" if found else "not-running"


async def _body(request: web.BaseRequest) -> dict[str, object] | None:
    """What the request says; None for nothing."""
    try:
        raw = await read_body(request, LARGEST_BODY)
        return msgspec.json.decode(raw, type=dict[str, object]) if raw.strip() else None
    except (BodyBroken, BodyTooLarge, BodyTooSlow, *UNREADABLE):
        raise BadFault("cannot read the request body: it is no JSON object") from None


def _refused(status: int, text: str) -> web.Response:
    return _json(status, {"Error": text})


def _json(status: int, body: dict[str, str]) -> web.Response:
    return web.Response(status=status, body=msgspec.json.encode(body), content_type="application/json")
