"""This host's networks as the control plane says they shall be, brought into force: routers, tunnels and groups.

The control plane tells a new connection all of it, and after that what has changed. It is in force before any task
needs it. What cannot be brought into force is tried again, and said in the meantime by whoever would need it; tasks run
also while those of other hosts cannot be reached.

Of the host only what differs from the last time is touched, because that is known; now and then, and whenever something
did not go as it should, everything is compared with what there is.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from sexton.core import wiring
from sexton.core.networkchange import applied
from sexton.host import namespaces
from sexton.host.network import NetworkError, NetworkWorker
from sexton.kit.retry import Backoff
from sexton.kit.supervise import Nursery
from sexton.settings import Settings
from sexton.wire.network import Interface, SextonNetworkMessage
from sexton.wire.ownnetwork import Count, HostNetworks

if TYPE_CHECKING:
    from sexton.core.nftables import Table

log = logging.getLogger(__name__)

# After so long everything is compared with what there is, whatever is known.
LOOK_SECONDS = 60.0
APPLY_BACKOFF = Backoff(first=0.5, cap=30.0)
TABLE = "sexton-groups"


class Routing:
    """The routers of one container instance."""

    def __init__(self, settings: Settings, tag: str, worker: NetworkWorker, nursery: Nursery) -> None:
        self._settings = settings
        self._tag = tag
        self._worker = worker
        self._nursery = nursery
        self._state: SextonNetworkMessage | None = None
        self._applied = SextonNetworkMessage()
        self._changed = asyncio.Event()
        self._in_force: dict[str, Table] = {}  # by VPC
        self._done: wiring.Apply | None = None  # what the routers are like, as far as is known
        self._looked_at = float("-inf")
        self._trouble = ""
        self._cut_off = ""
        self._warned = False  # of what some tasks lack
        self._applying = asyncio.Lock()
        self._retry: asyncio.Task[None] | None = None

    @property
    def state(self) -> SextonNetworkMessage | None:
        """What the control plane last said of this host's networks."""
        return self._state

    @property
    def trouble(self) -> str:
        """Why no task's network can be had, if none can."""
        return self._trouble

    def names(self) -> tuple[str, ...]:
        """The namespaces that route for this host's tasks."""
        return tuple(namespaces.named(wiring.router_prefix(self._tag)))

    def interface(self, interface_id: str | None) -> Interface | None:
        """An interface, as the control plane describes it."""
        known = self._state.interfaces if self._state is not None else ()
        return next((one for one in known if one.id == interface_id), None)

    async def settled(self, interface_id: str | None) -> tuple[SextonNetworkMessage, Interface]:
        """Wait for the state that names an interface, and until it has been tried to bring that into force."""
        while True:
            changed, state, mine = self._changed, self._state, self.interface(interface_id)
            if mine is None:
                await changed.wait()
            elif self._applying.locked():
                async with self._applying:
                    continue
            elif state is not None:
                return state, mine

    def knows(self, message: SextonNetworkMessage) -> bool:
        """Whether a message says all that there is to know, as a change does of the last state that was heard."""
        return not message.since or (self._state is not None and self._state.message_id == message.since)

    async def follow(self, message: SextonNetworkMessage) -> bool:
        """Bring a state into force, or a change of it; whether it is. What cannot be now is tried again."""
        self._state = applied(self._state, message) if self._state is not None and message.since else message
        self._changed.set()
        self._changed = asyncio.Event()
        done = await self._apply()
        if (not done or self._cut_off) and (self._retry is None or self._retry.done()):
            self._retry = self._nursery.start("networks", self._apply_later())
        return done

    async def _apply_later(self) -> None:
        for delay in APPLY_BACKOFF.delays():
            await asyncio.sleep(delay)
            if await self._apply() and not self._cut_off:
                return

    async def _apply(self) -> bool:
        async with self._applying:
            state = self._state
            assert state is not None
            try:
                try:
                    routers = await self._carry_out(state)
                except NetworkError:
                    if not self._forget():
                        raise
                    # Not all was as it was known to be.
                    routers = await self._carry_out(state)
            except NetworkError as error:
                self._forget()
                if self._trouble != str(error):
                    log.error("networks cannot be brought in line", extra={"reason": str(error)})
                self._trouble = str(error)
                return False
            self._trouble = ""
            self._applied = state
            self._warn_of_ipv6(state)
            log.info(
                "networks are in force",
                extra={"revision": state.revision, "interfaces": len(state.interfaces), "routers": routers},
            )
            return True

    async def _carry_out(self, state: SextonNetworkMessage) -> int:
        """Have the helper do what is to be done; how many routers there are then. NetworkError."""
        from sexton.core import grouprules, nftables, wiringchange  # for hosts that have such tasks

        tables = {vpc: self._table(state, vpc) for vpc in grouprules.vpcs(state)}
        texts = {
            vpc: nftables.change(self._in_force[vpc], table) if vpc in self._in_force else nftables.whole(table)
            for vpc, table in tables.items()
        }
        settings = self._settings
        order = wiring.apply(state, self._tag, settings.network_address, settings.tunnel_port, texts)
        cut_off = ""
        if order.routers or self.names():
            cut_off = (await self._worker.ask(self._short(order))).partly
        if cut_off and self._cut_off != cut_off:
            log.error("tasks of other hosts are not reached", extra={"reason": cut_off})
        self._cut_off = cut_off
        made = {one.name for one in order.routers}
        self._in_force = {vpc: table for vpc, table in tables.items() if wiring.router_of(self._tag, vpc) in made}
        self._done = None if cut_off else wiringchange.kept(order)
        return len(made)

    def _forget(self) -> bool:
        """Know nothing of what is in force: next time all of it is said. Whether anything was known."""
        known = self._done is not None or bool(self._in_force)
        self._done = None
        self._in_force = {}
        return known

    def _short(self, order: wiring.Apply) -> wiring.Apply:
        """The order without what is known to be so."""
        from sexton.core import wiringchange

        now = asyncio.get_running_loop().time()
        if self._done is not None and now - self._looked_at < LOOK_SECONDS:
            return wiringchange.since(self._done, order)
        self._looked_at = now
        return order

    def _warn_of_ipv6(self, state: SextonNetworkMessage) -> None:
        if self._warned or not any(one.ipv6 and not one.host for one in state.interfaces):
            return
        if not namespaces.may_forward6():
            self._warned = True
            log.warning(
                "tasks have no way outside by IPv6 here",
                extra={
                    "reason": "this host does not forward IPv6, and its kernel cannot do so for single devices",
                    "cure": "set net.ipv6.conf.all.forwarding=1 (with accept_ra=2 where its own address is advertised)",
                },
            )

    def _table(self, state: SextonNetworkMessage, vpc: str) -> Table:
        from sexton.core import grouprules, ruleset

        devices = {one.id: wiring.device_of(one.id) for one in state.interfaces if not one.host}
        return ruleset.table(TABLE, grouprules.vpc(state, vpc), devices, tunnel="v*", uplink=wiring.UPLINK_DEVICE)

    async def shown(self, *, counted: bool = True) -> HostNetworks:
        """What is in force here and what it has counted, for whoever looks."""
        state, routers, trouble = self._applied, self.names(), self._trouble or self._cut_off
        counts: dict[str, Count] = {}
        try:
            if routers and counted:
                counts = (await self._worker.ask(wiring.Count(routers=routers, table=TABLE))).counts
        except NetworkError as error:
            trouble = trouble or str(error)
        return HostNetworks(
            on_host=True,
            address=self._settings.network_address,
            trouble=trouble,
            routers=routers,
            devices={one.id: wiring.device_of(one.id) for one in state.interfaces if not one.host},
            state=state,
            counts=counts,
        )
