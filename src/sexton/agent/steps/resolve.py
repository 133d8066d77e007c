"""Which image exactly: the digest that every later step of this container means.

A reference that carries a digest says so itself. Where the registry is not to be asked the image on this host decides,
otherwise the registry does, so that a tag which moves meanwhile moves nothing of this container.
"""

from __future__ import annotations

from sexton.agent.pulls import DIGEST_TRIES, DIGEST_TRIES_WITH_IMAGE, EngineAway
from sexton.agent.rolekeys import MissingRole
from sexton.agent.steps.context import StepContext
from sexton.cloud.credentials import NoCredentials
from sexton.cloud.exchange import Unreachable
from sexton.core import images, reasons
from sexton.core.injection import BadReference
from sexton.core.registryauth import Auth
from sexton.core.task import DesiredTask, Event, Happened, KnownContainer
from sexton.runtime.contract import ImageInfo, Refused, TimedOut, Unavailable
from sexton.wire import acs_task
from sexton.wire.errors import EcsError


class NoLogin(Exception):  # noqa: N818 - becomes the reason of a container or a task
    """The image's registry wants a log-in that cannot be had. ``final``: whatever is on the host, the task ends."""

    def __init__(self, reason: str, *, final: bool) -> None:
        super().__init__(reason)
        self.final = final


async def resolve(
    context: StepContext, desired: DesiredTask, container: acs_task.Container, known: KnownContainer
) -> Event:
    ref = container.image or ""
    behaviour = context.settings.pull_behavior
    _, digest = images.split_reference(ref)
    error, fatal = "", False
    if not digest:
        here = await local_image(context, ref)
        if not images.asks_registry(
            behaviour, here=here is not None, pulled_before=context.supplies.book.was_pulled(ref)
        ):
            digest = images.digest_of(here.digests if here else (), ref)
        else:
            try:
                auth = await login(context, desired, container)
                will_do = here is not None and not images.failure_ends_task(behaviour)
                tries = DIGEST_TRIES_WITH_IMAGE if will_do else DIGEST_TRIES
                digest = await context.supplies.pulls.digest(ref, auth, tries)
            except EngineAway:
                raise
            except NoLogin as no:
                error, fatal = str(no), no.final
            except TimedOut as silent:
                error = reasons.timed_out(reasons.MANIFEST, silent.after)
            except (Refused, Unavailable) as no:
                error = reasons.pull_failed(str(no), ref, "CannotPullImageManifestError")
    return Event(
        container=known.name,
        happened=Happened.RESOLVED,
        time=context.clock(),
        image_digest=digest,
        error=error,
        fatal=bool(error) and (fatal or images.failure_ends_task(behaviour)),
    )


async def local_image(context: StepContext, ref: str) -> ImageInfo | None:
    """The image on this host, if it is there."""
    try:
        return await context.runtime.image(ref)
    except Refused:  # not here, or no reference at all: the pull will say which
        return None


async def login(context: StepContext, desired: DesiredTask, container: acs_task.Container) -> Auth | None:
    """How to log in for the container's image; NoLogin with the reason on the wire."""
    kind = container.registry_authentication.type if container.registry_authentication else ""
    try:
        return await context.supplies.registries.find(desired.task, container)
    except (EcsError, Unreachable, NoCredentials, MissingRole, BadReference) as error:
        if kind == "ecr":
            raise NoLogin(f"CannotPullECRContainerError: {error}", final=False) from None
        region = (container.registry_authentication and container.registry_authentication.asm_auth_data) or None
        where = (region and region.region) or context.settings.region
        raise NoLogin(f"Fetching secret data from AWS Secrets Manager in region {where}: {error}", final=True) from None
