"""Interfaces that the control plane plugs into this host for a task: announced, found, confirmed.

Amazon's control plane says that a device with a certain hardware address will appear, and sends the task once this
agent has confirmed that it did. What was announced is written down before it is acknowledged, so an agent that died
meanwhile goes on looking. What does not appear in time is forgotten without a word, as the control plane does; devices
nobody announced are left alone.

    announced -> device seen -> ATTACHED is said, until it is taken -> kept until its task ends
          `-> the time it was given is over: forgotten
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable

import msgspec

from sexton.cloud.transient import RetryPolicy, retrying
from sexton.core.names import last_part
from sexton.host.devices import by_hardware_address
from sexton.kit.retry import Backoff
from sexton.kit.supervise import Nursery
from sexton.store.contract import Delete, Put, Store
from sexton.wire import acs
from sexton.wire import ecs_agent as ecs
from sexton.wire.errors import UNREADABLE, EcsError

log = logging.getLogger(__name__)

_ROWS = "attachments/"
# Looking costs one small call per device of the host; nobody looks while nothing is announced.
LOOK_SECONDS = 0.25
CONFIRM_POLICY = RetryPolicy(Backoff(first=1.0, cap=30.0, factor=1.3))
# A task that never came, of an interface that did.
KEPT_SECONDS = 24 * 3600.0


class Attachment(msgspec.Struct, frozen=True, kw_only=True):
    """One announced interface. ``sent``: the control plane knows that it is here."""

    mac: str
    arn: str
    task_arn: str
    expires_at: float
    sent: bool = False


class Attachments:
    """The announced interfaces of one container instance."""

    def __init__(
        self,
        store: Store,
        call: Callable[[str, ecs.SubmitTaskStateChangeRequest], Awaitable[object]],
        cluster: str,
        nursery: Nursery,
        devices: Callable[[], dict[str, str]] = by_hardware_address,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._call = call
        self._cluster = cluster
        self._nursery = nursery
        self._devices = devices
        self._clock = clock
        self._known: dict[str, Attachment] = {}
        self._looking: asyncio.Task[None] | None = None
        self._telling: set[str] = set()

    def known(self) -> tuple[Attachment, ...]:
        return tuple(self._known.values())

    async def load(self) -> None:
        """Take up what an earlier process had written down."""
        for row in (await self._store.range(_ROWS)).items:
            try:
                one = msgspec.json.decode(row.value, type=Attachment)
            except UNREADABLE as error:
                log.warning("record of an interface cannot be read", extra={"row": row.key, "reason": str(error)})
                continue
            self._known[one.mac] = one
        self._look()

    async def announce(self, message: acs.AttachTaskNetworkInterfacesMessage) -> str:
        """Take in an announcement; durable when it returns. Why it cannot be, or nothing."""
        wait = (message.wait_timeout_ms or 0) / 1000
        given = [one for one in message.elastic_network_interfaces or () if one.mac_address and one.attachment_arn]
        if not (message.task_arn and message.cluster_arn and message.container_instance_arn and wait > 0 and given):
            return "an announcement needs a task, a time to wait and an interface with its hardware address"
        fresh = [
            Attachment(
                mac=(one.mac_address or "").lower(),
                arn=one.attachment_arn or "",
                task_arn=message.task_arn,
                expires_at=self._clock() + wait,
            )
            for one in given
        ]
        fresh = [one for one in fresh if one.mac not in self._known]  # said twice: the first one's time counts
        await self._store.txn([], [Put(_ROWS + one.mac, msgspec.json.encode(one)) for one in fresh])
        for one in fresh:
            self._known[one.mac] = one
            log.info("interface is announced", extra={"task": one.task_arn, "mac": one.mac})
        self._look()
        return ""

    def confirm(self, task_arn: str, attachment_arn: str) -> None:
        """Say that an interface which this agent made itself is there. Nothing is written down: a task that runs says
        the same."""
        self._nursery.start(f"attached-{last_part(task_arn)}", self._confirm(task_arn, attachment_arn))

    async def _confirm(self, task_arn: str, attachment_arn: str) -> None:
        change = self._change(task_arn, attachment_arn)
        with contextlib.suppress(EcsError):  # it knows better: the task is over
            await retrying(lambda: self._call("SubmitTaskStateChange", change), CONFIRM_POLICY, what="attachment")

    def _change(self, task_arn: str, attachment_arn: str) -> ecs.SubmitTaskStateChangeRequest:
        return ecs.SubmitTaskStateChangeRequest(
            cluster=self._cluster,
            task=task_arn,
            attachments=(ecs.AttachmentStateChange(attachment_arn=attachment_arn, status="ATTACHED"),),
        )

    async def forget(self, mac: str) -> None:
        """The interface's task is over."""
        if self._known.pop(mac.lower(), None) is not None:
            await self._store.txn([], [Delete(_ROWS + mac.lower())])

    def _look(self) -> None:
        if self._waiting() and (self._looking is None or self._looking.done()):
            self._looking = self._nursery.start("interfaces", self._look_for_them())

    def _waiting(self) -> list[Attachment]:
        return [one for one in self._known.values() if not one.sent and one.mac not in self._telling]

    async def _look_for_them(self) -> None:
        while self._waiting():
            devices = self._devices()
            now = self._clock()
            for one in self._waiting():
                if one.mac in devices:
                    self._telling.add(one.mac)
                    self._nursery.start(f"attached-{last_part(one.task_arn)}", self._tell(one))
                elif now >= one.expires_at:
                    log.warning("interface did not appear in time", extra={"task": one.task_arn, "mac": one.mac})
                    await self.forget(one.mac)
            for one in list(self._known.values()):
                if one.sent and now >= one.expires_at + KEPT_SECONDS:
                    await self.forget(one.mac)
            await asyncio.sleep(LOOK_SECONDS)

    async def _tell(self, one: Attachment) -> None:
        change = self._change(one.task_arn, one.arn)

        async def attempt() -> None:
            if self._clock() < one.expires_at:  # later nobody waits for it any more
                await self._call("SubmitTaskStateChange", change)

        try:
            await retrying(attempt, CONFIRM_POLICY, what="SubmitTaskStateChange")
        except EcsError as error:
            log.warning("interface cannot be confirmed", extra={"task": one.task_arn, "reason": str(error)})
            await self.forget(one.mac)
            return
        finally:
            self._telling.discard(one.mac)
        log.info("interface is here", extra={"task": one.task_arn, "mac": one.mac})
        if one.mac in self._known:
            sent = msgspec.structs.replace(one, sent=True)
            self._known[one.mac] = sent
            await self._store.txn([], [Put(_ROWS + one.mac, msgspec.json.encode(sent))])
