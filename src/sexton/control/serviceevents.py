"""What a service says: its last hundred events are kept in its record, the newest first, as the API shows them."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import msgspec

from sexton.control.context import Context
from sexton.control.records import ServiceRecord
from sexton.wire import ecs

# As many as ECS shows.
MOST_EVENTS = 100


def with_events(context: Context, record: ServiceRecord, texts: Sequence[str], now: float) -> ServiceRecord:
    """The service once it has said these, oldest first."""
    if not texts:
        return record
    new = tuple(
        ecs.ServiceEvent(id=str(uuid.UUID(hex=context.new_id())), created_at=now, message=text) for text in texts
    )
    return msgspec.structs.replace(record, events=(*reversed(new), *record.events)[:MOST_EVENTS])
