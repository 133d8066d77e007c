"""Cleaning up behind tasks: images nobody uses, volumes of forgotten tasks, and room when the disk is short.

observe -> decide (``core.cleanup``) -> remove -> say. A cycle comes every so often; the disk is looked at every half
minute, which costs one call of the kernel, and at once when a pull found it full. What the engine measures is asked
for only when the disk is short, because measuring walks every volume.

An image is removed by its names, one after the other, and no pull of any of them begins until that is over; one whose
pull is under way is not touched. A stopped task goes early only once the control plane knows of its end. Nothing here
survives a restart and nothing needs to.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from sexton.agent.engine import Engine
from sexton.agent.runner import Runner
from sexton.agent.steps.context import StepContext
from sexton.core import cleanup, sandbox, volumes
from sexton.core.cleanup import Image, InUse, Leftover, Ours, Removal, Rules
from sexton.core.enginebody import INSTANCE_LABEL, LABEL
from sexton.core.task import TaskStatus
from sexton.runtime.contract import (
    Conflict,
    ContainerBrief,
    DiskUse,
    NotFound,
    Refused,
    RuntimeFault,
    State,
    Unavailable,
)

log = logging.getLogger(__name__)

# What holds tasks' networks; removed by hand it is loaded again.
_OWN_IMAGES = (sandbox.image_name(),) if sandbox.is_there() else ()
DISK_SECONDS = 30.0
# A disk that stays short is not measured more often than this: measuring is work for a disk that has too much of it.
MEASURE_SECONDS = 300.0


class Disk(NamedTuple):
    """The file system that the engine keeps its things on, in bytes."""

    total: int
    free: int


def disk_of(path: str) -> Disk | None:
    """None when the engine's directory is not on this host, or not to be seen."""
    if not path:
        return None
    try:
        found = os.statvfs(path)
    except OSError:
        return None
    return Disk(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)


class Cleanup:
    """The clean-up of one host."""

    def __init__(
        self, context: StepContext, engine: Engine, root: str, disk: Callable[[str], Disk | None] = disk_of
    ) -> None:
        self._context = context
        self._engine = engine
        self._root = root
        self._disk = disk
        self._wake = asyncio.Event()
        self._measured_at = float("-inf")
        self._told_short = False
        context.supplies.pulls.make_room = self.hurry

    def hurry(self) -> None:
        """The disk was full just now: look at once."""
        self._measured_at = float("-inf")
        self._wake.set()

    async def run(self) -> None:
        """For ever."""
        loop = asyncio.get_running_loop()
        settings = self._context.settings
        due = loop.time() + settings.image_cleanup_interval
        while True:
            full = False
            try:
                async with asyncio.timeout(max(0.0, min(DISK_SECONDS, due - loop.time()))):
                    await self._wake.wait()
                full = True
            except TimeoutError:
                pass
            self._wake.clear()
            try:
                await self.relieve(full=full)
                if loop.time() >= due:
                    due = loop.time() + DISK_SECONDS  # for one that does not come to its end
                    log.info("clean-up", extra={"did": await self.cycle()})
                    due = loop.time() + settings.image_cleanup_interval
            except RuntimeFault as error:
                log.warning("clean-up waits for the engine", extra={"reason": str(error)})

    async def cycle(self) -> str:
        """One clean-up by age, and what it did, in one sentence."""
        listed = await self._context.runtime.list({})
        loose = await self._loose_volumes()
        others = await self._other_containers(listed)
        if others:
            listed = await self._context.runtime.list({})
        images = 0
        if self._images_may_go:
            found = await self._images()
            chosen = cleanup.by_age(found, self._ours(), self._in_use(listed), self._rules, self._context.clock())
            images = await self._remove(chosen)
            for gone in self._ours().keys() - {image.id for image in found}:
                await self._context.supplies.book.forget(gone)  # removed by somebody else
        await self._context.supplies.book.flush()
        return f"{images} images, {loose} volumes of no task and {others} containers of others removed"

    async def relieve(self, *, full: bool = False) -> str:
        """Make room when the disk is short; what was done, or nothing. ``full``: whatever the figures say, it is."""
        disk = self._disk(self._root)
        settings = self._context.settings
        need = cleanup.shortage(disk.total, disk.free, settings.disk_reserve) if disk else 0
        if full and settings.disk_reserve >= 0:
            # Whoever found it full has taken its files away again: as much as the reserve is made free once more.
            need = max(need, disk.total * max(settings.disk_reserve, 1) // 100 if disk else 1)
        if not need:
            self._told_short = False
            return ""
        loop = asyncio.get_running_loop()
        if loop.time() - self._measured_at < MEASURE_SECONDS:
            return ""
        self._measured_at = loop.time()
        use = await self._measure()
        listed = await self._context.runtime.list({})
        images = [
            Image(
                id=one.id,
                names=one.names,
                digests=one.digests,
                size=use.images.get(one.id, one.size),
                created_at=one.created_at,
            )
            for one in (await self._images() if self._images_may_go else ())
        ]
        leftovers = [await self._leftover(runner, use) for runner in self._engine.runners() if _is_over(runner)]
        now = self._context.clock()
        chosen = cleanup.under_pressure(
            images, self._ours(), leftovers, self._in_use(listed), self._rules, need=need, now=now
        )
        self._say_short(disk, need, use, chosen)
        gone = await self._remove(chosen)
        if gone:  # and the next look may find what those held fast
            self._measured_at = loop.time() - MEASURE_SECONDS + DISK_SECONDS
        return f"{gone} of {len(chosen)} removed"

    @property
    def _images_may_go(self) -> bool:
        settings = self._context.settings
        return not settings.disable_image_cleanup and settings.pull_behavior != "prefer-cached"

    @property
    def _rules(self) -> Rules:
        settings = self._context.settings
        return Rules(
            minimum_age=settings.image_minimum_age,
            per_cycle=settings.images_per_cycle,
            excluded=(*settings.excluded_images, *_OWN_IMAGES),
            others=settings.clean_untracked,
            others_minimum_age=settings.other_image_minimum_age,
        )

    def _ours(self) -> dict[str, Ours]:
        records = self._context.supplies.book.records()
        return {key: Ours(pulled_at=one.pulled_at, used_at=one.used_at) for key, one in records.items()}

    async def _images(self) -> tuple[Image, ...]:
        return tuple(
            Image(id=one.id, names=one.tags, digests=one.digests, size=one.size, created_at=one.created_at)
            for one in await self._context.runtime.images()
        )

    def _in_use(self, listed: Iterable[ContainerBrief]) -> InUse:
        return InUse(ids=frozenset(one.image_id for one in listed), names=self._wanted())

    def _wanted(self) -> frozenset[str]:
        """Every name by which a task that is here, or a pull, means an image."""
        names = set(self._context.supplies.pulls.held())
        for runner in self._engine.runners():
            for container in runner.desired.task.containers or ():
                ref = container.image or ""
                digest = runner.known.container(container.name or "").image_digest
                repository = ref.partition("@")[0]
                names |= {ref, ref.removesuffix(":latest"), f"{repository}@{digest}" if digest else ref}
        return frozenset(names)

    async def _remove(self, chosen: Iterable[Removal]) -> int:
        count = 0
        for one in chosen:
            if one.image is not None:
                count += await self._remove_image(one.image, one)
            else:
                runner = self._engine.find(one.task)
                if runner is not None and _is_over(runner):
                    log.info("task is removed early", extra={"task": one.task, "bytes": one.size, "why": one.why})
                    runner.hurry()
                    count += 1
        return count

    async def _remove_image(self, image: Image, removal: Removal) -> int:
        names = (*image.names, *image.digests)
        with self._context.supplies.pulls.removing(names) as free:
            # Asked again here, with nothing in between: a task may have come since the decision.
            if not free or InUse(names=self._wanted()).holds(image):
                return 0
            facts = {"image": ", ".join(image.names) or image.id, "bytes": image.size, "why": removal.why}
            try:
                for name in names:
                    await self._context.runtime.remove_image(name)
                await self._context.runtime.remove_image(image.id)
            except Conflict as error:
                log.info("image stays", extra={**facts, "reason": str(error)})
                return 0
            except Refused as error:
                log.warning("image cannot be removed", extra={**facts, "reason": str(error)})
                return 0
        await self._context.supplies.book.forget(image.id)
        log.info("image removed", extra=facts)
        return 1

    async def _loose_volumes(self) -> int:
        """Volumes of tasks that nobody knows any more, as after the loss of a state."""
        mine = await self._context.runtime.volumes({INSTANCE_LABEL: self._context.identity.instance_arn})
        count = 0
        for one in mine:
            task = one.labels.get(LABEL + "task-arn", "")
            if self._engine.find(task) is not None:
                continue
            try:
                await self._context.runtime.remove_volume(one.name)
            except Refused as error:
                log.info("volume stays", extra={"volume": one.name, "reason": str(error)})
                continue
            log.info("volume removed", extra={"volume": one.name, "task": task, "why": "its task is not here any more"})
            count += 1
        return count

    async def _other_containers(self, listed: Iterable[ContainerBrief]) -> int:
        """Ended containers of others, where the operator asked for that."""
        settings = self._context.settings
        count = 0
        for one in listed if settings.clean_untracked else ():
            if count >= settings.other_containers_per_cycle:
                break
            if one.state is State.RUNNING or INSTANCE_LABEL in one.labels or sandbox.LABEL in one.labels:
                continue
            try:
                info = await self._context.runtime.inspect(one.id)
                since = info.finished_at or info.created_at
                if info.state is State.RUNNING or self._context.clock() - since < settings.cleanup_wait:
                    continue
                await self._context.runtime.remove(one.id)
            except NotFound:
                continue
            except Refused as error:
                log.info("container stays", extra={"container": one.name, "reason": str(error)})
                continue
            log.info("container removed", extra={"container": one.name, "why": "not of a task, and over for long"})
            count += 1
        return count

    async def _measure(self) -> DiskUse:
        """What lies where; an engine that cannot say costs the order, not the clean-up."""
        try:
            return await self._context.runtime.disk_use()
        except Unavailable as error:
            log.warning("disk use is not known", extra={"reason": str(error)})
            return DiskUse()

    async def _leftover(self, runner: Runner, use: DiskUse) -> Leftover:
        size = sum(use.volumes.get(name, 0) for name in volumes.of_task_scope(runner.desired.task))
        for one in runner.known.containers:
            if one.runtime_id:
                size += use.containers.get(one.runtime_id, 0) + await self._log_size(one.runtime_id)
        return Leftover(task=runner.arn, stopped_at=runner.known.stopped_at, size=size)

    async def _log_size(self, container: str) -> int:
        """A container's log and those that were rotated away from it."""
        try:
            path = (await self._context.runtime.inspect(container)).log_path
        except (Refused, Unavailable):
            return 0
        return await asyncio.to_thread(_size_of_log, path) if path else 0

    def _say_short(self, disk: Disk | None, need: int, use: DiskUse, chosen: tuple[Removal, ...]) -> None:
        if self._told_short and not chosen:
            return
        self._told_short = True
        facts = {
            "free": disk.free if disk else 0,
            "of": disk.total if disk else 0,
            "missing": need,
            "images": sum(use.images.values()),
            "containers": sum(use.containers.values()),
            "volumes": sum(use.volumes.values()),
            "going": len(chosen),
            "bytes": sum(one.size for one in chosen),
        }
        if chosen:
            log.warning("disk is short", extra=facts)
        else:
            log.error("disk is short and nothing may be removed", extra=facts)


def _is_over(runner: Runner) -> bool:
    """Whether a task has stopped and the control plane knows it: from then on its containers are only memories."""
    return runner.known.status is TaskStatus.STOPPED and runner.known.sent is TaskStatus.STOPPED


def _size_of_log(path: str) -> int:
    """Engines rotate a log by numbering its older parts."""
    file = Path(path)
    size = 0
    try:
        for part in file.parent.glob(f"{file.name}*"):
            size += part.stat().st_size
    except OSError:
        return size
    return size
