"""Names whom the kernel killed for memory in a container, in one line of the log, where whoever asks why finds it.

The engine only says that it happened. The kernel's log says to whom; it is read once per event, off the event loop.
"""

from __future__ import annotations

import logging

from sexton.agent.runner import Runner
from sexton.host.offload import in_thread
from sexton.host.oomlog import Victim, victims

log = logging.getLogger(__name__)

MIB = 1024 * 1024
# Containers whose victims are remembered, so that one killing is told once.
MOST_CONTAINERS = 256


class Victims:
    """Tells each killing once."""

    def __init__(self) -> None:
        self._told: dict[str, int] = {}  # by container, the last pid

    async def name(self, runner: Runner, container: str) -> None:
        """Look for whoever was killed last in this container, and say so."""
        runtime_id = next((one.runtime_id for one in runner.known.containers if one.name == container), "")
        if not runtime_id:
            return
        found = await in_thread("oom", lambda: victims(runtime_id))
        if not found or self._told.get(runtime_id) == found[-1].pid:
            return
        self._told[runtime_id] = found[-1].pid
        while len(self._told) > MOST_CONTAINERS:
            del self._told[next(iter(self._told))]
        log.warning("out of memory", extra={"task": runner.arn, "container": container, **_facts(found[-1])})


def _facts(victim: Victim) -> dict[str, object]:
    why = "a limit of its cgroup or of a task's above it was reached" if victim.by_limit else "the host had none left"
    return {"victim": victim.name, "pid": victim.pid, "resident_mib": victim.resident // MIB, "why": why}
