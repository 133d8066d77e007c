"""Policies asked where they count: each row is a role, a call with its keys, and what IAM's user guide says of it."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from plane import ACCOUNT, REGION, open_plane
from unit.control.own.rolekeys import ARN, keys_of, statement, write_roles

PLACE = f"arn:aws:ecs:{REGION}:{ACCOUNT}:"
BLUE, GREEN = PLACE + "cluster/blue", PLACE + "cluster/green"
YES, NO, DENIED = "allowed", "not allowed", "denied"


class Case(NamedTuple):
    rule: str
    statements: list[dict[str, Any]]
    wanted: str
    operation: str = "DescribeClusters"
    fields: dict[str, Any] = {"clusters": ["blue"]}


def allow(action: Any = "ecs:*", resource: Any = "*", **more: Any) -> dict[str, Any]:
    return statement("Allow", action, resource, **more)


def deny(action: Any = "ecs:*", resource: Any = "*", **more: Any) -> dict[str, Any]:
    return statement("Deny", action, resource, **more)


def when(operator: str, key: str, value: Any, action: str = "ecs:*") -> list[dict[str, Any]]:
    return [allow(action, Condition={operator: {key: value}})]


def without(one: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in one.items() if name not in names}


LIST: dict[str, Any] = {"operation": "ListClusters", "fields": {}}
BOTH: dict[str, Any] = {"fields": {"clusters": ["blue", "green"]}}
MAKE: dict[str, Any] = {"operation": "CreateCluster", "fields": {"clusterName": "blue"}}
TAGGED: dict[str, Any] = {
    "operation": "CreateCluster",
    "fields": {"clusterName": "blue", "tags": [{"key": "team", "value": "web"}]},
}
TASKS: dict[str, Any] = {"operation": "ListTasks", "fields": {"cluster": "blue"}}
DEFINE: dict[str, Any] = {
    "operation": "RegisterTaskDefinition",
    "fields": {"family": "app", "containerDefinitions": [{"name": "m", "image": "i", "memory": 6}]},
}
DEFINE_ROLE: dict[str, Any] = {"operation": "RegisterTaskDefinition", "fields": DEFINE["fields"] | {"taskRoleArn": "r"}}

CASES = [
    Case("silence denies", [allow("s3:*")], NO),
    Case("an allow allows", [allow()], YES),
    Case("a deny wins", [allow(), deny()], DENIED),
    Case("a deny wins wherever it stands", [deny(), allow()], DENIED),
    Case("a deny of another action is none", [allow(), deny("ecs:RunTask")], YES),
    Case("a deny of another resource is none", [allow(), deny(resource=GREEN)], YES),
    Case("statements add up", [allow("ecs:ListClusters"), allow("ecs:DescribeClusters")], YES),
    Case("an action by its name", [allow("ecs:DescribeClusters")], YES),
    Case("an action's case does not matter", [allow("ECS:describeclusters")], YES),
    Case("* in an action", [allow("ecs:Describe*")], YES),
    Case("* in the middle of an action", [allow("ecs:*Clusters")], YES),
    Case("? in an action", [allow("ecs:DescribeCluster?")], YES),
    Case("? is one character", [allow("ecs:DescribeClusters?")], NO),
    Case("all actions", [allow("*")], YES),
    Case("one of several actions", [allow(["ecs:RunTask", "ecs:Describe*"])], YES),
    Case("none of several actions", [allow(["ecs:RunTask", "ecs:List*"])], NO),
    Case("NotAction speaks of the rest", [without(allow(NotAction="ecs:RunTask"), "Action")], YES),
    Case("NotAction is silent on what it names", [without(allow(NotAction="ecs:Describe*"), "Action")], NO),
    Case("a deny by NotAction", [allow(), without(deny(NotAction="ecs:List*"), "Action")], DENIED),
    Case("a deny by NotAction spares what it names", [allow(), without(deny(NotAction="ecs:D*"), "Action")], YES),
    Case("a resource by its ARN", [allow(resource=BLUE)], YES),
    Case("another resource", [allow(resource=GREEN)], NO),
    Case("a resource's case matters", [allow(resource=BLUE.replace("blue", "Blue"))], NO),
    Case("* in a resource", [allow(resource=PLACE + "cluster/b*")], YES),
    Case("? in a resource", [allow(resource=PLACE + "cluster/bl?e")], YES),
    Case("every resource of a kind", [allow(resource=PLACE + "cluster/*")], YES),
    Case("another account's resource", [allow(resource=BLUE.replace(ACCOUNT, "9" * 12))], NO),
    Case("any account's resource", [allow(resource=BLUE.replace(ACCOUNT, "*"))], YES),
    Case("another region's resource", [allow(resource=BLUE.replace(REGION, "eu-west-1"))], NO),
    Case("one of several resources", [allow(resource=[GREEN, BLUE])], YES),
    Case("every resource of a call must be allowed", [allow(resource=BLUE)], NO, **BOTH),
    Case("both of a call's resources are", [allow(resource=[BLUE, GREEN])], YES, **BOTH),
    Case("one denied resource denies the call", [allow(), deny(resource=GREEN)], DENIED, **BOTH),
    Case("a name that is an ARN means the same", [allow(resource=BLUE)], YES, fields={"clusters": [BLUE]}),
    Case("NotResource speaks of the rest", [without(allow(NotResource=GREEN), "Resource")], YES),
    Case("NotResource is silent on what it names", [without(allow(NotResource=BLUE), "Resource")], NO),
    Case("a deny by NotResource", [allow(), without(deny(NotResource=BLUE), "Resource")], DENIED, **BOTH),
    Case("an action without resources needs *", [allow(resource=PLACE + "cluster/*")], NO, **LIST),
    Case("an action without resources with *", [allow("ecs:ListClusters")], YES, **LIST),
    Case("ArnEquals on the cluster", when("ArnEquals", "ecs:cluster", BLUE), YES, **TASKS),
    Case("ArnEquals on another cluster", when("ArnEquals", "ecs:cluster", GREEN), NO, **TASKS),
    Case("ArnLike with a wildcard", when("ArnLike", "ecs:cluster", PLACE + "cluster/*"), YES, **TASKS),
    Case("StringEquals on the region", when("StringEquals", "aws:RequestedRegion", REGION), YES),
    Case("StringEquals on another region", when("StringEquals", "aws:RequestedRegion", "eu-west-1"), NO),
    Case("StringNotEquals", when("StringNotEquals", "aws:RequestedRegion", "eu-west-1"), YES),
    Case("StringLike", when("StringLike", "aws:PrincipalArn", ARN + "case-*"), YES),
    Case("a variable of the caller", when("StringLike", "aws:userid", "*:${aws:PrincipalAccount}"), NO),
    Case("a key that is missing", when("StringEquals", "aws:RequestTag/team", "web"), NO, **MAKE),
    Case("a key that is missing, IfExists", when("StringEqualsIfExists", "aws:RequestTag/team", "web"), YES, **MAKE),
    Case("a tag that is asked for", when("StringEquals", "aws:RequestTag/team", "web"), YES, **TAGGED),
    Case("another tag than asked for", when("StringEquals", "aws:RequestTag/team", "db"), NO, **TAGGED),
    Case("only these tag keys", when("ForAllValues:StringEquals", "aws:TagKeys", ["team", "env"]), YES, **TAGGED),
    Case("other tag keys", when("ForAllValues:StringEquals", "aws:TagKeys", ["env"]), NO, **TAGGED),
    Case("a tag of the resource", when("StringEquals", "aws:ResourceTag/team", "web"), YES),
    Case("a tag that another resource has", when("StringEquals", "ecs:ResourceTag/team", "db"), NO),
    Case(
        "a deny by a tag of the resource",
        [allow(), *(deny(Condition=one["Condition"]) for one in when("StringEquals", "aws:ResourceTag/team", "web"))],
        DENIED,
    ),
    Case("Null: a tag must be given", when("Null", "aws:RequestTag/team", "false"), NO, **MAKE),
    Case("Null: no tag may be given", when("Null", "aws:RequestTag/team", "true"), YES, **MAKE),
    Case("Bool: without TLS", when("Bool", "aws:SecureTransport", "false"), YES),
    Case("Bool: TLS alone", when("Bool", "aws:SecureTransport", "true"), NO),
    Case("IpAddress", when("IpAddress", "aws:SourceIp", "127.0.0.0/8"), YES),
    Case("another IpAddress", when("IpAddress", "aws:SourceIp", ["198.51.100.0/24", "2001:db8::/32"]), NO),
    Case("a deny by NotIpAddress", [allow(), deny(Condition={"NotIpAddress": {"aws:SourceIp": "10.0.0.0/8"}})], DENIED),
    Case("DateGreaterThan", when("DateGreaterThan", "aws:CurrentTime", "2020-01-01T00:00:00Z"), YES),
    Case("DateLessThan", when("DateLessThan", "aws:CurrentTime", "2020-01-01T00:00:00Z"), NO),
    Case("NumericGreaterThan", when("NumericGreaterThan", "aws:EpochTime", "1000000000"), YES),
    Case(
        "all conditions must hold",
        [allow(Condition={"StringEquals": {"aws:RequestedRegion": REGION}, "Bool": {"aws:SecureTransport": "true"}})],
        NO,
    ),
    Case("one value of several", when("StringEquals", "aws:RequestedRegion", ["eu-west-1", REGION]), YES),
    Case("a definition without a role passes none", [allow("ecs:RegisterTaskDefinition")], YES, **DEFINE),
    Case("a role must be passed", [allow("ecs:RegisterTaskDefinition")], NO, **DEFINE_ROLE),
    Case("a role that may be passed", [allow("ecs:Reg*"), allow("iam:PassRole", ARN + "r")], YES, **DEFINE_ROLE),
    Case("another role may be passed", [allow("ecs:Reg*"), allow("iam:PassRole", ARN + "s")], NO, **DEFINE_ROLE),
    Case(
        "passed to tasks",
        [
            allow("ecs:Reg*"),
            allow("iam:PassRole", Condition={"StringEquals": {"iam:PassedToService": "ecs-tasks.amazonaws.com"}}),
        ],
        YES,
        **DEFINE_ROLE,
    ),
    Case(
        "passed to others",
        [
            allow("ecs:Reg*"),
            allow("iam:PassRole", Condition={"StringEquals": {"iam:PassedToService": "ec2.amazonaws.com"}}),
        ],
        NO,
        **DEFINE_ROLE,
    ),
]


@pytest.fixture
async def plane(tmp_path):
    roles = {f"case_{number}": case.statements for number, case in enumerate(CASES)}
    async with open_plane(tmp_path, roles=write_roles(tmp_path / "roles.toml", **roles)) as made:
        yield made


async def test_every_policy_decides_as_the_guide_says(admin, plane):
    await admin.ecs("CreateCluster", clusterName="blue", tags=[{"key": "team", "value": "web"}])
    await admin.ecs("CreateCluster", clusterName="green", tags=[{"key": "team", "value": "db"}])
    wrong = []
    for number, case in enumerate(CASES):
        caller = admin.as_(await keys_of(plane.control, f"case-{number}"))
        status, answer = await caller.ecs(case.operation, **case.fields)
        message = answer.get("message", "")
        if status == 200:
            found = YES
        else:
            assert answer["__type"] == "AccessDeniedException", (case.rule, answer)
            assert "is not authorized to perform: " in message
            found = DENIED if "with an explicit deny in an identity-based policy: " in message else NO
        if found != case.wanted:
            wrong.append((case.rule, case.wanted, found, message))
    assert wrong == []
    assert len(CASES) >= 50
