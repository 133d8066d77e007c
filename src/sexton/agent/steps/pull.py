"""Get the image, as the pull behaviour says.

``prefer-cached`` and ``once`` take an image that is here; ``default`` and ``always`` ask the registry first. A failed
pull ends the task under ``always`` and ``once``; otherwise it is remembered as the reason, and creation decides
whether the image that may be here will do.
"""

from __future__ import annotations

import asyncio
import logging

from sexton.agent.steps.context import StepContext
from sexton.core.task import DesiredTask, Event, Happened, KnownContainer
from sexton.kit.retry import Backoff
from sexton.runtime.contract import ImageInfo, Refused, Unavailable
from sexton.wire import acs_task

log = logging.getLogger(__name__)

PULL_TRIES = 5
PULL_BACKOFF = Backoff(first=1.1, cap=5.0)


async def pull(
    context: StepContext, desired: DesiredTask, container: acs_task.Container, known: KnownContainer
) -> Event:
    ref = container.image or ""
    behaviour = context.settings.pull_behavior
    image = await _local(context, ref)
    error = ""
    if image is None or behaviour in ("default", "always"):
        error = await _pull(context, ref)
        image = await _local(context, ref)
    return Event(
        container=known.name,
        happened=Happened.PULLED,
        time=context.clock(),
        image_digest=_digest(image, ref),
        error=error,
        fatal=bool(error) and behaviour in ("always", "once"),
    )


async def _local(context: StepContext, ref: str) -> ImageInfo | None:
    try:
        return await context.runtime.image(ref)
    except Refused:  # not here, or no reference at all: the pull will say which
        return None


async def _pull(context: StepContext, ref: str) -> str:
    """Pull with retries; the error as the wire names it, or nothing."""
    delays = PULL_BACKOFF.delays()
    for attempt in range(1, PULL_TRIES + 1):
        try:
            async for _ in context.runtime.pull(ref):
                pass
        except Refused as error:
            return f"CannotPullContainerError: {error}"
        except Unavailable as error:
            await context.runtime.describe()  # the engine itself being away is not this image's fault: raises
            log.info("pull failed", extra={"image": ref, "attempt": attempt, "reason": str(error)})
            if attempt == PULL_TRIES:
                return f"CannotPullContainerError: {error}"
            await asyncio.sleep(next(delays))
        else:
            return ""
    return ""


def _digest(image: ImageInfo | None, ref: str) -> str:
    """The digest under which the reference's own repository knows the image."""
    name = ref.partition("@")[0]
    last = name.rpartition("/")[2]
    repository = name.removesuffix(":" + last.partition(":")[2]) if ":" in last else name
    for one in image.digests if image else ():
        known_as, _, digest = one.partition("@")
        if known_as == repository or known_as.endswith("/" + repository):
            return digest
    return ""
