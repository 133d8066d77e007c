"""An HTTP listener that strangers cannot exhaust.

Every limit is here and in one place: how many connections there may be, how long a request may take to arrive and
how large it may be, how long an idle connection is kept. Handlers get complete bodies. A handler that fails is
answered with 500 and logged; what a stranger sends wrongly is answered and not logged.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

log = logging.getLogger(__name__)

# More than any cluster of hosts behind one control plane needs, less than the usual limit of open files.
MOST_CONNECTIONS = 4096
# An idle connection, or one that has not finished sending a request's head, ends after this.
IDLE_SECONDS = 75.0
# A body that is slower than this is not coming.
BODY_SECONDS = 20.0
# Time that running requests get when the listener closes.
CLOSE_SECONDS = 1.0

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class BodyTooLarge(Exception):  # noqa: N818 - an answer for the client
    """The body is longer than the handler takes."""


class BodyTooSlow(Exception):  # noqa: N818
    """The body did not arrive in time."""


async def read_body(request: web.BaseRequest, limit: int) -> bytes:
    """The whole body, never holding more than ``limit`` bytes of it."""
    if (request.content_length or 0) > limit:
        raise BodyTooLarge
    if not request.can_read_body:
        return b""
    parts = []
    size = 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for part in request.content.iter_any():
                size += len(part)
                if size > limit:
                    raise BodyTooLarge
                parts.append(part)
    except TimeoutError:
        raise BodyTooSlow from None
    return b"".join(parts)


class _Server(web.Server):
    """Counts connections, and drops those above the limit before they cost anything."""

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        if len(self.connections) > MOST_CONNECTIONS:
            transport.abort()


class _QuietLogger(logging.LoggerAdapter[logging.Logger]):
    """The HTTP library logs a traceback for each malformed request; a stranger must not be able to fill the log."""

    def exception(self, *args: object, **kwargs: object) -> None:
        self.logger.debug("request failed in the HTTP library")


class Listener:
    """Serves one handler on one address."""

    def __init__(self, handler: Handler, idle: float = IDLE_SECONDS) -> None:
        self._handler = handler
        self._idle = idle
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
            return web.Response(status=500, text="internal error\n")

    def _make(self) -> web.Server:
        return _Server(
            self._answer,
            keepalive_timeout=self._idle,
            access_log=None,
            auto_decompress=False,
            lingering_time=1.0,
            logger=_QuietLogger(log, {}),
        )

    async def open(self, host: str, port: int) -> int:
        """Listen on TCP; returns the port (the one the system chose, for 0). OSError when it is taken."""
        self._server = self._make()
        loop = asyncio.get_running_loop()
        self._sockets = await loop.create_server(self._server, host, port, reuse_address=True, backlog=1024)
        return int(self._sockets.sockets[0].getsockname()[1])

    async def open_unix(self, path: Path) -> None:
        """Listen on a socket file that only its owner can open. A file left by a dead process is replaced."""
        self._server = self._make()
        bound = _bind(path)
        self._sockets = await asyncio.get_running_loop().create_unix_server(self._server, sock=bound)
        self._path = path

    async def close(self) -> None:
        """Stop listening, give running requests a moment, close every connection."""
        if self._sockets is not None:
            self._sockets.close()
        if self._server is not None:
            self._server.pre_shutdown()
            await self._server.shutdown(CLOSE_SECONDS)
        if self._path is not None:
            self._path.unlink(missing_ok=True)


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
