"""What the agent does for tasks at their endpoint, beside telling them who they are: keys of roles, protection,
faults of the network.

Each part answers paths of its own; this only puts them together for one agent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from sexton.agent.metadata.audit import Audit
from sexton.agent.metadata.credentials import CredentialsPaths
from sexton.agent.metadata.endpoint import TaskEndpoint
from sexton.agent.metadata.faultrunner import FaultRunner
from sexton.agent.metadata.faults import FaultPaths
from sexton.agent.metadata.ownnetwork import namespace_of
from sexton.agent.metadata.protection import Caller as Client
from sexton.agent.metadata.protection import ProtectionPath
from sexton.agent.metadata.routes import Caller
from sexton.agent.rolekeys import RoleKeys
from sexton.agent.runner import Runner
from sexton.agent.steps.context import Identity
from sexton.core.task import TaskStatus
from sexton.runtime.contract import Runtime
from sexton.settings import Settings


class TaskServices:
    """The services of one agent, at its endpoint."""

    def __init__(
        self,
        endpoint: TaskEndpoint,
        settings: Settings,
        identity: Identity,
        keys: RoleKeys,
        find: Callable[[str], Runner | None],
        client: Client,
        runtime: Runtime,
    ) -> None:
        self._audit = Audit(settings, identity)

        async def is_of(caller: Caller, arn: str) -> bool:
            runner = find(arn)
            return runner is not None and await endpoint.origin.is_of(caller, runner)

        credentials = CredentialsPaths(keys, self._audit, is_of)
        credentials.add_to(endpoint.routes)
        endpoint.server.on_limited = credentials.limited
        ProtectionPath(endpoint.names, endpoint.origin, keys, client, identity.cluster).add_to(endpoint.routes)
        self._faults = FaultRunner(settings.data_dir)
        own = partial(namespace_of, runtime)
        FaultPaths(endpoint.names, endpoint.origin, self._faults, own).add_to(endpoint.routes)

    async def clear_faults(self, runners: Iterable[Runner]) -> None:
        """End the faults in the host's network that nobody is left to end."""
        running = {
            one.task_id
            for one in runners
            if one.desired.task.network_mode == "host" and one.known.status is not TaskStatus.STOPPED
        }
        await self._faults.sweep(running)

    def close(self) -> None:
        self._audit.close()
