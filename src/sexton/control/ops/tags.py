"""Tags of everything that has tags: set, removed, listed by the resource's ARN.

A kind of resource takes part by a row in ``KINDS``: a function that finds one from what its ARN says after the kind,
and tells its tags and how to write others. So this module knows every kind by its row alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from sexton.control.context import CONFLICT_TRIES, Call, Context, Operation, busy, invalid
from sexton.control.records import revision_key
from sexton.core import names, tagging
from sexton.store.contract import Compare, Put
from sexton.wire import ecs
from sexton.wire.errors import ClusterNotFoundException, EcsError, LimitExceededException, ResourceNotFoundException


class Tagged(NamedTuple):
    """A resource as tags see it: those it has, and how to write others if it still is what was read."""

    tags: tuple[ecs.Tag, ...]
    unchanged: Compare
    put: Callable[[tuple[ecs.Tag, ...]], Put]


# What follows the kind in an ARN, split at its slashes, to the resource; None when there is none.
Finder = Callable[[Context, Call, Sequence[str]], Tagged | None]


class Kind(NamedTuple):
    """One kind of resource; ``parts`` is how many names follow the kind in an ARN of the long format."""

    parts: int
    find: Finder


def _cluster(context: Context, call: Call, parts: Sequence[str]) -> Tagged | None:
    records, where = context.records, (call.region, *parts)
    entry = records.clusters.get(*where)
    if entry is None:
        raise ClusterNotFoundException("Cluster not found.")
    if entry.value.cluster.status != "ACTIVE":
        raise invalid("The specified cluster is inactive. Specify an active cluster and try again.")

    def put(tags: tuple[ecs.Tag, ...]) -> Put:
        cluster = msgspec.structs.replace(entry.value.cluster, tags=tags)
        return records.put(records.clusters, msgspec.structs.replace(entry.value, cluster=cluster), *where)

    return Tagged(entry.value.cluster.tags or (), records.unchanged(records.clusters, entry, *where), put)


def _task(context: Context, call: Call, parts: Sequence[str]) -> Tagged | None:
    records, where = context.records, (call.region, *parts)
    entry = records.tasks.get(*where)
    if entry is None:
        return None

    def put(tags: tuple[ecs.Tag, ...]) -> Put:
        task = msgspec.structs.replace(entry.value.task, tags=tags)
        return records.put(records.tasks, msgspec.structs.replace(entry.value, task=task), *where)

    return Tagged(entry.value.task.tags or (), records.unchanged(records.tasks, entry, *where), put)


def _instance(context: Context, call: Call, parts: Sequence[str]) -> Tagged | None:
    records, where = context.records, (call.region, *parts)
    entry = records.instances.get(*where)
    if entry is None:
        return None

    def put(tags: tuple[ecs.Tag, ...]) -> Put:
        instance = msgspec.structs.replace(entry.value.instance, tags=tags)
        return records.put(records.instances, msgspec.structs.replace(entry.value, instance=instance), *where)

    return Tagged(entry.value.instance.tags or (), records.unchanged(records.instances, entry, *where), put)


def _definition(context: Context, call: Call, parts: Sequence[str]) -> Tagged | None:
    records, name = context.records, names.parse_definition(parts[0])
    if name is None or not name.revision:
        raise invalid("The specified task definition identifier is invalid. Specify a valid ARN and try again.")
    where = (call.region, name.family, revision_key(name.revision))
    entry = records.definitions.get(*where)
    if entry is None:
        return None

    def put(tags: tuple[ecs.Tag, ...]) -> Put:
        return records.put(records.definitions, msgspec.structs.replace(entry.value, tags=tags), *where)

    return Tagged(entry.value.tags, records.unchanged(records.definitions, entry, *where), put)


def _provider(context: Context, call: Call, parts: Sequence[str]) -> Tagged | None:
    records, where = context.records, (call.region, *parts)
    entry = records.providers.get(*where)
    if entry is None or entry.value.ended_at:
        return None

    def put(tags: tuple[ecs.Tag, ...]) -> Put:
        provider = msgspec.structs.replace(entry.value.provider, tags=tags)
        return records.put(records.providers, msgspec.structs.replace(entry.value, provider=provider), *where)

    return Tagged(entry.value.provider.tags or (), records.unchanged(records.providers, entry, *where), put)


def _service(context: Context, call: Call, parts: Sequence[str]) -> Tagged | None:
    records, where = context.records, (call.region, *parts)
    entry = records.services.get(*where)
    if entry is None or entry.value.ended_at:
        return None

    def put(tags: tuple[ecs.Tag, ...]) -> Put:
        service = msgspec.structs.replace(entry.value.service, tags=tags)
        return records.put(records.services, msgspec.structs.replace(entry.value, service=service), *where)

    return Tagged(entry.value.service.tags or (), records.unchanged(records.services, entry, *where), put)


def _task_set(context: Context, call: Call, parts: Sequence[str]) -> Tagged | None:
    """A task set's id has a slash in it, and it lives in the record of its service."""
    records, where = context.records, (call.region, *parts[:2])
    entry = records.services.get(*where)
    sets = entry.value.task_sets if entry else ()
    one = next((one for one in sets if one.id == "/".join(parts[2:])), None)
    if entry is None or one is None:
        return None
    before = entry.value

    def put(tags: tuple[ecs.Tag, ...]) -> Put:
        tagged = msgspec.structs.replace(one, shown=msgspec.structs.replace(one.shown, tags=tags))
        after = tuple(tagged if each.id == one.id else each for each in before.task_sets)
        return records.put(records.services, msgspec.structs.replace(before, task_sets=after), *where)

    return Tagged(one.shown.tags or (), records.unchanged(records.services, entry, *where), put)


KINDS: Mapping[str, Kind] = {
    "cluster": Kind(1, _cluster),
    "task": Kind(2, _task),
    "container-instance": Kind(2, _instance),
    "task-definition": Kind(1, _definition),
    "capacity-provider": Kind(1, _provider),
    "service": Kind(2, _service),
    "task-set": Kind(4, _task_set),
}


def _find(context: Context, call: Call, arn: str | None, missing: Callable[[str], EcsError]) -> Tagged:
    """The resource of an ARN, or the API's error for one that is none."""
    here, text = context.place(call).arn(""), arn or ""
    name, _, rest = text.removeprefix(here).partition("/")
    kind = KINDS.get(name)
    if kind is None or not rest or not text.startswith(here):
        raise invalid("The ARN provided is invalid. Specify a valid ARN of this account and Region and try again.")
    parts = rest.split("/")
    if len(parts) == 1 and kind.parts > 1:
        raise invalid("Long arn format must be used for tagging operations")
    found = kind.find(context, call, parts) if len(parts) == kind.parts else None
    if found is None:
        raise missing("The specified resource was not found. Specify a valid resource ARN and try again.")
    return found


def tags_of(context: Context, call: Call, arn: str) -> tuple[ecs.Tag, ...]:
    """The tags of whatever has this ARN; none of what is not there."""
    try:
        return _find(context, call, arn, invalid).tags
    except EcsError:
        return ()


async def _change(
    context: Context, call: Call, arn: str | None, change: Callable[[tuple[ecs.Tag, ...]], tuple[ecs.Tag, ...]]
) -> None:
    for _ in range(CONFLICT_TRIES):
        found = _find(context, call, arn, ResourceNotFoundException)
        after = change(found.tags)
        if after == found.tags:
            return
        result = await context.records.commit([found.unchanged], [found.put(after)])
        if result.succeeded:
            return
    raise busy(f"the tags of {arn}")


async def tag(context: Context, call: Call, request: ecs.TagResourceRequest) -> ecs.TagResourceResponse:
    given = request.tags or ()
    problem = tagging.problem(given)
    if problem:
        raise invalid(problem)

    def change(present: tuple[ecs.Tag, ...]) -> tuple[ecs.Tag, ...]:
        after = tagging.added(present, given)
        if tagging.too_many(after):
            raise LimitExceededException(f"A resource can have at most {tagging.MOST_TAGS} tags.")
        return after

    await _change(context, call, request.resource_arn, change)
    return ecs.TagResourceResponse()


async def untag(context: Context, call: Call, request: ecs.UntagResourceRequest) -> ecs.UntagResourceResponse:
    keys = frozenset(request.tag_keys or ())
    if any(map(tagging.reserved, keys)):
        raise invalid("Tags whose keys begin with aws: are reserved for AWS use and cannot be removed.")
    await _change(context, call, request.resource_arn, lambda present: tagging.removed(present, keys))
    return ecs.UntagResourceResponse()


async def listing(
    context: Context, call: Call, request: ecs.ListTagsForResourceRequest
) -> ecs.ListTagsForResourceResponse:
    """Agents ask for those of their task and of themselves as well."""
    # This operation has no ResourceNotFoundException in the model.
    return ecs.ListTagsForResourceResponse(tags=_find(context, call, request.resource_arn, invalid).tags)


OPERATIONS: dict[str, Operation] = {
    "TagResource": tag,
    "UntagResource": untag,
    "ListTagsForResource": listing,
}
