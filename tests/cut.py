"""A wire that can be cut: a TCP proxy inside the test that forwards, or from one moment on is silent.

A cut is a partition as both ends see it: connections stay open and nothing comes through, and new ones are taken and
never answered.
"""

from __future__ import annotations

import asyncio
import contextlib
from types import TracebackType


class Wire:
    """Forwards to one port of this host; an async context manager."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._whole = asyncio.Event()
        self._whole.set()
        self._pumps: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.port = 0

    async def __aenter__(self) -> Wire:
        self._server = await asyncio.start_server(self._taken, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for pump in list(self._pumps):
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)

    def cut(self) -> None:
        self._whole.clear()

    def mend(self) -> None:
        """What was on its way when it was cut arrives now, as it may after a partition."""
        self._whole.set()

    async def _taken(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._pumps.add(task)
        task.add_done_callback(self._pumps.discard)
        others: list[asyncio.StreamWriter] = [writer]
        try:
            await self._whole.wait()
            there, back = await asyncio.open_connection("127.0.0.1", self._target)
            others.append(back)
            ends = [asyncio.ensure_future(self._pump(reader, back)), asyncio.ensure_future(self._pump(there, writer))]
            try:
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for end in ends:
                    end.cancel()
                await asyncio.gather(*ends, return_exceptions=True)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            for one in others:
                with contextlib.suppress(OSError):
                    one.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                await self._whole.wait()
                writer.write(data)
                await writer.drain()
