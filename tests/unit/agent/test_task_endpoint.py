"""The endpoint's own part: paths, limits, names. What answers them has tests of its own."""

from __future__ import annotations

import asyncio
import random
import socket
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from sexton.agent.metadata.endpoint import TaskEndpoint
from sexton.agent.metadata.identity import Names, own_key
from sexton.agent.metadata.routes import Call, Routes
from sexton.agent.metadata.server import LIMITS, TaskServer, clean_path
from sexton.kit.allowance import Allowances
from sexton.kit.listener import Limits, Listener
from sexton.runtime.fake import FakeRuntime
from sexton.settings import Settings
from unit.agent.rig import Host, arn, container, task


@asynccontextmanager
async def serving(routes: Routes, allowances: Allowances, arn: str = "", limits: Limits = LIMITS) -> AsyncIterator[Any]:
    listener = Listener(TaskServer(routes, allowances).at("lo", arn), limits)
    port = await listener.open("127.0.0.1", 0)

    async def get(path: str, method: str = "GET") -> tuple[int, str, Any]:
        from yarl import URL

        url = URL(f"http://127.0.0.1:{port}{path}", encoded=True)
        async with (
            aiohttp.ClientSession() as session,
            session.request(method, url, allow_redirects=False) as answer,
        ):
            return answer.status, await answer.text(), answer.headers

    get.port = port  # type: ignore[attr-defined]
    try:
        yield get
    finally:
        await listener.close()


async def said(call: Call) -> web.Response:
    return web.Response(text=f"{dict(call.found)} {call.caller.address} {call.caller.task}")


def routes_of(*patterns: str) -> Routes:
    routes = Routes()
    for pattern in patterns:
        routes.add(pattern, said)
    return routes


PLENTY = Allowances(1000, 1000)


async def test_a_path_finds_who_answers_it_and_what_its_parts_are():
    routes = routes_of("/v4/{id}", "/v4/{id}/task", "/v2/credentials/{rest*}", "/v2/metadata")
    async with serving(routes, PLENTY, "task-a") as get:
        assert (await get("/v4/x"))[1] == "{'id': 'x'} 127.0.0.1 task-a"
        assert (await get("/v4/x/task"))[1] == "{'id': 'x'} 127.0.0.1 task-a"
        assert (await get("/v4/"))[0] == 200
        assert (await get("/v2/credentials/"))[1] == "{'rest': ''} 127.0.0.1 task-a"
        assert (await get("/v2/credentials/a/b"))[1] == "{'rest': 'a/b'} 127.0.0.1 task-a"
        assert (await get("/v4/x%2Ftask"))[1] == "{'id': 'x'} 127.0.0.1 task-a"
        for missing in ("/", "/v4", "/v4/x/tasks", "/v4/x/task/", "/V4/x", "/v5/x", "/v2/metadata."):
            status, text, headers = await get(missing)
            assert (status, text) == (404, "404 page not found\n"), missing
            assert headers["Content-Type"] == "text/plain; charset=utf-8"


async def test_what_is_heavy_is_added_when_it_is_first_asked_for():
    routes, added = routes_of("/v4/{id}"), []

    def add() -> None:
        added.append(1)
        routes.add("/v3/{id}", said)

    routes.when_asked(("v2", "v3"), add)
    async with serving(routes, PLENTY) as get:
        assert (await get("/v4/x"))[0] == 200 and added == []
        assert [(await get(path))[0] for path in ("/v3/x", "/v3/y", "/v2/x")] == [200, 200, 404]
        assert added == [1]


@pytest.mark.parametrize(
    ("asked", "sent_to"),
    [
        ("//v4//x/task", "/v4/x/task"),
        ("/v4/../v4/x?a=b%20c", "/v4/x?a=b%20c"),
        ("/v4/./x/", "/v4/x/"),
        ("/v4/%2e%2e/v2/x", "/v2/x"),
        ("//other.example/v4/x", "/other.example/v4/x"),
        ("/v4/a%2F%2Fb%20c", "/v4/a/b%20c"),
    ],
)
async def test_a_path_that_is_not_clean_is_sent_to_the_clean_one(asked: str, sent_to: str):
    async with serving(routes_of("/v4/{id}"), PLENTY) as get:
        status, text, headers = await get(asked)
        assert (status, text, headers["Location"]) == (301, "", sent_to)


def test_cleaning_a_path_twice_changes_nothing_more():
    for path in ("", "/", "//", "/a//b/", "/../..", "a/b", "/a/.", "/..a/b..", "/a/..//"):
        assert clean_path(clean_path(path)) == clean_path(path)


async def test_too_many_requests_to_one_path_are_told_so_and_cost_other_paths_nothing():
    now = 0.0
    allowances = Allowances(40, 60, clock=lambda: now)
    async with serving(routes_of("/v4/{id}"), allowances) as get:
        assert [(await get("/v4/x"))[0] for _ in range(60)] == [200] * 60
        status, text, headers = await get("/v4/x")
        assert (status, text) == (429, "You have reached maximum request limit.")
        assert headers["Content-Type"] == "text/plain; charset=utf-8"
        assert (await get("/v4/y"))[0] == 200
        now = 0.5  # half a second is twenty more
        assert [(await get("/v4/x"))[0] for _ in range(21)] == [200] * 20 + [429]


async def test_made_up_paths_share_one_allowance_and_fill_no_memory():
    allowances = Allowances(1, 5, clock=lambda: 0.0)
    async with serving(routes_of("/v4/{id}"), allowances) as get:
        assert [(await get(f"/nothing/{n}"))[0] for n in range(7)] == [404] * 5 + [429] * 2
        assert len(allowances) == 1


def test_allowances_forget_the_oldest_key():
    allowances = Allowances(1, 1, most=2, clock=lambda: 0.0)
    assert [allowances.take(key) for key in "aabc"] == [True, False, True, True]
    assert len(allowances) == 2
    assert allowances.take("c") is False


async def test_one_address_cannot_take_all_connections():
    limits = Limits(connections=100, idle=5.0, per_peer=3)
    async with serving(routes_of("/v4/{id}"), PLENTY, limits=limits) as get:
        held = [await asyncio.open_connection("127.0.0.1", get.port) for _ in range(3)]
        for _, writer in held:
            writer.write(b"GET /v4/x HTTP/1.1\r\nHost: x\r\n\r\n")
        assert [(await reader.readline())[9:12] for reader, _ in held] == [b"200"] * 3
        reader, writer = await asyncio.open_connection("127.0.0.1", get.port)
        with pytest.raises(ConnectionError):  # it is ended before it is read
            if not await reader.read():
                raise ConnectionError
        # Another address still gets in.
        other = socket.socket()
        other.bind(("127.0.0.2", 0))
        other.setblocking(False)
        await asyncio.get_running_loop().sock_connect(other, ("127.0.0.1", get.port))
        reader2, writer2 = await asyncio.open_connection(sock=other)
        writer2.write(b"GET /v4/x HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await reader2.readline())[9:12] == b"200"
        for one in (writer, writer2, *(writer for _, writer in held)):
            one.close()


@pytest.mark.parametrize(
    "junk",
    [
        b"\0" * 64,
        b"GET /v4/x HTTP/9.9\r\n\r\n",
        b"GET /v4/\xff\xfe HTTP/1.1\r\nHost: x\r\n\r\n",
        b"G" * 20_000,
        b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\n\r\n",
        b"GET /v4/x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"POST /v4/x HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
        b"GET http://[::1/ HTTP/1.1\r\nHost: x\r\n\r\n",
        b"* * *\r\n\r\n",
    ],
)
async def test_nonsense_is_refused_and_the_next_is_served(junk: bytes):
    async with serving(routes_of("/v4/{id}"), PLENTY, limits=Limits(idle=0.2, body=0.2)) as get:
        reader, writer = await asyncio.open_connection("127.0.0.1", get.port)
        writer.write(junk)
        writer.write_eof()
        answer = await asyncio.wait_for(reader.read(), 10)
        assert answer == b"" or answer[9:10] in (b"2", b"3", b"4")
        writer.close()
        assert (await get("/v4/x"))[0] == 200


@given(st.text(st.sampled_from("/.a%2eF")))
def test_a_clean_path_stays_within_and_is_clean(path: str):
    clean = clean_path(path)
    assert clean.startswith("/") and "//" not in clean
    assert not {".", ".."} & set(clean.split("/"))
    assert clean_path(clean) == clean


async def test_a_thousand_broken_requests_leave_nothing_behind():
    chance = random.Random(6)
    good = b"GET /v4/x?y=1 HTTP/1.1\r\nHost: 169.254.170.2\r\nContent-Length: 3\r\nAccept: */*\r\n\r\nabc"

    def broken() -> bytes:
        text = bytearray(good)
        for _ in range(chance.randrange(1, 6)):
            at = chance.randrange(len(text))
            text[at : at + chance.randrange(3)] = chance.randbytes(chance.randrange(3))
        return bytes(text)

    async def send(port: int, text: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(text)
            writer.write_eof()
            return await asyncio.wait_for(reader.read(), 10)
        except ConnectionError:
            return b""
        finally:
            writer.close()

    async with serving(routes_of("/v4/{id}"), PLENTY, limits=Limits(idle=0.2, body=0.2)) as get:
        for _ in range(10):
            answers = await asyncio.gather(*(send(get.port, broken()) for _ in range(100)))
            assert all(answer[:9] in (b"", b"HTTP/1.1 ", b"HTTP/1.0 ") for answer in answers)
            assert not any(b"Traceback" in answer or b" 500 " in answer[:20] for answer in answers)
        assert (await get("/v4/x"))[0] == 200


async def test_names_cannot_be_guessed_and_outlive_the_process(tmp_path: Path):
    async with Host() as host:
        await host.engine.take([task(1, container("web"), container("side"))], 1)
        names = Names(own_key(tmp_path), host.engine.runners)
        web, side = names.of(arn(1), "web"), names.of(arn(1), "side")
        again = Names(own_key(tmp_path), host.engine.runners)
        found = again.find(web)
        assert found is not None and (found.runner.arn, found.container) == (arn(1), "web")
        assert again.of(arn(1), "side") == side != web
        assert uuid.UUID(web).version == 4
        assert names.of_file(arn(1), "web") not in (web, side)
        assert names.find(web.upper()) is names.find(names.of(arn(2), "web")) is names.find("") is None
        assert names.find(names.of_file(arn(1), "web")) is None
        other = Names(own_key(tmp_path / "other"), host.engine.runners)
        assert other.of(arn(1), "web") != web and other.find(web) is None
        assert (tmp_path / "endpoint.key").stat().st_mode & 0o777 == 0o600


async def test_names_of_a_task_that_is_gone_are_gone(tmp_path: Path):
    async with Host(cleanup_wait=1.0) as host:
        await host.engine.take([task(1)], 1)
        names = Names(own_key(tmp_path), host.engine.runners)
        name = names.of(arn(1), "app")
        assert names.find(name) is not None
        host.engine.stop([arn(1)], "over")
        await host.until_gone()
        assert names.find(name) is None
        await host.engine.take([task(1)], 2)
        assert names.find(name) is not None


def test_a_damaged_key_is_made_anew(tmp_path: Path):
    first = own_key(tmp_path)
    (tmp_path / "endpoint.key").write_bytes(b"short")
    second = own_key(tmp_path)
    assert len(second) == 32 and second not in (first, b"short")
    assert own_key(tmp_path) == second


async def test_without_an_endpoint_containers_are_told_nothing(tmp_path: Path):
    settings = Settings(data_dir=str(tmp_path), docker_host="fake://")
    endpoint = TaskEndpoint(FakeRuntime(), settings)
    await endpoint.prepare()
    assert (endpoint.open, endpoint.serves_host, endpoint.variables(task(1), "app")) == (False, False, {})
    await endpoint.close()
