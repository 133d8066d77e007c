"""Background work with a name, an owner and an end.

No task of this program is started by a bare ``create_task``. A ``Nursery`` owns what it starts: a failure is
logged under the task's name at once (and reported to ``on_failure`` where the daemon must not go on without it),
and closing cancels in reverse start order and waits a bounded time, so that a shutdown always ends.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

log = logging.getLogger(__name__)

# A cancelled task that has not ended by then is named in the log and left behind: the process is leaving anyway.
CLOSE_DEADLINE = 5.0


class Nursery:
    """Owns background tasks; usable from one event loop."""

    def __init__(self, name: str, on_failure: Callable[[str, BaseException], None] | None = None) -> None:
        self._name = name
        self._on_failure = on_failure
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._closed = False

    def __len__(self) -> int:
        return len(self._tasks)

    def start(self, name: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run the coroutine in the background under this name."""
        if self._closed:
            work.close()
            raise RuntimeError(f"cannot start {name}: {self._name} is closing")
        task = asyncio.get_running_loop().create_task(work, name=f"{self._name}/{name}")
        self._tasks[task] = None
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            log.error("background task failed", extra={"task_name": task.get_name()}, exc_info=error)
            if self._on_failure is not None and not self._closed:
                self._on_failure(task.get_name(), error)

    async def close(self) -> None:
        """Cancel everything, newest first, and wait until it has ended or the deadline is over."""
        self._closed = True
        tasks = [task for task in reversed(list(self._tasks)) if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=CLOSE_DEADLINE)
            for task in late:
                log.warning("background task did not end", extra={"task_name": task.get_name()})
