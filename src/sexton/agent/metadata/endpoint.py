"""The parts of the task endpoint put together: names, paths, limits, and the way there.

``prepare`` before the host registers, since what can be served decides what it advertises; ``start`` once it is a
member and its tasks are known. Without an endpoint containers are told nothing of one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from pathlib import Path

from sexton.agent.metadata import variables
from sexton.agent.metadata.identity import Names, own_key
from sexton.agent.metadata.reach import Reach
from sexton.agent.metadata.routes import Routes
from sexton.agent.metadata.server import TaskServer
from sexton.agent.runner import Runner
from sexton.kit.allowance import Allowances
from sexton.kit.supervise import Nursery
from sexton.runtime.contract import Runtime
from sexton.settings import Settings
from sexton.wire import acs_task

log = logging.getLogger(__name__)


class TaskEndpoint:
    """What one agent serves its tasks. Whoever answers paths adds them to ``routes``."""

    def __init__(self, runtime: Runtime, settings: Settings) -> None:
        key = own_key(Path(settings.data_dir), remember=settings.checkpoint)
        self._runners: Callable[[], Iterable[Runner]] = tuple
        self.names = Names(key, lambda: self._runners())
        self.routes = Routes()
        self.server = TaskServer(self.routes, Allowances(*settings.metadata_rate))
        self.reach = Reach(self.server, runtime, settings)

    @property
    def open(self) -> bool:
        return self.reach.open

    @property
    def serves_host(self) -> bool:
        """Whether tasks in network mode host reach it as well."""
        return self.reach.open and self.reach.serves_host

    async def prepare(self) -> None:
        await self.reach.prepare()

    async def start(self, runners: Callable[[], Iterable[Runner]], nursery: Nursery) -> None:
        """Serve these tasks."""
        self._runners = runners
        if self.reach.open:
            await self.reach.start()
            nursery.start("task-endpoint", self.reach.run())

    def variables(self, task: acs_task.Task, container: str) -> dict[str, str]:
        """What a container is told of it."""
        return variables.of_container(self.names, task, container) if self.reach.open else {}

    async def close(self) -> None:
        await self.reach.close()
