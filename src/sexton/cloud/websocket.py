"""Signatures for the two websockets of an agent: the request that opens one, and each telemetry frame.

ACS and TCS are opened by a signed GET. On TCS every frame towards the service is signed as well: it begins with the
header lines of a GET for the session's URL whose body would be the frame's JSON, then an empty line, then the JSON.
Both headers and frames carry the Host they were signed with; a client must send exactly that.
"""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import urlsplit

from sexton.cloud.credentials import Credentials
from sexton.cloud.sigv4 import sign
from sexton.wire.tcs_frame import join_frame

SERVICE = "ecs"
_DEFAULT_PORTS = {"http": 80, "ws": 80, "https": 443, "wss": 443}


class Target(NamedTuple):
    """The parts of a URL that a signature covers, as they go on the wire."""

    host: str
    path: str
    query: str


def target_of(url: str) -> Target:
    """Take a URL apart; the host is what a client puts into its Host header."""
    parts = urlsplit(url)
    host = parts.hostname
    if parts.scheme not in _DEFAULT_PORTS or not host:
        raise ValueError(f"cannot sign for {url!r}: it is not an http, https, ws or wss URL with a host")
    if ":" in host:
        host = f"[{host}]"
    if parts.port is not None and parts.port != _DEFAULT_PORTS[parts.scheme]:
        host = f"{host}:{parts.port}"
    return Target(host, parts.path or "/", parts.query)


def signed_headers_for_websocket(url: str, credentials: Credentials, *, region: str, now: float) -> dict[str, str]:
    """Return the headers that open the socket at ``url``: Host and what signs it."""
    return _signed_get(url, b"", credentials, region, now)


def sign_frame(url: str, message: bytes, credentials: Credentials, *, region: str, now: float) -> bytes:
    """Return the frame that carries ``message`` on the socket opened at ``url``."""
    return join_frame(_signed_get(url, message, credentials, region, now), message)


def _signed_get(url: str, body: bytes, credentials: Credentials, region: str, now: float) -> dict[str, str]:
    target = target_of(url)
    host = {"Host": target.host}
    signature = sign("GET", target.path, target.query, host, body, credentials, region=region, service=SERVICE, now=now)
    return host | signature
