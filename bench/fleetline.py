"""The simulated agents' side of the API, as light as can be: it takes its time from the cores of what it measures.

A few keep-alive connections that all agents share, each a protocol of its own, with requests that are signed one by
one as an agent signs them. The usual HTTP client would cost the fleet as much as the request costs the server.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import Any
from urllib.parse import urlsplit

import msgspec

from bench.subject import REGION
from sexton.cloud.credentials import Credentials
from sexton.cloud.sigv4 import sign

CONNECTIONS = 16
JSON = "application/x-amz-json-1.1"


class _Line(asyncio.Protocol):
    """One connection: a request at a time."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self._came = b""
        self._answer: asyncio.Future[tuple[int, bytes]] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(exc or ConnectionError("the server ended the connection"))

    def ask(self, data: bytes) -> asyncio.Future[tuple[int, bytes]]:
        assert self.transport is not None
        self._answer = asyncio.get_running_loop().create_future()
        self.transport.write(data)
        return self._answer

    def data_received(self, data: bytes) -> None:
        came = self._came = self._came + data if self._came else data
        end = came.find(b"\r\n\r\n")
        if end < 0 or self._answer is None:
            return
        at = came.index(b"Content-Length: ", 0, end) + 16
        stop = came.find(b"\r\n", at)
        if len(came) >= end + 4 + int(came[at:stop]):
            self._came = b""
            if not self._answer.done():
                self._answer.set_result((int(came[9:12]), came[end + 4 :]))


class Api:
    """Calls the API over whichever connection is free; further calls wait their turn."""

    def __init__(self, endpoint: str, key: Credentials) -> None:
        address = urlsplit(endpoint)
        self._host, self._port, self._netloc = address.hostname or "", address.port or 80, address.netloc
        self._key = key
        self._free: deque[_Line] = deque()
        self._turn = asyncio.Semaphore(CONNECTIONS)

    async def call(self, operation: str, **fields: Any) -> dict[str, Any]:
        body = msgspec.json.encode(fields)
        async with self._turn:
            headers = {
                "Host": self._netloc,
                "Content-Type": JSON,
                "X-Amz-Target": f"AmazonEC2ContainerServiceV20141113.{operation}",
            }
            headers |= sign("POST", "/", "", headers, body, self._key, region=REGION, service="ecs", now=time.time())
            head = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
            line = await self._line()
            data = f"POST / HTTP/1.1\r\n{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
            status, text = await asyncio.wait_for(line.ask(data), 60)
            self._free.append(line)
        if status != 200:
            raise RuntimeError(f"{operation}: {text.decode()}")
        return dict(msgspec.json.decode(text))

    async def _line(self) -> _Line:
        while self._free:
            line = self._free.popleft()
            if line.transport is not None:
                return line
        _, line = await asyncio.get_running_loop().create_connection(_Line, self._host, self._port)
        return line

    def close(self) -> None:
        for line in self._free:
            if line.transport is not None:
                line.transport.close()
