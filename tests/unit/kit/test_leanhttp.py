"""The HTTP library loaded lean: smaller, and exactly as strict about whom it trusts."""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import sys
from pathlib import Path

import pytest

from certificates import issue

# Calls each address on the terms given and says how that ended, then what has been loaded and what a child would get.
CALLS = """
import asyncio, json, os, sys
bundle, lean, *addresses = sys.argv[1:]
if lean == "lean":
    from sexton.kit import leanhttp
    leanhttp.load()
import aiohttp
from sexton.kit.certificate import trusting
async def ask(address, terms):
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=terms)) as session:
        try:
            async with session.get(address) as answer:
                return answer.status
        except aiohttp.ClientError as error:
            return type(error).__name__
async def main():
    said = {}
    for address in addresses:
        said[address] = [await ask(address, terms) for terms in (True, trusting(bundle), False)]
    return said
said = asyncio.run(main())
extension = "frozenlist._frozenlist" in sys.modules
print(json.dumps([said, extension, "FROZENLIST_NO_EXTENSIONS" in os.environ]))
"""
REFUSED = "ClientConnectorCertificateError"


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
    await writer.drain()
    writer.close()
    await writer.wait_closed()


async def calls(pki: Path, lean: bool, **environment: str) -> tuple[list[list[int | str]], bool, bool]:
    """Of the name in the certificate and of another, each on three terms: the host's authorities, the bundle's as well,
    none at all."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*issue(pki, "server"))
    server = await asyncio.start_server(answer, ["127.0.0.1", "127.0.0.2"], ssl=context)
    addresses = ["https://{}:{}/".format(*socket.getsockname()) for socket in server.sockets]
    async with server:
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", CALLS, str(pki / "ca.pem"), "lean" if lean else "as it is", *sorted(addresses)),
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, **environment},
        )
        told, _ = await child.communicate()
    said, extension, leaked = json.loads(told)
    return list(said.values()), extension, leaked


@pytest.mark.parametrize("lean", [True, False], ids=["lean", "as it is"])
async def test_only_who_is_trusted_is_talked_to(tmp_path: Path, lean: bool) -> None:
    said, _, _ = await calls(tmp_path / "pki", lean)

    assert said == [[REFUSED, 200, 200], [REFUSED, REFUSED, 200]]


@pytest.mark.parametrize("lean", [True, False], ids=["lean", "as it is"])
async def test_the_hosts_authorities_are_those_of_the_environment(tmp_path: Path, lean: bool) -> None:
    said, _, _ = await calls(tmp_path / "pki", lean, SSL_CERT_FILE=str(tmp_path / "pki/ca.pem"))

    assert said == [[200, 200, 200], [REFUSED, REFUSED, 200]]


async def test_the_extension_stays_out_and_no_child_is_told(tmp_path: Path) -> None:
    _, extension, leaked = await calls(tmp_path / "pki", True)

    assert (extension, leaked) == (False, False)
