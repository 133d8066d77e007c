"""End the container: TERM, its time, KILL. One that never started has nothing to end."""

from __future__ import annotations

import contextlib

import msgspec

from sexton.agent.steps import remains
from sexton.agent.steps.context import StepContext
from sexton.agent.steps.look import look
from sexton.core.task import DesiredTask, Event, Happened, KnownContainer
from sexton.runtime.contract import NotFound
from sexton.wire import acs_task


async def stop(
    context: StepContext, desired: DesiredTask, container: acs_task.Container, known: KnownContainer
) -> Event:
    seen = await look(context, desired, container, known)
    if seen.happened is Happened.CREATED:
        found = msgspec.structs.replace(known, runtime_id=seen.runtime_id)
        return remains.end(context, desired, found, remains.of(context, desired, found))
    if seen.happened is not Happened.STARTED:
        return seen
    grace = container.stop_timeout if container.stop_timeout is not None else context.settings.stop_timeout
    with contextlib.suppress(NotFound):  # gone in between: the look below says so
        await context.runtime.stop(seen.runtime_id, float(grace))
    return await look(context, desired, container, known)
