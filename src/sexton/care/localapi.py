"""What the command line on this host asks the caretaker: a small HTTP API on a socket file that only root can open.

GET  /health                                    rounds, the last round's sentence, what cannot be seen
GET  /findings[?all=1]                          findings, with evidence and state
GET  /incident?fingerprint=F                    one finding as an incident
GET  /proposals?fingerprint=F                   what could be done about it; changes nothing
POST /mute {fingerprint, seconds, who, reason}  silence it; seconds null: for ever
POST /unmute {fingerprint, who}
POST /fix {fingerprint, remedy, who, why}       do it: steps as JSON lines while they are done
GET  /metrics                                   Prometheus' text format, as on the metrics port
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import msgspec

from sexton.care.desk import Desk, FixLine
from sexton.kit import web
from sexton.kit.listener import BodyBroken, BodyTooLarge, BodyTooSlow, read_body
from sexton.store.contract import StoreError

# A question is a line of JSON.
LARGEST_BODY = 64 << 10


class MuteAsked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    fingerprint: str
    who: str
    seconds: float | None = None
    reason: str = ""


class UnmuteAsked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    fingerprint: str
    who: str


class FixAsked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    fingerprint: str
    who: str
    why: str
    remedy: str = ""


class LocalApi:
    """Serves the local socket."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            if request.method == "GET":
                return await self._get(request.path, request.query.get("fingerprint", ""), request)
            body = await read_body(request, LARGEST_BODY)
            return await self._post(request.path, body, request)
        except LookupError as error:
            return _json({"error": str(error.args[0])}, status=404)
        except StoreError as error:
            return _json({"error": f"the ledger cannot be written: {error}"}, status=503)
        except (msgspec.MsgspecError, BodyBroken, BodyTooLarge, BodyTooSlow) as error:
            return _json({"error": f"the request cannot be read: {error or type(error).__name__}"}, status=400)

    async def _get(self, path: str, fingerprint: str, request: web.BaseRequest) -> web.Response:
        if path == "/health":
            return _json(self._desk.health())
        if path == "/findings":
            return _json(self._desk.findings(all_=request.query.get("all") == "1"))
        if path == "/incident":
            return _json(await self._desk.incident(fingerprint))
        if path == "/proposals":
            return _json(await self._desk.proposals(fingerprint))
        if path == "/metrics":
            return _metrics(self._desk)
        return _json({"error": "there is nothing here"}, status=404)

    async def _post(self, path: str, body: bytes, request: web.BaseRequest) -> web.StreamResponse:
        if path == "/mute":
            asked = msgspec.json.decode(body, type=MuteAsked)
            return _json(await self._desk.mute(asked.fingerprint, asked.seconds, asked.who, asked.reason))
        if path == "/unmute":
            told = msgspec.json.decode(body, type=UnmuteAsked)
            return _json(await self._desk.unmute(told.fingerprint, told.who))
        if path == "/fix":
            wanted = msgspec.json.decode(body, type=FixAsked)
            return await _stream(request, self._desk.fix(wanted.fingerprint, wanted.remedy, wanted.who, wanted.why))
        return _json({"error": "there is nothing here"}, status=404)


class MetricsApi:
    """Serves the metrics port: what any monitoring on this host may read, and nothing else."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.method == "GET" and request.path == "/metrics":
            return _metrics(self._desk)
        if request.method == "GET" and request.path == "/findings":
            return _json(self._desk.findings(all_=request.query.get("all") == "1"))
        return _json({"error": "there is /metrics and /findings"}, status=404)


async def _stream(request: web.BaseRequest, lines: AsyncIterator[FixLine]) -> web.StreamResponse:
    """Lines as they come. A reader that goes away does not stop the work: it is finished all the same."""
    response = web.StreamResponse(headers={"Content-Type": "application/jsonl"})
    first = await anext(lines, None)  # what cannot be answered at all raises before the answer begins
    await response.prepare(request)
    reads = True
    line = first
    while line is not None:
        if reads:
            try:
                await response.write(msgspec.json.encode(line) + b"\n")
            except ConnectionError:
                reads = False
        line = await anext(lines, None)
    with contextlib.suppress(ConnectionError):
        await response.write_eof()
    return response


def _metrics(desk: Desk) -> web.Response:
    from sexton.care.exports.metrics import CONTENT_TYPE

    return web.Response(body=desk.metrics(), headers={"Content-Type": CONTENT_TYPE})


def _json(value: object, status: int = 200) -> web.Response:
    return web.Response(status=status, body=msgspec.json.encode(value), content_type="application/json")
