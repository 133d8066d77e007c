"""Forgets deleted services after a while, and of living ones the deployments nobody will ask about any more.

A revision is kept as long as a deployment of its service, ongoing or on record, speaks of it. Everything is removed
on the condition that the service is what was read, so one that is made anew under its name loses nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from sexton.control.context import Context
from sexton.control.records import Entry, ServiceRecord
from sexton.control.serviceview import key_of
from sexton.core import names, rollout
from sexton.store.contract import Write

# ECS does not say for how long a deleted service is shown; as long as its stopped tasks, here.
KEEP_DELETED_SECONDS = 3600.0
# As long as ECS shows a service deployment.
KEEP_DEPLOYMENTS_SECONDS = 90 * 24 * 3600.0
# Removals per transaction: small enough not to hold up anybody's write.
BATCH = 50


async def sweep(context: Context, now: float) -> int:
    """Remove what is old enough; returns how many services."""
    gone = 0
    for entry in list(context.records.services.all()):
        over = bool(entry.value.ended_at) and now - entry.value.ended_at >= KEEP_DELETED_SECONDS
        if over and context.service_tasks.of(key_of(entry.value)):
            continue
        removed = await _remove(context, entry, list(_old(context, entry.value, now, everything=over)))
        if over and removed:
            records, where = context.records, (entry.value.region, entry.value.cluster, entry.value.name)
            unchanged = records.unchanged(records.services, entry, *where)
            result = await records.commit([unchanged], [records.delete(records.services, *where)])
            gone += result.succeeded
    return gone


def _old(context: Context, record: ServiceRecord, now: float, *, everything: bool) -> Iterator[Write]:
    records, where = context.records, (record.region, record.cluster, record.name)
    used = {names.last_part(one.revision) for one in record.deployments}
    used |= {names.last_part(one.scaled.state.revision) for one in record.task_sets}
    for key, entry in records.service_deployments.under(*where):
        one = entry.value
        known = names.last_part(key) != record.rollout and rollout.over(one)
        if everything or (known and now - (one.updated_at or now) >= KEEP_DEPLOYMENTS_SECONDS):
            yield records.delete(records.service_deployments, key)
            continue
        spoken_of = (*(one.source_service_revisions or ()), one.target_service_revision)
        used |= {names.last_part(revision.arn or "") for revision in spoken_of if revision}
    for key, _ in records.service_revisions.under(*where):
        if everything or names.last_part(key) not in used:
            yield records.delete(records.service_revisions, key)


async def _remove(context: Context, entry: Entry[ServiceRecord], removals: list[Write]) -> bool:
    records, record = context.records, entry.value
    unchanged = records.unchanged(records.services, entry, record.region, record.cluster, record.name)
    for start in range(0, len(removals), BATCH):
        if not (await records.commit([unchanged], removals[start : start + BATCH])).succeeded:
            return False
    return True
