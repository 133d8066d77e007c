"""How tasks reach their endpoint, and nobody else does.

The agent has a socket on loopback for what the host's own network asks, and one that is bound to the engine's bridge
for its containers. The kernel gives such a socket only what came in by that interface, so there is nothing that another
machine could reach, whatever its packets say; no kernel setting is touched, and tasks reach no more of the host's
loopback than before. Rules of the packet filter send the calls there (``core/endpointrules``), and calls keep the
address of their container. A port that is taken costs nothing: the rules name whichever was free.

Rules are made at start, looked at now and then, made again when somebody took them away, and removed at the end. Those
of agents that were killed are known by their owner's process and removed by whoever starts next. Where rules cannot be
made (not root, no packet filter, an engine elsewhere) tasks have no endpoint, which is said once.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import re
import socket
from pathlib import Path

from sexton.agent.metadata.routes import LOOPBACK
from sexton.agent.metadata.server import LIMITS, TaskServer
from sexton.core import endpointrules
from sexton.core.endpointrules import Owner
from sexton.host import hostroute, packetfilter
from sexton.host.packetfilter import FilterError
from sexton.host.proc import process_started
from sexton.kit.listener import Listener
from sexton.runtime.contract import Runtime, RuntimeFault
from sexton.settings import Settings

log = logging.getLogger(__name__)

# One short child process; what it guards against is somebody who flushes the packet filter.
CHECK_SECONDS = 30.0


class Reach:
    """The way to one agent's endpoint."""

    def __init__(self, server: TaskServer, runtime: Runtime, settings: Settings) -> None:
        self._server = server
        self._runtime = runtime
        self._settings = settings
        self.table = endpointrules.table_name(str(Path(settings.data_dir).resolve()))
        self._listeners: dict[str, tuple[Listener, int]] = {}  # with its port, by interface
        self._routed = False
        self._listed = ""  # how the kernel shows the rules
        self.open = False
        self.serves_host = False  # whether what the host's own network asks comes to this agent

    async def prepare(self) -> bool:
        """See whether there can be a way, and take the ports for it; nothing of the host is changed. When there can
        be none, it is said once."""
        try:
            reason = await self._obstacle()
        except FilterError as error:
            reason = str(error)
        except RuntimeFault as error:
            reason = f"cannot ask the engine for its bridge: {error}"
        except OSError as error:
            reason = f"cannot listen for tasks: {error.strerror or error}"
        if reason:
            log.warning("tasks have no endpoint", extra={"reason": reason})
            await self._close_sockets()
        self.open = not reason
        return self.open

    async def _obstacle(self) -> str:
        if reason := unserved(self._settings):
            return reason
        self.serves_host = not await self._other_serves_host()
        if not self.serves_host:
            log.warning("another agent on this host serves tasks in network mode host")
        await self._listen()
        return ""

    async def start(self) -> None:
        """Lead tasks to the ports. When that fails it is said, and tried again with every check."""
        try:
            await self._sweep()
            if self.serves_host:
                await hostroute.drop_route(endpointrules.ADDRESS)  # of an agent that was killed
            await self._lead()
        except FilterError as error:
            log.error("tasks cannot reach their endpoint", extra={"reason": str(error)})
        else:
            log.info(
                "task endpoint is open",
                extra={"address": endpointrules.ADDRESS, "interfaces": ",".join(sorted(self._listeners))},
            )

    async def run(self) -> None:
        """Keep the way open, for ever."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            try:
                await self.check()
            except (FilterError, RuntimeFault, OSError) as error:
                log.warning("way to the task endpoint cannot be checked", extra={"reason": str(error)})

    async def check(self) -> None:
        """Make again what somebody took away: rules, or the bridge. What another agent served is taken over when that
        has ended."""
        if not self.serves_host and not await self._other_serves_host():
            self.serves_host = True
        moved = await self._listen()
        if moved or not self._listed or await self._show() != self._listed:
            log.warning("way to the task endpoint is made again", extra={"interfaces": ",".join(self._listeners)})
            await self._lead()

    async def close(self) -> None:
        if self._listed:
            try:
                await packetfilter.change(endpointrules.removal(self.table))
            except FilterError as error:
                log.warning("rules of the task endpoint are left", extra={"table": self.table, "reason": str(error)})
        if self._routed:
            await hostroute.drop_route(endpointrules.ADDRESS)
        await self._close_sockets()

    async def _listen(self) -> bool:
        """A socket on every interface there is; whether any changed."""
        bridge = await self._runtime.bridge()
        wanted = {LOOPBACK} if self.serves_host else set()
        if endpointrules.is_interface(bridge) and bridge in (name for _, name in socket.if_nameindex()):
            wanted.add(bridge)
        stale = {name for name, (one, _) in self._listeners.items() if name not in wanted or not _is_bound(one, name)}
        for name in stale:
            await self._listeners.pop(name)[0].close()
        missing = wanted - set(self._listeners)
        for name in missing:
            bound = listening_on(name, self._settings.task_endpoint_port)
            listener = Listener(self._server.at(name), LIMITS)
            await listener.open_socket(bound)
            self._listeners[name] = (listener, bound.getsockname()[1])
        return bool(stale or missing)

    async def _lead(self) -> None:
        """The rules that lead to the sockets."""
        ports = {name: port for name, (_, port) in self._listeners.items()}
        host = ports.pop(LOOPBACK, 0)
        await packetfilter.change(endpointrules.ruleset(self.table, myself(), ports, host))
        if host and await hostroute.have_route(endpointrules.ADDRESS):
            self._routed = True
            log.info("route to the task endpoint is made, since there is no default route")
        self._listed = await self._show()

    async def _show(self) -> str:
        return await _shown(self.table)

    async def _sweep(self) -> None:
        """Remove tables of agents that are no more; our own is made anew in one step."""
        for table in await _tables():
            listed = await _shown(table)
            if listed and table != self.table and not _is_alive(listed):
                log.info("rules of an agent that ended are removed", extra={"table": table})
                await packetfilter.change(endpointrules.removal(table))

    async def _other_serves_host(self) -> bool:
        for table in await _tables():
            listed = await _shown(table)
            if table != self.table and endpointrules.serves_host(listed) and _is_alive(listed):
                return True
        return False

    async def _close_sockets(self) -> None:
        for listener, _ in self._listeners.values():
            await listener.close()
        self._listeners.clear()


async def _shown(table: str) -> str:
    """A table as the kernel lists it; empty when it is gone."""
    try:
        return await packetfilter.listing("table", "ip", table)
    except FilterError:
        return ""


def unserved(settings: Settings) -> str:
    """Why settings alone leave tasks without an endpoint, if they do."""
    if settings.task_endpoint_port < 0:
        return "SEXTON_TASK_ENDPOINT_PORT is off"
    return "" if settings.docker_host.startswith("unix://") else "the container engine is not on this host"


async def _tables() -> list[str]:
    listed = await packetfilter.listing("tables", "ip")
    return re.findall(rf"^table ip ({endpointrules.PREFIX}[0-9a-f]+)$", listed, re.MULTILINE)


def listening_on(interface: str, port: int) -> socket.socket:
    """A socket that takes only what arrives by one interface; on this port, or on any that is free."""
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, interface.encode() + b"\0")
        address = "127.0.0.1" if interface == LOOPBACK else "0.0.0.0"  # noqa: S104 - of the one interface
        try:
            bound.bind((address, port))
            bound.listen(1024)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            bound.close()
            return listening_on(interface, 0)
    except BaseException:
        bound.close()
        raise
    return bound


def _is_alive(listed: str) -> bool:
    """Whether a process that made some of these rules still runs."""
    return any(process_started(one.pid) == one.started for one in endpointrules.owners(listed))


def _is_bound(listener: Listener, interface: str) -> bool:
    """Whether a socket still belongs to the interface of this name: a new one may have got the name."""
    try:
        return listener.interface() == interface
    except OSError:
        return False


def myself() -> Owner:
    return Owner(os.getpid(), process_started(os.getpid()) or 0)
