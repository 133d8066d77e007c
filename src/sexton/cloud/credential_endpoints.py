"""Credentials that an address on the link hands out: the container endpoint and the instance metadata service.

Both answer with the same JSON document and an end to renew before. A host that is not on EC2 has nobody at these
addresses, so every question is bounded: a second to connect, three in all.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from urllib.parse import quote, urlsplit

import aiohttp

from sexton.cloud.bodies import TooLarge, read_bounded
from sexton.cloud.credentials import Credentials, Found, Unavailable

# The address is on the same link or nobody is there.
CONNECT_TIMEOUT = 1.0
# Everything one provider may ask, token and role name included.
TOTAL_TIMEOUT = 3.0
CONTAINER_ADDRESS = "http://169.254.170.2"
INSTANCE_ADDRESS = "http://169.254.169.254"
# Six hours, the longest a metadata session may live; ours is used for two requests.
_SESSION_TTL = "21600"
_LARGEST_ANSWER = 64 * 1024
# Plain HTTP may carry credentials to these and to loopback only.
_LINK_HOSTS = frozenset({"169.254.170.2", "169.254.170.23", "fd00:ec2::23"})
_ROLE_PATH = "/latest/meta-data/iam/security-credentials/"


class ContainerEndpoint:
    """The endpoint a container platform names in AWS_CONTAINER_CREDENTIALS_RELATIVE_URI or _FULL_URI."""

    name = "container endpoint"

    def __init__(
        self, environ: Mapping[str, str], session: aiohttp.ClientSession, address: str = CONTAINER_ADDRESS
    ) -> None:
        self._environ = environ
        self._session = session
        self._address = address

    async def fetch(self) -> Found:
        """See Provider."""
        relative = self._environ.get("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI")
        full = self._environ.get("AWS_CONTAINER_CREDENTIALS_FULL_URI")
        if relative:
            url = f"{self._address}/{relative.lstrip('/')}"
        elif full:
            url = _trusted(full)
        else:
            raise Unavailable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI is not set")
        headers = await self._authorization()
        status, text = await _bounded_ask(self._session, "GET", url, headers, may_heal=True)
        if status != 200:
            raise Unavailable(f"{url} answered {status}", may_heal=_passing(status))
        return Found(_document(url, text))

    async def _authorization(self) -> dict[str, str]:
        path = self._environ.get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE")
        token = self._environ.get("AWS_CONTAINER_AUTHORIZATION_TOKEN", "")
        if path:
            try:
                token = await asyncio.to_thread(Path(path).read_text)
            except (OSError, UnicodeError):
                raise Unavailable(f"cannot read AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE {path}") from None
        token = token.strip()
        if not token:
            return {}
        if not (token.isascii() and token.isprintable()):
            raise Unavailable("the container authorization token is not fit for a header")
        return {"Authorization": token}


class InstanceMetadata:
    """The role of an EC2 instance, through the metadata service's second version (session token first)."""

    name = "instance metadata"

    def __init__(self, environ: Mapping[str, str], session: aiohttp.ClientSession) -> None:
        self._environ = environ
        self._session = session

    async def fetch(self) -> Found:
        """See Provider."""
        if self._environ.get("AWS_EC2_METADATA_DISABLED", "").strip().lower() == "true":
            raise Unavailable("AWS_EC2_METADATA_DISABLED is true")
        address = (self._environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT") or INSTANCE_ADDRESS).rstrip("/")
        try:
            async with asyncio.timeout(TOTAL_TIMEOUT):
                return Found(await self._role_credentials(address))
        except TimeoutError:
            raise Unavailable(f"{address} gave no answer within {TOTAL_TIMEOUT:g} s") from None

    async def _role_credentials(self, address: str) -> Credentials:
        ttl = {"X-aws-ec2-metadata-token-ttl-seconds": _SESSION_TTL}
        token = await self._ask("PUT", f"{address}/latest/api/token", ttl)
        session = {"X-aws-ec2-metadata-token": token.strip()}
        roles = (await self._ask("GET", address + _ROLE_PATH, session)).split()
        if not roles:
            raise Unavailable("the instance has no role")
        url = f"{address}{_ROLE_PATH}{quote(roles[0], safe='')}"
        return _document(url, await self._ask("GET", url, session))

    async def _ask(self, method: str, url: str, headers: Mapping[str, str]) -> str:
        status, text = await _ask(self._session, method, url, headers, may_heal=False)
        if status == 404 and _ROLE_PATH in url:
            raise Unavailable("the instance has no role")
        if status != 200:
            raise Unavailable(f"{url} answered {status}", may_heal=_passing(status))
        return text


async def _bounded_ask(
    session: aiohttp.ClientSession, method: str, url: str, headers: Mapping[str, str], *, may_heal: bool
) -> tuple[int, str]:
    try:
        async with asyncio.timeout(TOTAL_TIMEOUT):
            return await _ask(session, method, url, headers, may_heal=may_heal)
    except TimeoutError:
        raise Unavailable(f"{url} gave no answer within {TOTAL_TIMEOUT:g} s", may_heal=may_heal) from None


async def _ask(
    session: aiohttp.ClientSession, method: str, url: str, headers: Mapping[str, str], *, may_heal: bool
) -> tuple[int, str]:
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT)
    try:
        async with session.request(method, url, headers=headers, timeout=timeout, allow_redirects=False) as response:
            return response.status, (await read_bounded(response, _LARGEST_ANSWER)).decode("utf-8", "replace")
    except aiohttp.ConnectionTimeoutError:
        raise Unavailable(f"cannot reach {url} within {CONNECT_TIMEOUT:g} s", may_heal=may_heal) from None
    except aiohttp.ClientConnectorError as error:
        raise Unavailable(f"cannot reach {url}: {error.strerror or error}", may_heal=may_heal) from None
    except TooLarge:
        raise Unavailable(f"{url} answered with more than credentials can fill") from None
    except (aiohttp.ClientError, ValueError) as error:
        raise Unavailable(f"cannot ask {url}: {type(error).__name__}", may_heal=may_heal) from None


def _passing(status: int) -> bool:
    return status >= 500 or status == 429


def _trusted(url: str) -> str:
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        raise Unavailable("AWS_CONTAINER_CREDENTIALS_FULL_URI is not a URL") from None
    if parts.scheme == "https" or (parts.scheme == "http" and (host in _LINK_HOSTS or _loopback(host))):
        return url
    raise Unavailable("AWS_CONTAINER_CREDENTIALS_FULL_URI must be https, loopback or a link-local credentials address")


def _loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _document(url: str, text: str) -> Credentials:
    """Read the answer both endpoints give. It is never quoted in an error: it may hold a secret."""
    try:
        document = json.loads(text)
    except ValueError:
        raise Unavailable(f"{url} answered with something that is not JSON") from None
    if not isinstance(document, dict):
        raise Unavailable(f"{url} answered with something that is not credentials")
    code = document.get("Code", "Success")
    if code != "Success":
        raise Unavailable(f"{url} answered with code {str(code)[:100]}", may_heal=True)
    key_id, secret = document.get("AccessKeyId"), document.get("SecretAccessKey")
    token, expiration = document.get("Token"), document.get("Expiration")
    if not (isinstance(key_id, str) and key_id and isinstance(secret, str) and secret):
        raise Unavailable(f"{url} answered without AccessKeyId or SecretAccessKey")
    try:
        expires_at = datetime.fromisoformat(expiration).timestamp() if expiration else None
    except (TypeError, ValueError):
        raise Unavailable(f"{url} answered with an Expiration that is not a time") from None
    return Credentials(key_id, secret, token if isinstance(token, str) and token else None, expires_at)
