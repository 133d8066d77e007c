"""What an engine that died while it started a container leaves behind, and what may still be done with it.

Such an engine comes back with a container that it calls created, whether its program ran, still runs or never will.
The container's cgroup knows more: its runtime makes it before anything runs in it, a creation that is called off takes
it away soon, and one whose program ran keeps it until an engine comes that asks for its end. So it is looked at for as
long as the engine is away:

    no cgroup        nothing ever ran: start it
    waiting process  the runtime's own, that never became the program: remove everything and create it anew
    other process    the program runs where no engine sees it: end it, and say so
    empty            the program ran and is over, or what was called off is not tidied up yet: say so

Where it may have run it is never started again: once too few is better than twice. What stays open is the death of
engine and agent in the same moment, and tasks without a cgroup of their own, where the engine is believed.
"""

from __future__ import annotations

import asyncio
import logging

import msgspec

from sexton.agent.steps.context import StepContext
from sexton.agent.steps.look import look
from sexton.core.names import last_part
from sexton.core.task import DesiredTask, Event, Happened, KnownContainer
from sexton.host.taskcgroup import Remains
from sexton.kit.retry import Backoff
from sexton.runtime.contract import Unavailable
from sexton.wire import acs_task

log = logging.getLogger(__name__)

KILLED = 137
LOST = "DockerStateError: the engine died while it started this container and lost sight of it; "
# An engine needs longer than the first few of these to come back: each end is seen before it tidies up.
WATCH_BACKOFF = Backoff(first=0.05, cap=1.0, factor=1.5)

_WORDS = {Remains.RUNNING: "it ran and was killed", Remains.ENDED: "it may have run, so it is not started again"}


def of(context: StepContext, desired: DesiredTask, known: KnownContainer) -> Remains:
    """What is left now of a start that nobody saw the end of."""
    if context.cgroups is None or not known.runtime_id:
        return Remains.NONE
    return context.cgroups.remains(last_part(desired.arn), known.runtime_id)


async def watch(
    context: StepContext, desired: DesiredTask, container: acs_task.Container, known: KnownContainer
) -> tuple[Event, Remains]:
    """Wait for an engine that did not answer a start: what it says of the container then, and what was left of it."""
    ran = False
    left = of(context, desired, known)
    for delay in WATCH_BACKOFF.delays():
        try:
            seen = await look(context, desired, container, known)
            break
        except Unavailable:
            left = of(context, desired, known)
            ran = ran or left is Remains.RUNNING
        await asyncio.sleep(delay)
    if seen.happened is not Happened.CREATED:
        return seen, Remains.NONE  # the engine knows what became of it
    now = of(context, desired, known)
    if now in (Remains.RUNNING, Remains.WAITING):
        return seen, now
    # Tidied up by the engine that came back: what was seen last before that is the truth.
    return seen, Remains.ENDED if ran or left in (Remains.RUNNING, Remains.ENDED) else Remains.NONE


def end(context: StepContext, desired: DesiredTask, known: KnownContainer, left: Remains) -> Event:
    """End what is left, and say what became of the container."""
    facts = {"task": desired.arn, "container": known.name, "remains": str(left)}
    if context.cgroups is not None and left in (Remains.WAITING, Remains.RUNNING):
        facts["killed"] = str(context.cgroups.kill(last_part(desired.arn), known.runtime_id))
    if left is not Remains.NONE:
        log.warning("engine lost sight of a container", extra=facts)
    gave_up = Event(container=known.name, happened=Happened.GAVE_UP, time=context.clock(), runtime_id=known.runtime_id)
    if left not in _WORDS:
        return gave_up
    code = KILLED if left is Remains.RUNNING else None
    return msgspec.structs.replace(gave_up, happened=Happened.EXITED, exit_code=code, error=LOST + _WORDS[left])
