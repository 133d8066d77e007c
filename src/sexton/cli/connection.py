"""How the command line reaches the daemons: the API by its address and keys, the local agent by its socket file.

The address and keys are the ones every AWS tool uses (``AWS_ENDPOINT_URL`` and so on). Without them the data
directory of a control plane on this machine is tried, so that root needs no preparation.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import aiohttp
import msgspec
import typer

from sexton.cloud.client import EcsClient, Unreachable
from sexton.cloud.credential_files import Environment, KeysFile, SharedFile
from sexton.cloud.credentials import Keyring, NoCredentials, Provider
from sexton.kit.certificate import CertificateError, trusting
from sexton.wire.errors import EcsError

DEFAULT_DATA_DIR = "/var/lib/sexton"
DEFAULT_ENDPOINT = "http://127.0.0.1:7070"
DEFAULT_REGION = "us-east-1"
EXIT_FAILED = 1

T = TypeVar("T")


def data_dir() -> Path:
    return Path(os.environ.get("ECS_DATADIR") or DEFAULT_DATA_DIR)


def fail(message: str) -> typer.Exit:
    """Say what is wrong and give the exit to raise."""
    typer.echo(f"sexton: {message}", err=True)
    return typer.Exit(EXIT_FAILED)


def endpoint() -> str:
    """Where the API is: what the AWS tools' own settings say, or this machine."""
    return os.environ.get("AWS_ENDPOINT_URL_ECS") or os.environ.get("AWS_ENDPOINT_URL") or DEFAULT_ENDPOINT


def http_session(timeout: aiohttp.ClientTimeout = aiohttp.ClientTimeout()) -> aiohttp.ClientSession:
    """A session that believes what AWS_CA_BUNDLE says besides the system's authorities."""
    bundle = os.environ.get("AWS_CA_BUNDLE", "")
    if not bundle:
        return aiohttp.ClientSession(timeout=timeout)
    try:
        return aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trusting(bundle)), timeout=timeout)
    except CertificateError as error:
        raise fail(f"{error}; correct AWS_CA_BUNDLE") from None


def keyring() -> Keyring:
    """Whose keys are used: those of the environment, of the control plane on this machine, or of a profile."""
    environment = os.environ
    providers: list[Provider] = [Environment(environment), KeysFile(data_dir() / "keys.json")]
    if "AWS_PROFILE" in environment:
        providers.append(SharedFile.from_environment(environment))
    return Keyring(providers)


@asynccontextmanager
async def api() -> AsyncIterator[EcsClient]:
    """A client of the API that the environment names, or of the one on this machine."""
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or DEFAULT_REGION
    async with http_session() as session:
        yield EcsClient(endpoint(), region, keyring(), session)


def call(work: Callable[[EcsClient], Awaitable[T]]) -> T:
    """Run one piece of work against the API, turning what goes wrong into a sentence."""

    async def whole() -> T:
        async with api() as client:
            return await work(client)

    try:
        return asyncio.run(whole())
    except Unreachable:
        raise fail(
            f"cannot reach an ECS API at {endpoint()}; start one with 'sexton up', or set AWS_ENDPOINT_URL to one"
        ) from None
    except NoCredentials as error:
        raise fail(f"{error}. Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or run as root here") from None
    except EcsError as error:
        raise fail(f"{error.code}: {error.message}") from None


class LocalAnswer(msgspec.Struct, frozen=True):
    """An error answer of the local socket."""

    error: str = ""


@asynccontextmanager
async def local(path: str, fields: dict[str, str]) -> AsyncIterator[aiohttp.ClientResponse]:
    """Ask the agent on this host."""
    file = data_dir() / "agent.sock"
    connector = aiohttp.UnixConnector(str(file))
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=5)
    try:
        async with (
            aiohttp.ClientSession(connector=connector, timeout=timeout) as session,
            session.get(f"http://agent{path}", params=fields) as answer,
        ):
            if answer.status != 200:
                body = await answer.content.read(64 << 10)
                raise fail(msgspec.json.decode(body, type=LocalAnswer).error or f"the agent answered {answer.status}")
            yield answer
    except PermissionError:
        raise fail(f"cannot open {file}: run as root") from None
    except (aiohttp.ClientConnectorError, FileNotFoundError):
        raise fail(
            f"cannot reach an agent at {file}: no agent runs with this data directory; "
            "start one, or name its directory with ECS_DATADIR"
        ) from None


async def ask_agent(path: str, fields: dict[str, str]) -> bytes | None:
    """One answer of the agent on this host; nothing where there is none, or none that knows."""
    connector = aiohttp.UnixConnector(str(data_dir() / "agent.sock"))
    try:
        async with (
            aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=5.0)) as session,
            session.get(f"http://agent{path}", params=fields) as answer,
        ):
            return await answer.read() if answer.status == 200 else None
    except (aiohttp.ClientError, OSError, TimeoutError):
        return None
