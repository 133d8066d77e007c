"""End the container: TERM, its time, KILL. One that never started has nothing to end.

An engine that cannot end it is asked a few times. One that answers everything else but cannot do this will not do it a
sixth time: the container counts as over, with the engine's words as its reason, and is removed by force with the rest
of its task. While the engine does not answer at all nothing is known, and nothing counts as over.
"""

from __future__ import annotations

import asyncio
import logging
from itertools import islice

import msgspec

from sexton.agent.steps import remains
from sexton.agent.steps.context import StepContext
from sexton.agent.steps.look import look
from sexton.core import reasons
from sexton.core.task import DesiredTask, Event, Happened, KnownContainer
from sexton.kit.retry import Backoff
from sexton.runtime.contract import NotFound, Refused, TimedOut
from sexton.wire import acs_task

log = logging.getLogger(__name__)

STOP_TRIES = 5
STOP_BACKOFF = Backoff(first=1.0, cap=5.0, factor=1.3)


async def stop(
    context: StepContext, desired: DesiredTask, container: acs_task.Container, known: KnownContainer
) -> Event:
    seen = await look(context, desired, container, known)
    if seen.happened is Happened.CREATED:
        found = msgspec.structs.replace(known, runtime_id=seen.runtime_id)
        return remains.end(context, desired, found, remains.of(context, desired, found))
    grace = container.stop_timeout if container.stop_timeout is not None else context.settings.stop_timeout
    error = ""
    for delay in islice(STOP_BACKOFF.delays(), STOP_TRIES):
        if seen.happened is not Happened.STARTED:
            return seen
        try:
            await context.runtime.stop(seen.runtime_id, float(grace))
        except NotFound:
            return await look(context, desired, container, known)
        except TimedOut as fault:
            error = reasons.timed_out(reasons.STOPPED, fault.after)
        except Refused as fault:
            error = f"CannotStopContainerError: {fault}"
        else:
            return await look(context, desired, container, known)
        log.warning("stop failed", extra={"task": desired.arn, "container": known.name, "reason": error})
        await asyncio.sleep(delay)
        seen = await look(context, desired, container, known)  # raises while the engine does not answer
    if seen.happened is not Happened.STARTED:
        return seen
    return Event(
        container=known.name,
        happened=Happened.GAVE_UP,
        time=context.clock(),
        runtime_id=seen.runtime_id,
        error=error,
    )
