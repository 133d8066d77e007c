"""One agent's websocket, of which nothing is believed but what it sends.

An agent may die without a word, stop reading, or send what is no frame. Sending is bounded in time and says ``Gone``
when nobody is there any more; reading simply ends. Nothing here knows which protocol is spoken.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from aiohttp import WSMsgType
from aiohttp.web_ws import WebSocketResponse

from sexton.kit import web

# A frame larger than any telemetry page is not one.
MOST_FRAME = 2 << 20
# A peer that does not take a frame for so long does not read any more.
SEND_SECONDS = 10.0
# A close that is not answered by then is no longer waited for.
CLOSE_SECONDS = 2.0


class Gone(Exception):  # noqa: N818 - an end, not a failure
    """The peer is not there any more."""


class NoUpgrade(Exception):  # noqa: N818
    """The request does not ask for a websocket."""


class AgentSocket:
    """The server's end of a connection."""

    def __init__(self, request: web.BaseRequest, response: WebSocketResponse) -> None:
        self._request = request
        self.response = response

    @classmethod
    async def open(cls, request: web.BaseRequest, ping_seconds: float | None = None) -> AgentSocket:
        """Answer the upgrade. With ``ping_seconds`` a peer that answers no ping is found out by itself."""
        response = WebSocketResponse(
            max_msg_size=MOST_FRAME, compress=False, timeout=CLOSE_SECONDS, heartbeat=ping_seconds
        )
        if not response.can_prepare(request):
            raise NoUpgrade
        await response.prepare(request)
        return cls(request, response)

    async def say(self, frame: bytes) -> None:
        """Send one text frame."""
        try:
            async with asyncio.timeout(SEND_SECONDS):
                await self.response.send_frame(frame, WSMsgType.TEXT)
        except (ConnectionError, TimeoutError, RuntimeError):
            # The library says RuntimeError for a socket that has been closed from this side.
            self.abort()
            raise Gone from None

    async def frames(self) -> AsyncIterator[bytes]:
        """What the peer says, until one side ends the connection."""
        async for frame in self.response:
            if frame.type not in (WSMsgType.TEXT, WSMsgType.BINARY):
                return
            yield frame.data.encode() if isinstance(frame.data, str) else frame.data

    async def close(self, why: str) -> None:
        """Tell the peer to come back another time; does not wait long for its answer."""
        try:
            async with asyncio.timeout(2 * CLOSE_SECONDS):
                await self.response.close(code=1001, message=why.encode())
        except (ConnectionError, TimeoutError, RuntimeError):
            self.abort()

    def abort(self) -> None:
        """End the connection without a word."""
        transport = self._request.transport
        if transport is not None:
            with contextlib.suppress(AttributeError):  # only stream transports can be torn down at once
                transport.abort()
