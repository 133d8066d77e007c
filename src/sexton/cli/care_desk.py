"""How the command line reaches the caretaker: its socket, or its ledger where none runs.

A daemon has the ledger to itself, so it is asked over the socket. Without one, this process opens the ledger and
answers itself, in the same shapes; what it then says is what the last caretaker knew.
"""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Protocol, TypeVar

import aiohttp
import msgspec

from sexton.care.acting import Actor
from sexton.care.app import look_of
from sexton.care.desk import Desk, Findings, FixLine, Proposals, Row
from sexton.care.ledger import ledger_file, open_ledger
from sexton.care.look import PROBES, take
from sexton.care.policy import BadPolicy, read_policy
from sexton.care.probe import Scene
from sexton.cli.connection import data_dir, fail
from sexton.core.incident import Incident
from sexton.core.ledger import Look
from sexton.host.proc import boot
from sexton.store.contract import StoreError

T = TypeVar("T")
SOCKET = "care.sock"
# A daemon answers at once, but for plans, which look at the host first.
ANSWER_SECONDS = 60.0
POLICY = "/etc/sexton/care.toml"


class CareDesk(Protocol):
    """What both can answer."""

    async def findings(self, *, all_: bool) -> Findings: ...

    async def incident(self, fingerprint: str) -> Incident: ...

    async def mute(self, fingerprint: str, seconds: float | None, who: str, reason: str) -> Row: ...

    async def unmute(self, fingerprint: str, who: str) -> Row: ...

    async def proposals(self, fingerprint: str) -> Proposals: ...

    def fix(self, fingerprint: str, remedy: str, who: str, why: str) -> AsyncIterator[FixLine]: ...


def who() -> str:
    """Who asks, for the record: the person behind sudo rather than root."""
    try:
        return os.environ.get("SUDO_USER") or getpass.getuser()
    except (KeyError, OSError):
        return f"user {os.getuid()}"


def ask(work: Callable[[CareDesk], Awaitable[T]], folder: Path | None = None) -> T:
    """Do one piece of work at the desk, turning what goes wrong into a sentence and an exit."""
    where = folder or data_dir()

    async def whole() -> T:
        async with _desk(where) as desk:
            return await work(desk)

    try:
        return asyncio.run(whole())
    except LookupError as error:
        raise fail(str(error.args[0])) from None
    except (StoreError, BadPolicy) as error:
        raise fail(str(error)) from None
    except PermissionError as error:
        raise fail(f"cannot open {error.filename or where / SOCKET}: run as root") from None


@contextlib.asynccontextmanager
async def _desk(folder: Path) -> AsyncIterator[CareDesk]:
    socket = folder / SOCKET
    connector = aiohttp.UnixConnector(str(socket))
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=5, sock_read=ANSWER_SECONDS * 10)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        try:
            async with session.get("http://care/health"):
                pass
        except aiohttp.ClientConnectorError as error:
            if isinstance(error.os_error, PermissionError):
                raise PermissionError(error.os_error.errno, "not allowed", str(socket)) from None
        else:
            yield _Distant(session)
            return
    async with _own_desk(folder) as desk:
        yield desk


class _Distant:
    """The daemon's desk, over its socket."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def _read(self, answer: aiohttp.ClientResponse, kind: type[T]) -> T:
        body = await answer.read()
        if answer.status == 404:
            raise LookupError(msgspec.json.decode(body)["error"])
        if answer.status != 200:
            raise StoreError(msgspec.json.decode(body).get("error", f"the caretaker answered {answer.status}"))
        return msgspec.json.decode(body, type=kind)

    async def _get(self, path: str, kind: type[T], **query: str) -> T:
        async with self._session.get(f"http://care{path}", params=query) as answer:
            return await self._read(answer, kind)

    async def _post(self, path: str, kind: type[T], **body: object) -> T:
        async with self._session.post(f"http://care{path}", data=msgspec.json.encode(body)) as answer:
            return await self._read(answer, kind)

    async def findings(self, *, all_: bool) -> Findings:
        return await self._get("/findings", Findings, all="1" if all_ else "0")

    async def incident(self, fingerprint: str) -> Incident:
        return await self._get("/incident", Incident, fingerprint=fingerprint)

    async def mute(self, fingerprint: str, seconds: float | None, who: str, reason: str) -> Row:
        return await self._post("/mute", Row, fingerprint=fingerprint, seconds=seconds, who=who, reason=reason)

    async def unmute(self, fingerprint: str, who: str) -> Row:
        return await self._post("/unmute", Row, fingerprint=fingerprint, who=who)

    async def proposals(self, fingerprint: str) -> Proposals:
        return await self._get("/proposals", Proposals, fingerprint=fingerprint)

    async def fix(self, fingerprint: str, remedy: str, who: str, why: str) -> AsyncIterator[FixLine]:
        body = {"fingerprint": fingerprint, "remedy": remedy, "who": who, "why": why}
        async with self._session.post("http://care/fix", data=msgspec.json.encode(body)) as answer:
            if answer.status != 200:
                await self._read(answer, FixLine)
            async for line in answer.content:
                yield msgspec.json.decode(line, type=FixLine)


class _Own:
    """This process's own desk."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self.incident = desk.incident
        self.mute = desk.mute
        self.unmute = desk.unmute
        self.proposals = desk.proposals
        self.fix = desk.fix

    async def findings(self, *, all_: bool) -> Findings:
        return self._desk.findings(all_=all_)


@contextlib.asynccontextmanager
async def _own_desk(folder: Path) -> AsyncIterator[CareDesk]:
    file = ledger_file(folder)
    try:
        known = file.exists()
    except PermissionError as error:
        raise PermissionError(error.errno, "not allowed", str(file)) from None
    if not known:
        raise LookupError(
            f"no caretaker runs with {folder}, and none has: there is no {file}. Start one with 'sexton care' "
            "(or 'sexton up'), name its directory with ECS_DATADIR, or look once with 'sexton doctor'"
        )
    root = Path(os.environ.get("SEXTON_CARE_ROOT") or "/")
    docker_host = os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock"

    async def look_again(name: str) -> Look | None:
        probe = next((one for one in PROBES if one.name == name), None)
        if probe is None:
            return None
        scene = Scene(root=root, docker_host=docker_host, now=time.time(), uptime=boot(root).uptime)
        return look_of(name, (await take(probe, scene)).outcome, sure=True)

    policy = read_policy(Path(os.environ.get("SEXTON_CARE_POLICY") or POLICY))
    async with open_ledger(file) as ledger:
        actor = Actor(ledger, policy, root=root, docker_host=docker_host, look_again=look_again)
        yield _Own(Desk(ledger, actor))
