"""What a listener does with too many connections: it lets them go without a word, and nobody else notices."""

from __future__ import annotations

import asyncio
import gc

from aiohttp import web

from sexton.kit.listener import Limits, Listener


async def served(request: web.BaseRequest) -> web.StreamResponse:
    return web.Response(text="here")


async def test_connections_above_the_limit_are_let_go_and_leave_nothing_in_the_log(caplog):
    listener = Listener(served, Limits(connections=3, idle=5.0))
    port = await listener.open("127.0.0.1", 0)
    try:
        lines = [await asyncio.open_connection("127.0.0.1", port) for _ in range(40)]

        async def alive(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
            try:
                writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
                await writer.drain()
                return (await asyncio.wait_for(reader.read(12), 10)).endswith(b"200")
            except ConnectionError:
                return False

        answered = [await alive(*line) for line in lines]
        assert answered.count(True) == 3 and all(answered[:3])
        for _, writer in lines:
            writer.close()
    finally:
        await listener.close()
    gc.collect()
    assert caplog.text == ""
