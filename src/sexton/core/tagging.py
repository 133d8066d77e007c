"""Tags of any resource: which are allowed, and what adding and removing some makes of the ones there are.

Lengths and characters are the service model's and have been checked before anything comes here. What is left: keys
are unique, the prefix ``aws:`` (in any case, of keys and values) is the service's own, and a resource has at most 50
tags beside the service's. Tags that the service put on a task stay, whatever a client asks.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sexton.wire import ecs

MOST_TAGS = 50
RESERVED = "aws:"
# What the service tags a task with, when it is asked to.
CLUSTER_TAG = "aws:ecs:clusterName"
SERVICE_TAG = "aws:ecs:serviceName"


def reserved(text: str | None) -> bool:
    return (text or "").lower().startswith(RESERVED)


def problem(given: Sequence[ecs.Tag] | None) -> str:
    """Why a client may not set these; empty when it may."""
    keys = [one.key for one in given or ()]
    if not all(keys):
        return "Tag keys cannot be null or empty."
    if len(set(keys)) < len(keys):
        return "Tag keys must be unique: each tag key can have only one value."
    if any(reserved(one.key) or reserved(one.value) for one in given or ()):
        return "Tag keys and values cannot begin with aws: in any case, as it is reserved for AWS use."
    return ""


def too_many(tags: Sequence[ecs.Tag]) -> bool:
    return sum(not reserved(one.key) for one in tags) > MOST_TAGS


def added(present: Sequence[ecs.Tag], given: Sequence[ecs.Tag]) -> tuple[ecs.Tag, ...]:
    """The tags after some were set; keys keep their place, new ones come last."""
    by_key = {one.key: one for one in present}
    by_key |= {one.key: ecs.Tag(key=one.key, value=one.value or "") for one in given}
    return tuple(by_key.values())


def removed(present: Sequence[ecs.Tag], keys: Collection[str]) -> tuple[ecs.Tag, ...]:
    """The tags after some were removed; removing what is not there is no error."""
    return tuple(one for one in present if one.key not in keys or reserved(one.key))


def of_task(
    own: Sequence[ecs.Tag] | None, inherited: Sequence[ecs.Tag], *, managed: bool, cluster: str, service: str = ""
) -> tuple[ecs.Tag, ...]:
    """A new task's tags: inherited ones (of its definition or service), its own over them, and the service's own."""
    tags = added(added((), inherited), own or ())
    if not managed:
        return tags
    names = {CLUSTER_TAG: cluster} | ({SERVICE_TAG: service} if service else {})
    return added(tags, tuple(ecs.Tag(key=key, value=value) for key, value in names.items()))
