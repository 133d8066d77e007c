"""Which tasks may begin: each waits for its own share of the host, and for nobody else's.

A task that does not fit is remembered with what it lacks and since when; whenever another gives its share back, every
one that waits is tried, the longest waiting first. So a large task can be passed by smaller ones, and none is held up
by one that is slow to stop, to be pulled or to fit.

Nothing survives a restart: tasks that had begun hold their share again before any other is admitted.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import NamedTuple

from sexton.core.hostpool import Pool, Share

log = logging.getLogger(__name__)


class Waiting(NamedTuple):
    """A task that does not fit: what is lacking, in ECS's words, and since when it waits."""

    lacking: tuple[str, ...]
    since: float


class _Waiter(NamedTuple):
    share: Share
    ready: Callable[[], None]
    since: float


class Admission:
    """The host's resources, given out by task. Without a pool everybody is admitted."""

    def __init__(self, pool: Pool | None = None, clock: Callable[[], float] = time.time) -> None:
        self._pool = pool
        self._clock = clock
        self._waiters: dict[str, _Waiter] = {}

    @property
    def pool(self) -> Pool | None:
        return self._pool

    def unknown(self, share: Share) -> frozenset[str]:
        """GPUs of a share that this host never had."""
        return self._pool.unknown(share) if self._pool is not None else frozenset()

    def claim(self, arn: str, share: Share) -> None:
        """Hold a share without asking: the task has begun already."""
        if self._pool is not None:
            self._pool = self._pool.hold(arn, share)

    def ask(self, arn: str, share: Share, ready: Callable[[], None]) -> bool:
        """Whether the task may begin now; if not, ``ready`` is called once it may."""
        if self._pool is None or arn in self._pool.held:
            return True
        lacking = self._pool.lacking(share)
        if not lacking:
            self._pool = self._pool.hold(arn, share)
            return True
        if arn not in self._waiters:
            log.info("task waits for resources", extra={"task": arn, "lacking": ", ".join(lacking)})
        self._waiters.setdefault(arn, _Waiter(share, ready, self._clock()))
        return False

    def leave(self, arn: str) -> None:
        """The task holds nothing and waits for nothing any more; others may begin now."""
        self._waiters.pop(arn, None)
        if self._pool is None or arn not in self._pool.held:
            return
        self._pool = self._pool.release(arn)
        for name, waiter in list(self._waiters.items()):
            if not self._pool.lacking(waiter.share):
                self._pool = self._pool.hold(name, waiter.share)
                del self._waiters[name]
                log.info(
                    "task has its resources",
                    extra={"task": name, "waited_seconds": round(self._clock() - waiter.since, 1)},
                )
                waiter.ready()

    def waiting(self, arn: str) -> Waiting | None:
        waiter = self._waiters.get(arn)
        if waiter is None or self._pool is None:
            return None
        return Waiting(self._pool.lacking(waiter.share), waiter.since)
