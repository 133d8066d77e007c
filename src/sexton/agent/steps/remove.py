"""Remove what a stopped task left in the engine."""

from __future__ import annotations

from sexton.agent.steps.context import StepContext
from sexton.core import enginebody
from sexton.core.enginebody import INSTANCE_LABEL
from sexton.core.task import DesiredTask
from sexton.runtime.contract import NotFound


async def remove(context: StepContext, desired: DesiredTask) -> None:
    """Remove the task's containers, those of an interrupted creation too; never one that is not ours."""
    for container in desired.task.containers or ():
        name = enginebody.engine_name(desired.task, container.name or "")
        try:
            info = await context.runtime.inspect(name)
        except NotFound:
            continue
        if info.labels.get(INSTANCE_LABEL) == context.identity.instance_arn:
            await context.runtime.remove(info.id, force=True)
