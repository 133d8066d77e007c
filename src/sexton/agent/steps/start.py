"""Start the container.

Only ever tried on one that was seen created and not started: after a call whose answer was lost, and after a restart
of this process, somebody looks first, since a container that has already ended would run its work a second time.
"""

from __future__ import annotations

from sexton.agent.steps.context import StepContext
from sexton.agent.steps.look import look
from sexton.core import enginebody
from sexton.core.task import DesiredTask, Event, Happened, KnownContainer
from sexton.runtime.contract import NotFound, Refused
from sexton.wire import acs_task


async def start(
    context: StepContext, desired: DesiredTask, container: acs_task.Container, known: KnownContainer
) -> Event:
    try:
        await context.runtime.start(known.runtime_id)
    except NotFound:
        return await look(context, desired, container, known)
    except Refused as error:
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
