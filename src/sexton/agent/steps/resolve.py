"""Which image exactly: a reference that carries a digest says so itself, any other is known once it is here."""

from __future__ import annotations

from sexton.agent.steps.context import StepContext
from sexton.core.task import DesiredTask, Event, Happened, KnownContainer
from sexton.wire import acs_task


async def resolve(
    context: StepContext, desired: DesiredTask, container: acs_task.Container, known: KnownContainer
) -> Event:
    _, at, digest = (container.image or "").partition("@")
    return Event(
        container=known.name,
        happened=Happened.RESOLVED,
        time=context.clock(),
        image_digest=digest if at else "",
    )
