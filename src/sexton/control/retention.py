"""Forgets what has ended, so that the records do not grow with everything that ever was.

Stopped tasks go after an hour or the time that is set; deleted clusters and capacity providers after an hour; task
definitions that are to be deleted once nothing uses them; and client tokens once nothing they did is known any more.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from sexton.control import keystore, serviceretention, tokens
from sexton.control.context import Context
from sexton.control.fence import Fence, alone
from sexton.control.ops import instances, taskdef_removal
from sexton.store.contract import Compare, StoreError, Write

log = logging.getLogger(__name__)

# ECS itself shows a stopped task for an hour, and does not say for how long a deleted cluster.
KEEP_STOPPED_SECONDS = 3600.0
ROUND_SECONDS = 60.0
# Removals per transaction: small enough not to hold up anybody's write.
BATCH = 200


async def run(context: Context, fence: Fence = alone, keep_stopped: float = KEEP_STOPPED_SECONDS) -> None:
    """One round a minute, of the one control plane that may. One that fails because the store does is tried again by
    the next. What is removed is removed as it was looked at, so that two rounds at once do no harm."""
    while True:
        await asyncio.sleep(ROUND_SECONDS)
        if fence() is None:
            continue
        try:
            await instances.abandon(context, context.clock())
            await sweep(context, context.clock(), keep_stopped)
            await serviceretention.sweep(context, context.clock())
            await taskdef_removal.sweep(context, context.clock())
            await keystore.sweep(context.records, context.clock())
        except StoreError as error:
            log.warning("cannot forget what has ended", extra={"reason": str(error)})


async def sweep(context: Context, now: float, keep_stopped: float = KEEP_STOPPED_SECONDS) -> int:
    """Remove what is old enough; returns how many tasks."""
    records = context.records
    old = [
        entry.value
        for entry in records.tasks.all()
        if entry.value.stopped and now - (entry.value.task.stopped_at or now) >= keep_stopped
    ]
    await _remove(context, [([], records.delete(records.tasks, one.region, one.cluster, one.id)) for one in old])
    # After the tasks, since a token ends with them; and only as it was looked at, since it may be used anew meanwhile.
    dead = [
        ([Compare(records.tokens.key(key), entry.revision)], records.delete(records.tokens, key))
        for key, entry in records.tokens.items()
        if not tokens.good(context, entry.value, now)
    ]
    await _remove(context, dead)
    ended = [
        ([records.unchanged(records.clusters, one, *where)], records.delete(records.clusters, *where))
        for one in list(records.clusters.all())
        if one.value.ended_at
        and now - one.value.ended_at >= KEEP_STOPPED_SECONDS
        and not records.instances.group(f"{one.value.region}/{one.value.name}")
        for where in [(one.value.region, one.value.name)]
    ]
    await _remove(context, ended)
    gone = [
        ([Compare(records.providers.key(key), entry.revision)], records.delete(records.providers, key))
        for key, entry in records.providers.items()
        if entry.value.ended_at and now - entry.value.ended_at >= KEEP_STOPPED_SECONDS
    ]
    await _remove(context, gone)
    if old:
        log.info("stopped tasks forgotten", extra={"tasks": len(old)})
    return len(old)


async def _remove(context: Context, removals: Sequence[tuple[Sequence[Compare], Write]]) -> None:
    """In transactions of bounded size; one whose condition failed is left for the next round."""
    for start in range(0, len(removals), BATCH):
        chosen = removals[start : start + BATCH]
        await context.records.commit(
            [compare for compares, _ in chosen for compare in compares], [write for _, write in chosen]
        )
