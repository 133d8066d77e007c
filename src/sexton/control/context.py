"""What an operation may use: the records, the scheduler, and the world's time and ids as arguments.

An operation is a function of a context, a call and a typed request. It holds no state of its own, so any number of
control planes over one store can serve it.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, NamedTuple

import msgspec

from sexton.cloud.sigv4_verify import Verified
from sexton.control.eventlog import KEPT, EventLog
from sexton.control.gates import Gates
from sexton.control.identity import IdentityCheck
from sexton.control.logs.shelf import Shelf
from sexton.control.network import Network
from sexton.control.records import ClusterRecord, Entry, Records
from sexton.control.revisions import Revisions
from sexton.control.rolekeys import RoleKeys
from sexton.control.scheduler import Scheduler
from sexton.control.servicetasks import ServiceTasks
from sexton.control.usage import Usage
from sexton.core import names
from sexton.core.names import Place
from sexton.core.sessionkey import Session
from sexton.kit.randomids import random_id
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
    """One authenticated request. ``session`` is whose keys they are where a role's signed it."""

    region: str
    access_key: str
    now: float
    session: Session | None = None
    remote: str = ""  # the address that it came from
    secure: bool = False  # whether it came by TLS
    tails: tuple[str, int] | None = None  # the connection, of a client that may follow log lines

    @classmethod
    def by(cls, who: Verified, now: float, remote: str = "", *, secure: bool = False) -> Call:
        """The call of a request whose signature is right."""
        return cls(who.region, who.access_key, now, who.session, remote, secure)


class Context(NamedTuple):
    """The control plane as an operation sees it."""

    records: Records
    usage: Usage
    revisions: Revisions
    scheduler: Scheduler
    service_tasks: ServiceTasks
    network: Network
    account: str
    endpoint: str  # where agents reach this control plane
    replica: str = ""  # its name among those over one store; it has none where it is alone
    gates: Gates | None = None
    events: EventLog | None = None
    identity: IdentityCheck | None = None  # None: documents are taken unsigned
    roles: RoleKeys | None = None  # None: no role is looked at
    logs: Shelf | None = None  # None: no logs are kept here
    log_endpoint: str = ""  # where tasks send what they log, unless their definition says; empty means AWS
    trouble: Callable[[], str] = str  # what keeps the store from taking writes; empty while nothing does
    new_id: Callable[[], str] = random_id
    clock: Callable[[], float] = time.time

    def place(self, call: Call) -> Place:
        return Place(call.region, self.account)

    def principal(self, call: Call) -> str:
        """Who makes a call, as an ARN: a user named after its key, or a role's session."""
        if call.session is not None:
            return call.session.arn
        return names.principal_arn(self.place(call), f"user/{call.access_key}")

    def placing(self, region: str, cluster: str) -> AbstractAsyncContextManager[None]:
        """Hold this while tasks are placed in a cluster: see ``gates``."""
        return self.gates.at(f"{region}/{cluster}") if self.gates is not None else nullcontext()


def over(records: Records, account: str, events_kept: int = KEPT) -> Context:
    """The context of these records; made before they are loaded, so that every index sees all of it. The endpoint
    is told later, when it is known."""
    usage = Usage(records.tasks)
    return Context(
        records=records,
        usage=usage,
        revisions=Revisions(records.definitions, records.families),
        scheduler=Scheduler(records, usage),
        service_tasks=ServiceTasks(records.tasks),
        network=Network(records),
        account=account,
        endpoint="",
        events=EventLog(records, usage, events_kept),
    )


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


def same_cluster(member_cluster: str, cluster: str) -> None:
    """The API's error for an ARN that names another cluster than the request does."""
    if member_cluster not in ("", cluster):
        raise invalid(f"Invalid identifier: Identifier is for cluster {member_cluster}. Your cluster is {cluster}")


def page(items: list[str], token: str | None, size: int | None, largest: int = 100) -> tuple[list[str], str | None]:
    """One page of sorted keys, and the token of the next. The token says where this one ended."""
    limit = size if size and 0 < size <= largest else largest
    start = bisect_right(items, page_end(token)) if token else 0
    chosen = items[start : start + limit]
    more = start + limit < len(items)
    return chosen, page_token(chosen[-1]) if more and chosen else None


def page_token(last: str) -> str:
    return last.encode().hex()


def page_end(token: str) -> str:
    """The key that the page before ended with."""
    try:
        return bytes.fromhex(token).decode()
    except ValueError:
        raise invalid("Invalid token.") from None
