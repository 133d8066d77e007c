"""Sandboxes: the containers that hold tasks' network namespaces, and a few warm ones that wait for their task.

A sandbox is claimed by giving it its task's name, one call of the engine that either happened or did not; everything
else about it is in the engine. So a task that is taken up after a crash finds its sandbox by that name, and whatever is
called neither after a task that is here nor kept in the pool is removed at start.

Nothing is made before the first task with a network of its own comes, and when none came for a while the pool is given
up again: a host without such tasks has no sandbox. The pool is filled in quiet moments, so that filling it is not what
a launching task waits for; where there are none, slowly.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Collection
from typing import NamedTuple

from sexton.core import sandbox
from sexton.core.wiring import tag_of
from sexton.host.taskcgroup import TaskCgroups
from sexton.kit.retry import Backoff
from sexton.runtime.contract import Conflict, ContainerInfo, NotFound, Refused, Runtime, RuntimeFault, State
from sexton.settings import Settings

log = logging.getLogger(__name__)

# Where tasks never stop coming the pool is filled nevertheless, by one after so many times the pause that it waits for.
PATIENCE = 6
FILL_BACKOFF = Backoff(first=1.0, cap=60.0)
RECLAIM_BACKOFF = Backoff(first=0.05, cap=0.5)
RECLAIM_TRIES = 6


class Sandbox(NamedTuple):
    """A running one. The paths are of its files on the engine's host."""

    id: str
    sandbox_id: str
    pid: int
    hostname: str
    hosts_path: str
    resolver_path: str

    @property
    def namespace(self) -> str:
        return f"/proc/{self.pid}/ns/net"


class Sandboxes:
    """The sandboxes of one agent."""

    def __init__(self, runtime: Runtime, settings: Settings, instance_arn: str, cgroups: TaskCgroups | None) -> None:
        self._runtime = runtime
        self._settings = settings
        self._instance = instance_arn
        self._tag = tag_of(instance_arn)
        self._cgroups = cgroups
        self._warm: dict[str, Sandbox] = {}  # by the engine's id
        self._loaded = False
        self._wanted = asyncio.Event()
        self._taken = asyncio.Event()
        self._used_at = float("-inf")

    @property
    def warm(self) -> int:
        """How many wait for a task."""
        return len(self._warm)

    def want(self) -> None:
        """Tasks with a network of their own come to this host: have some ready."""
        self._used_at = asyncio.get_running_loop().time()
        if self._settings.sandbox_pool:
            self._wanted.set()

    async def take(self, task_id: str, hostname: str = "") -> Sandbox:
        """The sandbox of a task, always the same one. With a ``hostname`` it is made for this task; RuntimeFault."""
        self.want()
        self._taken.set()
        name = sandbox.task_name(self._tag, task_id)
        while self._warm and not hostname:
            chosen = self._warm.pop(next(iter(self._warm)))
            try:
                await self._runtime.rename(chosen.id, name)
            except NotFound:
                continue  # somebody removed it
            except Conflict:
                self._warm[chosen.id] = chosen
                break  # the task has one: an earlier process got that far
            if _lives(chosen.pid):
                return chosen
            await self._remove(chosen.id, chosen.sandbox_id)
        found = await self._of_task(name)
        return found or await self._make(name, hostname)

    async def _of_task(self, name: str) -> Sandbox | None:
        try:
            info = await self._runtime.inspect(name)
        except NotFound:
            return None
        if info.labels.get(sandbox.LABEL) != self._instance:
            raise Refused(f"the name {name} is taken by another container")
        if info.state is State.RUNNING:
            return _of(info)
        await self._remove(info.id, info.labels.get(sandbox.ID_LABEL, ""))
        return None

    async def find(self, task_id: str) -> Sandbox | None:
        """The sandbox of a task, if it has one that runs."""
        return await self._of_task(sandbox.task_name(self._tag, task_id))

    async def give_back(self, task_id: str) -> None:
        """Remove a task's sandbox; one that is gone is no error."""
        self._used_at = asyncio.get_running_loop().time()
        name = sandbox.task_name(self._tag, task_id)
        try:
            info = await self._runtime.inspect(name)
        except NotFound:
            return
        if info.labels.get(sandbox.LABEL) == self._instance:
            await self._remove(info.id, info.labels.get(sandbox.ID_LABEL, ""))

    async def sweep(self, tasks: Collection[str]) -> None:
        """Take up what an earlier process left: the pool, and nothing that belongs to no task."""
        listed = await self._runtime.list({sandbox.LABEL: self._instance})
        await self._sweep_cgroups({one.labels.get(sandbox.ID_LABEL, "") for one in listed})
        for one in listed:
            task_id = sandbox.task_of(self._tag, one.name)
            if task_id in tasks:
                continue
            if not task_id and one.state is State.RUNNING and len(self._warm) < self._settings.sandbox_pool and tasks:
                with contextlib.suppress(NotFound):
                    found = _of(await self._runtime.inspect(one.id))
                    self._warm[found.id] = found
                continue
            log.warning("sandbox of no task is removed", extra={"container": one.name})
            await self._remove(one.id, one.labels.get(sandbox.ID_LABEL, ""))

    async def _sweep_cgroups(self, there: Collection[str]) -> None:
        """Remove the cgroups of sandboxes that are no more: whoever removed those did not live to do this."""
        if self._cgroups is None:
            return
        kept = {sandbox.cgroup_of(self._tag, one) for one in there}
        for name in self._cgroups.named(sandbox.cgroup_of(self._tag, "")) - kept:
            await self._cgroups.reclaim(name)

    def gone(self, container_id: str) -> None:
        """A sandbox of the pool has ended."""
        self._warm.pop(container_id, None)

    async def run(self) -> None:
        """Keep the pool filled while it is wanted, for ever."""
        delays = FILL_BACKOFF.delays()
        while True:
            await self._wanted.wait()
            try:
                await self._fill()
                delays = FILL_BACKOFF.delays()
            except RuntimeFault as error:
                log.warning("sandboxes cannot be made", extra={"reason": str(error)})
                await asyncio.sleep(next(delays))

    async def _fill(self) -> None:
        idle = asyncio.get_running_loop().time() - self._used_at
        if idle >= self._settings.sandbox_idle:
            await self.empty()
            self._wanted.clear()
            return
        if len(self._warm) < self._settings.sandbox_pool:
            pause, clock = self._settings.sandbox_refill, asyncio.get_running_loop().time
            late = clock() + PATIENCE * pause
            while await self._is_taken(pause) and clock() < late:
                pass  # a task that starts needs the engine more
            made = await self._make("")
            self._warm[made.id] = made
        elif len(self._warm) >= self._settings.sandbox_pool:
            await self._is_taken(max(self._settings.sandbox_idle - idle, 0.1))

    async def _is_taken(self, seconds: float) -> bool:
        """Whether somebody took a sandbox within this time."""
        self._taken.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._taken.wait()
        except TimeoutError:
            return False
        return True

    async def empty(self) -> None:
        """Give the pool up."""
        while self._warm:
            _, one = self._warm.popitem()
            await self._remove(one.id, one.sandbox_id)

    async def _make(self, name: str, hostname: str = "") -> Sandbox:
        sandbox_id = secrets.token_hex(4)
        parent = self._cgroups.parent(sandbox.cgroup_of(self._tag, sandbox_id)) if self._cgroups else ""
        body = sandbox.create_body(self._instance, sandbox_id, parent, hostname)
        if not self._loaded:
            await self._load()
        called = name or sandbox.pool_name(self._tag, sandbox_id)
        try:
            made = await self._runtime.create(called, body)
        except NotFound:  # somebody removed the image
            await self._load()
            made = await self._runtime.create(called, body)
        except Conflict:
            found = await self._of_task(called)
            if found is None:
                raise
            return found
        try:
            await self._runtime.start(made)
            return _of(await self._runtime.inspect(made))
        except BaseException:
            if not name:  # nobody would find it
                with contextlib.suppress(RuntimeFault):
                    await self._remove(made, sandbox_id)
            raise

    async def _load(self) -> None:
        try:
            await self._runtime.image(sandbox.image_name())
        except NotFound:
            await self._runtime.load_image(sandbox.image())
        self._loaded = True

    async def _remove(self, container_id: str, sandbox_id: str) -> None:
        await self._runtime.remove(container_id, force=True)
        if self._cgroups is None or not sandbox_id:
            return
        for _, delay in zip(range(RECLAIM_TRIES), RECLAIM_BACKOFF.delays(), strict=False):
            if await self._cgroups.reclaim(sandbox.cgroup_of(self._tag, sandbox_id)):
                return
            await asyncio.sleep(delay)


def _of(info: ContainerInfo) -> Sandbox:
    return Sandbox(
        info.id,
        info.labels.get(sandbox.ID_LABEL, ""),
        info.pid,
        info.id[:12],
        info.hosts_path,
        info.resolver_path,
    )


def _lives(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().startswith(sandbox.PROGRAM.encode())
    except OSError:
        return False
