"""The wire to an etcd cluster: one request to whichever member answers, and what its silence or its "no" means.

In: a path, a body, a deadline, and whether the request may be sent twice. Out: the answer, or one of three failures.
``Refused`` is etcd's own definite no. ``Unreachable``: nobody took the request until the deadline, so nothing has
happened. ``OutcomeUnknown``: a member took it and then fell silent; this is never retried unless the request may be
repeated. Every member is asked to refuse at once when it has lost its leader, so that a member on the wrong side of a
partition is left for the next one instead of waited for.

Nothing survives a restart. Connections are made when needed; the member that answered last is asked first.
"""

from __future__ import annotations

import asyncio
import io
import logging
import os
import ssl
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

import aiohttp
import msgspec

from sexton.kit.retry import Backoff
from sexton.store.contract import OutcomeUnknown, StoreError
from sexton.store.etcd import wire
from sexton.store.etcd.address import Address

log = logging.getLogger(__name__)

T = TypeVar("T")

CONNECT_SECONDS = 1.0
"""A member that does not even accept is passed over after this; loopback and a rack answer in milliseconds."""

ATTEMPT_SECONDS = 2.0
"""How long one member may take over a request that can be sent to the next one instead."""

IDLE_SECONDS = 60.0
"""An unused connection is closed after this; etcd itself keeps them for ever."""

LARGE_BODY = 256 * 1024
"""Bytes from which a body is sent in pieces; below it is cheaper not to."""

BACKOFF = Backoff(first=0.05, cap=1.0)
"""Between rounds over all members, none of which answered."""

REQUIRE_LEADER = {"Grpc-Metadata-hasleader": "true", "Content-Type": "application/json"}

NOT_FOUND = 5
UNAVAILABLE = 14
DEFINITE = {3, NOT_FOUND, 7, 8, 9, 11, 12, 16}
"""gRPC codes with which etcd refuses before it does anything; with the others it may have begun."""

NO_LEADER = "etcdserver: no leader"
STALE_LOGIN = ("invalid auth token", "revision of auth store is old", "user name is empty")


class Refused(StoreError):  # noqa: N818 - a condition the caller decides about
    """etcd's own no: nothing was done."""

    def __init__(self, message: str, code: int, words: str) -> None:
        super().__init__(message)
        self.code = code
        self.words = words


class Unreachable(StoreError):  # noqa: N818 - a condition the caller decides about
    """No member took the request."""


class _NotTakenError(Exception):
    """This member did not take the request; the next one may be asked."""


class _SilentError(Exception):
    """This member may have taken the request; what became of it is not known."""


class Gateway:
    """Requests to one cluster. Belongs to the event loop it was made on."""

    def __init__(self, address: Address, tls: ssl.SSLContext | None) -> None:
        self.address = address
        self._current = 0
        self._token = ""
        self._login_lock = asyncio.Lock()
        self._session = aiohttp.ClientSession(
            # Unlimited here, because the store limits what is on its way: a request that waited inside the
            # connector would count as sent.
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE_SECONDS, ssl=tls or True),
            headers=REQUIRE_LEADER,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
        )

    @property
    def name(self) -> str:
        return self.address.name

    @property
    def endpoint(self) -> str:
        """The member that is asked next."""
        return self.address.endpoints[self._current]

    def leave(self, endpoint: str, reason: str) -> None:
        """Ask another member from now on, if this one is still the one that is asked."""
        if endpoint == self.endpoint and len(self.address.endpoints) > 1:
            self._current = (self._current + 1) % len(self.address.endpoints)
            log.warning("etcd member left", extra={"member": endpoint, "reason": reason, "next": self.endpoint})

    async def close(self) -> None:
        await self._session.close()

    async def call(self, path: str, request: msgspec.Struct, kind: type[T], *, within: float, repeatable: bool) -> T:
        """One answer within so many seconds, from whichever member gives it."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + within
        body = wire.encode(request)
        delays = BACKOFF.delays()
        members = len(self.address.endpoints)
        tries = 0
        logged_in = False
        while True:
            endpoint = self.endpoint
            left = deadline - loop.time()
            try:
                return await self._ask(endpoint, path, body, kind, min(left, ATTEMPT_SECONDS) if repeatable else left)
            except _NotTakenError as error:
                reason = str(error)
            except _SilentError as error:
                if not repeatable:
                    self.leave(endpoint, str(error))
                    raise OutcomeUnknown(
                        f"cannot tell whether a write to {self.name} happened: {error}; "
                        "read the keys again before repeating it"
                    ) from error
                reason = str(error)
            except Refused as error:
                # Old logins are refused before anything is done; a new one is made once per call.
                if logged_in or self.address.login is None or not error.words.endswith(STALE_LOGIN):
                    raise
                logged_in, self._token = True, ""
                continue
            self.leave(endpoint, reason)
            tries += 1
            delay = next(delays) if tries % members == 0 else 0.0
            if loop.time() + delay >= deadline:
                raise Unreachable(
                    f"cannot reach {self.name} within {within:g} s: {reason}; "
                    "check that a majority of its members runs, and the addresses in the store's URL"
                )
            await asyncio.sleep(delay)

    async def ask(self, endpoint: str, path: str, request: msgspec.Struct, kind: type[T], within: float) -> T:
        """One answer of this very member."""
        try:
            return await self._ask(endpoint, path, wire.encode(request), kind, within)
        except (_NotTakenError, _SilentError) as error:
            raise Unreachable(f"cannot reach {endpoint}: {error}; check that this member runs") from error

    @asynccontextmanager
    async def stream(self, endpoint: str, path: str, request: msgspec.Struct) -> AsyncIterator[AsyncGenerator[bytes]]:
        """The lines of an endless answer of one member; a broken wire raises Unreachable. No deadline: who reads
        watches over it."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS)
        try:
            headers = await self._identity(endpoint)
            async with self._session.post(
                endpoint + path, data=wire.encode(request), timeout=timeout, headers=headers
            ) as response:
                if response.status != 200:
                    raise self._refusal(response.status, await response.read())
                yield _lines(response.content)
        except (aiohttp.ClientError, TimeoutError, OSError, _NotTakenError) as error:
            raise Unreachable(f"cannot keep watching {endpoint}: {_words(error)}; it is tried again") from error

    def forget_login(self) -> None:
        self._token = ""

    async def _ask(self, endpoint: str, path: str, body: bytes, kind: type[T], within: float) -> T:
        timeout = aiohttp.ClientTimeout(total=max(within, 0.001), sock_connect=CONNECT_SECONDS)
        headers = await self._identity(endpoint)
        try:
            async with self._session.post(
                endpoint + path, data=_data(body), timeout=timeout, headers=headers
            ) as response:
                answer = await response.read()
                status = response.status
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise _NotTakenError(_words(error)) from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _SilentError(_words(error)) from error
        if status != 200:
            refusal = self._refusal(status, answer)
            if refusal.words == NO_LEADER:
                raise _NotTakenError(refusal.words)
            if refusal.code not in DEFINITE:
                raise _SilentError(refusal.words)
            raise refusal
        try:
            return wire.decode(answer, kind)
        except msgspec.MsgspecError as error:
            raise _SilentError(f"its answer to {path} is not etcd's ({error})") from error

    def _refusal(self, status: int, body: bytes) -> Refused:
        try:
            refusal = wire.decode(body, wire.Refusal)
        except msgspec.MsgspecError:
            refusal = wire.Refusal(message=f"HTTP status {status}")
        words = refusal.message or refusal.error
        # A plain 404 has no code: what listens there is no etcd, or one before 3.4.
        code = refusal.code or (12 if status in (404, 405, 501) else UNAVAILABLE)
        return Refused(f"cannot use {self.name}: it refused: {words}; {_cure(words)}", code, words)

    async def _identity(self, endpoint: str) -> dict[str, str]:
        login = self.address.login
        if login is None:
            return {}
        async with self._login_lock:
            if not self._token:
                self._token = await self._log_in(endpoint, wire.LoginRequest(login.user, login.password))
        return {"Authorization": self._token}

    async def _log_in(self, endpoint: str, request: wire.LoginRequest) -> str:
        timeout = aiohttp.ClientTimeout(total=ATTEMPT_SECONDS, sock_connect=CONNECT_SECONDS)
        try:
            async with self._session.post(
                endpoint + "/v3/auth/authenticate", data=wire.encode(request), timeout=timeout
            ) as response:
                body = await response.read()
                status = response.status
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _NotTakenError(_words(error)) from error
        if status != 200:
            refusal = self._refusal(status, body)
            raise refusal if refusal.code in DEFINITE else _NotTakenError(refusal.words)
        return wire.decode(body, wire.LoginAnswer).token


def _data(body: bytes) -> bytes | io.BytesIO:
    """A large body goes out piece by piece: one write of it would hold the event loop."""
    return io.BytesIO(body) if len(body) > LARGE_BODY else body


async def _lines(content: aiohttp.StreamReader) -> AsyncGenerator[bytes]:
    """Whole lines, however long; the reader's own limit on a line is far below a large record."""
    parts: list[bytes] = []
    async for chunk in content.iter_any():
        first, *others = chunk.split(b"\n")
        parts.append(first)
        for other in others:
            yield b"".join(parts)
            parts = [other]


def _words(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientSSLError):
        return str(error)
    if isinstance(error, aiohttp.ClientConnectorError):
        # asyncio's own text repeats the address and leaves out the reason.
        return os.strerror(error.os_error.errno) if error.os_error.errno else str(error.os_error)
    if isinstance(error, TimeoutError):
        return "it did not answer in time"
    return str(error) or type(error).__name__


def _cure(words: str) -> str:
    for part, cure in _CURES:
        if part in words:
            return cure
    return "see etcd's own log"


_CURES = (
    ("too large", "write less at once, or raise its --max-request-bytes"),
    ("too many operations", "write less at once, or raise its --max-txn-ops"),
    ("space exceeded", "compact and defragment it, disarm its alarm, and give it --auto-compaction-retention"),
    ("authentication failed", "correct the user and password in the store's URL"),
    ("authentication is not enabled", "leave user and password out of the store's URL"),
    ("user name is empty", "name a user in the store's URL: etcd://user:password@host"),
    ("permission denied", "grant the user read and write on the prefix"),
    ("HTTP status", "check that the address is an etcd 3.4 or newer with its gateway enabled"),
)
