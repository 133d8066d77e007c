"""The local socket: health, and logs that end when nobody reads them any more."""

from __future__ import annotations

import asyncio
import json
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest

from sexton.agent import localapi
from sexton.agent.localapi import LocalApi
from sexton.kit.listener import Listener
from unit.agent.rig import INSTANCE, Host, arn, container, task


class Socket:
    """A host, its socket, and a client of it."""

    def __init__(self, host: Host, path: Path) -> None:
        self.host = host
        self.path = path

    async def get(self, target: str) -> tuple[int, list[dict[str, Any]]]:
        async with (
            aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(self.path))) as session,
            session.get(f"http://agent{target}") as answer,
        ):
            return answer.status, [json.loads(line) for line in (await answer.text()).splitlines()]


@pytest.fixture
async def socket(tmp_path: Path) -> AsyncIterator[Socket]:
    async with Host() as host:
        session = SimpleNamespace(connected_at=12.5)
        listener = Listener(LocalApi(host.engine, session, host.runtime, host.context.identity))  # type: ignore[arg-type]
        await listener.open_unix(tmp_path / "agent.sock")
        try:
            yield Socket(host, tmp_path / "agent.sock")
        finally:
            await listener.close()


async def test_health(socket: Socket) -> None:
    await socket.host.engine.take([task()], 1)
    status, (health,) = await socket.get("/health")
    assert status == 200
    assert (health["containerInstanceArn"], health["connectedSince"], health["tasks"]) == (INSTANCE, 12.5, 1)
    assert stat.S_IMODE(socket.path.stat().st_mode) == 0o600


async def test_lines_of_all_containers(socket: Socket) -> None:
    await socket.host.engine.take([task(1, container("a"), container("b"))], 1)
    await socket.host.until_running()
    for name in ("a", "b"):
        for number in range(3):
            socket.host.runtime.write(socket.host.known(name).runtime_id, f"{name}{number}")
    _, lines = await socket.get(f"/logs?task={arn()}")
    assert sorted(one["text"] for one in lines) == ["a0", "a1", "a2", "b0", "b1", "b2"]
    _, lines = await socket.get(f"/logs?task={'0' * 31}1&container=b&tail=1")
    assert [(one["container"], one["text"]) for one in lines] == [("b", "b2")]


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("/logs", "no task on this host matches"),
        ("/logs?task=ffff", "no task on this host matches"),
        ("/logs?task=000", "2 tasks on this host match"),
        (f"/logs?task={'0' * 31}1&container=c", "has no container c"),
        ("/net", "this agent makes no networks for tasks"),
        ("/else", "there is nothing here"),
    ],
)
async def test_what_is_not_there(socket: Socket, target: str, words: str) -> None:
    await socket.host.engine.take([task(1), task(2)], 1)
    status, (answer,) = await socket.get(target)
    assert status == 404 and words in answer["error"]


async def test_reader_that_hangs_up_is_noticed_while_nothing_is_written(
    socket: Socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(localapi, "READER_SECONDS", 0.02)
    await socket.host.engine.take([task()], 1)
    await socket.host.until_running()
    socket.host.runtime.write(socket.host.only().id, "hello")
    reader, writer = await asyncio.open_unix_connection(str(socket.path))
    writer.write(f"GET /logs?task={arn()}&follow=1 HTTP/1.1\r\nHost: agent\r\n\r\n".encode())
    await reader.readuntil(b"hello")
    assert _copies() == 1
    writer.close()
    async with asyncio.timeout(5.0):
        while _copies():
            await asyncio.sleep(0.01)


def _copies() -> int:
    return sum(one.get_name() == "logs/app" for one in asyncio.all_tasks())


async def test_why_has_the_record_and_what_it_waits_for(socket: Socket) -> None:
    socket.host.runtime.down()
    await socket.host.engine.take([task(1, container("a"))], 1)
    await asyncio.sleep(0.2)
    status, (answer,) = await socket.get(f"/why?task={arn()}")
    assert status == 200 and answer["task"]["lastStatus"] == "PENDING"
    assert answer["task"]["containers"][0]["name"] == "a"
    assert any("Container a has been in step" in one for one in answer["evidence"]["waiting"])
    assert (await socket.get("/why?task=ffff"))[0] == 404
