"""Begins and ends faults in the networks of tasks, one request at a time for each network.

What runs is what the packet filter holds, so this keeps nothing. A table is made before the queue that it fills and
removed after it: a queue without a table is nobody's, wherever a killed agent stopped. Faults in the host's own network
outlive the task that asked for them unless somebody removes them: that is done when it has stopped, and at the start.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Collection
from pathlib import Path
from weakref import WeakValueDictionary

from sexton.core import fault
from sexton.core.fault import Fault, Kind, Place
from sexton.host import faultnet
from sexton.host.nettool import ToolError

log = logging.getLogger(__name__)

HOST = ""
"""The namespace of the host itself."""

_NETEM = "Specified qdisc kind is unknown"


class Running(Exception):  # noqa: N818 - an answer for the task
    """There is one of a kind of which there can be one only."""

    def __init__(self, kind: Kind) -> None:
        super().__init__(f"There is already one {_words(kind)} fault running")


class FaultRunner:
    """Faults of one agent's tasks."""

    def __init__(self, data_dir: str) -> None:
        self._agent = hashlib.sha256(str(Path(data_dir).resolve()).encode()).hexdigest()[:12]
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def start(self, namespace: str, task_id: str, wanted: Fault) -> None:
        """Begin a fault; ``Running`` where it would be the second of its kind."""
        place = Place(self._agent, task_id)
        async with self._lock(namespace):
            interfaces: tuple[str, ...] = ()
            if wanted.kind is not Kind.BLACKHOLE:
                self._only_one(await faultnet.tables(namespace))
                interfaces = await faultnet.leading_out(namespace)
                if not interfaces:
                    raise ToolError("failed to resolve default host network interface")
            await faultnet.change_filter(namespace, fault.rules(place, wanted, interfaces))
            if wanted.kind is Kind.LATENCY:
                try:
                    await self._delay(namespace, wanted, interfaces)
                except BaseException:
                    await self._undo(namespace, place, wanted)
                    raise

    async def stop(self, namespace: str, task_id: str, wanted: Fault) -> None:
        """End a fault, whether or not it runs."""
        async with self._lock(namespace):
            await self._undo(namespace, Place(self._agent, task_id), wanted)

    async def runs(self, namespace: str, task_id: str, wanted: Fault) -> bool:
        async with self._lock(namespace):
            listed = await faultnet.tables(namespace)
        return f"{fault.family(wanted)} {fault.table(Place(self._agent, task_id), wanted)}" in fault.mine(
            self._agent, listed
        )

    async def sweep(self, running: Collection[str]) -> None:
        """End what is left in the host's network of tasks that do not run."""
        try:
            async with self._lock(HOST):
                left = fault.mine(self._agent, await faultnet.tables(HOST))
                for whole, task_id in left.items():
                    if task_id not in running:
                        log.info("fault of a task that ended is removed", extra={"task": task_id, "table": whole})
                        if whole.endswith("-latency"):
                            await self._no_queues(HOST)
                        await faultnet.change_filter(HOST, fault.removal_of(whole))
        except (ToolError, TimeoutError) as error:
            log.warning("faults of tasks cannot be looked for", extra={"reason": str(error)})

    def _lock(self, namespace: str) -> asyncio.Lock:
        return self._locks.setdefault(namespace, asyncio.Lock())

    def _only_one(self, listed: str) -> None:
        """Latency and loss are one of each network's; another agent's count as well."""
        for line in listed.splitlines():
            if f" {fault.PREFIX}" in line:
                if line.endswith("-latency"):
                    raise Running(Kind.LATENCY)
                if line.endswith("-loss"):
                    raise Running(Kind.LOSS)

    async def _delay(self, namespace: str, wanted: Fault, interfaces: tuple[str, ...]) -> None:
        for interface in interfaces:
            for command in fault.queue(wanted, interface):
                try:
                    await faultnet.queue(namespace, *command)
                except ToolError as error:
                    if _NETEM in str(error):
                        raise ToolError("cannot delay packets: this host's kernel has no netem") from None
                    raise

    async def _undo(self, namespace: str, place: Place, wanted: Fault) -> None:
        if wanted.kind is Kind.LATENCY:
            listed = await faultnet.tables(namespace)
            if f"{fault.family(wanted)} {fault.table(place, wanted)}" in fault.mine(self._agent, listed):
                await self._no_queues(namespace)
        await faultnet.change_filter(namespace, fault.removal(place, wanted))

    async def _no_queues(self, namespace: str) -> None:
        for interface in await faultnet.queued(namespace, fault.QUEUE):
            await faultnet.queue(namespace, *fault.no_queue(interface))


def _words(kind: Kind) -> str:
    return {Kind.LATENCY: "network latency", Kind.LOSS: "network packet loss"}.get(kind, str(kind))
