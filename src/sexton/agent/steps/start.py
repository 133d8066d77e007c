"""Start the container.

Only ever tried on one that was seen created and not started: after a call whose answer was lost, and after a restart
of this process, somebody looks first, since a container that has already ended would run its work a second time. And
only when nothing shows that an engine which died meanwhile had started it after all.
"""

from __future__ import annotations

import logging

from sexton.agent.steps import remains
from sexton.agent.steps.context import StepContext
from sexton.agent.steps.create import create
from sexton.agent.steps.look import look
from sexton.core import enginebody
from sexton.core.task import DesiredTask, Event, Happened, KnownContainer
from sexton.host.taskcgroup import Remains
from sexton.runtime.contract import NotFound, Refused, Unavailable
from sexton.wire import acs_task

log = logging.getLogger(__name__)


async def start(
    context: StepContext, desired: DesiredTask, container: acs_task.Container, known: KnownContainer
) -> Event:
    left = remains.of(context, desired, known)
    if left is not Remains.NONE:
        return await _after(context, desired, container, known, left)
    try:
        await context.runtime.start(known.runtime_id)
    except NotFound:
        return await look(context, desired, container, known)
    except Unavailable as error:
        log.warning(
            "start without an answer",
            extra={"task": desired.arn, "container": known.name, "reason": str(error)},
        )
        seen, left = await remains.watch(context, desired, container, known)
        return seen if left is Remains.NONE else await _after(context, desired, container, known, left)
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


async def _after(
    context: StepContext, desired: DesiredTask, container: acs_task.Container, known: KnownContainer, left: Remains
) -> Event:
    """What is still to be done after a start that an engine did not live to finish."""
    event = remains.end(context, desired, known, left)
    if left is not Remains.WAITING:
        return event
    await context.runtime.remove(known.runtime_id, force=True)
    return await create(context, desired, container, known)
