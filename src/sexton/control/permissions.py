"""What an operation of the ECS API means in IAM's words: the resources it touches, and its condition keys.

One row an operation, after AWS's own table of actions, resources and condition keys. Names in a request become whole
ARNs of this control plane, so that a policy is asked about the thing itself and not about a spelling of it; a name
that is given with another cluster than the request's is asked about in both. An operation without a row touches
nothing that could be named, so only a policy whose resource is ``*`` allows it.

Whoever hands a role to a task must be allowed to: ``iam:PassRole`` on each role of a definition or an override.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from sexton.control.context import Call, Context
from sexton.control.ops import tags, taskdefs
from sexton.core import names
from sexton.core.iam import ANYTHING, Resource
from sexton.core.names import Member
from sexton.core.rolesfile import whole_arn
from sexton.wire import ecs

PASS_ROLE = "iam:PassRole"  # noqa: S105 - the name of an action
TASKS_SERVICE = "ecs-tasks.amazonaws.com"


class Need(NamedTuple):
    """One permission that a request needs."""

    action: str
    resources: tuple[Resource, ...]
    values: Mapping[str, str | tuple[str, ...] | None] = {}


Namer = Callable[[Context, Call, str, str], Iterable[str]]
"""From a name in a request, and the request's cluster, to the ARNs that are meant."""


def _cluster(context: Context, call: Call, text: str, _: str) -> Iterable[str]:
    return (names.cluster_arn(context.place(call), names.parse_cluster(text) or text),)


def _in_cluster(parse: Callable[[str], Member | None], arn: Callable[[names.Place, str, str], str], kind: str) -> Namer:
    def find(context: Context, call: Call, text: str, cluster: str) -> Iterable[str]:
        place, member = context.place(call), parse(text)
        if member is None:
            return (text if text.startswith("arn:") else place.arn(f"{kind}/{cluster}/{text}"),)
        return dict.fromkeys(arn(place, one, member.id) for one in (member.cluster or cluster, cluster))

    return find


_task = _in_cluster(names.parse_task, names.task_arn, "task")
_instance = _in_cluster(names.parse_instance, names.instance_arn, "container-instance")
_service = _in_cluster(names.parse_service, names.service_arn, "service")


def _definition(context: Context, call: Call, text: str, _: str) -> Iterable[str]:
    """A family alone means its newest active revision."""
    found = taskdefs.find(context, call, text)
    if found is not None:
        return (found.value.definition.task_definition_arn or "",)
    name = names.parse_definition(text)
    if name is None:
        return (text if text.startswith("arn:") else context.place(call).arn(f"task-definition/{text}"),)
    return (names.definition_arn(context.place(call), name.family, name.revision),)


def _provider(context: Context, call: Call, text: str, _: str) -> Iterable[str]:
    return (names.capacity_provider_arn(context.place(call), names.parse_capacity_provider(text) or text),)


def _as_it_is(_context: Context, _call: Call, text: str, _cluster: str) -> Iterable[str]:
    return (text,)


def _target(context: Context, call: Call, text: str, cluster: str) -> Iterable[str]:
    """Attributes sit on container instances."""
    return _instance(context, call, text, cluster)


class Row(NamedTuple):
    """Which field of a request names what."""

    field: str
    namer: Namer
    keys: tuple[str, ...] = ()  # condition keys beyond the cluster's


_ROWS: Mapping[str, Row] = {
    "ContinueServiceDeployment": Row("service_deployment_arn", _as_it_is),
    "CreateCapacityProvider": Row("name", _provider),
    "CreateCluster": Row("cluster_name", _cluster),
    "CreateService": Row("service_name", _service, ("task-definition", "capacity-provider", "enable-execute-command")),
    "CreateTaskSet": Row("service", _service, ("service", "task-definition", "capacity-provider")),
    "DeleteAttributes": Row("attributes.target_id", _target),
    "DeleteCapacityProvider": Row("capacity_provider", _provider),
    "DeleteCluster": Row("cluster", _cluster),
    "DeleteService": Row("service", _service),
    "DeleteTaskDefinitions": Row("task_definitions", _definition),
    "DeleteTaskSet": Row("service", _service, ("service",)),
    "DeregisterContainerInstance": Row("cluster", _cluster),
    "DescribeCapacityProviders": Row("capacity_providers", _provider),
    "DescribeClusters": Row("clusters", _cluster),
    "DescribeContainerInstances": Row("container_instances", _instance),
    "DescribeServiceDeployments": Row("service_deployment_arns", _as_it_is),
    "DescribeServiceRevisions": Row("service_revision_arns", _as_it_is),
    "DescribeServices": Row("services", _service),
    "DescribeTaskSets": Row("service", _service, ("service",)),
    "DescribeTasks": Row("tasks", _task),
    "ExecuteCommand": Row("task", _task, ("container-name",)),
    "GetTaskProtection": Row("tasks", _task),
    "ListAttributes": Row("cluster", _cluster),
    "ListContainerInstances": Row("cluster", _cluster),
    "ListServiceDeployments": Row("service", _service),
    "ListTagsForResource": Row("resource_arn", _as_it_is),
    "ListTasks": Row("container_instance", _instance),
    "PutAttributes": Row("attributes.target_id", _target),
    "PutClusterCapacityProviders": Row("cluster", _cluster, ("capacity-provider",)),
    "RegisterContainerInstance": Row("cluster", _cluster),
    "RegisterTaskDefinition": Row("family", lambda c, call, text, _: (c.place(call).arn(f"task-definition/{text}:*"),)),
    "RunTask": Row("task_definition", _definition, ("capacity-provider", "enable-execute-command")),
    "StartTask": Row("task_definition", _definition, ("container-instances", "enable-execute-command")),
    "StopServiceDeployment": Row("service_deployment_arn", _as_it_is),
    "StopTask": Row("task", _task),
    "SubmitAttachmentStateChanges": Row("cluster", _cluster),
    "SubmitContainerStateChange": Row("cluster", _cluster),
    "SubmitTaskStateChange": Row("cluster", _cluster),
    "TagResource": Row("resource_arn", _as_it_is),
    "UntagResource": Row("resource_arn", _as_it_is),
    "UpdateCapacityProvider": Row("name", _provider),
    "UpdateCluster": Row("cluster", _cluster),
    "UpdateClusterSettings": Row("cluster", _cluster),
    "UpdateContainerAgent": Row("container_instance", _instance),
    "UpdateContainerInstancesState": Row("container_instances", _instance),
    "UpdateService": Row("service", _service, ("task-definition", "capacity-provider", "enable-execute-command")),
    "UpdateServicePrimaryTaskSet": Row("service", _service, ("service",)),
    "UpdateTaskProtection": Row("tasks", _task),
    "UpdateTaskSet": Row("service", _service, ("service",)),
}

# Operations that start tasks, or settle what tasks will be: whoever calls them hands out the roles.
_HANDS_OUT = frozenset({"RunTask", "StartTask", "CreateService", "UpdateService", "CreateTaskSet"})


def needs(context: Context, call: Call, operation: str, request: msgspec.Struct) -> Iterator[Need]:
    """Every permission that a request needs, its own first."""
    row = _ROWS.get(operation)
    cluster = names.parse_cluster(getattr(request, "cluster", None)) or ""
    resources = _resources(context, call, row, request, cluster)
    values: dict[str, str | tuple[str, ...] | None] = {}
    if hasattr(request, "cluster"):
        values["ecs:cluster"] = names.cluster_arn(context.place(call), cluster)
    for key in row.keys if row else ():
        values[f"ecs:{key}"] = _value(context, call, key, request, cluster)
    values.update(asked_tags(getattr(request, "tags", None), getattr(request, "tag_keys", None)))
    yield Need(f"ecs:{operation}", resources, values)
    roles = dict.fromkeys(_roles(context, call, operation, request))
    if roles:
        yield Need(PASS_ROLE, tuple((one,) for one in roles), {"iam:PassedToService": TASKS_SERVICE})


def _resources(
    context: Context, call: Call, row: Row | None, request: msgspec.Struct, cluster: str
) -> tuple[Resource, ...]:
    if row is None:
        return (ANYTHING,)
    given = list(_texts(request, row.field))
    if not given and row.namer is _instance and row.field == "container_instance":
        given = ["*"]  # those of the whole cluster
    if not given and row.namer is _cluster:
        given = [names.DEFAULT_CLUSTER]
    found = dict.fromkeys(arn for text in given for arn in row.namer(context, call, text, cluster))
    return tuple((arn,) for arn in found if arn) or (ANYTHING,)


def _texts(request: msgspec.Struct, field: str) -> Iterator[str]:
    """What a field says, of a list each of its texts."""
    first, _, rest = field.partition(".")
    value = getattr(request, first, None)
    for one in value if isinstance(value, tuple) else (value,):
        inner = getattr(one, rest, None) if rest else one
        if isinstance(inner, str) and inner:
            yield inner


def _value(
    context: Context, call: Call, key: str, request: msgspec.Struct, cluster: str
) -> str | tuple[str, ...] | None:
    match key:
        case "task-definition":
            return next(
                (one for text in _texts(request, "task_definition") for one in _definition(context, call, text, "")),
                None,
            )
        case "service":
            return next(
                (one for text in _texts(request, "service") for one in _service(context, call, text, cluster)), None
            )
        case "container-name":
            return getattr(request, "container", None)
        case "container-instances":
            given = _texts(request, "container_instances")
            return tuple(one for text in given for one in _instance(context, call, text, cluster)) or None
        case "capacity-provider":
            used = getattr(request, "capacity_provider_strategy", None) or getattr(
                request, "default_capacity_provider_strategy", None
            )
            found = [one.capacity_provider or "" for one in used or ()] + list(_texts(request, "capacity_providers"))
            return tuple(arn for text in found if text for arn in _provider(context, call, text, "")) or None
        case _:
            return "true" if getattr(request, key.replace("-", "_"), False) else "false"


def of_every_call(call: Call) -> dict[str, str | tuple[str, ...] | None]:
    """The condition keys that every request has."""
    session = call.session
    moment = datetime.fromtimestamp(call.now, UTC)
    found: dict[str, str | tuple[str, ...] | None] = {
        "aws:CurrentTime": moment.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "aws:EpochTime": str(int(call.now)),
        "aws:RequestedRegion": call.region,
        "aws:SecureTransport": "true" if call.secure else "false",
        "aws:SourceIp": call.remote or None,
    }
    if session is not None:
        issued = datetime.fromtimestamp(session.issued_at, UTC)
        found |= {
            "aws:PrincipalArn": session.role_arn,
            "aws:PrincipalAccount": session.account,
            "aws:PrincipalType": "AssumedRole",
            "aws:TokenIssueTime": issued.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "aws:userid": session.user_id,
        }
    return found


def asked_tags(
    given: Iterable[ecs.Tag] | None, keys: Iterable[str] | None = None
) -> dict[str, str | tuple[str, ...] | None]:
    """The condition keys of tags that a request brings, or whose keys it names."""
    found: dict[str, str | tuple[str, ...] | None] = {}
    for one in given or ():
        found[f"aws:RequestTag/{one.key}"] = one.value or ""
    named = tuple(one.key or "" for one in given or ()) + tuple(keys or ())
    if named:
        found["aws:TagKeys"] = named
    return found


def resource_tags(context: Context, call: Call, arn: str) -> dict[str, str | tuple[str, ...] | None]:
    """The condition keys of the tags that a resource has."""
    found: dict[str, str | tuple[str, ...] | None] = {}
    for one in tags.tags_of(context, call, arn):
        found[f"aws:ResourceTag/{one.key}"] = found[f"ecs:ResourceTag/{one.key}"] = one.value or ""
    return found


def _roles(context: Context, call: Call, operation: str, request: msgspec.Struct) -> Iterator[str]:
    """The roles that a request hands to tasks."""
    given = [getattr(request, name, None) for name in ("task_role_arn", "execution_role_arn")]
    if operation in _HANDS_OUT:
        overrides = getattr(request, "overrides", None)
        given += [getattr(overrides, name, None) for name in ("task_role_arn", "execution_role_arn")]
        found = taskdefs.find(context, call, getattr(request, "task_definition", None))
        if found is not None:
            given += [found.value.definition.task_role_arn, found.value.definition.execution_role_arn]
    for one in given:
        if one:
            yield whole_arn(one, names.partition(call.region), context.account) or one
