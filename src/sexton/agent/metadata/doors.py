"""Where tasks with a network of their own reach their endpoint: a socket for each, in the router of their VPC.

The socket is bound to the task's own device there. Nothing that comes in by another device reaches it, whatever address
it claims, so whoever asks at a task's door is that task. No rule leads here and no group judges it: the router has the
endpoint's address itself. A door closes when its task's network goes; a process that takes tasks up opens theirs again.

A task whose interface was one of the host's, as on Amazon ECS, has no router of ours between itself and its VPC. Its
door is inside, on the loopback of its own namespace, and a rule there leads to it, so that port 80 stays the task's.
"""

from __future__ import annotations

import asyncio
import logging
import socket

from sexton.agent.metadata.reach import myself
from sexton.agent.metadata.routes import LOOPBACK
from sexton.agent.metadata.server import LIMITS, TaskServer
from sexton.core import endpointrules
from sexton.host import packetfilter
from sexton.host.packetfilter import FilterError
from sexton.kit.listener import Listener

log = logging.getLogger(__name__)


class Doors:
    """The doors of all tasks with networks of their own."""

    def __init__(self, server: TaskServer, table: str) -> None:
        self._server = server
        self._table = table
        self._open: dict[str, Listener] = {}

    async def open(self, arn: str, router: str, device: str) -> bool:
        """Open a task's door; whether it is open. That it cannot be is said, and its task runs all the same."""
        from sexton.host.namespaces import path_of, socket_in  # calls the C library, for such tasks only

        await self.close(arn)
        option = (socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode() + b"\0")
        try:
            bound = await asyncio.to_thread(
                socket_in, path_of(router), endpointrules.ADDRESS, endpointrules.PORT, (option,)
            )
        except OSError as error:
            log.warning("task has no endpoint", extra={"task": arn, "reason": error.strerror or str(error)})
            return False
        listener = Listener(self._server.at(device, arn), LIMITS)
        await listener.open_socket(bound)
        self._open[arn] = listener
        return True

    async def open_inside(self, arn: str, namespace: str) -> bool:
        """Open a task's door in its own namespace, which lives as long as this is open."""
        from sexton.host.namespaces import socket_in

        await self.close(arn)
        listener = Listener(self._server.at(LOOPBACK, arn), LIMITS)
        try:
            bound = await asyncio.to_thread(socket_in, namespace, "127.0.0.1", 0)
            port = bound.getsockname()[1]
            await listener.open_socket(bound)
            rules = endpointrules.ruleset(self._table, myself(), {}, port)
            await packetfilter.change(rules, namespace=namespace)
        except (OSError, FilterError) as error:
            log.warning("task has no endpoint", extra={"task": arn, "reason": str(error)})
            await listener.close()
            return False
        self._open[arn] = listener
        return True

    async def close(self, arn: str) -> None:
        listener = self._open.pop(arn, None)
        if listener is not None:
            await listener.close()

    async def close_all(self) -> None:
        for arn in list(self._open):
            await self.close(arn)
