"""The keys that one connected agent must have for its tasks' roles: got, sent, renewed before they end.

    a task with roles -> keys are got -> inside its payload -> acknowledged -> at half their life anew -> a message
    a task that has never started and whose keys are not to be had -> waits, and in the end is told to stop

A task that runs goes on without: its old keys may be good for a while, so new ones are asked for as long as it lives.
Keys are held from when they were got until the agent has acknowledged them, and nowhere else; a new connection begins
with none. What a task asks its endpoint with is the same on every connection and every control plane.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import msgspec

from sexton.control import taskroles
from sexton.control.context import Context
from sexton.control.link.delivery import RESEND_AFTER
from sexton.control.records import TaskRecord
from sexton.control.rolekeys import Issued, NoRole, session_name
from sexton.core.taskroles import EXECUTION, TASK, TaskRole
from sexton.core.taskroles import refusal as refusal_of
from sexton.kit.retry import Backoff
from sexton.kit.supervise import Nursery
from sexton.wire import acs_task

log = logging.getLogger(__name__)

FETCH_BACKOFF = Backoff(first=1.0, cap=60.0)
# A task that has not started is told to stop when its keys are not to be had for so long.
PATIENCE_SECONDS = 180.0
# Keys are renewed no sooner than this after the last time, however soon they end.
SHORTEST_SECONDS = 30.0
# The wall clock may be set at any time: when keys are due is looked at again after this.
LOOK_SECONDS = 30.0
LONGEST_RESEND = 300.0


class Due(NamedTuple):
    """Keys to send in a message of their own."""

    task: str
    role: TaskRole
    keys: acs_task.IAMRoleCredentials


class _Held:
    """One role of one task."""

    def __init__(self, role: TaskRole, credentials_id: str) -> None:
        self.role = role
        self.credentials_id = credentials_id
        self.issued: Issued | None = None  # until acknowledged
        self.renew_at = 0.0  # wall clock; 0 before there were any
        self.message = ""
        self.sent_at = 0.0  # steady clock
        self.tries = 0

    @property
    def resend_at(self) -> float:
        return self.sent_at + min(RESEND_AFTER * 2.0 ** min(self.tries - 1, 10), LONGEST_RESEND)

    def wire(self) -> acs_task.IAMRoleCredentials | None:
        if self.issued is None:
            return None
        keys = self.issued.credentials
        return acs_task.IAMRoleCredentials(
            credentials_id=self.credentials_id,
            role_arn=self.role.arn,
            access_key_id=keys.access_key_id,
            secret_access_key=keys.secret_access_key,
            session_token=keys.session_token or "",
            expiration=self.issued.expiration,
        )


class _Task:
    """A task's roles, and whether keys of them are being asked for."""

    def __init__(self, held: tuple[_Held, ...]) -> None:
        self.held = held
        self.asking = False
        self.tried = False
        self.record: TaskRecord | None = None

    @property
    def complete(self) -> bool:
        return all(one.renew_at for one in self.held)


class TaskKeys:
    """What one connection knows of the keys that its agent should have."""

    def __init__(
        self,
        context: Context,
        nursery: Nursery,
        wake: Callable[[], None],
        most: asyncio.Semaphore,
    ) -> None:
        self._context = context
        self._nursery = nursery
        self._wake = wake
        self._most = most  # askings at a time, over all connections
        self._tasks: dict[str, _Task] = {}

    def attend(self, records: Iterable[TaskRecord]) -> None:
        """Get what these tasks lack, and forget all others."""
        roles = self._context.roles
        if roles is None:
            return
        before, self._tasks = self._tasks, {}
        now = self._context.clock()
        for record in records:
            task = before.get(record.arn)
            if task is None:
                wanted = taskroles.of_record(self._context, record)
                task = _Task(tuple(_Held(one, roles.credentials_id(record.arn, one.kind)) for one in wanted))
            self._tasks[record.arn] = task
            task.record = record
            unborn = not _started(record) and record.task.desired_status == "STOPPED"
            if task.held and not task.asking and not unborn and any(one.renew_at <= now for one in task.held):
                task.asking = True
                self._nursery.start("role-keys", self._get(record.arn, task))

    def concern(self, arn: str) -> bool:
        """Whether what becomes of a task makes a difference here: it has roles, or has not been looked at yet."""
        task = self._tasks.get(arn)
        return self._context.roles is not None and (task is None or bool(task.held))

    def holds_back(self, arn: str) -> bool:
        """Whether a task is not to be sent yet: one that has never started has no use without its keys."""
        task = self._tasks.get(arn)
        if task is None or task.record is None or task.complete or task.record.task.desired_status == "STOPPED":
            return False
        return not _started(task.record) or not task.tried

    def onto(self, payload: acs_task.Task, message: str) -> acs_task.Task:
        """A payload with what keys there are for it; they are sent with it, in the message of this id."""
        task = self._tasks.get(payload.arn or "")
        if task is None or payload.desired_status == "STOPPED":
            return payload
        given = {one.role.kind: self._sent(one, message) for one in task.held if one.issued is not None}
        return msgspec.structs.replace(
            payload, role_credentials=given.get(TASK), execution_role_credentials=given.get(EXECUTION)
        )

    def due(self, message: Callable[[], str]) -> Iterator[tuple[str, Due]]:
        """Keys whose time has come, each with the id of its message; they count as sent."""
        now = time.monotonic()
        for arn, task in self._tasks.items():
            for one in task.held:
                if one.issued is not None and (not one.message or one.resend_at <= now) and not self.holds_back(arn):
                    made = message()
                    keys = self._sent(one, made)
                    assert keys is not None
                    yield made, Due(arn, one.role, keys)

    def acknowledge(self, message: str, credentials_id: str | None = None) -> None:
        """The agent has what came in a message; nothing of it is kept here."""
        for task in self._tasks.values():
            for one in task.held:
                if one.message == message and credentials_id in (None, one.credentials_id):
                    one.issued, one.message, one.tries = None, "", 0

    def wait(self) -> float | None:
        """For how long nothing is to be done here, unless something changes."""
        ahead: list[float] = []
        now, steady = self._context.clock(), time.monotonic()
        for arn, task in self._tasks.items():
            if self.holds_back(arn):
                continue  # it is being asked for, which wakes
            for one in task.held:
                if one.issued is not None:
                    ahead.append(one.resend_at - steady if one.message else 0.0)
                elif not task.asking:
                    ahead.append(one.renew_at - now)
        return max(0.01, min(LOOK_SECONDS, *ahead)) if ahead else None

    def _sent(self, one: _Held, message: str) -> acs_task.IAMRoleCredentials | None:
        one.message, one.sent_at, one.tries = message, time.monotonic(), one.tries + 1
        return one.wire()

    async def _get(self, arn: str, task: _Task) -> None:
        """Keys for every role of a task that lacks some, for as long as the task is there."""
        began = time.monotonic()
        delays = FETCH_BACKOFF.delays()
        said = ""
        try:
            while self._tasks.get(arn) is task:
                trouble = await self._try(arn, task)
                task.tried = True
                if trouble is None:
                    return
                if str(trouble) != said:
                    said = str(trouble)
                    log.warning("no keys of a role", extra={"task": arn, "reason": said})
                record = task.record
                waited = time.monotonic() - began
                hopeless = not trouble.passing or waited >= PATIENCE_SECONDS
                unborn = record if record is not None and not _started(record) else None
                if hopeless and unborn is not None and await taskroles.give_up(self._context, unborn, said):
                    return
                self._wake()
                await asyncio.sleep(next(delays))
        finally:
            task.asking = False
            self._wake()

    async def _try(self, arn: str, task: _Task) -> NoRole | None:
        roles = self._context.roles
        assert roles is not None
        for one in task.held:
            if one.renew_at > self._context.clock():
                continue
            try:
                async with self._most:
                    issued = await roles.issue(one.role.arn, session_name(arn))
            except NoRole as error:
                return NoRole(refusal_of(one.role.arn, str(error)), passing=error.passing)
            except Exception:
                # The edge of one task's keys: a fault of ours costs this task its keys, not the agent its connection.
                log.exception("keys of a role cannot be got", extra={"task": arn, "role": one.role.arn})
                return NoRole(refusal_of(one.role.arn, "The control plane's log says why."), passing=True)
            one.issued, one.message, one.tries = issued, "", 0
            one.renew_at = renewal(issued, self._context.clock())
        return None


def renewal(issued: Issued, now: float) -> float:
    """When keys are to be renewed: early enough that SDKs, which begin to ask fifteen minutes before the end, never
    see them end, whoever gives them being away for as long."""
    return now + max((issued.expires_at - now) / 2, SHORTEST_SECONDS)


def _started(record: TaskRecord) -> bool:
    """Whether an agent has ever said that it runs."""
    return bool(record.task.started_at)
