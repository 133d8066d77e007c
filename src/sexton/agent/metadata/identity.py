"""The names by which containers are known at their endpoint: unguessable, and the same after every restart.

A name follows from the task's ARN, the container's name and a key that only this agent has, in a file of its data
directory that only root can read. So a container that was created by a process which died at once has the name that
its environment says, and nobody who knows everything but the key can say what it is. A container has one name for its
paths and another one for its metadata file, since the place of a mount can be seen from outside.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import secrets
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from sexton.agent.runner import Runner
from sexton.core.task import KnownContainer
from sexton.kit.atomicfile import write_atomic

log = logging.getLogger(__name__)

KEY_FILE = "endpoint.key"
_KEY_BYTES = 32


class Subject(NamedTuple):
    """A container, by its task."""

    runner: Runner
    container: str

    @property
    def known(self) -> KnownContainer:
        return self.runner.known.container(self.container)


class Names:
    """Gives names, and finds who has one."""

    def __init__(self, key: bytes, runners: Callable[[], Iterable[Runner]] = tuple) -> None:
        self._key = key
        self._runners = runners
        self._of_task: dict[str, tuple[str, ...]] = {}
        self._known: dict[str, tuple[str, str]] = {}

    def of(self, arn: str, container: str) -> str:
        """The name of a container in paths."""
        return self._name("path", arn, container)

    def of_file(self, arn: str, container: str) -> str:
        """The name of the directory in which a container finds its metadata file."""
        return self._name("file", arn, container)

    def _name(self, what: str, arn: str, container: str) -> str:
        made = hmac.new(self._key, f"{what}\n{arn}\n{container}".encode(), hashlib.sha256).digest()
        return str(uuid.UUID(bytes=made[:16], version=4))

    def find(self, name: str) -> Subject | None:
        """The container of this name, while its task is known here."""
        runners = {one.arn: one for one in self._runners()}
        self._learn(runners)
        arn, container = self._known.get(name, ("", ""))
        runner = runners.get(arn)
        return Subject(runner, container) if runner is not None else None

    def runner(self, arn: str) -> Runner | None:
        return next((one for one in self._runners() if one.arn == arn), None)

    def _learn(self, runners: dict[str, Runner]) -> None:
        """Keep the names of all tasks there are; only what came and went costs anything."""
        for arn in self._of_task.keys() - runners.keys():
            for name in self._of_task.pop(arn):
                del self._known[name]
        for arn in runners.keys() - self._of_task.keys():
            containers = [one.name or "" for one in runners[arn].desired.task.containers or ()]
            mine = {self.of(arn, container): (arn, container) for container in containers}
            self._of_task[arn] = tuple(mine)
            self._known |= mine


def own_key(data_dir: Path, *, remember: bool = True) -> bytes:
    """This agent's key, made when there is none. OSError when it can be neither read nor kept."""
    path = data_dir / KEY_FILE
    if not remember:
        return secrets.token_bytes(_KEY_BYTES)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        pass
    else:
        with os.fdopen(descriptor, "rb") as file:
            key = file.read(_KEY_BYTES + 1)
        if len(key) == _KEY_BYTES:
            return key
        log.error("key of the task endpoints is damaged, running containers lose theirs", extra={"file": str(path)})
    key = secrets.token_bytes(_KEY_BYTES)
    write_atomic(path, key, 0o600)
    return key
