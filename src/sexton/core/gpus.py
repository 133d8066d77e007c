"""Which GPUs a container of a task is given: from the task's associations to what the engine is told.

A host of EC2 gives them by the vendor's own runtime, which reads the ids from the container's environment; a host
anywhere else asks the engine for devices. A GPU belongs to exactly one container.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sexton.wire import acs_task

VISIBLE = "NVIDIA_VISIBLE_DEVICES"


def problem(task: acs_task.Task) -> str:
    """Why the GPUs of a task cannot be given as it says, or nothing."""
    names = {one.name for one in task.containers or ()}
    for one in _of(task):
        if len(one.containers or ()) != 1:
            return f"could not associate multiple containers to GPU {one.name}"
        if (one.containers or ("",))[0] not in names:
            return f"could not find container with name {(one.containers or ('',))[0]} for associating GPU {one.name}"
    return ""


def of_task(task: acs_task.Task) -> frozenset[str]:
    return frozenset(one.name or "" for one in _of(task))


def of_container(task: acs_task.Task, container: str | None) -> tuple[str, ...]:
    return tuple(one.name or "" for one in _of(task) if container in (one.containers or ()))


def _of(task: acs_task.Task) -> tuple[acs_task.Association, ...]:
    return tuple(one for one in task.associations or () if one.type == "gpu")


def environment(task: acs_task.Task, container: acs_task.Container) -> dict[str, str]:
    """What the vendor's runtime reads."""
    ids = of_container(task, container.name)
    return {VISIBLE: ",".join(ids)} if ids else {}


def host_config(
    task: acs_task.Task, container: acs_task.Container, environment: Mapping[str, str], runtime: str
) -> dict[str, Any]:
    """The engine's part. An image or a definition may name devices by itself; in a task with GPUs that counts."""
    ids = of_container(task, container.name)
    if task.launch_type == "EXTERNAL":
        return {"DeviceRequests": [{"DeviceIDs": list(ids), "Capabilities": [["gpu"]]}]} if ids else {}
    return {"Runtime": runtime} if ids or (of_task(task) and VISIBLE in environment) else {}
