"""Have everything that a container needs before it can be made: its volumes, its image, its values. The task's own
network is made meanwhile.

One step, because all of it can be called off: until it is over nothing of the container is in the engine. Values are
fetched while the image is pulled. After a restart of this process, when they are gone again, the creation fetches
them anew.
"""

from __future__ import annotations

import asyncio

from sexton.agent.steps.context import StepContext
from sexton.agent.steps.pull import pull
from sexton.agent.steps.values import NotFetched, fetch_values
from sexton.agent.steps.volumes import have_volumes
from sexton.core.task import DesiredTask, Event, Happened, KnownContainer
from sexton.wire import acs_task


async def prepare(
    context: StepContext, desired: DesiredTask, container: acs_task.Container, known: KnownContainer
) -> Event:
    if context.networks is not None:
        context.networks.begin(desired)
    problem = await have_volumes(context, desired, container)
    if problem:
        return gave_up(context, known, problem)
    if not container.secrets and not container.environment_files:
        return await pull(context, desired, container, known)
    fetching = asyncio.ensure_future(fetch_values(context, desired, container))
    try:
        event = await pull(context, desired, container, known)
        values = await fetching
    except NotFetched as error:
        return gave_up(context, known, str(error))
    finally:
        fetching.cancel()
        await asyncio.wait([fetching])
        if not fetching.cancelled():
            fetching.exception()  # seen: the pull's own fault is what is raised
    context.supplies.put_values(desired.arn, known.name, values)
    return event


def gave_up(context: StepContext, known: KnownContainer, reason: str) -> Event:
    """What the task needs cannot be had, so it ends, whatever this container is to it."""
    return Event(container=known.name, happened=Happened.GAVE_UP, time=context.clock(), error=reason, fatal=True)
