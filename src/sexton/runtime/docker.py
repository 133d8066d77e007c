"""The Docker Engine API, and what speaks it alike, behind the runtime contract.

Every method is one request, so that starting a task costs what the engine costs, and no more containers are made and
started at once than an engine does well. The version is agreed once and again after a break.

Below it: ``docker_http`` (the wire, deadlines), ``docker_version`` (what both ends speak),
``docker_decode`` (JSON to values), ``docker_stores`` (images and volumes), ``docker_lines`` (streams to lines),
``docker_faults`` (what a "no" means).

Nothing survives a restart and nothing needs to: containers are found again by id, name or label, and the journal of
events is the engine's.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any
from urllib.parse import quote

import msgspec

from sexton.kit.sluice import Sluice
from sexton.runtime import docker_decode as wire
from sexton.runtime import docker_stores as stores
from sexton.runtime.cgroup_path import container_cgroup
from sexton.runtime.contract import (
    Conflict,
    ContainerBrief,
    ContainerInfo,
    DiskUse,
    EngineInfo,
    Event,
    LogLine,
    NotFound,
    Refused,
    Runtime,
    RuntimeFault,
    Unavailable,
)
from sexton.runtime.deadlines import DEFAULTS, Deadlines
from sexton.runtime.docker_faults import signal_fault, start_fault
from sexton.runtime.docker_http import Agreement, EngineHttp
from sexton.runtime.docker_lines import LogLines
from sexton.runtime.docker_stores import DockerImages, DockerVolumes, json_lines

EVENT_OVERLAP = 0.000_001
"""A float cannot hold the engine's nanoseconds: asking from slightly earlier repeats an event and loses none."""

CREATIONS, STARTS = 4, 8
"""At once, or twice and four times the cores: an engine that is asked for fifty at the same time does them more slowly
than a few after each other, since they wait for its locks (fifty starts on two cores: 6 to 9 % slower)."""

PATIENCE = 1.0
"""What takes longer than this waits for something else, such as a volume's server, and holds back nobody."""


def connect(url: str, deadlines: Deadlines = DEFAULTS) -> Runtime:
    """The driver for the engine at ``url``; no I/O until the first call."""
    return DockerRuntime(url, deadlines)


class DockerRuntime(DockerImages, DockerVolumes):
    """One Docker engine."""

    def __init__(self, url: str, deadlines: Deadlines = DEFAULTS) -> None:
        self._deadlines = deadlines
        self._http = EngineHttp(url, deadlines)
        self._described: tuple[Agreement, EngineInfo] | None = None
        cores = os.cpu_count() or 1
        self._creations = Sluice(max(CREATIONS, 2 * cores), PATIENCE)
        self._starts = Sluice(max(STARTS, 4 * cores), PATIENCE)

    async def describe(self) -> EngineInfo:
        agreement = await self._http.agreement()
        if self._described is None or self._described[0] is not agreement:
            info = wire.decode(wire.info_reply, await self._http.call("GET", "/info", self._deadlines.version))
            agreement = await self._http.agreement()
            self._described = (agreement, wire.engine_info(agreement.engine, info, agreement.versions))
        return self._described[1]

    async def list(self, labels: Mapping[str, str]) -> tuple[ContainerBrief, ...]:
        query = {"all": "1"}
        if labels:
            wanted = [f"{key}={value}" if value else key for key, value in labels.items()]
            query["filters"] = _json({"label": wanted})
        body = await self._http.call("GET", "/containers/json", self._deadlines.list, query)
        return tuple(wire.container_brief(row) for row in wire.decode(wire.list_reply, body))

    async def inspect(self, ref: str) -> ContainerInfo:
        body = await self._http.call("GET", f"{_container(ref)}/json", self._deadlines.inspect)
        return wire.container_info(wire.decode(wire.inspect_reply, body))

    async def create(self, name: str, body: Mapping[str, Any]) -> str:
        encoded = msgspec.json.encode(dict(body))
        try:
            async with self._creations.through():
                answer = await self._http.call(
                    "POST", "/containers/create", self._deadlines.create, {"name": name}, encoded
                )
        except Conflict:
            # Engines reserve the name first and show the container last: after an interrupted create the name may be
            # taken by nothing that can be inspected yet, and is free again if that creation fails.
            with suppress(NotFound):
                await self.inspect(name)
                raise
            raise Unavailable(f"cannot create container {name} yet: another creation of it is under way") from None
        return wire.decode(wire.create_reply, answer).id

    async def start(self, ref: str) -> None:
        try:
            async with self._starts.through():
                await self._http.call("POST", f"{_container(ref)}/start", self._deadlines.start)
        except Refused as no:
            raise start_fault(no) from None

    async def signal(self, ref: str, signal: str) -> None:
        try:
            await self._http.call("POST", f"{_container(ref)}/kill", self._deadlines.signal, {"signal": signal})
        except Refused as no:
            raise signal_fault(no) from None

    async def stop(self, ref: str, grace: float) -> None:
        whole = max(0, math.ceil(grace))  # the engine counts whole seconds, and takes -1 for "wait for ever"
        await self._http.call("POST", f"{_container(ref)}/stop", whole + self._deadlines.stop, {"t": str(whole)})

    async def rename(self, ref: str, name: str) -> None:
        await self._http.call("POST", f"{_container(ref)}/rename", self._deadlines.rename, {"name": name})

    async def remove(self, ref: str, *, force: bool = False) -> None:
        query = {"v": "1", "force": "1"} if force else {"v": "1"}
        try:
            await self._http.call("DELETE", _container(ref), self._deadlines.remove, query)
        except NotFound:
            return

    async def bridge(self) -> str:
        try:
            body = await self._http.call("GET", "/networks/bridge", self._deadlines.inspect)
        except NotFound:  # an engine that was told to have none
            return ""
        options = wire.decode(wire.network_reply, body).options or {}
        return options.get("com.docker.network.bridge.name", "")

    async def disk_use(self) -> DiskUse:
        body = await self._http.call("GET", "/system/df", self._deadlines.disk_use)
        return stores.disk_use(wire.decode(stores.disk_reply, body))

    @asynccontextmanager
    async def events(self, since: float = 0.0) -> AsyncIterator[AsyncIterator[Event]]:
        # Engines answer an instant before they subscribe, so "from now" asks for the journal from now as well.
        begin = since - EVENT_OVERLAP if since else time.time()
        query = {
            "since": f"{begin:.9f}",
            "filters": _json({"type": ["container"], "event": list(wire.EVENT_ACTIONS)}),
        }
        async with (
            self._http.stream("GET", "/events", self._deadlines.stream, query) as pieces,
            aclosing(self._events(pieces)) as stream,
        ):
            yield stream

    async def logs(
        self, ref: str, *, follow: bool = False, tail: int = 0, since: float = 0.0
    ) -> AsyncIterator[LogLine]:
        query = {"stdout": "1", "stderr": "1", "timestamps": "1", "tail": str(tail) if tail > 0 else "all"}
        if follow:
            query["follow"] = "1"
        if since:
            query["since"] = f"{since:.9f}"
        silence = None if follow else self._deadlines.stream
        lines = LogLines()
        async with self._http.stream(
            "GET", f"{_container(ref)}/logs", self._deadlines.stream, query, silence=silence
        ) as pieces:
            async for piece in pieces:
                for line in lines.feed(piece):
                    yield line
        for line in lines.finish():
            yield line

    def cgroup(self, info: ContainerInfo, parent: str) -> str:
        if self._described is None:
            raise RuntimeFault(f"cannot name the cgroup of container {info.name}: describe() the engine first")
        return container_cgroup(info.id, parent, self._described[1].cgroup_driver)

    async def close(self) -> None:
        await self._http.close()

    async def _events(self, pieces: AsyncIterator[bytes]) -> AsyncGenerator[Event, None]:
        async for raw in json_lines(pieces):
            event = wire.event(wire.decode(wire.event_line, raw))
            if event is not None:
                yield event
        self._http.forget()
        raise Unavailable("cannot follow the engine's events any further: it ended the stream; is it restarting?")


def _container(ref: str) -> str:
    if not ref:
        raise NotFound("cannot find a container without id or name", 404)
    return f"/containers/{quote(ref, safe='')}"


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
