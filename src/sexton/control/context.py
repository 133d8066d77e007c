"""What an operation may use: the records, the scheduler, and the world's time and ids as arguments.

An operation is a function of a context, a call and a typed request. It holds no state of its own, so any number of
control planes over one store can serve it.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import msgspec

from sexton.control.records import ClusterRecord, Entry, Records
from sexton.control.scheduler import Scheduler
from sexton.core import names
from sexton.core.names import Place
from sexton.wire.errors import (
    ClientException,
    ClusterNotFoundException,
    EcsError,
    InvalidParameterException,
    ServerException,
    UnsupportedFeatureException,
)

# How often an operation decides again after somebody else changed what it had read; each turn follows a real change.
CONFLICT_TRIES = 50


class Call(NamedTuple):
    """One authenticated request."""

    region: str
    access_key: str
    now: float


class Context(NamedTuple):
    """The control plane as an operation sees it."""

    records: Records
    scheduler: Scheduler
    account: str
    endpoint: str  # where agents reach this control plane
    new_id: Callable[[], str] = lambda: secrets.token_hex(16)
    clock: Callable[[], float] = time.time

    def place(self, call: Call) -> Place:
        return Place(call.region, self.account)


Operation = Callable[[Context, Call, Any], Awaitable[msgspec.Struct]]


def client_error(message: str) -> EcsError:
    return ClientException(message)


def invalid(message: str) -> EcsError:
    return InvalidParameterException(message)


def unsupported(message: str) -> EcsError:
    return UnsupportedFeatureException(message)


def busy(what: str) -> EcsError:
    """Too many writers want the same record; the client's own retry is the right answer."""
    return ServerException(f"cannot change {what}: it is being changed by others; try again")


def cluster_name(given: str | None) -> str:
    """The cluster a request speaks of, or the API's error for a name that cannot be one."""
    name = names.parse_cluster(given)
    if name is None:
        raise invalid(f"Invalid identifier: Identifier is for cluster. Your identifier is {given}")
    return name


def active_cluster(context: Context, call: Call, given: str | None) -> Entry[ClusterRecord]:
    """The cluster a request speaks of, which must exist and be active."""
    entry = context.records.clusters.get(call.region, cluster_name(given))
    if entry is None or entry.value.cluster.status != "ACTIVE":
        raise ClusterNotFoundException("Cluster not found.")
    return entry


def page(items: list[str], token: str | None, size: int | None, largest: int = 100) -> tuple[list[str], str | None]:
    """One page of sorted keys, and the token of the next. The token says where this one ended."""
    limit = size if size and 0 < size <= largest else largest
    start = 0
    if token:
        try:
            after = bytes.fromhex(token).decode()
        except ValueError:
            raise invalid("Invalid token.") from None
        start = next((index for index, item in enumerate(items) if item > after), len(items))
    chosen = items[start : start + limit]
    more = start + limit < len(items)
    return chosen, chosen[-1].encode().hex() if more and chosen else None
