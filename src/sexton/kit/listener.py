"""An HTTP listener that strangers cannot exhaust.

Every limit is here and in one place: how many connections there may be, how long a request may take to arrive and
how large it may be, how long an idle connection is kept. Handlers get complete bodies. A handler that fails is
answered with 500 and logged; what a stranger sends wrongly is answered in the same shape and not logged. Where a
handler for plain requests is given as well, those take a shorter way (``kit.quickhttp``), under the same limits.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import resource
import socket
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

from aiohttp.http import HttpProcessingError

from sexton.kit import web
from sexton.kit.admission import Admission
from sexton.kit.quickhttp import QuickConnection, Serve, Told
from sexton.kit.supervise import Nursery

log = logging.getLogger(__name__)

# Time that running requests get when the listener closes.
CLOSE_SECONDS = 1.0
# A peer that has not agreed on its encryption by then is not going to.
HANDSHAKE_SECONDS = 15.0
# Bytes of a body that nobody wants are read for this long, so that the answer is seen before the connection ends.
LINGER_SECONDS = 1.0
FAILED = "The request failed; the log says why."
# Open files that are left to everything but connections: the store, websockets' timers, logs, child processes.
OTHER_FILES = 256


class Limits(NamedTuple):
    """What a stranger may take up."""

    # More than any cluster of hosts behind one control plane needs, less than the usual limit of open files.
    connections: int = 4096
    # An idle connection, or one that has not finished sending a request's head, ends after this.
    idle: float = 75.0
    # A body that is slower than this is not coming.
    body: float = 20.0
    # Of one address; 0 means as many as there may be at all.
    per_peer: int = 0


LIMITS = Limits()

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
Refuse = Callable[[int, str], web.Response]


class BodyTooLarge(Exception):  # noqa: N818 - an answer for the client
    """The body is longer than the handler takes."""


class BodyTooSlow(Exception):  # noqa: N818
    """The body did not arrive in time."""


class BodyBroken(Exception):  # noqa: N818
    """The body is not framed as its head promised."""


async def read_body(request: web.BaseRequest, limit: int, seconds: float = LIMITS.body) -> bytes:
    """The whole body, never holding more than ``limit`` bytes of it."""
    if (request.content_length or 0) > limit:
        raise BodyTooLarge
    content = request.content
    if content.is_eof() and request.content_length is not None:
        return content.read_nowait()  # all of it came with the head, as almost always
    parts = []
    size = 0
    try:
        async with asyncio.timeout(seconds):
            async for part in content.iter_any():
                size += len(part)
                if size > limit:
                    raise BodyTooLarge
                parts.append(part)
    except TimeoutError:
        raise BodyTooSlow from None
    except (web.RequestPayloadError, HttpProcessingError):
        raise BodyBroken from None
    return b"".join(parts)


def plain_refusal(status: int, message: str) -> web.Response:
    return web.Response(status=status, text=f"{message}\n")


class _Connection(web.RequestHandler):
    """One client's connection. The library's own answers to malformed requests become ours, and leave no trace."""

    __slots__ = ()

    async def start(self) -> None:
        """Serve the connection, unless it was one too many and is over already."""
        if self._manager is not None:
            await super().start()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        if request.writer.output_size > 0:
            raise ConnectionResetError("an answer is already on its way")
        server = self._manager
        refuse = server.refuse if isinstance(server, _Server) else plain_refusal
        response = refuse(status, "The request is not well-formed HTTP.")
        response.force_close()
        return response


class _Server(web.Server):
    """Drops connections above the limit before they cost anything."""

    def __init__(self, handler: Handler, admission: Admission, refuse: Refuse, idle: float) -> None:
        self._options = {
            "keepalive_timeout": idle,
            "access_log": None,
            "auto_decompress": False,
            "lingering_time": LINGER_SECONDS,
            "logger": _QuietLogger(log, {}),
        }
        super().__init__(handler)
        self.refuse = refuse
        self._admission = admission

    def __call__(self) -> web.RequestHandler:
        return _Connection(self, loop=self._loop, **self._options)  # type: ignore[arg-type]

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        if not self._admission.enter(handler, transport):
            transport.abort()

    def connection_lost(self, handler: web.RequestHandler, exc: BaseException | None = None) -> None:
        super().connection_lost(handler, exc)
        self._admission.leave(handler)


class _QuietLogger(logging.LoggerAdapter[logging.Logger]):
    """The HTTP library logs a traceback for each malformed request; a stranger must not be able to fill the log."""

    def exception(self, *args: object, **kwargs: object) -> None:
        self.logger.debug("request failed in the HTTP library")


class Listener:
    """Serves one handler on one address. ``refuse`` makes the answer to what the handler never gets to see."""

    def __init__(
        self,
        handler: Handler,
        limits: Limits = LIMITS,
        refuse: Refuse = plain_refusal,
        quick: Serve | None = None,
    ) -> None:
        self._handler = handler
        self._quick = quick
        self._nursery = Nursery("http")
        self._admission = Admission(0)
        self._limits = limits
        self._refuse = refuse
        self._server: web.Server | None = None
        self._sockets: asyncio.Server | None = None
        self._path: Path | None = None

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            return await self._handler(request)
        except (ConnectionError, asyncio.CancelledError):
            raise
        except Exception:
            # The edge of the program: whatever went wrong is ours, is logged once, and the client learns no details.
            log.exception("request handler failed", extra={"path": request.path})
            if request.writer.output_size > 0:
                raise ConnectionResetError("the answer had already begun") from None
            return self._refuse(500, FAILED)

    def _failed(self) -> Told:
        answer = self._refuse(500, FAILED)
        headers = {"Content-Type": answer.content_type}
        return Told(answer.status, headers, answer.body if isinstance(answer.body, bytes) else b"")

    def _make(self) -> Callable[[], asyncio.Protocol]:
        most = min(self._limits.connections, _open_files(self._limits.connections + OTHER_FILES) - OTHER_FILES)
        admission = self._admission = Admission(most, self._limits.per_peer)
        idle, nursery = self._limits.idle, self._nursery
        server = self._server = _Server(self._answer, admission, self._refuse, idle)
        quick = self._quick
        if quick is None:
            return server
        return lambda: QuickConnection(quick, self._failed, server, admission, idle, nursery)

    async def open(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> int:
        """Listen on TCP; returns the port (the one the system chose, for 0). OSError when it is taken."""
        protocol = self._make()
        loop = asyncio.get_running_loop()
        handshake = HANDSHAKE_SECONDS if tls is not None else None
        self._sockets = await loop.create_server(
            protocol, host, port, reuse_address=True, backlog=1024, ssl=tls, ssl_handshake_timeout=handshake
        )
        return int(self._sockets.sockets[0].getsockname()[1])

    async def open_socket(self, bound: socket.socket) -> None:
        """Listen on a socket that somebody has bound; it is closed with this."""
        protocol = self._make()
        self._sockets = await asyncio.get_running_loop().create_server(protocol, sock=bound, backlog=1024)

    async def open_unix(self, path: Path) -> None:
        """Listen on a socket file that only its owner can open. A file left by a dead process is replaced."""
        protocol = self._make()
        bound = _bind(path)
        self._sockets = await asyncio.get_running_loop().create_unix_server(protocol, sock=bound)
        self._path = path

    def interface(self) -> str:
        """The network interface that the socket is bound to, if any; OSError when that is no more."""
        assert self._sockets is not None
        own = self._sockets.sockets[0]
        return own.getsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, 16).rstrip(b"\0").decode()

    def stop_accepting(self) -> None:
        """Let nobody new in; who is in stays."""
        if self._sockets is not None:
            self._sockets.close()

    async def close(self) -> None:
        """Stop listening, give running requests a moment, close every connection."""
        self.stop_accepting()
        if self._server is not None:
            self._server.pre_shutdown()
            await self._close_quick()
            await self._server.shutdown(CLOSE_SECONDS)
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    async def _close_quick(self) -> None:
        quick = [one for one in self._admission.connections if isinstance(one, QuickConnection)]
        for one in quick:
            one.finish()
        busy = [one.worker for one in quick if one.busy and one.worker is not None]
        if busy:
            await asyncio.wait(busy, timeout=CLOSE_SECONDS)
        await self._nursery.close()
        for one in quick:
            one.abort()


def _open_files(wanted: int) -> int:
    """How many files this process may open, after asking the system for as many as are wanted."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    more = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft == resource.RLIM_INFINITY or soft >= more:
        return wanted if soft == resource.RLIM_INFINITY else soft
    resource.setrlimit(resource.RLIMIT_NOFILE, (more, hard))
    return more


def _bind(path: Path) -> socket.socket:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if path.is_socket():
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(1.0)
            try:
                probe.connect(str(path))
            except OSError:
                path.unlink(missing_ok=True)
            else:
                raise OSError(errno.EADDRINUSE, f"{path} is in use by another process")
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        bound.bind(str(path))
        path.chmod(0o600)
    except OSError:
        bound.close()
        raise
    return bound
