"""Forgets stopped tasks after a while, so that the records do not grow with everything that ever ran."""

from __future__ import annotations

import asyncio
import logging

from sexton.control.context import Context

log = logging.getLogger(__name__)

# ECS itself shows a stopped task for an hour.
KEEP_STOPPED_SECONDS = 3600.0
ROUND_SECONDS = 60.0
# Removals per transaction: small enough not to hold up anybody's write.
BATCH = 200


async def run(context: Context) -> None:
    """One round a minute."""
    while True:
        await asyncio.sleep(ROUND_SECONDS)
        await sweep(context, context.clock())


async def sweep(context: Context, now: float) -> int:
    """Remove what is old enough; returns how many."""
    records = context.records
    old = [
        entry
        for entry in records.tasks.all()
        if entry.value.stopped and now - (entry.value.task.stopped_at or now) >= KEEP_STOPPED_SECONDS
    ]
    for start in range(0, len(old), BATCH):
        keys = [(one.value.region, one.value.cluster, one.value.id) for one in old[start : start + BATCH]]
        await records.commit([], [records.delete(records.tasks, *key) for key in keys])
    if old:
        log.info("stopped tasks forgotten", extra={"tasks": len(old)})
    return len(old)
