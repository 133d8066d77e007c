"""Tells the control plane what became of tasks: at least once, in order per task, until it is acknowledged.

Reports of one task go out one after the other, those of different tasks beside each other up to a limit. A report that
the control plane refuses for good (it does not know the task) counts as delivered: nobody is left to hear it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable

from sexton.cloud.client import EcsClient
from sexton.cloud.transient import RetryPolicy, retrying
from sexton.core.names import last_part
from sexton.core.task import Binding, ContainerStatus, KnownContainer, KnownTask, TaskStatus, goes_down
from sexton.kit.retry import Backoff
from sexton.kit.supervise import Nursery
from sexton.wire import ecs_agent as ecs
from sexton.wire.errors import EcsError
from sexton.wire.network import DEPROVISIONING

log = logging.getLogger(__name__)

# Reports under way at once; more only queue up at the other end.
MOST_AT_ONCE = 10
REPORT_POLICY = RetryPolicy(Backoff(first=1.0, cap=30.0, factor=1.3))

_TOLD = (ContainerStatus.RUNNING, ContainerStatus.STOPPED)


class Reporter:
    """The queue of every task that has something to say."""

    def __init__(
        self, client: EcsClient, cluster: str, nursery: Nursery, acknowledged: Callable[[str, KnownTask], None]
    ) -> None:
        self._client = client
        self._cluster = cluster
        self._nursery = nursery
        self._acknowledged = acknowledged
        self._queues: dict[str, deque[KnownTask]] = {}
        self._last: dict[str, KnownTask] = {}
        self._slots = asyncio.Semaphore(MOST_AT_ONCE)

    @property
    def pending(self) -> int:
        """Reports that the control plane has not taken yet, the ones under way included."""
        return sum(1 + len(queue) for queue in self._queues.values())

    def report(self, known: KnownTask) -> None:
        """Queue a task's state, unless the last one queued already says the same."""
        last = self._last.get(known.arn)
        if last is not None and _essence(last) == _essence(known):
            return
        self._last[known.arn] = known
        queue = self._queues.get(known.arn)
        if queue is not None:
            queue.append(known)
            return
        self._queues[known.arn] = deque([known])
        self._nursery.start(f"report-{last_part(known.arn)}", self._send_all(known.arn))

    def forget(self, arn: str) -> None:
        """Drop what is remembered of a task that is gone."""
        self._last.pop(arn, None)

    async def _send_all(self, arn: str) -> None:
        queue = self._queues[arn]
        try:
            while queue:
                known = queue.popleft()
                await self._send(known)
                self._acknowledged(arn, known)
        finally:
            del self._queues[arn]

    async def _send(self, known: KnownTask) -> None:
        change = change_of(known, self._cluster)

        async def attempt() -> None:
            async with self._slots:  # not while waiting: reports that fail must not hold up those that would not
                await self._client.call("SubmitTaskStateChange", change)

        try:
            await retrying(
                attempt,
                REPORT_POLICY,
                what="SubmitTaskStateChange",
                transient=_passes,
            )
        except EcsError as error:
            log.warning(
                "report refused for good",
                extra={"task": known.arn, "status": str(known.status), "code": error.code, "reason": error.message},
            )


def _passes(error: Exception) -> bool:
    """Only a report that the control plane calls wrong in itself is hopeless; whatever else is wrong may be mended."""
    return not (isinstance(error, EcsError) and error.code in ("InvalidParameterException", "SerializationException"))


def _essence(known: KnownTask) -> tuple[object, ...]:
    """What of a task the control plane is told."""
    return known.status, known.wired, tuple(one.status if one.status in _TOLD else "" for one in known.containers)


def change_of(known: KnownTask, cluster: str) -> ecs.SubmitTaskStateChangeRequest:
    """The report of a task's state."""
    status = known.status if known.status in (TaskStatus.RUNNING, TaskStatus.STOPPED) else "PENDING"
    return ecs.SubmitTaskStateChangeRequest(
        cluster=cluster,
        task=known.arn,
        status=DEPROVISIONING if goes_down(known) else str(status),
        reason=known.reason,
        containers=tuple(_container(one) for one in known.containers if one.status in _TOLD),
        pull_started_at=known.pull_started_at or None,
        pull_stopped_at=known.pull_stopped_at or None,
        execution_stopped_at=known.execution_stopped_at or None,
    )


def _container(one: KnownContainer) -> ecs.ContainerStateChange:
    return ecs.ContainerStateChange(
        container_name=one.name,
        runtime_id=one.runtime_id or None,
        image_digest=one.image_digest or None,
        exit_code=one.exit_code,
        reason=one.reason or None,
        status=str(one.status),
        network_bindings=tuple(_binding(binding) for binding in one.bindings) or None,
    )


def _binding(one: Binding) -> ecs.NetworkBinding:
    if not one.span:
        return ecs.NetworkBinding(
            bind_ip=one.bind_ip, container_port=one.container_port, host_port=one.host_port, protocol=one.protocol
        )
    more = one.span - 1
    return ecs.NetworkBinding(
        bind_ip=one.bind_ip,
        container_port_range=f"{one.container_port}-{one.container_port + more}",
        host_port_range=f"{one.host_port}-{one.host_port + more}",
        protocol=one.protocol,
    )
