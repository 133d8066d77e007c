"""What a "no" of a Docker engine means: final, absent, in the way, or not an answer at all.

In: status and body of an answer, or the error text inside a pull's stream. Out: the fault to raise, carrying the
engine's own words. The status alone does not tell: 500 is both a command that cannot be executed (final) and an
engine whose containerd is restarting (nothing is known), so the words decide where the status does not.
"""

from __future__ import annotations

import re

import msgspec

from sexton.runtime.contract import Conflict, NotFound, Refused, RuntimeFault, Unavailable

_AWAY_STATUSES = frozenset({429, 502, 503, 504})
"""Said by proxies in front of an engine and by engines that start or stop."""

_AWAY = re.compile(
    r"shutting down|containerd\.sock|transport is closing|client connection is closing|code = unavailable"
    r"|: unavailable$|context canceled$|containerd is still running|no connection available",
    re.IGNORECASE,
)
"""The engine is there, what it needs to do the work is not (yet)."""

_NO_CONTAINER = re.compile(r"no such container|no container with", re.IGNORECASE)

_REGISTRY_AWAY = re.compile(
    r"connection refused|connection reset|no route to host|network is unreachable|i/o timeout|handshake timeout"
    r"|deadline exceeded|request canceled|no such host|server misbehaving|temporary failure|\beof$"
    r"|http status: (5\d\d|429)|toomanyrequests|too many requests",
    re.IGNORECASE,
)
"""The registry could not be asked, or asked to come back later."""

_NO_IMAGE = re.compile(r"not found|manifest unknown|name unknown|does not exist|no such image", re.IGNORECASE)

_OTHER_VERSION = re.compile(r"client version \S+ is too (new|old)", re.IGNORECASE)


class _Words(msgspec.Struct):
    message: str = ""


_words = msgspec.json.Decoder(_Words)


def words(status: int, body: bytes) -> str:
    """The engine's sentence, whether it came as JSON or, from old engines and proxies, as text."""
    try:
        text = _words.decode(body).message
    except msgspec.MsgspecError:
        text = body[:1000].decode("utf-8", "replace")
    return text.strip() or f"the engine answered {status} without a word"


def speaks_other_version(status: int, body: bytes) -> bool:
    """The engine was exchanged for one with another range of API versions; it did nothing but say so."""
    return status == 400 and _OTHER_VERSION.search(words(status, body)) is not None


def fault(status: int, body: bytes) -> RuntimeFault:
    """The fault for an answer that is not a success."""
    text = words(status, body)
    if status in _AWAY_STATUSES or (status >= 500 and _AWAY.search(text)):
        return Unavailable(text)
    if status == 404:
        return NotFound(text, status)
    if status == 409:
        return Conflict(text, status)
    return Refused(text, status)


def start_fault(no: RuntimeFault) -> RuntimeFault:
    """At a start, 404 is also how engines say that a network or the command is missing: the container is there."""
    if isinstance(no, NotFound) and not _NO_CONTAINER.search(str(no)):
        return Refused(str(no), no.status)
    return no


def signal_fault(no: RuntimeFault) -> RuntimeFault:
    """Old engines answer 500 where newer ones answer 409 for a container that does not run."""
    if isinstance(no, Refused) and no.status == 500 and "is not running" in str(no):
        return Conflict(str(no), no.status)
    return no


def pull_fault(no: RuntimeFault) -> RuntimeFault:
    """For pulls the engine passes on what the registry or the network said, mostly as 500."""
    if not isinstance(no, Refused):
        return no
    text = str(no)
    if _REGISTRY_AWAY.search(text):
        return Unavailable(text)
    if _NO_IMAGE.search(text):
        return NotFound(text, no.status)
    return Refused(text, no.status)
