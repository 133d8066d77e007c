"""The control plane's wiring: store, records, keys, scheduler, operations, links, port. Nothing is decided here.

Start order: store, records, keys, then the port, so that the first request finds everything. Stop order is the
reverse: the port closes first, agents are told to come back later, then the store is flushed.

Over a store that others share, this is one replica of several: it says that it is alive, and what only one of them may
do (schedule services, forget what has ended, show who is gone) is done by the one that leads.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import aiohttp

from sexton.cloud.credentials import Credentials, CredentialSource
from sexton.cloud.sigv4_verify import Verifier
from sexton.control import presence, retention
from sexton.control.context import Call, Context, over
from sexton.control.dispatch import Dispatcher
from sexton.control.eventlog import KEPT
from sexton.control.frontdoor import JSON, FrontDoor, Upgrade, malformed, refuse
from sexton.control.gates import Gates
from sexton.control.identity import IdentityCheck
from sexton.control.keys import Key
from sexton.control.keystore import Keystore
from sexton.control.leader import LEASE_SECONDS, Leadership
from sexton.control.link.acs import AcsLink
from sexton.control.link.tcs import TcsLink
from sexton.control.logs.door import LogsDoor
from sexton.control.logs.shelf import Shelf
from sexton.control.ops import clusters
from sexton.control.own.door import OwnDoor
from sexton.control.own.events import EventsPath
from sexton.control.own.export import ExportPath
from sexton.control.own.keys import KeysPath
from sexton.control.own.network import NetworkPath
from sexton.control.presence import Replica, Undertaker, replica_name
from sexton.control.query.door import SERVICES, QueryDoor
from sexton.control.records import Records
from sexton.control.rolebook import Rolebook
from sexton.control.rolekeys import RoleKeys
from sexton.control.services import Reconciler
from sexton.core import names
from sexton.core.pace import ECS, Pace
from sexton.kit import web
from sexton.kit.certificate import Certificate
from sexton.kit.listener import LIMITS, Limits, Listener
from sexton.kit.quickhttp import Asked, Told
from sexton.kit.supervise import Nursery
from sexton.store.contract import Compare, Distant, Durability, Store
from sexton.store.opening import open_store
from sexton.store.transfer import check_whole
from sexton.wire import ecs
from sexton.wire.errors import ServerException, encode_error

log = logging.getLogger(__name__)

KEYS_FILE = "keys.json"
STORE_FILE = "control.db"
ROLES_FILE = "roles.toml"
STARTING = ServerException("The control plane is starting; try again.")
LOGS_FOLDER = "logs"
# The log endpoint that leaves it to AWS.
TO_AWS = "aws"


class CannotListen(Exception):  # noqa: N818 - the message is for a person
    """The address is not to be had; the message says what to do."""


class TlsFiles(NamedTuple):
    """A certificate with its chain, and its key, as PEM files."""

    certificate: Path
    key: Path


class Options(NamedTuple):
    """What a control plane is told at its start."""

    host: str
    port: int
    data_dir: Path
    account: str
    region: str  # of the default cluster; requests choose their own
    store: str = ""  # a store's URL; empty means SQLite in the data directory
    advertise: str = ""  # URL at which agents and other replicas reach this one; empty means the address it listens on
    tls: TlsFiles | None = None
    identity: Path | None = None  # certificates that container instances must prove themselves by
    events_kept: int = KEPT  # how many events the stream keeps
    lease: float = LEASE_SECONDS  # how long a replica that died is waited for, where several share a store
    roles: Path | None = None  # the roles file; there may be none at the path
    log_bytes: int = 1 << 30  # what log groups may take on the disk
    log_endpoint: str = ""  # where tasks' logs go: a URL, "aws", or empty for this control plane
    limits: Limits = LIMITS
    pace: Pace = ECS  # of the service scheduler
    keep_stopped: float = retention.KEEP_STOPPED_SECONDS  # seconds for which a stopped task is shown


class ControlPlane:
    """A running control plane."""

    def __init__(self, options: Options, on_failure: Callable[[str, BaseException], None] | None = None) -> None:
        self._options = options
        self._nursery = Nursery("control", on_failure)
        self._store: Store | None = None
        self._listener: Listener | None = None
        self._links: tuple[AcsLink, TcsLink] | None = None
        self._keys: Keystore | None = None
        self._door: FrontDoor | None = None
        self._leadership: Leadership | None = None
        self._certificate: Certificate | None = None
        self._streams: EventsPath | None = None
        self._book: Rolebook | None = None
        self._http: aiohttp.ClientSession | None = None
        self._shelf: Shelf | None = None
        self.role_keys: RoleKeys | None = None
        self.own_words: tuple[str, ...] = ()
        self.port = 0

    @property
    def endpoint(self) -> str:
        """Where agents reach this control plane."""
        scheme = "https" if self._options.tls else "http"
        return self._options.advertise or f"{scheme}://{_bracketed(self._options.host)}:{self.port}"

    @property
    def own_credentials(self) -> CredentialSource:
        """The administrator's key as it is at each moment, for an agent in this process."""
        return _OwnCredentials(self)

    def reload(self) -> None:
        """Take up a renewed certificate and a changed roles file now."""
        if self._certificate is not None:
            self._certificate.reload()
        if self._book is not None:
            self._book.reload()

    @property
    def admin_key(self) -> Key:
        assert self._keys is not None
        return self._keys.own

    @property
    def leads(self) -> bool:
        """Whether what only one control plane may do is done here."""
        return self._fence() is not None

    def _fence(self) -> Sequence[Compare] | None:
        if self._leadership is None:
            return ()
        term = self._leadership.term
        return None if term is None else (term.fence,)

    async def start(self) -> None:
        """Come up; raises BadRoles, KeysError, StoreError or CannotListen with a message for a person."""
        options = self._options
        self._book = Rolebook(options.roles or options.data_dir / ROLES_FILE)
        if options.roles is not None:
            self._book.load()
            self._nursery.start("roles-file", self._book.watch())
        if options.tls is not None:
            self._certificate = Certificate(options.tls.certificate, options.tls.key)
            self._nursery.start("certificate", self._certificate.watch())
        self._store = await open_store(
            options.store or f"sqlite://{options.data_dir / STORE_FILE}", durability=Durability.FULL
        )
        try:
            await check_whole(self._store)
            await self._open(self._store)
        except BaseException:
            await self.stop()
            raise

    async def _open(self, store: Store) -> None:
        options = self._options
        records = Records(store)
        shared = isinstance(store, Distant)
        indexed = over(records, options.account, options.events_kept)
        await records.start(self._nursery)
        self._keys = Keystore(records, options.data_dir / KEYS_FILE)
        await self._keys.open(self._nursery)
        assert self._book is not None
        self._http = aiohttp.ClientSession()
        role_keys = self.role_keys = RoleKeys(records, self._book, self._http, os.environ)
        await role_keys.open()
        # The port is known only once it is bound; agents are told it in every discovery.
        self._listener = Listener(self._serve, options.limits, malformed, self._serve_quick)
        try:
            tls = self._certificate.context if self._certificate else None
            self.port = await self._listener.open(options.host, options.port, tls)
        except OSError as error:
            raise CannotListen(
                f"cannot listen on {options.host}:{options.port}: {error.strerror}; "
                "stop what uses the port, or choose another with --listen"
            ) from None
        identity = IdentityCheck.load(options.identity) if options.identity else None
        context = indexed._replace(endpoint=self.endpoint, identity=identity, roles=role_keys)
        context = context._replace(log_endpoint=self._log_endpoint(shared), logs=await self._open_shelf(shared))
        if isinstance(store, Distant):
            context = context._replace(replica=replica_name(), gates=Gates(), trouble=lambda: store.trouble)
            self._leadership = Leadership(store, context.replica, ttl=options.lease)
        verifier = Verifier(self._keys.find, sessions=role_keys.session, services=("ecs",))
        self._links = AcsLink(context, verifier), TcsLink(context, verifier)
        if not shared:
            await presence.nobody_is_here(context)
        call = Call(options.region, self.admin_key.access_key_id, time.time())
        await clusters.create(context, call, ecs.CreateClusterRequest(cluster_name=names.DEFAULT_CLUSTER))
        self._start_loops(store, context)
        acs, tcs = self._links
        self._door = FrontDoor(
            Dispatcher(context, verifier),
            QueryDoor(context, Verifier(self._keys.find, sessions=role_keys.session, services=tuple(SERVICES))),
            LogsDoor(context, Verifier(self._keys.find, sessions=role_keys.session, services=("logs",))),
            {"/acs/ws": acs.serve, "/tcs/ws": tcs.serve},
            options.limits.body,
            self._own_paths(store, context, verifier),
            context.trouble,
        )
        log.info("control plane ready", extra={"endpoint": self.endpoint, "revision": records.revision})

    def _log_endpoint(self, shared: bool) -> str:
        """Where tasks' logs go that name no place: here, unless it was said or others share the store."""
        chosen = self._options.log_endpoint
        if chosen == TO_AWS:
            return ""
        return chosen or ("" if shared else self.endpoint)

    async def _open_shelf(self, shared: bool) -> Shelf | None:
        """Logs are kept by one control plane: the one that has its store to itself, or that it was said of."""
        if shared and self._options.log_endpoint != self.endpoint:
            return None
        self._shelf = Shelf(self._options.data_dir / LOGS_FOLDER, self._options.log_bytes)
        await self._shelf.open()
        return self._shelf

    def _own_paths(self, store: Store, context: Context, verifier: Verifier) -> Upgrade:
        assert self._keys is not None
        assert self._links is not None
        assert context.events is not None
        self._streams = EventsPath(context, context.events)
        handlers = {
            "keys": KeysPath(context, self._keys).serve,
            "events": self._streams.serve,
            "export": ExportPath(context, store).serve,
            "network": NetworkPath(context, self._links[0].networks).serve,
        }
        self.own_words = tuple(handlers)
        return OwnDoor(verifier, handlers, self._options.limits.body).serve

    def _start_loops(self, store: Store, context: Context) -> None:
        """What runs by itself: of several replicas, in the one that leads alone."""
        assert self._links is not None
        acs, tcs = self._links
        reconciler = Reconciler(context, self._fence, self._options.pace)
        self._nursery.start("retention", retention.run(context, self._fence, self._options.keep_stopped))
        self._nursery.start("services", reconciler.run())
        assert context.events is not None
        self._nursery.start("events", context.events.run(self._fence))
        if self._leadership is None:
            return
        undertaker = Undertaker(context, self._fence)

        def wake(_: object) -> None:
            reconciler.wake()
            undertaker.wake()

        def send_away() -> None:
            acs.send_away()
            tcs.send_away()

        self._leadership.listen(wake)
        self._nursery.start("undertaker", undertaker.run())
        replica = Replica(
            store, context.records, context.replica, self.endpoint, acs.show_all, send_away, ttl=self._options.lease
        )
        self._nursery.start("replica", replica.run())
        self._nursery.start("leader", self._leadership.run())

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        if self._door is None:
            return refuse(STARTING, 503)
        return await self._door(request)

    async def _serve_quick(self, asked: Asked) -> Told:
        if self._door is None:
            return Told(503, {"Content-Type": JSON}, encode_error(STARTING))
        return await self._door.quick(asked)

    async def stop(self) -> None:
        """Go down in reverse order; safe after a start that failed half-way."""
        if self._listener is not None:
            self._listener.stop_accepting()
        if self._streams is not None:
            await self._streams.close()
        if self._links is not None:
            await asyncio.gather(*(link.close() for link in self._links))
        if self._listener is not None:
            await self._listener.close()
        await self._nursery.close()
        if self._http is not None:
            await self._http.close()
        if self._shelf is not None:
            await self._shelf.close()
        if self._store is not None:
            await self._store.close()
        log.info("control plane stopped")


class _OwnCredentials:
    """Follows the control plane's own key through its rotations."""

    def __init__(self, control: ControlPlane) -> None:
        self._control = control

    async def current(self) -> Credentials:
        key = self._control.admin_key
        return Credentials(key.access_key_id, key.secret_access_key)

    def forget(self, refused: Credentials) -> None:
        """The next answer is of that moment anyway."""


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
