"""The keys of tasks' roles: in memory only, from the control plane's messages, for as long as the task needs them.

They come inside payloads and are renewed by messages of their own; after a restart of this process they are sent again
on the first connection, and until then only the ids under which tasks ask for them are known. A task's own keys end
with the task, those of its execution role when it is cleaned up. A step that needs an execution role's keys waits a
minute for them and then gives up.

A control plane that is not Amazon's may send no roles at all. Then the agent's own credentials pay for the call, and
where it has none from the usual places, those it registered with.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from datetime import datetime
from typing import NamedTuple

from sexton.cloud.credentials import Credentials, CredentialSource, NoCredentials
from sexton.core.taskroles import EXECUTION, TASK
from sexton.wire import acs_task

log = logging.getLogger(__name__)

# How long a step waits for keys that are on their way.
WAIT_SECONDS = 60.0


class MissingRole(Exception):  # noqa: N818 - becomes the reason of a task
    """There are no keys of an execution role."""

    def __init__(self) -> None:
        super().__init__("unable to find execution role credentials")


class Sent(NamedTuple):
    """One set of keys as a message brought it, for one role of one task."""

    task: str
    role: str  # EXECUTION or TASK
    keys: acs_task.IAMRoleCredentials


class Served(NamedTuple):
    """Whose keys an id means; ``keys`` is None while they are on their way."""

    task: str
    role: str
    keys: acs_task.IAMRoleCredentials | None


class RoleKeys:
    """Keys by task and role, and by the ids under which tasks ask for them."""

    def __init__(
        self, own: CredentialSource, *, may_use_own: bool = False, clock: Callable[[], float] = time.time
    ) -> None:
        self._own = own
        self._may_use_own = may_use_own
        self._clock = clock
        self._kept: dict[tuple[str, str], acs_task.IAMRoleCredentials] = {}
        self._ids: dict[str, tuple[str, str]] = {}
        self._changed = asyncio.Event()

    @property
    def own(self) -> CredentialSource:
        """The agent's own."""
        return self._own

    def take(self, sent: Sent) -> bool:
        """Keep keys; False when they lack something."""
        keys = sent.keys
        if not (keys.credentials_id and keys.access_key_id and keys.secret_access_key):
            return False
        if not self.expect(sent.task, sent.role, keys.credentials_id):
            return False
        self._kept[sent.task, sent.role] = keys
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
        return True

    def expect(self, task: str, role: str, credentials_id: str) -> bool:
        """Know an id, as a saved task names it, before its keys are here; False when it is another task's."""
        return self._ids.setdefault(credentials_id, (task, role)) == (task, role)

    def find(self, task: str, role: str) -> tuple[str, Credentials] | None:
        """Id and keys of one role, unless they have ended."""
        keys = self._kept.get((task, role))
        if keys is None:
            return None
        found = Credentials(
            keys.access_key_id or "", keys.secret_access_key or "", keys.session_token or None, _moment(keys.expiration)
        )
        return None if found.expired(self._clock()) else (keys.credentials_id or "", found)

    def under(self, credentials_id: str) -> Served | None:
        """Whose keys an id means. Whether they have ended is for whoever uses them to see."""
        owner = self._ids.get(credentials_id)
        return None if owner is None else Served(*owner, self._kept.get(owner))

    async def execution(self, task: acs_task.Task) -> CredentialSource:
        """Whose keys sign what a task needs before it starts; MissingRole when none come within a minute."""
        arn = task.arn or ""
        if self.find(arn, EXECUTION) is None and task.execution_role_credentials is None and self._may_use_own:
            return self._own
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                while self.find(arn, EXECUTION) is None:
                    await self._changed.wait()
        except TimeoutError:
            raise MissingRole from None
        return _OfTask(self, arn, EXECUTION)

    def source(self, task: str, role: str) -> CredentialSource:
        """The keys of one role of a task, as they are at each moment."""
        return _OfTask(self, task, role)

    def stopped(self, task: str) -> None:
        """Nothing of the task runs any more that could act in its role."""
        self._drop(task, TASK)

    def kept(self, task: str) -> CredentialSource | None:
        """The keys of a task's execution role as they come, if some have; without waiting."""
        return _OfTask(self, task, EXECUTION) if self.find(task, EXECUTION) is not None else None

    def forget(self, task: str) -> None:
        """Nothing is left of the task."""
        for role in (EXECUTION, TASK):
            self._drop(task, role)

    def _drop(self, task: str, role: str) -> None:
        self._kept.pop((task, role), None)
        for one in [one for one, owner in self._ids.items() if owner == (task, role)]:
            del self._ids[one]


class _OfTask:
    """The keys of one role of a task at each moment."""

    def __init__(self, keys: RoleKeys, task: str, role: str) -> None:
        self._keys = keys
        self._task = task
        self._role = role

    async def current(self) -> Credentials:
        found = self._keys.find(self._task, self._role)
        if found is None:
            raise NoCredentials(())
        return found[1]

    def forget(self, refused: Credentials) -> None:
        """They are renewed by the control plane alone."""


class FirstOf:
    """Credentials of the first source that has any."""

    def __init__(self, *sources: CredentialSource) -> None:
        self._sources = sources

    async def current(self) -> Credentials:
        *others, last = self._sources
        for source in others:
            try:
                return await source.current()
            except NoCredentials:
                continue
        return await last.current()

    def forget(self, refused: Credentials) -> None:
        for source in self._sources:
            source.forget(refused)


def _moment(expiration: str | None) -> float | None:
    """When keys end. The text is the control plane's own; what is no time says nothing."""
    if not expiration:
        return None
    try:
        return datetime.fromisoformat(expiration).timestamp()
    except ValueError:
        return None
