"""Whether a call comes from where the task that it names is.

The name in a path is a secret, and this is for the day on which it got out: in a log, in a listing of processes, in a
crash report. From a task's own network only that task is served. From the engine's bridge a call has the address of its
container, to which the answer goes, and that must be one of the task's. What the host itself sends is not told apart:
there are the engine, people who look for a fault, and tasks in network mode host, which share all of it.
"""

from __future__ import annotations

from sexton.agent.metadata.routes import LOOPBACK, Caller
from sexton.agent.metadata.sights import Sights
from sexton.agent.runner import Runner


class Origin:
    """Knows which addresses tasks have."""

    def __init__(self, sights: Sights) -> None:
        self._sights = sights

    async def is_of(self, caller: Caller, runner: Runner) -> bool:
        """Whether a caller may be this task. While the engine is away, who was never seen is not."""
        if caller.task or runner.desired.task.network_mode == "awsvpc":
            return caller.task == runner.arn or (not caller.task and caller.interface == LOOPBACK)
        if caller.interface == LOOPBACK:
            return True
        # One that was started again may have another address than it had.
        return await self._has(caller.address, runner) or await self._has(caller.address, runner, anew=True)

    async def _has(self, address: str, runner: Runner, *, anew: bool = False) -> bool:
        for one in runner.known.containers:
            sight = await self._sights.of(one, anew=anew) if one.runtime_id else None
            if sight is not None and any(address in (ipv4, ipv6) for _, ipv4, ipv6 in sight.networks):
                return True
        return False
