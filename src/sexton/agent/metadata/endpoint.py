"""The parts of the task endpoint put together: names, paths, limits, and the way there.

``prepare`` before the host registers, since what can be served decides what it advertises; ``start`` once it is a
member and its tasks are known. Without an endpoint containers are told nothing of one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from pathlib import Path

from sexton.agent.metadata import variables
from sexton.agent.metadata.doors import Doors
from sexton.agent.metadata.file import MetadataFiles, Sources
from sexton.agent.metadata.identity import Names, own_key
from sexton.agent.metadata.origin import Origin
from sexton.agent.metadata.reach import Reach
from sexton.agent.metadata.routes import Routes
from sexton.agent.metadata.server import PATHS_AT_ONCE, TaskServer
from sexton.agent.metadata.sights import Sights
from sexton.agent.metadata.where import Where
from sexton.agent.runner import Runner
from sexton.agent.steps.context import Identity, StepContext
from sexton.cloud.client import EcsClient
from sexton.core.sight import Place
from sexton.kit.allowance import Allowances
from sexton.kit.supervise import Nursery
from sexton.runtime.contract import EngineInfo, Runtime
from sexton.settings import Settings
from sexton.wire import acs_task

log = logging.getLogger(__name__)


class TaskEndpoint:
    """What one agent serves its tasks. Whoever answers paths adds them to ``routes``."""

    def __init__(self, runtime: Runtime, settings: Settings) -> None:
        self._runtime = runtime
        self._settings = settings
        self._runners: Callable[[], Iterable[Runner]] = tuple
        self.names = Names(own_key(Path(settings.data_dir), remember=settings.checkpoint), lambda: self._runners())
        self.sights = Sights(runtime)
        self.origin = Origin(self.sights)
        self.routes = Routes()
        rate, burst = settings.metadata_rate
        whole = Allowances(rate * PATHS_AT_ONCE, burst * PATHS_AT_ONCE)
        self.server = TaskServer(self.routes, Allowances(rate, burst), whole)
        self.reach = Reach(self.server, runtime, settings)
        self.doors = Doors(self.server, self.reach.table)  # of tasks with a network of their own
        self._files: MetadataFiles | None = None

    @property
    def open(self) -> bool:
        return self.reach.open

    @property
    def serves_host(self) -> bool:
        """Whether tasks in network mode host reach it as well."""
        return self.reach.open and self.reach.serves_host

    async def prepare(self) -> None:
        await self.reach.prepare()

    def files(self, identity: Identity, where: Where, nursery: Nursery) -> MetadataFiles | None:
        """The containers' metadata files, where they are asked for; they need no way to the endpoint."""
        if self._settings.metadata_file:
            sources = Sources(identity.instance_arn, self.names.of_file, self.sights.of, lambda: where.place)
            data_dir = Path(self._settings.data_dir).resolve()
            self._files = MetadataFiles(data_dir, sources, nursery, selinux=self._settings.selinux)
        return self._files

    def serve(
        self,
        context: StepContext,
        info: EngineInfo,
        client: EcsClient,
        runners: Callable[[], Iterable[Runner]],
        where: Where,
    ) -> None:
        """Answer for these tasks."""
        self._runners = runners

        def metadata() -> None:  # a megabyte that an agent does without until a task asks
            from sexton.agent.metadata.metadata import MetadataApi
            from sexton.agent.metadata.tags import Tags
            from sexton.agent.metadata.usage import Usage
            from sexton.host.container_usage import ContainerUsage

            usage = Usage(context, info, ContainerUsage(Path(self._settings.cgroup_path)))
            tags = Tags(client)

            def place(runner: Runner) -> Place:
                vpc = context.networks.vpc_of(runner.desired.task) if context.networks is not None else ""
                return where.place._replace(vpc=vpc) if vpc else where.place

            MetadataApi(self.names, self.origin, self.sights, usage, tags, context.identity, place).add_to(self.routes)

        self.routes.when_asked(("v2", "v3", "v4"), metadata)

    async def start(self, nursery: Nursery) -> None:
        """Lead tasks here."""
        if self.reach.open:
            await self.reach.start()
            nursery.start("task-endpoint", self.reach.run())

    def variables(self, task: acs_task.Task, container: str) -> dict[str, str]:
        """What a container is told of it."""
        told = variables.of_container(self.names, task, container) if self.reach.open else {}
        if self._files is not None:
            told["ECS_CONTAINER_METADATA_FILE"] = self._files.variable(task.arn or "", container)
        return told

    async def close(self) -> None:
        await self.doors.close_all()
        await self.reach.close()
