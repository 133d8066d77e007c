"""Whether the container engine of this host answers, as the control plane is told.

A check runs whenever the control plane sends a heartbeat, and its result is reported with the next round of telemetry.
Before the first one the state is INITIALIZING. Nothing survives a restart.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from sexton.runtime.contract import Refused, Runtime, Unavailable
from sexton.wire import tcs

log = logging.getLogger(__name__)

# An engine that takes longer to say anything at all is not well.
ANSWER_SECONDS = 2.0
# No container has it: the engine looks and finds nothing, which is all that is asked of it.
_NOBODY = {"dev.sexton.ping": "-"}


class InstanceHealth:
    """The checks of one host."""

    def __init__(self, runtime: Runtime, clock: Callable[[], float] = time.time) -> None:
        self._runtime = runtime
        self._clock = clock
        now = round(clock(), 3)
        self._status = tcs.InstanceStatus(
            type="ContainerRuntime", status="INITIALIZING", last_updated=now, last_status_change=now
        )
        self._fresh = True
        self._checking = False

    @property
    def status(self) -> tcs.InstanceStatus:
        return self._status

    def take(self) -> tuple[tcs.InstanceStatus, ...]:
        """What there is to report; nothing when no check ran since the last time."""
        fresh, self._fresh = self._fresh, False
        return (self._status,) if fresh else ()

    async def check(self) -> None:
        """Ask the engine; one at a time, since one that hangs would collect askers."""
        if self._checking:
            return
        self._checking = True
        try:
            word, reason = await self._ask()
        finally:
            self._checking = False
        now = round(self._clock(), 3)
        changed = word != self._status.status
        if changed and self._status.status != "INITIALIZING":
            log.warning("health of the engine changed", extra={"was": self._status.status, "is": word, "why": reason})
        self._status = tcs.InstanceStatus(
            type="ContainerRuntime",
            status=word,
            status_reason=reason or None,
            last_updated=now,
            last_status_change=now if changed else self._status.last_status_change,
        )
        self._fresh = True

    async def _ask(self) -> tuple[str, str]:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await self._runtime.list(_NOBODY)
        except TimeoutError:
            return "IMPAIRED", f"the container engine gave no answer within {ANSWER_SECONDS:g} s"
        except (Unavailable, Refused) as error:
            return "IMPAIRED", str(error)
        return "OK", ""
