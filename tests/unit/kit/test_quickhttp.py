"""The short way answers what the library would answer, in order and to the last byte, and leaves the rest to it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import re
from collections.abc import AsyncIterator, Callable

import pytest
from aiohttp import web
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sexton.kit.listener import BodyBroken, BodyTooLarge, BodyTooSlow, Limits, Listener, read_body
from sexton.kit.quickhttp import MOST_BODY, MOST_HELD, Asked, Told, Unfinished, take

LIMITS = Limits(connections=8, idle=5.0, body=2.0)
HEAD = b"POST / HTTP/1.1\r\nHost: h\r\nX-Amz-Target: t\r\n"


def request(body: bytes = b"{}", more: bytes = b"") -> bytes:
    return HEAD + more + b"Content-Length: %d\r\n\r\n" % len(body) + body


class Door:
    """Answers with what was asked, and counts which way it came."""

    def __init__(self) -> None:
        self.quick = 0
        self.library = 0
        self.body_seconds = 0.2
        self.opened: asyncio.Event | None = None

    async def serve(self, asked: Asked) -> Told:
        self.quick += 1
        if self.opened is not None:
            await self.opened.wait()
        if asked.body == b"fail":
            raise ValueError("on purpose")
        return Told(200, {"Content-Type": "text/plain"}, asked.headers.get("x-amz-target", "").encode() + asked.body)

    async def answer(self, incoming: web.BaseRequest) -> web.StreamResponse:
        self.library += 1
        try:
            body = await read_body(incoming, 1 << 20, self.body_seconds)
        except (BodyTooLarge, BodyTooSlow, BodyBroken):
            return web.Response(status=400, headers={"Connection": "close"})
        target = incoming.headers.get("X-Amz-Target", "")
        return web.Response(body=target.encode() + body, headers={"Content-Type": "text/plain"})


@contextlib.asynccontextmanager
async def listening(door: Door, limits: Limits = LIMITS, *, quick: bool = True) -> AsyncIterator[int]:
    listener = Listener(door.answer, limits, quick=door.serve if quick else None)
    port = await listener.open("127.0.0.1", 0)
    try:
        yield port
    finally:
        await listener.close()


Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@contextlib.asynccontextmanager
async def connected(port: int) -> AsyncIterator[Connection]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
    length = re.search(rb"(?i)content-length: (\d+)", head)
    assert length, head
    return int(head.split(b" ")[1]), await reader.readexactly(int(length[1]))


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not true():
            await asyncio.sleep(0.001)


async def test_plain_requests_go_the_short_way_one_after_the_other() -> None:
    door = Door()
    async with listening(door) as port, connected(port) as (reader, writer):
        for number in range(3):
            writer.write(request(b"%d" % number))
            assert await answer(reader) == (200, b"t%d" % number)
    assert (door.quick, door.library) == (3, 0)


async def test_head_and_body_may_come_apart() -> None:
    door = Door()
    async with listening(door) as port, connected(port) as (reader, writer):
        head, _, body = request(b"body").partition(b"\r\n\r\n")
        for _ in range(2):
            writer.write(head + b"\r\n\r\n")
            await writer.drain()
            await asyncio.sleep(0.01)
            writer.write(body)
            assert await answer(reader) == (200, b"tbody")
    assert (door.quick, door.library) == (2, 0)


async def test_a_body_that_drips_is_the_librarys() -> None:
    door = Door()
    async with listening(door) as port, connected(port) as (reader, writer):
        for byte in request(b"dripping"):
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0.001)
        assert await answer(reader) == (200, b"tdripping")
    assert (door.quick, door.library) == (0, 1)


async def test_the_rest_of_a_body_is_waited_for_under_the_librarys_limits() -> None:
    door = Door()
    async with listening(door) as port, connected(port) as (reader, writer):
        writer.write(request(b"whole")[:-1])
        assert (await answer(reader))[0] == 400
        assert await reader.read() == b""
    assert (door.quick, door.library) == (0, 1)


async def test_what_is_asked_at_once_is_answered_in_order() -> None:
    door = Door()
    async with listening(door) as port, connected(port) as (reader, writer):
        writer.write(b"".join(request(b"%d" % number) for number in range(200)))
        for number in range(200):
            assert await answer(reader) == (200, b"t%d" % number)
        # Also behind something unusual, which is the library's, as all that follows.
        writer.write(request(b"a") + b"GET /health HTTP/1.1\r\nHost: h\r\n\r\n" + request(b"b"))
        assert [await answer(reader) for _ in range(3)] == [(200, b"ta"), (200, b""), (200, b"tb")]
    assert (door.quick, door.library) == (201, 2)


async def test_who_asks_without_reading_is_not_read_either() -> None:
    door = Door()
    door.opened = asyncio.Event()
    async with listening(door) as port, connected(port) as (_, writer):
        sent = 0
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                while True:
                    writer.write(request(b"x" * 60_000))
                    sent += 60_000
                    await writer.drain()
        # Both ends' socket buffers, and what is held; without a bound it would be gigabytes.
        assert MOST_HELD < sent < 64 << 20
        door.opened.set()


async def test_a_half_closed_client_gets_its_answers() -> None:
    door = Door()
    door.opened = asyncio.Event()
    async with listening(door) as port, connected(port) as (reader, writer):
        writer.write(request(b"1") + request(b"2"))
        writer.write_eof()
        await until(lambda: door.quick == 1)
        door.opened.set()
        assert [await answer(reader) for _ in range(2)] == [(200, b"t1"), (200, b"t2")]
        assert await asyncio.wait_for(reader.read(), 10) == b""


async def test_a_handler_that_fails_is_answered_and_the_connection_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    async with listening(Door()) as port, connected(port) as (reader, writer):
        writer.write(request(b"fail"))
        assert (await answer(reader))[0] == 500
        writer.write(request(b"more"))
        assert await answer(reader) == (200, b"tmore")
    assert [record.message for record in caplog.records] == ["request handler failed"]


async def test_a_request_is_served_to_its_end_when_its_client_has_gone() -> None:
    door = Door()
    door.opened = asyncio.Event()
    served = []
    plain = door.serve

    async def serve(asked: Asked) -> Told:
        told = await plain(asked)
        served.append(told)
        return told

    door.serve = serve  # type: ignore[method-assign]
    async with listening(door) as port:
        async with connected(port) as (_, writer):
            writer.write(request())
            await until(lambda: door.quick == 1)
        door.opened.set()
        await until(lambda: bool(served))


async def test_closing_waits_for_what_is_being_served_and_for_nothing_else() -> None:
    door = Door()
    door.opened = asyncio.Event()
    listener = Listener(door.answer, LIMITS, quick=door.serve)
    port = await listener.open("127.0.0.1", 0)
    async with connected(port) as (reader, writer), connected(port) as (idle, _):
        writer.write(request())
        await until(lambda: door.quick == 1)
        closing = asyncio.ensure_future(listener.close())
        assert await asyncio.wait_for(idle.read(), 10) == b""
        door.opened.set()
        assert await answer(reader) == (200, b"t{}")
        await asyncio.wait_for(closing, 10)
        assert await reader.read() == b""


async def test_idle_connections_end_and_busy_ones_do_not() -> None:
    door = Door()
    door.opened = asyncio.Event()
    limits = LIMITS._replace(idle=0.2)
    async with listening(door, limits) as port, connected(port) as (reader, writer), connected(port) as (idle, _):
        writer.write(request())
        assert await asyncio.wait_for(idle.read(), 10) == b""
        await asyncio.sleep(0.2)
        door.opened.set()
        assert await answer(reader) == (200, b"t{}")
        assert await asyncio.wait_for(reader.read(), 10) == b""


async def test_both_ways_share_one_limit_of_connections() -> None:
    door = Door()
    async with listening(door) as port, contextlib.AsyncExitStack() as stack:
        kept = [await stack.enter_async_context(connected(port)) for _ in range(LIMITS.connections)]
        for reader, writer in kept:
            writer.write(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
            assert (await answer(reader))[0] == 200
        async with connected(port) as (reader, _):
            with contextlib.suppress(ConnectionResetError):
                assert await asyncio.wait_for(reader.read(), 10) == b""


ODD = [
    b"GET / HTTP/1.1\r\nHost: h\r\n\r\n",
    b"POST /?a HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n",
    b"POST / HTTP/1.0\r\nHost: h\r\nContent-Length: 0\r\n\r\n",
    HEAD + b"Content-Length: 1\r\nContent-Length: 1\r\n\r\na",
    HEAD + b"Content-Length: +1\r\n\r\na",
    HEAD + b"Content-Length: \xb2\r\n\r\naa",
    HEAD + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
    HEAD + b"Content-Length : 1\r\n\r\na",
    HEAD + b" Content-Length: 1\r\n\r\na",
    HEAD + b"Content-Length: 1\r\n folded\r\n\r\na",
    HEAD + b"Content-Length: 1\nHost: x\r\n\r\na",
    HEAD + b"Content-Length: 1\r\nUser-Agent: a\rb\r\n\r\na",
    HEAD + b"Content-Length: 1\r\nUser-Agent: a\0b\r\n\r\na",
    HEAD + b"Content-Length: 1\r\nConnection: close\r\n\r\na",
    HEAD + b"Content-Length: 1\r\nConnection: Upgrade\r\n\r\na",
    HEAD + b"Content-Length: 1\r\nExpect: 100-continue\r\n\r\na",
    HEAD + b"Content-Length: 1\r\nContent-Encoding: gzip\r\n\r\na",
    HEAD + b"Content-Length: %d\r\n\r\n" % (MOST_BODY + 1),
    HEAD + b"User-Agent: %s\r\nContent-Length: 0\r\n\r\n" % (b"a" * 9000),
    b"POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n",
    b"POST / HTTP/1.1\r\n\r\n",
    HEAD + b"\r\n",
]


@pytest.mark.parametrize("data", ODD)
def test_nothing_unusual_is_taken(data: bytes) -> None:
    assert take(data) is None


def test_half_a_body_is_not_taken_and_not_refused() -> None:
    for cut in range(1, 4):
        with pytest.raises(Unfinished):
            take(request(b"body")[:-cut])


lines = st.sampled_from([b"Host: h", b"host: h", b"User-Agent: x y", b"Content-Length: 2", b"Content-Length: 3", b"A"])
plain = st.builds(request, st.binary(max_size=5))
legal = st.sampled_from(
    [
        b"GET / HTTP/1.1\r\nHost: h\r\n\r\n",
        b"POST /?a HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
        request(b"strange", b"X-Strange: 1\r\n"),
    ]
)
odd = st.one_of(
    st.sampled_from([b"\r\n", b"POST / HTTP/1.1\r\n", b"{}", *ODD]),
    st.builds(lambda some: b"POST / HTTP/1.1\r\n" + b"\r\n".join(some) + b"\r\n\r\n", st.lists(lines, max_size=4)),
)
LAST = b"GET /last HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"


async def all_answers(port: int, chunks: list[bytes]) -> list[tuple[int, bytes]]:
    """What comes back for these bytes until nothing more does."""
    async with connected(port) as (reader, writer):
        with contextlib.suppress(ConnectionError):
            for chunk in chunks:
                writer.write(chunk)
                await writer.drain()
        found = b""
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(20):
                while part := await reader.read(1 << 16):
                    found += part
    return [
        (int(one.split(b" ")[1]), one.partition(b"\r\n\r\n")[2])
        for one in re.split(rb"(?=HTTP/1\.[01] \d{3} )", found)
        if one.startswith(b"HTTP/1.")
    ]


async def both_ways(chunks: list[bytes], begin: list[tuple[int, bytes]], rest: bytes) -> Door:
    """The answers to these pieces begin like this, and go on as the library alone answers the rest."""
    quick = Door()
    limits = LIMITS._replace(idle=1.0)
    async with listening(quick, limits) as first, listening(Door(), limits, quick=False) as second:
        assert await all_answers(first, chunks) == begin + await all_answers(second, [rest])
    return quick


def certain(data: bytes) -> tuple[list[tuple[int, bytes]], bytes]:
    """The answers to the plain requests that bytes begin with, and the bytes behind them."""
    begin = []
    with contextlib.suppress(Unfinished):
        while found := take(data):
            headers, body, data = found
            begin.append((200, headers.get("x-amz-target", "").encode() + body))
    return begin, data


@pytest.mark.timeout(240)
def test_whatever_is_not_certain_gets_the_librarys_answer() -> None:
    ways = [0, 0]

    @settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(st.lists(plain, max_size=2), odd, st.lists(st.one_of(plain, legal, odd), max_size=2))
    def check(begin: list[bytes], strange: bytes, more: list[bytes]) -> None:
        data = b"".join([*begin, strange, *more]) + b"\r\n\r\n" + LAST
        quick = asyncio.run(both_ways([data], *certain(data)))
        ways[0] += quick.quick
        ways[1] += quick.library

    check()
    assert min(ways) > 5, ways


@pytest.mark.timeout(240)
def test_how_the_bytes_are_cut_makes_no_difference() -> None:
    ways = [0, 0]

    @settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(st.lists(st.one_of(plain, plain, legal), min_size=1, max_size=5), st.lists(st.integers(1, 400), max_size=4))
    def check(pieces: list[bytes], cuts: list[int]) -> None:
        data = b"".join(pieces) + LAST
        places = sorted({0, len(data), *(cut % len(data) for cut in cuts)})
        quick = asyncio.run(both_ways([data[one:end] for one, end in itertools.pairwise(places)], [], data))
        ways[0] += quick.quick
        ways[1] += quick.library

    check()
    assert min(ways) > 5, ways
