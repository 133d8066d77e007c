"""What this host's tasks use, followed over time: after each round of readings the history and CloudWatch are given
their share, and the history is written down now and then.

Whoever wants to know asks here: ``use`` for now, ``measured`` for the history.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from sexton.agent.engine import Engine
from sexton.agent.groups import Groups
from sexton.agent.runner import Runner
from sexton.agent.sampling import Sampler
from sexton.agent.sizebook import SizeBook
from sexton.agent.stats import CgroupStats
from sexton.agent.steps.context import StepContext
from sexton.agent.use import Use
from sexton.core import reserved
from sexton.core.sizewindow import Measured
from sexton.core.usage import HostUse, Usage
from sexton.host.container_counters import Counters
from sexton.store.contract import Store

if TYPE_CHECKING:
    from sexton.agent.cloudwatch import CloudWatch

# What a kill may cost of the history.
FLUSH_SECONDS = 300.0


class _Kills:
    """What two witnesses say of one container: the engine's events, and its own counter since ``base``."""

    __slots__ = ("base", "counted", "recorded", "told")

    def __init__(self) -> None:
        self.told = self.counted = self.recorded = 0
        self.base: int | None = None


class Sizing:
    """One agent's."""

    def __init__(
        self,
        engine: Engine,
        groups: Groups,
        stats: CgroupStats,
        use: Use,
        book: SizeBook,
        *,
        followed: bool = True,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._engine = engine
        self._stats = stats
        self._limited = groups.limited
        self._use = use
        self._sampler = Sampler(engine, groups, stats)
        self._book = book
        self._kills: dict[tuple[str, str], _Kills] = {}
        self._began = clock()
        self.cloudwatch: CloudWatch | None = None
        self.followed = followed  # whether readings are made at all
        self._clock = clock
        self._host: tuple[float, HostUse] | None = None

    def use(self) -> Usage:
        return self._use.look()

    def use_of_late(self) -> Usage:
        """The same for whoever asks all the time: of containers as they were at the last round of readings."""
        return self._use.look(self._last)

    def _last(self, container: str) -> Counters | None:
        sample = self._stats.sample(container)
        return sample.counters if sample is not None else None

    async def measured(self) -> list[Measured]:
        return await self._book.measured(self._clock())

    def sample(self) -> None:
        """The counters of all containers have just been read."""
        now = self._clock()
        samples = self._sampler.samples()
        self._book.add(samples, now)
        self._count_kills()
        host, moment = self._use.host(), asyncio.get_running_loop().time()
        if self._host is not None and moment > self._host[0]:
            self._book.add_host(self._host[1], host, moment - self._host[0], now)
        self._host = (moment, host)
        if self.cloudwatch is not None:
            self.cloudwatch.add(samples)

    def killed(self, runner: Runner, container: str) -> None:
        """Out of memory, says the engine, which sees what ends a container and may miss what happens at its start."""
        kills = self._kills_of(runner, container)
        kills.told += 1
        self._record(runner, container, kills)

    def _count_kills(self) -> None:
        """Out of memory, says the container's own counter, which ends with the container."""
        there = self._engine.runners()
        known = {(runner.arn, one.name) for runner in there for one in runner.known.containers}
        self._kills = {key: kills for key, kills in self._kills.items() if key in known}
        for runner in there:
            for one in runner.known.containers:
                found = self._stats.sample(one.runtime_id) if one.runtime_id else None
                if found is None:
                    continue
                kills = self._kills_of(runner, one.name)
                if kills.base is None:
                    # Those of a container that an earlier process made were recorded by that one.
                    kills.base = 0 if one.created_at >= self._began else found.counters.oom_kills
                kills.counted = max(found.counters.oom_kills - kills.base, kills.counted)
                self._record(runner, one.name, kills)

    def _kills_of(self, runner: Runner, container: str) -> _Kills:
        return self._kills.setdefault((runner.arn, container), _Kills())

    def _record(self, runner: Runner, container: str, kills: _Kills) -> None:
        """Told by the limit that was reached, the container's own or else its task's."""
        task = runner.desired.task
        wanted = next((one for one in task.containers or () if one.name == container), None)
        new, kills.recorded = max(kills.told, kills.counted) - kills.recorded, max(kills.told, kills.counted)
        if wanted is None or new <= 0:
            return
        own = reserved.of_container(wanted)
        name = container if own.memory_limit else ""
        promised = own if own.memory_limit else reserved.of_task(task, limited=self._limited)
        self._book.killed((task.family or "", task.version or "", name), promised, new, self._clock())

    async def run(self) -> None:
        """For ever."""
        await self._book.load(self._clock())
        while True:
            await asyncio.sleep(FLUSH_SECONDS)
            await self._book.flush(self._clock())

    async def flush(self) -> None:
        """Before the end."""
        await self._book.flush(self._clock())


def follow(context: StepContext, engine: Engine, stats: CgroupStats, driver: str, store: Store | None) -> Sizing:
    """The sizes of one host's tasks; ``driver`` is how its engine makes cgroups."""
    groups = Groups(context.cgroups, driver)
    use = Use(context.identity, engine, groups, stats.counters, stats.cores)
    followed = not context.settings.disable_metrics
    return Sizing(engine, groups, stats, use, SizeBook(store), followed=followed, clock=context.clock)
