"""Whether a key may do what it asks for: its role opens operations, and an agent's key speaks for one instance only.

Keys of tasks' roles are another matter: what they may is said by the policies of their role, for every call that this
control plane serves. A call with such a key that has lost whose it is may do nothing.

An agent's key is bound to a container instance when it is made or with its first registration, in the transaction
that makes the instance, so that no other instance can ever be spoken for with it. It is bound anew only when that
instance is gone. Every refusal names the key's role and what was asked for, so that its owner knows what to change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import msgspec

from sexton.control import permissions
from sexton.control.context import Call, Context
from sexton.control.records import Entry, KeyRecord
from sexton.core import names, sessionkey
from sexton.core.iam import ANYTHING, Decision, Request, Resource, Verdict, decide, keys
from sexton.core.roles import MEANING, Role, may
from sexton.store.contract import Compare, Write
from sexton.wire import ecs
from sexton.wire.errors import AccessDeniedException


def denied(context: Context, call: Call, action: str, reason: str) -> AccessDeniedException:
    """The API's error for whoever may not do this, in the words of AWS and with our reason."""
    return AccessDeniedException(
        f"User: {context.principal(call)} is not authorized to perform: {action} because {reason}"
    )


Values = Mapping[str, str | tuple[str, ...] | None]


def by_role_keys(call: Call) -> bool:
    """Whether the keys are those of a task's role."""
    return call.session is not None or call.access_key.startswith(sessionkey.PREFIX)


def role_of(context: Context, call: Call) -> Role:
    """The caller's role, of a caller with an access key; where keys are not looked at, everybody is the
    administrator."""
    if by_role_keys(call):
        raise denied(context, call, "sexton:Unknown", "no policy was asked")  # a mistake here must not open a door
    entry = _key(context, call)
    return Role(entry.value.role) if entry else Role.ADMIN


def _key(context: Context, call: Call) -> Entry[KeyRecord] | None:
    return context.records.keys.get(call.access_key)


def require(context: Context, call: Call, action: str, *allowed: Role) -> None:
    """Refuse a key whose role is none of these; the administrator's always may, a task's role what its policies say."""
    if by_role_keys(call):
        authorize(context, call, action)
        return
    role = role_of(context, call)
    if role is not Role.ADMIN and role not in allowed:
        raise denied(context, call, action, f"its key has the role {role}, which {MEANING[role]}")


def check(context: Context, call: Call, operation: str, request: msgspec.Struct) -> None:
    """Refuse what this key may not do; returns when it may."""
    if by_role_keys(call):
        for need in permissions.needs(context, call, operation, request):
            authorize(context, call, *need)
        return
    role = role_of(context, call)
    if role is Role.ADMIN:
        return
    action = f"ecs:{operation}"
    if not may(role, operation):
        raise denied(context, call, action, f"its key has the role {role}, which {MEANING[role]}")
    if role is Role.AGENT:
        problem = _not_its_own(context, call, request)
        if problem:
            raise denied(context, call, action, f"its key has the role agent, and {problem}")


def authorize(
    context: Context, call: Call, action: str, resources: Sequence[Resource] = (), values: Values = MappingProxyType({})
) -> None:
    """Refuse an action (``ec2:CreateVpc``) that this key may not do. Who one is, everybody may ask.

    ``resources`` are the things that it touches, each by its ARNs; ``values`` the condition keys beyond those that
    every request has.
    """
    if action == "sts:GetCallerIdentity":
        return
    if by_role_keys(call):
        decision = simulate(context, call, action, resources, values)
        if not decision.allowed:
            raise _denial(context, call, action, decision)
        return
    role = role_of(context, call)
    if role is Role.ADMIN:
        return
    if role is not Role.READ or not may(role, action.partition(":")[2]):
        raise denied(context, call, action, f"its key has the role {role}, which {MEANING[role]}")


def simulate(
    context: Context, call: Call, action: str, resources: Sequence[Resource] = (), values: Values = MappingProxyType({})
) -> Decision:
    """What the policies of the caller's role say."""
    policies = context.roles.book.policies(call.session.role_arn) if context.roles and call.session else None
    if policies is None:
        return Decision(Verdict.NOT_ALLOWED, resources[0][0] if resources else "*")
    asked = permissions.of_every_call(call) | dict(values)
    decision = Decision(Verdict.NOT_ALLOWED)
    # Each by itself, since each has tags of its own.
    for resource in resources or (ANYTHING,):
        tagged = asked | permissions.resource_tags(context, call, resource[0])
        decision = decide(policies, Request(action, (resource,), keys(tagged)))
        if not decision.allowed:
            break
    return decision


def _denial(context: Context, call: Call, action: str, decision: Decision) -> AccessDeniedException:
    """The API's error for a role that may not do this, in the words of AWS; of a statement that denies it, which."""
    who = context.principal(call)
    said = f"User: {who} is not authorized to perform: {action} on resource: {decision.resource or '*'}"
    if decision.statement is not None:
        deny = f"with an explicit deny in an identity-based policy: {decision.statement.label}"
        return AccessDeniedException(f"{said} {deny}")
    return AccessDeniedException(f"{said} because no identity-based policy allows the {action} action")


def check_instance(context: Context, call: Call, action: str, instance_arn: str) -> None:
    """Refuse an agent's websocket for an instance that is not its key's own, and every key that is no agent's."""
    if by_role_keys(call):
        authorize(context, call, action, [(instance_arn,)])
        return
    require(context, call, action, Role.AGENT)
    entry = _key(context, call)
    if role_of(context, call) is Role.AGENT and (entry is None or entry.value.instance != instance_arn):
        raise denied(context, call, action, f"its key has the role agent, and {_bound(entry.value if entry else None)}")


def _bound(key: KeyRecord | None) -> str:
    if key is None or not key.instance:
        return "is bound to no container instance before it has registered one"
    return f"is bound to another container instance, {key.instance}"


def _not_its_own(context: Context, call: Call, request: msgspec.Struct) -> str:
    """Why a request is not about the key's own instance; empty when it is."""
    entry = _key(context, call)
    key = entry.value if entry else None
    match request:
        case ecs.RegisterContainerInstanceRequest():
            return ""  # judged with the instance's id at hand, by ``binding``
        case ecs.CreateClusterRequest(cluster_name=name):
            return "" if name in (None, "", names.DEFAULT_CLUSTER) else "an agent makes the default cluster only"
        case ecs.DiscoverPollEndpointRequest(container_instance=one):
            return "" if not one or _is_own(call, key, one) else _bound(key)
        case ecs.DeregisterContainerInstanceRequest(container_instance=one):
            return "" if one and _is_own(call, key, one) else _bound(key)
        case ecs.UpdateContainerInstancesStateRequest(container_instances=several):
            return "" if several and all(_is_own(call, key, one) for one in several) else _bound(key)
        case ecs.SubmitTaskStateChangeRequest(task=one) | ecs.SubmitContainerStateChangeRequest(task=one):
            return _foreign_task(context, call, key, request.cluster, one)
        case ecs.GetTaskProtectionRequest(tasks=some) | ecs.UpdateTaskProtectionRequest(tasks=some):
            found = (_foreign_task(context, call, key, request.cluster, one) for one in some or ("",))
            return next((problem for problem in found if problem), "")
        case _:
            return "" if key is not None and key.instance else _bound(key)


def _is_own(call: Call, key: KeyRecord | None, text: str) -> bool:
    member = names.parse_instance(text)
    if key is None or member is None or not key.instance:
        return False
    return member.id == names.last_part(key.instance) and names.region_of(key.instance) == call.region


def _foreign_task(context: Context, call: Call, key: KeyRecord | None, cluster: str | None, text: str | None) -> str:
    if key is None or not key.instance:
        return _bound(key)
    member = names.parse_task(text or "")
    name = names.parse_cluster(cluster) if cluster is not None else names.DEFAULT_CLUSTER
    entry = member and name and context.records.tasks.get(call.region, member.cluster or name, member.id)
    if not entry:
        return ""  # a task that is not known is nobody's: the operation says so
    if entry.value.task.container_instance_arn == key.instance:
        return ""
    return f"this task is not on its container instance, {key.instance}"


def binding(context: Context, call: Call, instance_arn: str, *, exists: bool) -> tuple[list[Compare], list[Write]]:
    """What binds the caller's key to the instance that it registers; nothing when that is not called for."""
    entry = _key(context, call)
    if entry is None or entry.value.role != Role.AGENT or entry.value.instance == instance_arn:
        return [], []
    action, key = "ecs:RegisterContainerInstance", entry.value
    if key.instance and _is_registered(context, key.instance):
        raise denied(
            context,
            call,
            action,
            f"its key has the role agent, and {_bound(key)}; deregister that one first, or make another key",
        )
    if exists:
        reason = f"its key has the role agent, and {_bound(key)}; make a key for this one with --instance"
        raise denied(context, call, action, reason)
    records = context.records
    after = msgspec.structs.replace(key, instance=instance_arn)
    return [records.unchanged(records.keys, entry, key.access_key_id)], [
        records.put(records.keys, after, key.access_key_id)
    ]


def _is_registered(context: Context, instance_arn: str) -> bool:
    member = names.parse_instance(instance_arn)
    region = names.region_of(instance_arn)
    return member is not None and context.records.instances.get(region, member.cluster, member.id) is not None
