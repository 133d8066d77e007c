"""Runs the watchers of a daemon: each for itself, started again when it can watch no longer.

Whatever a watcher tells is kept as the whole of what it holds true until it tells something else, and is handed on at
once. One that broke or gave up is started again after a while, longer each time: an event stream whose other side is
away must not cost anything.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial

from sexton.care.probe import CouldNotLook, NotPresent, Outcome, Scene, Watcher
from sexton.kit.retry import Backoff
from sexton.kit.supervise import Nursery

log = logging.getLogger(__name__)

# Between two starts of a watcher. What it watches may come back at any time (an engine that is upgraded), and asking
# costs a connection.
BACKOFF = Backoff(first=2.0, cap=120.0)
# A watcher that lasted this long begins again at the first delay.
LASTED = 300.0
# A host that has no such thing is asked again after this long.
ABSENT = 120.0

News = Callable[[Watcher, Outcome], None]


async def keep_watching(watcher: Watcher, scene: Callable[[Watcher], Scene], news: News) -> None:
    """Run one watcher until cancelled."""
    delays = BACKOFF.delays()
    while True:
        begun = time.monotonic()
        last: list[Outcome] = []

        def tell(outcome: Outcome, heard: list[Outcome] = last) -> None:
            heard[:] = [outcome]
            news(watcher, outcome)

        try:
            await watcher.watch(scene(watcher), tell)
        except Exception as error:
            # One broken watcher must not end the others; what it knew is not true any more.
            log.debug("watcher broke", extra={"watcher": watcher.name}, exc_info=True)
            tell(
                CouldNotLook(
                    f"the watcher broke: {type(error).__name__}: {error}", "Report this as a bug, with this line."
                )
            )
        if time.monotonic() - begun > LASTED:
            delays = BACKOFF.delays()
        absent = bool(last) and isinstance(last[0], NotPresent)
        await asyncio.sleep(ABSENT if absent else next(delays))


def start_watchers(
    nursery: Nursery, watchers: tuple[Watcher, ...], scene: Callable[[Watcher], Scene], news: News
) -> None:
    """Each in the background, under its name."""
    run = partial(keep_watching, scene=scene, news=news)
    for watcher in watchers:
        nursery.start(f"watch {watcher.name}", run(watcher))
