"""Metrics of this host's tasks for CloudWatch, once a minute, where somebody asked for them.

Rounds of samples are added up per task; at the end of each minute they become the metrics of ``core.insights`` and are
put in as few calls as possible, signed with the agent's own keys. What is refused for now waits, a quarter of an hour
at most; what may have arrived is not sent again. Trouble is said once, and its end as well.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

from sexton.agent.sampling import TaskSample
from sexton.cloud.client import Unreachable
from sexton.cloud.credentials import Credentials, CredentialSource, NoCredentials
from sexton.cloud.monitoring import Lost, batches
from sexton.cloud.transient import is_transient
from sexton.core import insights
from sexton.core.insights import Datum, HostMinute, TaskMinute
from sexton.core.names import last_part
from sexton.core.usage import HostUse, Usage
from sexton.wire.errors import EcsError

log = logging.getLogger(__name__)

MINUTE = 60.0
# Batches that wait: those of a quarter of an hour on a host whose minute fits into one call, as nearly all do.
MOST_WAITING = 15
MB = 1024 * 1024
# The key has ended or is not known any more: another may be there next time.
_REFUSED_KEYS = frozenset(
    {"ExpiredToken", "ExpiredTokenException", "InvalidClientTokenId", "UnrecognizedClientException"}
)


class Destination(Protocol):
    """Where metrics go."""

    @property
    def url(self) -> str: ...

    async def put(self, namespace: str, at: float, data: Sequence[Datum], keys: Credentials) -> None: ...


class Member(NamedTuple):
    """Whose metrics these are. An instance id only on EC2."""

    cluster: str
    instance_arn: str
    ec2_instance_id: str = ""


class _Total:
    """One task since the last minute ended."""

    __slots__ = ("cpu", "first", "latest", "memory", "rounds", "seconds")

    def __init__(self, before: TaskSample | None, sample: TaskSample) -> None:
        self.first = before or sample  # counters are told as what was added since
        self.latest = sample
        self.rounds = 0
        self.seconds = self.cpu = self.memory = 0.0

    def add(self, sample: TaskSample) -> None:
        self.latest = sample
        self.rounds += 1
        self.seconds += sample.seconds
        self.cpu += sample.cpu * sample.seconds
        self.memory += sample.memory

    def minute(self) -> TaskMinute:
        now, then = self.latest.containers, {one.name: one for one in self.first.containers}
        known = [(then[one.name], one) for one in now if one.name in then]
        return TaskMinute(
            family=self.latest.family,
            service=self.latest.service,
            cpu_reserved=self.latest.reserved.cpu,
            cpu_used=self.cpu / self.seconds if self.seconds else 0.0,
            memory_reserved=self.latest.reserved.memory,
            memory_used=self.memory / self.rounds / MB if self.rounds else 0.0,
            received=sum(one.rx_rate for one in now),
            sent=sum(one.tx_rate for one in now),
            read=sum(max(b.counters.read_bytes - a.counters.read_bytes, 0) for a, b in known),
            written=sum(max(b.counters.written_bytes - a.counters.written_bytes, 0) for a, b in known),
            restarts=sum(max(b.restarts - a.restarts, 0) for a, b in known),
        )


class CloudWatch:
    """One agent's."""

    def __init__(
        self,
        destination: Destination,
        namespace: str,
        member: Member,
        credentials: CredentialSource,
        look: Callable[[], Usage],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._destination = destination
        self._namespace = namespace
        self._member = member
        self._credentials = credentials
        self._look = look
        self._clock = clock
        self._totals: dict[str, _Total] = {}
        self._last: dict[str, TaskSample] = {}
        self._before: Usage | None = None
        self._waiting: deque[tuple[float, list[Datum]]] = deque(maxlen=MOST_WAITING)
        self._trouble = ""

    def add(self, samples: Iterable[TaskSample]) -> None:
        """One round."""
        for one in samples:
            total = self._totals.get(one.arn)
            if total is None:
                total = self._totals[one.arn] = _Total(self._last.get(one.arn), one)
            total.add(one)

    async def run(self) -> None:
        """A minute after the other, for ever."""
        self._before = self._look()
        while True:
            await asyncio.sleep(MINUTE)
            self._end_minute()
            await self._send()

    def _end_minute(self) -> None:
        totals, self._totals = self._totals, {}
        self._last = {arn: one.latest for arn, one in totals.items()}
        usage, before = self._look(), self._before
        self._before = usage
        data = list(insights.of_tasks(self._member.cluster, [one.minute() for one in totals.values()]))
        if before is not None:
            host = _host(before, usage, len(totals))
            instance = last_part(self._member.instance_arn)
            data += insights.of_host(self._member.cluster, instance, self._member.ec2_instance_id, host)
        at = self._clock() - MINUTE  # the minute is named by its beginning
        for batch in batches(data):
            if len(self._waiting) == MOST_WAITING:
                log.debug("oldest metrics dropped", extra={"channel": "cloudwatch"})
            self._waiting.append((at, batch))

    async def _send(self) -> None:
        """Everything that waits, oldest first, until something is refused for now."""
        while self._waiting:
            at, batch = self._waiting[0]
            try:
                keys = await self._credentials.current()
                await self._destination.put(self._namespace, at, batch, keys)
            except (Unreachable, NoCredentials) as error:
                self._say(str(error))
                return
            except EcsError as error:
                self._say(f"{error.code}: {error.message}")
                if error.code in _REFUSED_KEYS:
                    self._credentials.forget(keys)
                    return
                if is_transient(error):
                    return
            except Lost as error:
                self._say(str(error))
            else:
                self._say("")
            self._waiting.popleft()

    def _say(self, trouble: str) -> None:
        if bool(trouble) != bool(self._trouble):
            if trouble:
                log.warning("metrics cannot be put", extra={"endpoint": self._destination.url, "reason": trouble})
            else:
                log.info("metrics are put again", extra={"endpoint": self._destination.url})
        self._trouble = trouble


def _host(before: Usage, after: Usage, tasks: int) -> HostMinute:
    host: HostUse = after.host
    seconds = max(after.at - before.at, 1e-9)
    return HostMinute(
        cpu_reserved=_percent(host.reserved.cpu, host.capacity.cpu),
        cpu_used=_percent(max(host.busy_seconds - before.host.busy_seconds, 0.0), seconds * host.cores),
        memory_reserved=_percent(host.reserved.memory, host.capacity.memory),
        memory_used=_percent(host.memory_used, host.memory),
        tasks=tasks,
    )


def _percent(part: float, whole: float) -> float:
    return min(100.0 * part / whole, 100.0) if whole else 0.0
