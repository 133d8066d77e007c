"""What every step is given."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from sexton.agent.metadata.file import MetadataFiles
from sexton.agent.ports import PortAllocator
from sexton.agent.supplies import Supplies
from sexton.core.task import DesiredTask, Event, KnownContainer
from sexton.host.taskcgroup import TaskCgroups
from sexton.runtime.contract import Runtime
from sexton.settings import Settings
from sexton.wire import acs_task

if TYPE_CHECKING:
    from sexton.agent.logs.ways import Ways
    from sexton.agent.networks import Networks


class Identity(NamedTuple):
    """Who this agent is: what it owns carries these."""

    cluster: str
    instance_arn: str


class StepContext(NamedTuple):
    """The world as a step sees it. Without ``cgroups`` the engine's own parent is used, without ``networks`` no task
    has one of its own. ``variables`` are what the agent tells a container, whatever its own say."""

    runtime: Runtime
    settings: Settings
    identity: Identity
    ports: PortAllocator
    supplies: Supplies
    cgroups: TaskCgroups | None
    networks: Networks | None = None
    clock: Callable[[], float] = time.time
    files: MetadataFiles | None = None
    variables: Callable[[acs_task.Task, str], Mapping[str, str]] = lambda task, container: {}
    logs: Ways | None = None  # None: log drivers are given to the engine as they are


Step = Callable[[StepContext, DesiredTask, acs_task.Container, KnownContainer], Awaitable[Event]]
