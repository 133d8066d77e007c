"""Start the container.

Only ever tried on one that was seen created and not started: after a call whose answer was lost, and after a restart
of this process, somebody looks first, since a container that has already ended would run its work a second time.

An engine that dies in the middle of a start leaves a container that it calls created and can never start: the process
that should have become the container's still waits, unknown to the engine. Since it never ran, the container is made
anew. Where that cannot be seen (the task has no cgroup of its own) the refusal stands: once too few is better than
twice.
"""

from __future__ import annotations

import logging

from sexton.agent.steps.context import StepContext
from sexton.agent.steps.create import create
from sexton.agent.steps.look import look
from sexton.core import enginebody
from sexton.core.names import last_part
from sexton.core.task import DesiredTask, Event, Happened, KnownContainer
from sexton.runtime.contract import NotFound, Refused
from sexton.wire import acs_task

log = logging.getLogger(__name__)

# What every engine says of the remains of a start that it does not know of ("file exists", "task already exists").
_IN_THE_WAY = "exists"


async def start(
    context: StepContext, desired: DesiredTask, container: acs_task.Container, known: KnownContainer
) -> Event:
    try:
        await context.runtime.start(known.runtime_id)
    except NotFound:
        return await look(context, desired, container, known)
    except Refused as error:
        if _IN_THE_WAY in str(error) and _stillborn(context, desired, known):
            return await _anew(context, desired, container, known)
        return Event(
            container=known.name,
            happened=Happened.GAVE_UP,
            time=context.clock(),
            error=f"CannotStartContainerError: {error}",
        )
    if not known.bindings and enginebody.wanted_ports(desired.task, container):
        return await look(context, desired, container, known)  # an interrupted creation chose its ports
    now = context.clock()
    return Event(container=known.name, happened=Happened.STARTED, time=now, started_at=now)


def _stillborn(context: StepContext, desired: DesiredTask, known: KnownContainer) -> bool:
    cgroups = context.cgroups
    return cgroups is not None and cgroups.stillborn(last_part(desired.arn), known.runtime_id)


async def _anew(
    context: StepContext, desired: DesiredTask, container: acs_task.Container, known: KnownContainer
) -> Event:
    log.warning("half started container is made anew", extra={"task": desired.arn, "container": known.name})
    assert context.cgroups is not None
    context.cgroups.kill(last_part(desired.arn), known.runtime_id)
    await context.runtime.remove(known.runtime_id, force=True)
    return await create(context, desired, container, known)
