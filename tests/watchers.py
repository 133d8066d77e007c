"""Runs a caretaker's watcher beside a test and keeps everything it tells."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from sexton.care.probe import Looked, Outcome, Scene, Tell
from sexton.core.finding import Finding

DEADLINE = 30.0


class Told:
    """What a watcher told so far."""

    def __init__(self) -> None:
        self.outcomes: list[Outcome] = []

    def __call__(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What it holds true now."""
        last = self.outcomes[-1] if self.outcomes else None
        return last.findings if isinstance(last, Looked) else ()

    @property
    def ever(self) -> dict[str, Finding]:
        """Everything it ever held true, as it first told it, by fingerprint."""
        found: dict[str, Finding] = {}
        for outcome in self.outcomes:
            for finding in outcome.findings if isinstance(outcome, Looked) else ():
                found.setdefault(finding.fingerprint, finding)
        return found

    async def until(self, true: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DEADLINE
        while not true():
            assert time.monotonic() < deadline, self.outcomes[-1:]
            await asyncio.sleep(0.05)


@asynccontextmanager
async def watching(watch: Callable[[Scene, Tell], Awaitable[None]], scene: Scene) -> AsyncIterator[Told]:
    """Watches for as long as the block runs; it is entered once the watcher has told something."""
    told = Told()
    task = asyncio.ensure_future(watch(scene, told))
    try:
        await told.until(lambda: bool(told.outcomes))
        yield told
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
