"""Have the volumes that a container mounts, before its image is pulled.

Each is made if it is not there; made twice it is the same one, since its name follows from the task. A volume of
shared scope is somebody's data: it is only ever found or made, never changed and never removed.
"""

from __future__ import annotations

import logging

from sexton.agent.steps.context import StepContext
from sexton.cloud.places import dns_suffix
from sexton.core import volumes
from sexton.core.enginebody import INSTANCE_LABEL, LABEL
from sexton.core.task import DesiredTask
from sexton.core.volumes import BadVolume, Mountable, Where
from sexton.runtime.contract import NotFound, Refused, VolumeInfo
from sexton.settings import Settings
from sexton.wire import acs_task

log = logging.getLogger(__name__)


def where(settings: Settings) -> Where:
    """What the rendering of volumes depends on here."""
    return Where(region=settings.region, suffix=dns_suffix(settings.region), capabilities=settings.volume_plugins)


async def have_volumes(context: StepContext, desired: DesiredTask, container: acs_task.Container) -> str:
    """Make what is missing; the error as the wire names it, or nothing."""
    for volume in volumes.mounted(desired.task, container):
        try:
            wanted = volumes.mountable(desired.task, volume, where(context.settings))
            if wanted.name:
                await (_shared if wanted.shared else _own)(context, desired, wanted)
        except BadVolume as error:
            return str(error)
        except Refused as error:
            return f"CannotCreateVolumeError: {error}"
    return ""


async def remove_volumes(context: StepContext, desired: DesiredTask) -> None:
    """Remove the task's own volumes; never one that is not ours."""
    for name in volumes.of_task_scope(desired.task):
        try:
            there = await context.runtime.volume(name)
        except NotFound:
            continue
        if there.labels.get(INSTANCE_LABEL) == context.identity.instance_arn:
            await context.runtime.remove_volume(name)
            log.info("volume removed", extra={"task": desired.arn, "volume": name})


async def _own(context: StepContext, desired: DesiredTask, wanted: Mountable) -> None:
    labels = {
        **wanted.labels,
        LABEL + "task-arn": desired.arn,
        INSTANCE_LABEL: context.identity.instance_arn,
    }
    made = await context.runtime.create_volume(wanted.name, driver=wanted.driver, options=wanted.options, labels=labels)
    if made.labels.get(INSTANCE_LABEL) != context.identity.instance_arn:
        raise BadVolume(f"CannotCreateVolumeError: the name {wanted.name} is taken by another volume")


async def _shared(context: StepContext, desired: DesiredTask, wanted: Mountable) -> None:
    there: VolumeInfo
    try:
        there = await context.runtime.volume(wanted.name)
    except NotFound as error:
        if wanted.must_exist:
            raise BadVolume(
                f"CannotInspectVolumeError: {error}; make volume {wanted.name} on this host, or set autoprovision"
            ) from None
        there = await context.runtime.create_volume(
            wanted.name, driver=wanted.driver, options=wanted.options, labels=wanted.labels
        )
        log.info("shared volume made", extra={"task": desired.arn, "volume": wanted.name, "driver": wanted.driver})
    if not wanted.must_exist and context.settings.shared_volume_match:
        difference = volumes.unlike(wanted, there.driver, there.options, there.labels)
        if difference:
            raise BadVolume(f"CannotCreateVolumeError: volume {wanted.name} is there already, but {difference}")
