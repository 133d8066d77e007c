"""The stream of state changes over HTTP: server-sent events, resumed by the id of the last one that arrived.

Each reader asks the log for what is behind its own cursor, writes that, and asks again: nothing is kept for it, and
one that does not read holds up nobody. It is let go when it takes nothing for a while. A reader whose last event is
no longer kept is told so by an event named ``gap`` before the oldest that is there.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging

from sexton.control import authority
from sexton.control.context import Context, invalid
from sexton.control.eventlog import BadCursor, EventLog, Position, Stored, read_cursor, told
from sexton.control.own.door import Asked, nothing_here
from sexton.core import names
from sexton.core.roles import Role
from sexton.kit import web
from sexton.wire.errors import ThrottlingException

log = logging.getLogger(__name__)

MOST_READERS = 256
"""Streams at a time; each is a connection that stays."""

BATCH = 100
"""Events written before the reader is waited for."""

HEARTBEAT_SECONDS = 15.0
"""A comment after so much silence, so that both ends and whatever is between them know the connection lives."""

READER_SECONDS = 30.0
"""A reader that takes nothing for so long is not there any more."""


class EventsPath:
    """``/sexton/events``: ``follow``, ``since`` (a Unix time, or ``oldest``) and ``cluster`` in the query."""

    def __init__(self, context: Context, events: EventLog) -> None:
        self._context = context
        self._events = events
        self._readers: set[asyncio.Task[object]] = set()

    async def serve(self, asked: Asked) -> web.StreamResponse:
        if asked.http.method != "GET" or asked.parts:
            raise nothing_here()
        authority.require(self._context, asked.call, "sexton:ReadEvents", Role.READ)
        if len(self._readers) >= MOST_READERS:
            raise ThrottlingException(f"{MOST_READERS} streams are read already; try again later.")
        query = asked.http.query
        follow = query.get("follow", "true") == "true"
        cluster = names.parse_cluster(query["cluster"]) if "cluster" in query else None
        if "cluster" in query and cluster is None:
            raise invalid("The cluster must be given by its name or ARN.")
        cursor, since, gap = self._start(asked, follow=follow)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
        await response.prepare(asked.http)
        task = asyncio.current_task()
        assert task is not None
        self._readers.add(task)
        try:
            if gap:
                await _write(response, b'event: gap\ndata: {"reason": "events before the next one are not kept"}\n\n')
            # Where it begins, so that a reader who is cut off before the first event comes back to the same place.
            await _write(response, b"id: %b\n\n" % str(cursor).encode())
            stream = _Stream(self._events, response, asked.call.region, cluster or "", since)
            session = asked.call.session
            # The keys of a role open a stream for as long as they are good.
            async with asyncio.timeout(session.expires_at - asked.call.now if session else None):
                await stream.send(cursor, follow=follow)
        except (ConnectionError, TimeoutError):
            transport = asked.http.transport
            if transport is not None:
                transport.abort()
        finally:
            self._readers.discard(task)
        return response

    async def close(self) -> None:
        """End every stream; a reader comes again with the id of its last event."""
        readers = [one for one in self._readers if one is not asyncio.current_task()]
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)

    def _start(self, asked: Asked, *, follow: bool) -> tuple[Position, float, bool]:
        """Where to begin: a cursor, a time before which nothing is told, and whether something is missing."""
        events = self._events
        last = asked.http.headers.get("Last-Event-ID") or asked.http.query.get("after", "")
        if last:
            try:
                cursor = read_cursor(last)
            except BadCursor:
                raise invalid("The last event's id must be given as it came.") from None
            if events.lost_since(cursor):
                return events.oldest, 0.0, True
            return cursor, 0.0, False
        since = asked.http.query.get("since", "")
        if since in ("", "oldest"):
            return (events.newest if follow and not since else events.oldest), 0.0, False
        try:
            return events.oldest, float(since), False
        except ValueError:
            raise invalid("since must be a time in Unix seconds, or oldest.") from None


class _Stream:
    """One reader."""

    def __init__(self, events: EventLog, response: web.StreamResponse, region: str, cluster: str, since: float) -> None:
        self._events = events
        self._response = response
        self._region = region
        self._cluster = cluster
        self._since = since

    async def send(self, cursor: Position, *, follow: bool) -> None:
        while True:
            news = asyncio.ensure_future(self._events.news())
            try:
                while places := self._events.after(cursor, BATCH):
                    cursor = places[-1]
                    await self._send_these(places)
                if not follow:
                    return
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(HEARTBEAT_SECONDS):
                        await news
                        continue
                await _write(self._response, b":\n\n")
            finally:
                news.cancel()

    async def _send_these(self, places: list[Position]) -> None:
        parts = []
        for place in places:
            stored = await self._events.read(place)
            if stored is not None and self._wanted(stored):
                parts.append(b"id: %b\ndata: %b\n\n" % (str(place).encode(), told(stored)))
        if parts:
            await _write(self._response, b"".join(parts))
        else:
            await asyncio.sleep(0)  # a stretch of other regions' events must not keep everybody else waiting

    def _wanted(self, stored: Stored) -> bool:
        return (
            stored.region == self._region
            and stored.at >= self._since
            and (not self._cluster or stored.cluster == self._cluster)
        )


async def _write(response: web.StreamResponse, data: bytes) -> None:
    """Write and wait until the reader has taken most of it; TimeoutError when it does not."""
    async with asyncio.timeout(READER_SECONDS):
        await response.write(data)
