"""The control plane's wiring: store, records, scheduler, operations, links, port. Nothing is decided here.

Start order: keys and store, records, then the port, so that the first request finds everything. Stop order is the
reverse: the port closes first, agents are told to come back later, then the store is flushed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from aiohttp import web

from sexton.cloud.credentials import Credentials
from sexton.cloud.sigv4_verify import Verifier
from sexton.control import retention
from sexton.control.context import Call, over
from sexton.control.dispatch import Dispatcher
from sexton.control.frontdoor import FrontDoor, malformed, refuse
from sexton.control.keys import Key, Keys, load_or_create
from sexton.control.link.acs import AcsLink
from sexton.control.link.tcs import TcsLink
from sexton.control.ops import clusters
from sexton.control.records import Records
from sexton.control.services import Reconciler
from sexton.core import names
from sexton.core.pace import ECS, Pace
from sexton.kit.listener import LIMITS, Limits, Listener
from sexton.kit.supervise import Nursery
from sexton.store.contract import Durability, Store
from sexton.store.opening import open_store
from sexton.wire import ecs
from sexton.wire.errors import ServerException

log = logging.getLogger(__name__)

KEYS_FILE = "keys.json"
STORE_FILE = "control.db"


class CannotListen(Exception):  # noqa: N818 - the message is for a person
    """The address is not to be had; the message says what to do."""


class Options(NamedTuple):
    """What a control plane is told at its start."""

    host: str
    port: int
    data_dir: Path
    account: str
    region: str  # of the default cluster; requests choose their own
    store: str = ""  # a store's URL; empty means SQLite in the data directory
    limits: Limits = LIMITS
    pace: Pace = ECS  # of the service scheduler


class ControlPlane:
    """A running control plane."""

    def __init__(self, options: Options, on_failure: Callable[[str, BaseException], None] | None = None) -> None:
        self._options = options
        self._nursery = Nursery("control", on_failure)
        self._store: Store | None = None
        self._listener: Listener | None = None
        self._links: tuple[AcsLink, TcsLink] | None = None
        self._keys: Keys | None = None
        self._door: FrontDoor | None = None
        self.port = 0

    @property
    def endpoint(self) -> str:
        return f"http://{_bracketed(self._options.host)}:{self.port}"

    @property
    def admin_key(self) -> Key:
        assert self._keys is not None
        return self._keys.keys[0]

    async def start(self) -> None:
        """Come up; raises KeysError, StoreError or CannotListen with a message for a person."""
        options = self._options
        self._store = await open_store(
            options.store or f"sqlite://{options.data_dir / STORE_FILE}", durability=Durability.FULL
        )
        try:
            # Behind the store, which only one process gets: two that start at once must not both make keys.
            self._keys = load_or_create(options.data_dir / KEYS_FILE)
            await self._open(self._store)
        except BaseException:
            await self.stop()
            raise

    async def _open(self, store: Store) -> None:
        options = self._options
        records = Records(store)
        indexed = over(records, options.account)
        await records.start(self._nursery)
        # The port is known only once it is bound; agents are told it in every discovery.
        self._listener = Listener(self._serve, options.limits, malformed)
        try:
            self.port = await self._listener.open(options.host, options.port)
        except OSError as error:
            raise CannotListen(
                f"cannot listen on {options.host}:{options.port}: {error.strerror}; "
                "stop what uses the port, or choose another with --listen"
            ) from None
        context = indexed._replace(endpoint=self.endpoint)
        verifier = Verifier(self._find_key, services=("ecs",))
        self._links = AcsLink(context, verifier), TcsLink(context, verifier)
        acs, tcs = self._links
        await acs.start()
        call = Call(options.region, self.admin_key.access_key_id, time.time())
        await clusters.create(context, call, ecs.CreateClusterRequest(cluster_name=names.DEFAULT_CLUSTER))
        self._nursery.start("retention", retention.run(context))
        self._nursery.start("services", Reconciler(context, pace=options.pace).run())
        self._door = FrontDoor(
            Dispatcher(context, verifier), {"/acs/ws": acs.serve, "/tcs/ws": tcs.serve}, options.limits.body
        )
        log.info("control plane ready", extra={"endpoint": self.endpoint, "revision": records.revision})

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        if self._door is None:
            return refuse(ServerException("The control plane is starting; try again."), 503)
        return await self._door(request)

    def _find_key(self, access_key_id: str) -> Credentials | None:
        secret = self._keys.secret_of(access_key_id) if self._keys else None
        return Credentials(access_key_id, secret) if secret else None

    async def stop(self) -> None:
        """Go down in reverse order; safe after a start that failed half-way."""
        if self._listener is not None:
            self._listener.stop_accepting()
        if self._links is not None:
            await asyncio.gather(*(link.close() for link in self._links))
        if self._listener is not None:
            await self._listener.close()
        await self._nursery.close()
        if self._store is not None:
            await self._store.close()
        log.info("control plane stopped")


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
