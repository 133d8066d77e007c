"""Remove what a stopped task left in the engine."""

from __future__ import annotations

from sexton.agent.steps.context import StepContext
from sexton.agent.steps.volumes import remove_volumes
from sexton.core import enginebody
from sexton.core.enginebody import INSTANCE_LABEL
from sexton.core.task import DesiredTask, KnownTask
from sexton.runtime.contract import NotFound


async def remove(context: StepContext, desired: DesiredTask, known: KnownTask) -> None:
    """Remove the task's containers, those of an interrupted creation too, then its volumes and files; never what is not
    ours."""
    for container in known.containers:
        await _remove(context, enginebody.engine_name(desired.task, container.name))
        if container.runtime_id:
            await _remove(context, container.runtime_id)  # somebody may have given it another name
    await remove_volumes(context, desired)
    if context.files is not None:
        context.files.drop(desired.arn)


async def _remove(context: StepContext, ref: str) -> None:
    try:
        info = await context.runtime.inspect(ref)
    except NotFound:
        return
    if info.labels.get(INSTANCE_LABEL) == context.identity.instance_arn:
        await context.runtime.remove(info.id, force=True)
