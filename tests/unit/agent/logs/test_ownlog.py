"""The agent's own log gets to its group in order; what the group is away for too long is dropped and said."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager

import aiohttp
import pytest

from sexton.agent.logs import ownlog
from sexton.agent.logs.ownlog import OwnLog
from sexton.cloud.logs import LogsClient
from sexton.core.awslogs import Destination
from unit.agent.logs.test_relay_and_delivery import Keys, Service, until

heard = logging.getLogger("sexton.test")


@asynccontextmanager
async def sending(service, monkeypatch):
    monkeypatch.setattr(ownlog, "SEND_SECONDS", 0.02)
    monkeypatch.setattr(ownlog, "BACKOFF", ownlog.Backoff(first=0.02, cap=0.05))
    async with aiohttp.ClientSession() as http:
        to = Destination(service.url, "us-east-1", "/agents", "host", create_group=True)
        own = OwnLog(LogsClient(http), to, Keys("OWN"))
        task = asyncio.ensure_future(own.run())
        await asyncio.sleep(0)
        try:
            yield own
        finally:
            task.cancel()
            await asyncio.wait([task])


async def test_lines_arrive_in_order_in_a_group_that_is_made(monkeypatch):
    async with Service().serving() as service, sending(service, monkeypatch):
        for number in range(20):
            heard.warning("said", extra={"number": number, "password": "hunter2"})
        await until(lambda: len(service.lines) == 20)
        assert [f"number={number} " in line for number, line in enumerate(service.lines)] == [True] * 20
        assert "hunter2" not in "".join(service.lines)
        assert service.groups["/agents"] == {"host"}
    assert all(not isinstance(one, OwnLog) for one in logging.getLogger("sexton").handlers)


async def test_a_group_that_is_away_holds_up_nobody_and_the_loss_is_said(monkeypatch):
    monkeypatch.setattr(ownlog, "MOST_LINES", 10)
    service = Service()
    service.broken = 1
    async with service.serving(), sending(service, monkeypatch):
        for number in range(30):
            heard.warning("said", extra={"number": number})
        await until(lambda: len(service.calls) > 2)
        service.broken = 0
        await until(lambda: any("number=29" in line for line in service.lines))
        told = "".join(service.lines)
        assert "own log lines were dropped" in told and "number=0 " not in told
        assert sum("own log cannot be sent" in line for line in service.lines) <= 1


async def test_lines_are_sent_in_batches(monkeypatch):
    monkeypatch.setattr(ownlog, "BATCH_LINES", 3)
    async with Service().serving() as service, sending(service, monkeypatch):
        for number in range(8):
            heard.warning("said", extra={"number": number})
        await until(lambda: len(service.lines) == 8)
        assert [len(one["logEvents"]) for one in service.batches] == [3, 3, 2]


@pytest.fixture(autouse=True)
def loud():
    logging.getLogger("sexton").setLevel(logging.INFO)
    yield
    logging.getLogger("sexton").setLevel(logging.NOTSET)
