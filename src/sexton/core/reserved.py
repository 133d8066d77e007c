"""What a container, or a whole task, is promised of its host, and what it can never exceed.

A promise decides where a task fits; a limit is what the kernel holds it to. ECS calls several things by one name: a
container's ``cpu`` is a promise only, a task's ``cpu`` both; a container's ``memory`` is a limit, and the promise as
well unless there is a ``memoryReservation``, which only the engine's own settings carry.
"""

from __future__ import annotations

import msgspec

from sexton.core.resources import CPU_PER_CORE, MIB
from sexton.wire import acs_task


class Reserved(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """CPU in units (1024 a core), memory in MiB; 0 means none."""

    cpu: int = 0
    memory: int = 0
    cpu_limit: int = 0
    memory_limit: int = 0


def of_container(container: acs_task.Container) -> Reserved:
    limit = container.memory or 0
    return Reserved(cpu=container.cpu or 0, memory=_reservation(container) or limit, memory_limit=limit)


def of_task(task: acs_task.Task, *, limited: bool = True) -> Reserved:
    """The task's own figures when given, else the sum over its containers. ``limited``: its host holds tasks to
    theirs."""
    parts = [of_container(one) for one in task.containers or ()]
    cpu = round(task.cpu * CPU_PER_CORE) if task.cpu else 0
    memory = task.memory or 0
    return Reserved(
        cpu=cpu or sum(one.cpu for one in parts),
        memory=memory or sum(one.memory for one in parts),
        cpu_limit=cpu if limited else 0,
        memory_limit=memory if limited else 0,
    )


def _reservation(container: acs_task.Container) -> int:
    text = container.docker_config.host_config if container.docker_config else None
    try:
        given = msgspec.json.decode(text or "{}", type=dict[str, object] | None) or {}
    except (msgspec.MsgspecError, RecursionError):
        given = {}  # said where the container is made
    reservation = given.get("MemoryReservation")
    return reservation // MIB if isinstance(reservation, int) and reservation > 0 else 0
