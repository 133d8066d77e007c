"""Start the container, or start it again where its restart policy wants it back.

Only ever tried on one that was seen created and not started: after a call whose answer was lost, and after a restart
of this process, somebody looks first, since a container that has already ended would run its work a second time. And
only when nothing shows that an engine which died meanwhile had started it after all.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging

import msgspec

from sexton.agent.networkfault import FAILED, NetworkFault
from sexton.agent.steps import remains
from sexton.agent.steps.context import StepContext
from sexton.agent.steps.create import create
from sexton.agent.steps.look import look
from sexton.core import portmap, reasons
from sexton.core.names import last_part
from sexton.core.task import DesiredTask, Event, Happened, KnownContainer
from sexton.host.taskcgroup import Remains
from sexton.runtime.contract import NotFound, Refused, RuntimeFault, TimedOut, Unavailable
from sexton.wire import acs_task

log = logging.getLogger(__name__)

# An engine whose containerd is away refuses at once and may do so for minutes.
RETRY_SECONDS = 1.0


async def start(
    context: StepContext, desired: DesiredTask, container: acs_task.Container, known: KnownContainer
) -> Event:
    if known.restarting:
        return await _again(context, desired, container, known)
    left = remains.of(context, desired, known)
    if left is not Remains.NONE:
        return await _after(context, desired, container, known, left)
    problem = await _network(context, desired)
    if problem:
        return msgspec.structs.replace(_gave_up(context, known, problem), fatal=True)
    try:
        await context.runtime.start(known.runtime_id)
    except NotFound:
        return await look(context, desired, container, known)
    except TimedOut as error:
        return await _called_off(context, container, known, error)
    except Unavailable as error:
        log.warning(
            "start without an answer",
            extra={"task": desired.arn, "container": known.name, "reason": str(error)},
        )
        seen, left = await remains.watch(context, desired, container, known)
        if left is not Remains.NONE:
            return await _after(context, desired, container, known, left)
        if seen.happened is Happened.CREATED:
            await asyncio.sleep(RETRY_SECONDS)  # it answers everything but this: what does the work is away
        return seen
    except Refused as error:
        return _gave_up(context, known, f"CannotStartContainerError: {error}")
    # An interrupted creation chose its ports, or only the engine knows where the other family is published.
    unknown = not known.bindings or not context.settings.exclude_ipv6_bindings
    if unknown and container.port_mappings and portmap.publishes(desired.task):
        return await look(context, desired, container, known)
    now = context.clock()
    return Event(container=known.name, happened=Happened.STARTED, time=now, started_at=now)


async def _network(context: StepContext, desired: DesiredTask) -> str:
    """Wait until a task with a network of its own has it; why it cannot, or nothing."""
    if desired.task.network_mode != "awsvpc" or context.networks is None:
        return ""
    try:
        await context.networks.wired(desired)
    except NetworkFault as error:
        return str(error)
    except Refused as error:
        return FAILED + str(error)
    return ""


async def _again(
    context: StepContext, desired: DesiredTask, container: acs_task.Container, known: KnownContainer
) -> Event:
    """Bring back one that has ended and whose restart policy wants it: the same container, started once more."""
    seen = await look(context, desired, container, known)
    if seen.happened is not Happened.EXITED:
        return seen  # somebody was faster, or it is gone
    if context.cgroups is not None and remains.of(context, desired, known) in (Remains.WAITING, Remains.RUNNING):
        # An engine that died during an earlier attempt knows nothing of it: two at once must not run.
        context.cgroups.kill(last_part(desired.arn), known.runtime_id)
    try:
        await context.runtime.start(known.runtime_id)
    except NotFound:
        return await look(context, desired, container, known)
    except TimedOut as error:
        return await _called_off(context, container, known, error)
    except Refused as error:
        return _gave_up(context, known, f"CannotStartContainerError: {error}")
    return await look(context, desired, container, known)


async def _called_off(
    context: StepContext, container: acs_task.Container, known: KnownContainer, error: TimedOut
) -> Event:
    """The engine took too long: what it may still start must not run on."""
    log.warning("start timed out", extra={"container": known.name, "reason": str(error)})
    grace = container.stop_timeout if container.stop_timeout is not None else context.settings.stop_timeout
    with contextlib.suppress(RuntimeFault, TimeoutError):  # one that comes to life later is found by its start event
        async with asyncio.timeout(grace):
            await context.runtime.stop(known.runtime_id, float(grace))
    return _gave_up(context, known, reasons.timed_out(reasons.STARTED, error.after))


def _gave_up(context: StepContext, known: KnownContainer, error: str) -> Event:
    return Event(container=known.name, happened=Happened.GAVE_UP, time=context.clock(), error=error)


async def _after(
    context: StepContext, desired: DesiredTask, container: acs_task.Container, known: KnownContainer, left: Remains
) -> Event:
    """What is still to be done after a start that an engine did not live to finish."""
    event = remains.end(context, desired, known, left)
    if left is not Remains.WAITING:
        return event
    await context.runtime.remove(known.runtime_id, force=True)
    return await create(context, desired, container, known)
