"""One HTTP connection pool to a Docker engine: deadlines, the agreed API version, and what a broken wire means.

In: a method, a path and how long the answer may take. Out: the body of a success, or a fault of the contract. The
wire failing in any way is ``Unavailable``; the engine's own "no" is classified by ``docker_faults``.

The API version is agreed at the first call and again after every break of the wire, because what answers afterwards
may be another engine. Nothing survives a restart; connections are made when needed and kept for the next call.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import NamedTuple
from urllib.parse import urlencode

import aiohttp
from yarl import URL

from sexton.runtime import docker_faults, docker_version
from sexton.runtime.contract import TimedOut, Unavailable
from sexton.runtime.deadlines import Deadlines
from sexton.runtime.docker_decode import VersionReply, decode, version_reply

IDLE_SECONDS = 60.0
"""A connection without work is closed after this; long enough to serve the next task of a busy host."""

PROBE_IDLE, PROBE_EVERY, PROBE_COUNT = 30, 10, 3
"""TCP keep-alive: a silent event stream notices within a minute that the engine's host is gone."""


class Agreement(NamedTuple):
    """What the engine said it is, and the API versions both ends speak."""

    engine: VersionReply
    versions: tuple[str, ...]

    @property
    def prefix(self) -> str:
        return f"/v{self.versions[-1]}"


class Answer(NamedTuple):
    status: int
    body: bytes


class EngineHttp:
    """The wire to one engine. Belongs to the event loop of its first call."""

    def __init__(self, url: str, deadlines: Deadlines) -> None:
        self.url = url
        self._deadlines = deadlines
        self._base, self._socket_path = _target(url)
        self._session: aiohttp.ClientSession | None = None
        self._agreement: Agreement | None = None
        self._negotiating = asyncio.Lock()

    async def agreement(self) -> Agreement:
        """The agreed API version; asks the engine only at first and after a break."""
        if self._agreement is None:
            async with self._negotiating:
                if self._agreement is None:
                    self._agreement = await self._negotiate()
        return self._agreement

    async def call(
        self,
        method: str,
        path: str,
        deadline: float,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> bytes:
        """One request, one answer; 304 ("already so") is a success."""
        answer = await self._versioned(method, path, deadline, query, body, headers)
        if docker_faults.speaks_other_version(*answer):
            self._agreement = None
            answer = await self._versioned(method, path, deadline, query, body, headers)
        if answer.status >= 300 and answer.status != 304:
            raise docker_faults.fault(*answer)
        return answer.body

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        path: str,
        deadline: float,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        silence: float | None = None,
        total: float | None = None,
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """An answer without end: entering returns once the engine began it; leaving hangs up.

        ``silence`` bounds the wait for the next piece, ``total`` the whole; a broken wire is Unavailable, a stream
        the engine ended properly just ends.
        """
        ends = None if total is None else asyncio.get_running_loop().time() + total
        target = self._address((await self.agreement()).prefix + path, query)
        what = f"{method} {path}"
        response: aiohttp.ClientResponse | None = None
        try:
            try:
                async with asyncio.timeout(deadline):
                    response = await self._pool().request(
                        method, target, headers=headers, allow_redirects=False, read_bufsize=1 << 18
                    )
                    if response.status >= 300:
                        raise docker_faults.fault(response.status, await response.content.read(1 << 16))
            except TimeoutError:
                raise self._silent(what, deadline) from None
            except (aiohttp.ClientError, OSError) as error:
                raise self._broken(error) from error
            async with aclosing(self._pieces(response, what, silence, ends)) as pieces:
                yield pieces
        finally:
            if response is not None:
                response.close()

    def forget(self) -> None:
        """A stream ended that only ends with the engine: agree again with whatever answers next."""
        self._agreement = None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def _versioned(
        self,
        method: str,
        path: str,
        deadline: float,
        query: Mapping[str, str] | None,
        body: bytes | None,
        headers: Mapping[str, str] | None,
    ) -> Answer:
        return await self._exchange(method, (await self.agreement()).prefix + path, deadline, query, body, headers)

    async def _exchange(
        self,
        method: str,
        path: str,
        deadline: float,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        headers = {**(headers or {}), **({"Content-Type": "application/json"} if body is not None else {})}
        try:
            async with (
                asyncio.timeout(deadline),
                self._pool().request(
                    method, self._address(path, query), data=body, headers=headers, allow_redirects=False
                ) as response,
            ):
                return Answer(response.status, await response.read())
        except TimeoutError:
            raise self._silent(f"{method} {path}", deadline) from None
        except (aiohttp.ClientError, OSError) as error:
            raise self._broken(error) from error

    async def _pieces(
        self, response: aiohttp.ClientResponse, what: str, silence: float | None, ends: float | None
    ) -> AsyncGenerator[bytes, None]:
        loop = asyncio.get_running_loop()
        while True:
            wait = silence
            if ends is not None:
                rest = max(0.0, ends - loop.time())
                wait = rest if wait is None else min(wait, rest)
            try:
                async with asyncio.timeout(wait):
                    piece = await response.content.readany()
            except TimeoutError:
                raise self._silent(what, wait or 0.0) from None
            except (aiohttp.ClientError, OSError) as error:
                raise self._broken(error) from error
            if not piece:
                return
            yield piece

    async def _negotiate(self) -> Agreement:
        try:
            answer = await self._exchange("GET", "/version", self._deadlines.version)
        except TimedOut as error:  # of this question: the call it was asked for has not been made
            raise Unavailable(str(error)) from None
        if answer.status != 200:
            raise docker_faults.fault(*answer)
        engine = decode(version_reply, answer.body)
        return Agreement(engine, docker_version.shared(engine.min_api_version, engine.api_version))

    def _silent(self, what: str, seconds: float) -> TimedOut:
        return TimedOut(
            f"cannot wait longer for the engine at {self.url}: no answer to {what} within {seconds:g} s", seconds
        )

    def _broken(self, error: Exception) -> Unavailable:
        self._agreement = None
        cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
        text = (cause.strerror if isinstance(cause, OSError) else None) or str(cause) or type(cause).__name__
        return Unavailable(f"cannot reach the container engine at {self.url}: {text}; is it running?")

    def _address(self, path: str, query: Mapping[str, str] | None) -> URL:
        return URL(f"{self._base}{path}?{urlencode(query)}" if query else f"{self._base}{path}", encoded=True)

    def _pool(self) -> aiohttp.ClientSession:
        # Without a limit: fifty containers may be stopping, each holding its connection for the whole grace, and no
        # inspect may queue behind them. The engine's own pace is the limit.
        if self._session is None:
            connector: aiohttp.BaseConnector
            if self._socket_path:
                connector = aiohttp.UnixConnector(self._socket_path, limit=0, keepalive_timeout=IDLE_SECONDS)
            else:
                connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE_SECONDS, socket_factory=_probed_socket)
            self._session = aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None),
                headers={"User-Agent": "sexton"},
                skip_auto_headers=("Accept", "Accept-Encoding"),
            )
        return self._session


def _target(url: str) -> tuple[str, str]:
    """Base of the requests and, for a Unix socket, its path."""
    scheme, found, rest = url.partition("://")
    if found and scheme == "unix" and rest.startswith("/"):
        return "http://docker", rest
    if found and scheme == "tcp" and rest:
        return f"http://{rest.rstrip('/')}", ""
    raise ValueError(
        f"cannot use {url!r} as the address of a Docker engine: "
        "write unix:///path/to/docker.sock or tcp://host:port (TLS is not spoken)"
    )


def _probed_socket(address: aiohttp.AddrInfoType) -> socket.socket:
    made = socket.socket(*address[:3])
    made.setblocking(False)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, PROBE_IDLE)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, PROBE_EVERY)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, PROBE_COUNT)
    return made
