"""Get the image, as the pull behaviour says.

``prefer-cached`` and ``once`` take an image that is here; ``default`` and ``always`` have asked the registry which one
it is by now, and an image of that digest need not be pulled again. What is pulled is pulled by its digest and then
given the name that the task calls it. A failed pull ends the task under ``always`` and ``once``; otherwise it is
remembered as the reason, and creation decides whether the image that may be here will do.
"""

from __future__ import annotations

from sexton.agent.pulls import PULL_TRIES, EngineAway
from sexton.agent.steps.context import StepContext
from sexton.agent.steps.resolve import NoLogin, local_image, login
from sexton.core import images, reasons
from sexton.core.task import DesiredTask, Event, Happened, KnownContainer
from sexton.runtime.contract import ImageInfo, Refused, TimedOut, Unavailable
from sexton.wire import acs_task


async def pull(
    context: StepContext, desired: DesiredTask, container: acs_task.Container, known: KnownContainer
) -> Event:
    ref = container.image or ""
    behaviour = context.settings.pull_behavior
    supplies = context.supplies
    error, fatal = "", False
    await supplies.pulls.settled(ref)
    with supplies.pulls.hold(ref):
        image = await local_image(context, ref)
        wanted = known.image_digest
        if images.asks_registry(behaviour, here=image is not None, pulled_before=supplies.book.was_pulled(ref)):
            if not _is_it(image, ref, wanted):
                # Where the registry did not even name the image, and one is here that will do, it is asked just once.
                once = image is not None and known.reason and not images.failure_ends_task(behaviour)
                error, fatal = await _fetch(context, desired, container, wanted, 1 if once else PULL_TRIES)
                image = await local_image(context, ref)
            if image is not None and not error:
                await supplies.book.pulled(ref, image.id, image.size, context.clock())
        if image is not None:
            supplies.book.used(image.id, context.clock())
            supplies.image_seen(ref, image.variables)
    return Event(
        container=known.name,
        happened=Happened.PULLED,
        time=context.clock(),
        image_digest=images.digest_of(image.digests, ref) if image else "",
        error=error,
        fatal=bool(error) and (fatal or images.failure_ends_task(behaviour)),
    )


def _is_it(image: ImageInfo | None, ref: str, digest: str) -> bool:
    """Whether the image that has the name here is the one that the registry has under it."""
    repository, _ = images.split_reference(ref)
    return image is not None and bool(digest) and f"{repository}@{digest}" in image.digests


async def _fetch(
    context: StepContext, desired: DesiredTask, container: acs_task.Container, digest: str, tries: int
) -> tuple[str, bool]:
    """Pull; the error as the wire names it or nothing, and whether it ends the task whatever is here."""
    ref = container.image or ""
    repository, own = images.split_reference(ref)
    exact = f"{repository}@{digest}" if digest and not own else ref
    pulls = context.supplies.pulls
    try:
        auth = await login(context, desired, container)
        with pulls.hold(exact):
            # Another task's pull may have ended since this one looked: what was resolved is not pulled twice.
            await pulls.pull(exact, auth, tries, unless_here=exact != ref)
            if exact != ref:
                await pulls.tag(exact, ref)
    except EngineAway:
        raise
    except NoLogin as error:
        return str(error), error.final
    except TimedOut as error:
        return reasons.timed_out(reasons.PULLED, error.after), False
    except (Refused, Unavailable) as error:
        return reasons.pull_failed(str(error), ref), False
    return "", False
