"""A container engine on paper: it answers as Docker does and keeps rows where containers would be.

A program of its own, so that an agent which is measured talks to it over a socket as to a real one, thousands of tasks
a minute. Each container ends by itself, with 0, a moment after its start; images are always there; removed is removed.
What it does not know is not found. Run: ``python paper_engine.py SOCKET [SECONDS A CONTAINER RUNS]``
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiohttp import web

RUNS_SECONDS = 0.02
IMAGE_ID = "sha256:" + "a" * 64
NEVER = "0001-01-01T00:00:00Z"
READY_SECONDS = 30.0


@dataclass
class Row:
    """A container."""

    id: str
    name: str
    labels: dict[str, str]
    state: str = "created"
    started: float = 0.0
    ended: float = 0.0


class PaperEngine:
    """The rows, and who follows what becomes of them."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._rows: dict[str, Row] = {}
        self._followers: set[asyncio.Queue[bytes]] = set()

    def app(self) -> web.Application:
        app = web.Application(client_max_size=1 << 24)
        for prefix in ("", "/v{version:[0-9.]+}"):
            for method, path, handler in (
                ("GET", "/version", self._version),
                ("GET", "/info", self._info),
                ("GET", "/images/{name:.+}/json", self._image),
                ("GET", "/events", self._events),
                ("GET", "/containers/json", self._list),
                ("POST", "/containers/create", self._create),
                ("POST", "/containers/{id}/start", self._start),
                ("POST", "/containers/{id}/stop", self._stop),
                ("GET", "/containers/{id}/json", self._inspect),
                ("DELETE", "/containers/{id}", self._remove),
            ):
                app.router.add_route(method, prefix + path, handler)
        return app

    async def _version(self, _: web.Request) -> web.Response:
        return web.json_response({"Version": "20.10.24", "ApiVersion": "1.41", "MinAPIVersion": "1.12"})

    async def _info(self, _: web.Request) -> web.Response:
        plugins = {"Log": ["json-file"], "Volume": ["local"]}
        return web.json_response({"Plugins": plugins, "CgroupDriver": "cgroupfs", "CgroupVersion": "1"})

    async def _image(self, request: web.Request) -> web.Response:
        return web.json_response({"Id": IMAGE_ID, "RepoTags": [request.match_info["name"]], "Size": 1000})

    async def _create(self, request: web.Request) -> web.Response:
        body = await request.json()
        row = Row(secrets.token_hex(32), request.query["name"], body.get("Labels") or {})
        self._rows[row.id] = row
        self._say("create", row)
        return web.json_response({"Id": row.id}, status=201)

    async def _start(self, request: web.Request) -> web.Response:
        row = self._find(request)
        row.state, row.started = "running", time.time()
        self._say("start", row)
        asyncio.get_running_loop().call_later(self._seconds, self._end, row)
        return web.Response(status=204)

    async def _stop(self, request: web.Request) -> web.Response:
        self._end(self._find(request))
        return web.Response(status=204)

    def _end(self, row: Row) -> None:
        if row.state == "running":
            row.state, row.ended = "exited", time.time()
            self._say("die", row, exitCode="0")

    async def _inspect(self, request: web.Request) -> web.Response:
        row = self._find(request)
        state = {
            "Running": row.state == "running",
            "ExitCode": 0,
            "StartedAt": _stamp(row.started),
            "FinishedAt": _stamp(row.ended),
        }
        config = {"Image": "app:1", "Labels": row.labels}
        return web.json_response({"Id": row.id, "Name": f"/{row.name}", "State": state, "Config": config})

    async def _remove(self, request: web.Request) -> web.Response:
        row = self._find(request)
        del self._rows[row.id]
        self._say("destroy", row)
        return web.Response(status=204)

    async def _list(self, _: web.Request) -> web.Response:
        return web.json_response(
            [
                {"Id": row.id, "Names": [f"/{row.name}"], "State": row.state, "Labels": row.labels}
                for row in self._rows.values()
            ]
        )

    async def _events(self, request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        queue: asyncio.Queue[bytes] = asyncio.Queue()
        self._followers.add(queue)
        try:
            while True:
                await answer.write(await queue.get())
        except ConnectionError:  # whoever followed has hung up
            return answer
        finally:
            self._followers.discard(queue)

    def _say(self, action: str, row: Row, **more: str) -> None:
        now = time.time()
        actor = {"ID": row.id, "Attributes": {**row.labels, "name": row.name, **more}}
        line: dict[str, Any] = {"Type": "container", "Action": action, "Actor": actor}
        text = json.dumps(line | {"time": int(now), "timeNano": int(now * 1e9)}).encode() + b"\n"
        for queue in self._followers:
            queue.put_nowait(text)

    def _find(self, request: web.Request) -> Row:
        asked = request.match_info["id"]
        row = self._rows.get(asked) or next((one for one in self._rows.values() if one.name == asked), None)
        if row is None:
            text = json.dumps({"message": f"No such container: {asked}"})
            raise web.HTTPNotFound(text=text, content_type="application/json")
        return row


def _stamp(seconds: float) -> str:
    if not seconds:
        return NEVER
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{whole}.{int(seconds % 1 * 1e9):09d}Z"


@contextlib.contextmanager
def paper_engine(path: Path, seconds: float = RUNS_SECONDS) -> Iterator[str]:
    """The address of an engine on paper, in a process of its own."""
    process = subprocess.Popen([sys.executable, __file__, str(path), str(seconds)])
    try:
        ends = time.monotonic() + READY_SECONDS
        while not path.exists():
            if process.poll() is not None or time.monotonic() > ends:
                raise RuntimeError("the engine on paper does not start")
            time.sleep(0.01)
        yield f"unix://{path}"
    finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
    lasts = float(sys.argv[2]) if len(sys.argv) > 2 else RUNS_SECONDS
    web.run_app(PaperEngine(lasts).app(), path=sys.argv[1], print=None, access_log=None)
