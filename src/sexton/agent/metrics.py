"""The agent's figures in Prometheus' text format: its tasks and containers, its connections, itself and its host.

Made when they are asked for, from the last reading of the counters and a few small files; nothing is kept for them.
The metrics library is loaded at the first question, so an agent that nobody asks does without it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from sexton import __version__, log
from sexton.agent import usemetrics
from sexton.agent.engine import Engine
from sexton.agent.instancehealth import InstanceHealth
from sexton.agent.reporter import Reporter
from sexton.agent.session import Session
from sexton.agent.stats import CgroupStats
from sexton.agent.steps.context import StepContext
from sexton.agent.telemetry import Telemetry
from sexton.core.task import ContainerStatus, TaskStatus
from sexton.core.usage import Usage
from sexton.host import pressure
from sexton.host.container_counters import Network

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

_TASK = ("task", "family", "revision")
_CONTAINER = (*_TASK, "container")


class Metrics:
    """One agent's collector."""

    def __init__(
        self,
        context: StepContext,
        engine: Engine,
        session: Session,
        telemetry: Telemetry,
        reporter: Reporter,
        stats: CgroupStats,
        health: InstanceHealth,
        use: Callable[[], Usage],
        proc: Path = Path("/proc"),
    ) -> None:
        self._context = context
        self._engine = engine
        self._session = session
        self._telemetry = telemetry
        self._reporter = reporter
        self._stats = stats
        self._health = health
        self._use = use
        self._proc = proc

    def __call__(self) -> tuple[bytes, str]:
        """The text and its content type."""
        from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
        from prometheus_client.registry import CollectorRegistry

        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        return generate_latest(registry), CONTENT_TYPE_LATEST

    def collect(self) -> Iterator[Metric]:
        """Every family; called by the library."""
        yield from self._agent()
        yield from self._process()
        yield from self._host()
        yield from usemetrics.families(self._use())
        yield from self._tasks()
        yield from self._containers()

    def _agent(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        identity = self._context.identity
        about = GaugeMetricFamily(
            "sexton_agent_info", "This agent; always 1.", labels=("version", "cluster", "instance")
        )
        about.add_metric((__version__, identity.cluster, identity.instance_arn), 1)
        yield about
        channels: dict[str, Session | Telemetry] = {"acs": self._session, "tcs": self._telemetry}
        connected = GaugeMetricFamily("sexton_agent_connected", "Whether a connection is up.", labels=("channel",))
        since = GaugeMetricFamily(
            "sexton_agent_connected_since_seconds", "When it came up; absent while it is down.", labels=("channel",)
        )
        reconnects = CounterMetricFamily(
            "sexton_agent_reconnects", "Ends of a connection or of an attempt to make one.", labels=("channel",)
        )
        for name, channel in channels.items():
            connected.add_metric((name,), float(channel.connected_at > 0))
            reconnects.add_metric((name,), channel.reconnects)
            if channel.connected_at:
                since.add_metric((name,), channel.connected_at)
        yield from (connected, since, reconnects)
        yield _gauge(
            "sexton_agent_reports_pending",
            "State changes that the control plane has not taken yet.",
            self._reporter.pending,
        )
        yield CounterMetricFamily(
            "sexton_agent_telemetry_refusals", "Reports that were refused.", value=self._telemetry.refusals
        )
        yield from self._logs()
        yield _gauge("sexton_engine_up", "Whether the container engine's events arrive.", float(self._engine.answering))
        yield _gauge(
            "sexton_engine_healthy",
            "Whether the container engine answered when it was last asked.",
            float(self._health.status.status == "OK"),
        )
        last = log.last_error()
        if last is not None:
            error = GaugeMetricFamily(
                "sexton_agent_last_error_seconds", "When the last error was logged, and which.", labels=("event",)
            )
            error.add_metric((last.event,), last.time)
            yield error
        errors = CounterMetricFamily("sexton_agent_errors", "Lines logged at level error or worse.", value=log.errors())
        yield errors

    def _logs(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        if self._context.logs is None:
            return
        now, standing = time.time(), self._context.logs.standing()
        yield _gauge("sexton_agent_log_spool_bytes", "Log lines of tasks that wait to be delivered.", standing.held)
        yield CounterMetricFamily(
            "sexton_agent_log_lines_dropped", "Lines that found no room in the spool.", value=standing.dropped
        )
        yield CounterMetricFamily(
            "sexton_agent_log_lines_refused", "Lines that their destination will never take.", value=standing.refused
        )
        late = GaugeMetricFamily(
            "sexton_agent_log_undelivered_seconds", "How long a destination has taken nothing.", labels=("destination",)
        )
        for one in standing.waiting:
            late.add_metric((one.destination,), now - one.since)
        yield late

    def _process(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily

        used = os.times()
        yield CounterMetricFamily(
            "process_cpu_seconds", "Processor time of this process.", value=used.user + used.system
        )
        try:
            pages = int((self._proc / "self/statm").read_text().split()[1])
            files = len(os.listdir(self._proc / "self/fd"))
        except (OSError, ValueError, IndexError):
            return
        yield _gauge("process_resident_memory_bytes", "Its memory.", pages * os.sysconf("SC_PAGE_SIZE"))
        yield _gauge("process_open_fds", "Its open files.", files)

    def _host(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        steal = pressure.steal_seconds(self._proc)
        if steal is not None:
            yield CounterMetricFamily(
                "sexton_host_steal_seconds", "Processor time that the hypervisor gave to others.", value=steal
            )
        stalled = CounterMetricFamily(
            "sexton_host_stalled_seconds", "Time lost to waiting for a resource.", labels=("resource", "kind")
        )
        share = GaugeMetricFamily(
            "sexton_host_stalled_ratio", "The same as a share of the last minute.", labels=("resource", "kind")
        )
        for one in pressure.stalls(self._proc):
            stalled.add_metric((one.resource, one.kind), one.seconds)
            share.add_metric((one.resource, one.kind), one.last_minute / 100)
        yield from (stalled, share)

    def _tasks(self) -> Iterator[Metric]:
        from prometheus_client.core import GaugeMetricFamily

        counts = dict.fromkeys(map(str, TaskStatus), 0)
        age = GaugeMetricFamily(
            "sexton_task_waiting_seconds", "How long a task that should run has not come to run.", labels=_TASK
        )
        now = time.time()
        for runner in self._engine.runners():
            counts[str(runner.known.status)] += 1
            task = runner.desired.task
            labels = (runner.task_id, task.family or "", task.version or "")
            if runner.known.status.rank < TaskStatus.RUNNING.rank and not runner.known.stop:
                age.add_metric(labels, max(now - runner.known.received_at, 0.0))
        tasks = GaugeMetricFamily("sexton_agent_tasks", "Tasks of this host by known status.", labels=("status",))
        for status, count in counts.items():
            tasks.add_metric((status,), count)
        yield from (tasks, age)

    def _containers(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        running = GaugeMetricFamily("sexton_container_running", "Whether it runs.", labels=_CONTAINER)
        healthy = GaugeMetricFamily(
            "sexton_container_healthy", "What its health check last said; absent without one.", labels=_CONTAINER
        )
        restarts = CounterMetricFamily(
            "sexton_container_restarts", "Times its restart policy started it again.", labels=_CONTAINER
        )
        cpu = CounterMetricFamily("sexton_container_cpu_seconds", "Processor time.", labels=_CONTAINER)
        memory = GaugeMetricFamily(
            "sexton_container_memory_bytes", "Memory without cache that can go at once.", labels=_CONTAINER
        )
        kills = CounterMetricFamily("sexton_container_oom_kills", "Processes killed for memory.", labels=_CONTAINER)
        disk = CounterMetricFamily(
            "sexton_container_storage_bytes", "Read from and written to disks.", labels=(*_CONTAINER, "direction")
        )
        net = {
            what: CounterMetricFamily(
                f"sexton_container_network_{what}", f"{what.title()} over its network.", labels=(*_CONTAINER, "way")
            )
            for what in ("bytes", "packets", "errors", "dropped")
        }
        for runner in self._engine.runners():
            task = runner.desired.task
            for one in runner.known.containers:
                labels = (runner.task_id, task.family or "", task.version or "", one.name)
                running.add_metric(labels, float(one.status is ContainerStatus.RUNNING))
                restarts.add_metric(labels, one.restarts)
                if one.health is not None:
                    healthy.add_metric(labels, float(one.health.status == "HEALTHY"))
                found = self._stats.latest(one.runtime_id)
                if found is None:
                    continue
                cpu.add_metric(labels, found.cpu_ns / 1e9)
                memory.add_metric(labels, found.memory)
                kills.add_metric(labels, found.oom_kills)
                disk.add_metric((*labels, "read"), found.read_bytes)
                disk.add_metric((*labels, "write"), found.written_bytes)
                if found.network is not None:
                    for what, family in net.items():
                        family.add_metric((*labels, "received"), _of(found.network, "rx", what))
                        family.add_metric((*labels, "sent"), _of(found.network, "tx", what))
        yield from (running, healthy, restarts, cpu, memory, kills, disk, *net.values())


def _of(network: Network, way: str, what: str) -> int:
    return int(getattr(network, f"{way}_{what}"))


def _gauge(name: str, text: str, value: float) -> Metric:
    from prometheus_client.core import GaugeMetricFamily

    return GaugeMetricFamily(name, text, value=value)
