"""Requests drawn from the service model: such as the model allows, and such as it does not.

Names that exist in the test's world turn up often, so that requests get past the first check; every value may be
replaced by one of another kind, left out, or be far too large.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import botocore.session
from hypothesis import strategies as st

SESSION = botocore.session.get_session()
MODEL = SESSION.get_service_model("ecs")

# What the world has, under the members that name it; given as it is, or slightly wrong.
KNOWN = {
    "cluster": ["default", "blue", "arn:aws:ecs:us-east-1:123456789012:cluster/default"],
    "clusterName": ["default", "blue", "green"],
    "clusters": ["default", "blue"],
    "taskDefinition": ["web", "web:1", "web:9"],
    "family": ["web", "api"],
    "familyPrefix": ["web"],
    "task": ["$task"],
    "tasks": ["$task"],
    "containerInstance": ["$instance"],
    "containerInstances": ["$instance"],
    "containerInstanceArn": ["$instance"],
    "resourceArn": ["$task", "$instance", "arn:aws:ecs:us-east-1:123456789012:task-definition/web:1"],
    "networkMode": ["bridge", "host", "none", "awsvpc"],
    "status": ["RUNNING", "STOPPED", "PENDING", "ACTIVE", "DRAINING"],
    "containerName": ["main", "other"],
    "name": ["main", "other", "data"],
    "sourceVolume": ["data"],
    "clientToken": ["t1", "t2"],
    "cpu": ["256", "1 vCPU", "inf vcpu", "-1", "1e400 vcpu", "9" * 5000],
    "memory": ["512", "1 GB", "nan gb", "x"],
    "nextToken": ["77", "zz", "ff", f"f/{7:056}/s", f"b/{10**30:056}/s"],
    # Of CloudWatch Logs.
    "logGroupName": ["/g", "/h", "/none"],
    "logGroupIdentifier": ["/g", "arn:aws:logs:us-east-1:123456789012:log-group:/g"],
    "logStreamName": ["s", "t", "none"],
    "logStreamNames": ["s", "t"],
    "filterPattern": ["a", '"a b" -c', "{ $.a = 1 }", "[a, ..., b > 1]", "{ $.a"],
    "orderBy": ["LastEventTime", "LogStreamName"],
    "timestamp": [1_800_000_000_000, 1_799_999_999_000],
}

# Members without which hardly any request means anything.
USUAL = {
    "clusterName",
    "containerDefinitions",
    "containerInstances",
    "containerName",
    "containerOverrides",
    "cpu",
    "family",
    "image",
    "memory",
    "name",
    "overrides",
    "status",
    "task",
    "taskDefinition",
    "tasks",
}

words = st.one_of(
    st.sampled_from(["", "a", "web", "\u0000", "ü", "\ud7ff", "a/b", "a:b", "-", "x" * 300, "$(id)", "../.."]),
    st.text(max_size=8),
)
whole = st.one_of(
    st.integers(0, 10), st.sampled_from([-1, 80, 512, 65535, 65536, 2**31 - 1, -(2**31), 2**31, 2**63, -(2**70)])
)
anything = st.recursive(
    st.one_of(st.none(), st.booleans(), whole, st.floats(allow_nan=False, allow_infinity=False), words),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(words, inner, max_size=2)),
    max_leaves=4,
)


fair_words = st.sampled_from(["web", "a", "b-1"])
fair_whole = st.sampled_from([0, 1, 6, 80, 512])


@cache
def of_shape(shape: Any, member: str, depth: int, fair: bool) -> st.SearchStrategy[Any]:
    """Values of a shape of the model; fair ones are such as a client means, others may be anything."""
    if not fair and depth:
        return st.one_of([of_shape(shape, member, depth, True)] * 5 + [anything, wild(shape)])
    known = KNOWN.get(member, ())
    match shape.type_name:
        case "string":
            return st.sampled_from(known[:2] or getattr(shape, "enum", None) or ["web", "a", "b-1"])
        case "integer" | "long" | "double" | "float" | "timestamp":
            return st.sampled_from(known) if known else fair_whole
        case "boolean":
            return st.booleans()
        case "list":
            return st.lists(of_shape(shape.member, member, depth + 1, fair), min_size=1, max_size=2)
        case "map":
            return st.dictionaries(fair_words, of_shape(shape.value, "", depth + 1, fair), max_size=2)
    return of_structure(shape, depth, fair)


def wild(shape: Any) -> st.SearchStrategy[Any]:
    """The right kind of value, and hardly ever a sensible one."""
    match shape.type_name:
        case "string":
            return st.one_of(words, st.sampled_from(KNOWN["cpu"] + KNOWN["memory"] + KNOWN["nextToken"]))
        case "integer" | "long" | "double" | "float" | "timestamp":
            return st.one_of(whole, st.floats(allow_nan=False, allow_infinity=False))
    return anything


def of_structure(shape: Any, depth: int, fair: bool) -> st.SearchStrategy[dict[str, Any]]:
    if depth > 5:
        return st.just({})
    members = shape.members
    # What makes a request be about something is nearly always there, anything else now and then.
    usual = sorted(set(shape.required_members) | (USUAL & members.keys()))
    others = sorted(members.keys() - set(usual))

    @st.composite
    def structure(draw: Any) -> dict[str, Any]:
        chosen = draw(st.lists(st.sampled_from(others), unique=True, max_size=2)) if others else []
        left_out = "" if fair or not usual else draw(st.sampled_from([""] * 9 + usual))
        return {
            name: draw(of_shape(members[name], name, depth + 1, fair)) for name in [*usual, *chosen] if name != left_out
        }

    return structure()


def requests(operation: str, service: str = "ecs") -> st.SearchStrategy[dict[str, Any]]:
    shape = SESSION.get_service_model(service).operation_model(operation).input_shape
    return st.one_of(of_structure(shape, 0, True), of_structure(shape, 0, False))


def filled(value: Any, names: dict[str, str]) -> Any:
    """The request with the world's own names in their places."""
    match value:
        case str():
            return names.get(value, value)
        case list():
            return [filled(one, names) for one in value]
        case dict():
            return {key: filled(one, names) for key, one in value.items()}
    return value
