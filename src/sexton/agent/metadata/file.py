"""The file in which a container finds who it is, where ``ECS_ENABLE_CONTAINER_METADATA`` asks for it.

The first version is written before the container is made, with what is known by then. The final one, marked READY,
follows each start, since a container that is started again may have another address. Both replace the file in one step.
They are in a directory per container below the data directory, which only that container has mounted; it goes with the
task, and what a killed process left is removed at the next start.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

import msgspec

from sexton.core.names import last_part
from sexton.core.sight import UNSEEN, Place, Sight
from sexton.core.task import ContainerStatus, DesiredTask, KnownContainer, KnownTask
from sexton.kit.atomicfile import write_atomic
from sexton.kit.retry import Backoff
from sexton.kit.supervise import Nursery

if TYPE_CHECKING:
    from sexton.wire import metadata

log = logging.getLogger(__name__)

NAME = "ecs-container-metadata.json"
INSIDE = "/opt/ecs/metadata"
# While the engine is away, nobody knows a container's address.
LOOK_BACKOFF = Backoff(first=0.5, cap=30.0)

_FOLDER = "metadata"


class Sources(NamedTuple):
    """Where content comes from: which directory a container has, what the engine shows, where the host is."""

    instance_arn: str
    directory: Callable[[str, str], str]
    look: Callable[[KnownContainer], Awaitable[Sight | None]]
    place: Callable[[], Place]


class MetadataFiles:
    """One agent's files."""

    def __init__(self, data_dir: Path, sources: Sources, nursery: Nursery, *, selinux: bool = False) -> None:
        self._root = data_dir / _FOLDER
        self._sources = sources
        self._nursery = nursery
        self._selinux = selinux
        self._told: dict[tuple[str, str], float] = {}  # of which start the file of a container tells, or is about to

    def variable(self, arn: str, container: str) -> str:
        """Where a container finds its file."""
        return f"{INSIDE}/{self._sources.directory(arn, container)}/{NAME}"

    def prepare(self, desired: DesiredTask, one: KnownContainer) -> tuple[str, ...]:
        """Write the first version; the mount that the container needs. One that cannot be written costs the task
        nothing else."""
        try:
            self._write(desired, one, UNSEEN, ready=False)
        except OSError as error:
            self._cannot(desired.arn, one.name, error)
            return ()
        inside = f"{INSIDE}/{self._sources.directory(desired.arn, one.name)}"
        options = "ro,Z" if self._selinux else "ro"  # only the agent has anything to write there
        return (f"{self._folder(desired.arn, one.name)}:{inside}:{options}",)

    def changed(self, desired: DesiredTask, known: KnownTask) -> None:
        """A task has moved on: write the final version for each start of a container that no file tells of."""
        for one in known.containers:
            key = (desired.arn, one.name)
            runs = one.status is ContainerStatus.RUNNING and one.running_since and not one.restarting
            if runs and self._told.get(key) != one.running_since:
                self._told[key] = one.running_since
                self._nursery.start(f"metadata-file-{last_part(desired.arn)}", self._finish(desired, one))

    async def _finish(self, desired: DesiredTask, one: KnownContainer) -> None:
        for delay in LOOK_BACKOFF.delays():
            sight = await self._sources.look(one)
            if sight is not None:
                break
            await asyncio.sleep(delay)
        try:
            self._write(desired, one, sight or UNSEEN, ready=True)
        except FileNotFoundError:
            return  # the container was made without, or its task is gone by now
        except OSError as error:
            self._cannot(desired.arn, one.name, error)

    def drop(self, arn: str) -> None:
        """The task is over and its containers are gone."""
        for key in [key for key in self._told if key[0] == arn]:
            del self._told[key]
        shutil.rmtree(self._root / last_part(arn), ignore_errors=True)

    def keep_only(self, arns: Iterable[str]) -> None:
        """Remove what is left of tasks that nobody knows any more."""
        known = {last_part(arn) for arn in arns}
        try:
            left = [one.name for one in os.scandir(self._root) if one.name not in known]
        except OSError:
            return  # nothing was ever written here
        for name in left:
            shutil.rmtree(self._root / name, ignore_errors=True)

    def _folder(self, arn: str, container: str) -> Path:
        name = quote(container, safe="")
        return self._root / last_part(arn) / (f"%{name}" if name in (".", "..") else name)

    def _write(self, desired: DesiredTask, one: KnownContainer, sight: Sight, *, ready: bool) -> None:
        from sexton.core import taskview  # only where there are such files

        view = taskview.file(desired, one, sight, self._sources.place(), self._sources.instance_arn, ready=ready)
        folder = self._folder(desired.arn, one.name)
        if ready:
            folder.stat()
        else:
            folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        write_atomic(folder / NAME, encode(view), 0o644)

    def _cannot(self, arn: str, container: str, error: OSError) -> None:
        log.warning(
            "metadata file cannot be written",
            extra={"task": arn, "container": container, "reason": error.strerror or str(error)},
        )


def encode(view: metadata.File) -> bytes:
    """As Amazon's agent lays it out."""
    return json.dumps(msgspec.to_builtins(view), indent="\t", ensure_ascii=False).encode()
