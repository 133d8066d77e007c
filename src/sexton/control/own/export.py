"""The whole store as lines, from a control plane that is running: what ``sexton control export`` saves.

A store's file belongs to the process that has it open, so a backup of a running control plane is asked of itself. The
lines are those of ``store.transfer``, of one moment, however long they take to be read. They hold every key's secret.
"""

from __future__ import annotations

import asyncio

from sexton.control import authority
from sexton.control.context import Context
from sexton.control.own.door import Asked, nothing_here
from sexton.kit import web
from sexton.store.contract import Store
from sexton.store.transfer import export

READER_SECONDS = 60.0
"""A reader that takes nothing for so long is not there any more."""

CHUNK = 256 << 10


class ExportPath:
    """``/sexton/export``."""

    def __init__(self, context: Context, store: Store) -> None:
        self._context = context
        self._store = store

    async def serve(self, asked: Asked) -> web.StreamResponse:
        if asked.http.method != "GET" or asked.parts:
            raise nothing_here()
        authority.require(self._context, asked.call, "sexton:Export")
        response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson", "Cache-Control": "no-store"})
        await response.prepare(asked.http)
        waiting = bytearray()
        async for line in export(self._store):
            waiting += line
            if len(waiting) >= CHUNK:
                await _write(response, bytes(waiting))
                waiting.clear()
        await _write(response, bytes(waiting))
        return response


async def _write(response: web.StreamResponse, data: bytes) -> None:
    try:
        async with asyncio.timeout(READER_SECONDS):
            await response.write(data)
    except TimeoutError:
        raise ConnectionResetError("the reader of an export has stopped reading") from None
