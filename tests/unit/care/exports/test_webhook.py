"""The webhook: an event leaves only when it was taken, nobody is hammered, and a stranger cannot forge."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from aiohttp import web

from sexton.care.exports.webhook import ATTEMPTS, WebhookExport, read_secret
from sexton.care.ledger import ledger_file, open_ledger
from sexton.core.finding import Evidence, Finding, Severity
from sexton.core.ledger import Look, Sight
from sexton.kit.retry import Backoff

QUICK = Backoff(first=0.01, cap=0.02)


class Receiver:
    """An endpoint that answers as it is told, and keeps what it got."""

    def __init__(self) -> None:
        self.got: list[tuple[dict[str, str], bytes]] = []
        self.answers: list[int] = []
        self.url = ""

    async def __call__(self, request: web.BaseRequest) -> web.Response:
        self.got.append((dict(request.headers), await request.read()))
        return web.Response(status=self.answers.pop(0) if self.answers else 204)

    @property
    def ids(self) -> list[str]:
        return [headers["Idempotency-Key"] for headers, _ in self.got]


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    made = Receiver()
    server = web.Server(made)
    listening = await asyncio.get_running_loop().create_server(server, "127.0.0.1", 0)
    made.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/hook"
    try:
        yield made
    finally:
        listening.close()
        await server.shutdown(1.0)


def finding(name: str) -> Finding:
    return Finding(
        fingerprint=name,
        severity=Severity.WARNING,
        title=f"{name} is wrong",
        culprit="x",
        evidence=(Evidence("a", "1", "b"),),
        next_step="stop it",
    )


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not true():
            await asyncio.sleep(0.005)


@contextlib.asynccontextmanager
async def sending(
    tmp_path: Path, url: str, names: tuple[str, ...], secret: bytes = b""
) -> AsyncIterator[WebhookExport]:
    async with open_ledger(ledger_file(tmp_path), outbox=True) as ledger:
        if names:
            found = tuple(finding(name) for name in names)
            await ledger.file(Look(probe="p", sight=Sight.LOOKED, findings=found), 1000.0)
        export = WebhookExport(url, secret, ledger.outbox, ledger.delivered, QUICK)
        task = asyncio.ensure_future(export.run())
        try:
            yield export
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


async def test_events_arrive_signed_and_once(tmp_path: Path, receiver: Receiver) -> None:
    async with sending(tmp_path, receiver.url, ("a/1", "a/2"), b"secret") as export:
        await until(lambda: export.delivered == 2)
    async with sending(tmp_path, receiver.url, ()):
        await asyncio.sleep(0.05)

    assert len(receiver.got) == 2
    headers, body = receiver.got[0]
    told = json.loads(body)
    assert (told["event"], told["fingerprint"], told["state"], told["id"]) == ("opened", "a/1", "open", receiver.ids[0])
    time, _, given = headers["X-Sexton-Signature"].removeprefix("t=").partition(",v1=")
    assert given == hmac.new(b"secret", f"{time}.".encode() + body, hashlib.sha256).hexdigest()


async def test_it_is_tried_again_under_the_same_id_until_it_is_taken(tmp_path: Path, receiver: Receiver) -> None:
    receiver.answers = [500, 503, 302]
    async with sending(tmp_path, receiver.url, ("a/1",)) as export:
        await until(lambda: export.delivered == 1)

    assert len(receiver.got) == 4
    assert len(set(receiver.ids)) == 1


async def test_what_was_not_taken_before_a_death_is_sent_by_the_next(tmp_path: Path, receiver: Receiver) -> None:
    receiver.answers = [500] * 3
    async with sending(tmp_path, receiver.url, ("a/1",)):
        await until(lambda: len(receiver.got) >= 1)
    first = receiver.ids[0]
    receiver.answers = []
    async with sending(tmp_path, receiver.url, ()) as export:
        await until(lambda: export.delivered == 1)

    assert set(receiver.ids) == {first}


async def test_a_receiver_that_is_away_for_long_is_given_up_on(tmp_path: Path) -> None:
    async with sending(tmp_path, "http://127.0.0.1:9/", ("a/1", "a/2")) as export:
        await until(lambda: export.given_up == 2)

    assert "cannot reach it" in export.failing
    assert ATTEMPTS < 20
    async with open_ledger(ledger_file(tmp_path), outbox=True) as ledger:
        assert await ledger.outbox() == ()


def test_an_empty_secret_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(ValueError, match="is empty"):
        read_secret(tmp_path / "empty")
    (tmp_path / "good").write_text("s3\n")
    assert read_secret(tmp_path / "good") == b"s3"
