"""The short way for the one kind of request that a busy API gets all day, beside the library that takes all others.

A client's connection begins here. A whole, plain ``POST /`` with none but well-known headers is read, served and
answered in a few steps. Anything else - another method, a header that is not known, half a head, a framing that is the
least unusual - hands the connection, with all that was read and not yet served, to the HTTP library for good. So this
never has to decide what a strange request means: it only knows a few that are certain.

One coroutine per connection serves its requests in the order in which they came. What comes meanwhile is held, up to a
bound from which on no more is read. Nothing here survives a connection.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from email.utils import formatdate
from http import HTTPStatus
from typing import NamedTuple

from sexton.kit.admission import Admission
from sexton.kit.supervise import Nursery

log = logging.getLogger(__name__)

MOST_HEAD = 8 * 1024
# Larger bodies are rare, and the library reads them with limits of its own.
MOST_BODY = 64 * 1024
# Of requests that wait for the one before them; from then on the peer waits.
MOST_HELD = 256 * 1024
# The rest of a body that began to arrive comes at once, or the library waits for it.
BODY_SECONDS = 1.0

_START = b"POST / HTTP/1.1\r\n"
_END = b"\r\n\r\n"
_NAMES = (
    "Accept",
    "Accept-Encoding",
    "Amz-Sdk-Invocation-Id",
    "Amz-Sdk-Request",
    "Authorization",
    "Connection",
    "Content-Length",
    "Content-Type",
    "Host",
    "User-Agent",
    "X-Amz-Content-Sha256",
    "X-Amz-Date",
    "X-Amz-Security-Token",
    "X-Amz-Target",
    "X-Amzn-Query-Mode",
)
# As clients write them, and all in small letters; another spelling is none of the certain ones.
_KNOWN = {spelt: name.lower() for name in _NAMES for spelt in (name, name.lower())} | {
    "amz-sdk-invocation-id": "amz-sdk-invocation-id",
    "X-Amz-Content-SHA256": "x-amz-content-sha256",
}


class Asked(NamedTuple):
    """A request: its headers by their names in small letters, its body, and where it came from."""

    headers: Mapping[str, str]
    body: bytes
    remote: str
    secure: bool
    port: int = 0


class Told(NamedTuple):
    """An answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes


Serve = Callable[[Asked], Awaitable[Told]]


class Unfinished(Exception):  # noqa: N818 - a request of which the rest is on its way
    """The body is not all there."""


def take(data: bytes) -> tuple[dict[str, str], bytes, bytes] | None:
    """The headers and the body of the first request in what came, and what is left; None if that is not certain."""
    if not data.startswith(_START):
        return None
    end = data.find(_END, 0, MOST_HEAD)
    if end < len(_START):
        return None
    headers: dict[str, str] = {}
    for line in data[len(_START) : end].decode("latin-1").split("\r\n"):
        spelt, colon, value = line.partition(":")
        name = _KNOWN.get(spelt)
        if name is None or not colon or name in headers or not value.isprintable():
            return None
        headers[name] = value.strip(" ")
    length = headers.get("content-length", "")
    if not (length.isascii() and length.isdecimal()) or len(length) > 6 or "host" not in headers:
        return None
    if headers.get("connection", "keep-alive").lower() != "keep-alive":
        return None
    size, begin = int(length), end + len(_END)
    if size > MOST_BODY:
        return None
    if len(data) < begin + size:
        raise Unfinished
    return headers, data[begin : begin + size], data[begin + size :]


class QuickConnection(asyncio.Protocol):
    """One client, until it asks for anything unusual."""

    def __init__(
        self,
        serve: Serve,
        failed: Callable[[], Told],
        library: Callable[[], asyncio.Protocol],
        admission: Admission,
        idle: float,
        nursery: Nursery,
    ) -> None:
        self._serve = serve
        self._failed = failed
        self._library = library
        self._admission = admission
        self._idle = idle
        self._nursery = nursery
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._remote, self._port = "", 0
        self._secure = False
        self._held = b""
        self._full = False  # no more is read from the peer
        self._choked = False  # the peer does not read what it is told
        self._last = 0.0
        self._idle_timer: asyncio.TimerHandle | None = None
        self._body_timer: asyncio.TimerHandle | None = None
        self.worker: asyncio.Task[None] | None = None
        self._next: Asked | None = None
        self._arrived: asyncio.Future[None] | None = None  # what the worker waits for while there is nothing to do
        self._partial = False  # the first part of a request is held
        self._ended = False  # the peer says nothing more
        self._closing = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if not self._admission.enter(self, transport):
            transport.abort()
            return
        peer = transport.get_extra_info("peername")
        self._remote, self._port = (str(peer[0]), int(peer[1])) if isinstance(peer, tuple) else ("", 0)
        self._secure = transport.get_extra_info("sslcontext") is not None
        self._last = self._loop.time()
        self._idle_timer = self._loop.call_later(self._idle, self._look_whether_idle)

    def connection_lost(self, exc: Exception | None) -> None:
        self._let_go()
        self._leave()

    def data_received(self, data: bytes) -> None:
        self._last = self._loop.time()
        if self._held:
            data = self._held + data
            self._held = b""
        if self._next is not None or self._choked:
            self._hold(data)
        else:
            self._begin(data)

    def eof_received(self) -> bool:
        self._ended = True
        return self._next is not None  # half closed: it still wants its answers

    def pause_writing(self) -> None:
        self._choked = True

    def resume_writing(self) -> None:
        self._choked = False
        self._go_on()

    def finish(self) -> None:
        """Close when what is being served has been answered; at once if that is nothing."""
        self._closing = True
        if self._next is None and self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    @property
    def busy(self) -> bool:
        return self._next is not None

    def _hold(self, data: bytes) -> None:
        self._held = data
        if len(data) > MOST_HELD and not self._full and self._transport is not None:
            self._full = True
            self._transport.pause_reading()

    def _begin(self, data: bytes) -> None:
        """Have the first request of what came served, if it is one of the certain ones."""
        try:
            request = take(data)
        except Unfinished:
            # Clients send head and body apart. What comes in more parts than two is not looked at again and again.
            if not self._partial:
                self._partial = True
                self._held = data
                self._body_timer = self._loop.call_later(BODY_SECONDS, self._wait_no_longer)
                return
            request = None
        self._stop_waiting()
        if request is None:
            self._hand_over(data)
            return
        headers, body, self._held = request
        self._next = Asked(headers, body, self._remote, self._secure, self._port)
        if self.worker is None:
            self.worker = self._nursery.start("connection", self._work())
        elif self._arrived is not None and not self._arrived.done():
            self._arrived.set_result(None)

    async def _work(self) -> None:
        while self._still() is not None:
            if self._next is None:
                self._arrived = self._loop.create_future()
                await self._arrived
                continue
            try:
                told = await self._serve(self._next)
            except Exception:
                # The edge of the program: whatever went wrong is ours, is logged once, and the client gets no details.
                log.exception("request handler failed", extra={"path": "/"})
                told = self._failed()
            transport = self._still()
            if transport is None:
                return
            transport.write(_written(told))
            self._last = self._loop.time()
            self._next = None
            if self._closing or (self._ended and not self._held):
                transport.close()
                return
            self._go_on()

    def _still(self) -> asyncio.Transport | None:
        """The connection, unless it is gone or the library's by now."""
        return self._transport

    def _go_on(self) -> None:
        """Look at what came meanwhile, once the answer before it is on its way."""
        if self._choked or self._next is not None or self._transport is None:
            return
        data, self._held = self._held, b""
        if self._full:
            self._full = False
            self._transport.resume_reading()
        if data:
            self._begin(data)

    def _wait_no_longer(self) -> None:
        self._body_timer = None
        if self._next is None and self._held:
            self._hand_over(self._held)

    def _hand_over(self, data: bytes) -> None:
        """The connection is the library's from here on."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        self._let_go()
        self._leave()
        library = self._library()
        transport.set_protocol(library)
        library.connection_made(transport)
        library.data_received(data)

    def _leave(self) -> None:
        """The worker ends; what it is serving it serves to the end, whoever may still hear the answer."""
        self._transport = None
        if self._arrived is not None and not self._arrived.done():
            self._arrived.set_result(None)

    def _let_go(self) -> None:
        self._admission.leave(self)
        self._stop_waiting()
        if self._idle_timer is not None:
            self._idle_timer.cancel()

    def _stop_waiting(self) -> None:
        self._partial = False
        if self._body_timer is not None:
            self._body_timer.cancel()
            self._body_timer = None

    def _look_whether_idle(self) -> None:
        left = self._last + self._idle - self._loop.time()
        if self._next is not None:
            left = self._idle
        if left > 0:
            self._idle_timer = self._loop.call_later(left, self._look_whether_idle)
        elif self._transport is not None:
            self._transport.close()


_dates: dict[int, str] = {}


def _date() -> str:
    """The time for an answer's head, made once a second."""
    now = int(time.time())
    made = _dates.get(now)
    if made is None:
        _dates.clear()
        made = _dates[now] = formatdate(now, usegmt=True)
    return made


_REASONS = {status.value: status.phrase for status in HTTPStatus}


def _written(told: Told) -> bytes:
    lines = "".join([f"{name}: {value}\r\n" for name, value in told.headers.items()])
    return (
        f"HTTP/1.1 {told.status} {_REASONS.get(told.status, '')}\r\n"
        f"{lines}Content-Length: {len(told.body)}\r\nDate: {_date()}\r\n\r\n".encode("latin-1")
        + told.body
    )
