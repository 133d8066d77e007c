"""What containers use, as a task asks for it: a reading now, and the one before it.

Nothing is read while nobody asks. Who asks for the first time in a while waits a quarter of a second, so that even the
first answer has two readings to compare; who asks again within a second gets the same ones.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from typing import Any

from sexton.agent.runner import Runner
from sexton.agent.steps.context import StepContext
from sexton.core import dockerstats
from sexton.core.dockerstats import Reading
from sexton.core.enginebody import engine_name
from sexton.core.task import ContainerStatus, KnownContainer
from sexton.host.container_usage import ContainerUsage
from sexton.runtime.cgroup_path import container_cgroup
from sexton.runtime.contract import EngineInfo

SAME_SECONDS = 1.0
FIRST_SECONDS = 0.25
# A difference to a reading that is older says nothing of now.
STALE_SECONDS = 120.0
# Some kilobytes each.
MOST_KEPT = 256


class Usage:
    """Reads and remembers the last reading of each container."""

    def __init__(self, context: StepContext, info: EngineInfo, counters: ContainerUsage) -> None:
        self._context = context
        self._info = info
        self._counters = counters
        self._kept: OrderedDict[str, tuple[Reading, Reading]] = OrderedDict()

    async def of(self, runner: Runner, one: KnownContainer, *, rates: bool) -> dict[str, Any] | None:
        """The engine's statistics of one container; None when it does not run."""
        if one.status is not ContainerStatus.RUNNING or one.restarting:
            return None
        pair = await self._pair(runner, one)
        if pair is None:
            return None
        now, before = pair
        name = engine_name(runner.desired.task, one.name)
        body = dockerstats.shape(now, before, name=name, container=one.runtime_id)
        per_second = dockerstats.rates(now, before) if rates else None
        return body | {"network_rate_stats": per_second} if per_second is not None else body

    async def of_task(self, runner: Runner, *, rates: bool) -> dict[str, dict[str, Any] | None]:
        """All containers that were made, by their id in the engine."""
        made = [one for one in runner.known.containers if one.runtime_id]
        found = await asyncio.gather(*(self.of(runner, one, rates=rates) for one in made))
        return {one.runtime_id: body for one, body in zip(made, found, strict=True)}

    async def _pair(self, runner: Runner, one: KnownContainer) -> tuple[Reading, Reading] | None:
        loop = asyncio.get_running_loop()
        kept = self._kept.get(one.runtime_id)
        age = loop.time() - kept[0].clock if kept is not None else STALE_SECONDS
        if kept is not None and age < SAME_SECONDS:
            return kept
        before = kept[0] if kept is not None and age < STALE_SECONDS else self._read(runner, one)
        if before is not None and loop.time() - before.clock < FIRST_SECONDS:
            await asyncio.sleep(FIRST_SECONDS)
        now = self._read(runner, one)
        if now is None or before is None:
            self._kept.pop(one.runtime_id, None)
            return None
        if now.cpu.total < before.cpu.total:
            before = now  # it was started again: the earlier counters are of another cgroup
        self._kept[one.runtime_id] = (now, before)
        self._kept.move_to_end(one.runtime_id)
        if len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)
        return now, before

    def _read(self, runner: Runner, one: KnownContainer) -> Reading | None:
        if self._context.cgroups is not None:
            path = self._context.cgroups.container_group(runner.task_id, one.runtime_id)
        else:
            path = container_cgroup(one.runtime_id, "", self._info.cgroup_driver)
        network = (runner.desired.task.network_mode or "bridge") in ("bridge", "awsvpc")
        clock = asyncio.get_running_loop().time()
        return self._counters.read(path, at=time.time(), clock=clock, network=network)
