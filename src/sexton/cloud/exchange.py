"""One signed request to something AWS-shaped, and its whole answer.

In: where, what and who signs. Out: status, headers and body, whatever the status says; what it means is the caller's
to know. ``Unreachable`` when no usable answer came: then nothing is known of the call's effect. No retries here, no
redirects followed, and never more read than was asked for.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from typing import NamedTuple

import aiohttp
from yarl import URL

from sexton import __version__
from sexton.cloud.bodies import TooLarge, read_bounded
from sexton.cloud.credentials import Credentials
from sexton.cloud.sigv4 import sign
from sexton.cloud.websocket import target_of

# Connecting, TLS included; what Amazon's agent allows.
CONNECT_TIMEOUT = 30.0
# One call from its first byte to its last; after this the service has forgotten it as well.
CALL_TIMEOUT = 42.0
USER_AGENT = f"Sexton/{__version__} (linux)"


class Unreachable(Exception):  # noqa: N818 - a state of the network, told from an answer that says no
    """No answer that is one of the service's came back; whether the call took effect is unknown."""


class Request(NamedTuple):
    """What is sent. ``what`` names the call in errors; ``plain_path`` is how object stores sign paths."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes
    what: str
    region: str
    service: str
    plain_path: bool = False


class Reply(NamedTuple):
    """What came back; header names in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


async def exchange(
    session: aiohttp.ClientSession,
    request: Request,
    credentials: Credentials,
    *,
    now: float,
    limit: int,
    seconds: float = CALL_TIMEOUT,
    user_agent: str = USER_AGENT,
) -> Reply:
    """Send one request, read at most ``limit`` bytes of its answer."""
    target = target_of(request.url)
    signed = {"Host": target.host, **request.headers}
    signature = sign(
        request.method,
        target.path,
        target.query,
        signed,
        request.body,
        credentials,
        region=request.region,
        service=request.service,
        now=now,
        plain_path=request.plain_path,
    )
    headers = {**signed, **signature, "User-Agent": user_agent}
    timeout = aiohttp.ClientTimeout(total=seconds, sock_connect=min(CONNECT_TIMEOUT, seconds))
    endpoint = request.url.partition("?")[0]
    try:
        async with session.request(
            request.method,
            URL(request.url, encoded=True),
            data=request.body or None,
            headers=headers,
            timeout=timeout,
            allow_redirects=False,
        ) as response:
            body = await read_bounded(response, limit)
    except TimeoutError:
        raise Unreachable(
            f"cannot reach {endpoint} for {request.what}: no answer in time"
            f" ({min(CONNECT_TIMEOUT, seconds):g} s to connect, {seconds:g} s in all). Check endpoint and network"
        ) from None
    except TooLarge:
        raise Unreachable(
            f"cannot read the answer of {endpoint} to {request.what}: more than {limit} bytes. Check what listens there"
        ) from None
    except (aiohttp.ClientError, OSError) as error:
        raise Unreachable(
            f"cannot reach {endpoint} for {request.what}: {_reason(error)}. Check endpoint and network"
        ) from error
    return Reply(response.status, {name.lower(): value for name, value in response.headers.items()}, body)


def _reason(error: Exception) -> str:
    """The system's own words where a connection could not be made: the library puts host, port and more around them,
    which the sentence says already."""
    cause = getattr(error, "certificate_error", None) or getattr(error, "os_error", None)
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted, {cause.verify_message}; AWS_CA_BUNDLE names a file of authorities"
    if isinstance(cause, ssl.SSLError):  # its number is not one of the system's
        return str(cause)
    if isinstance(cause, OSError) and cause.errno:
        return os.strerror(cause.errno) if cause.errno > 0 else cause.strerror or str(cause)
    return str(error) or type(error).__name__
