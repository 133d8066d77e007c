"""The decision agrees with what IAM's user guide says of evaluation; each row names the rule that it shows."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.core.iam import Decision, Request, Verdict, decide, keys
from sexton.core.iam_document import BadDocument, policy_of, read_policy
from sexton.core.iam_pattern import glob, pattern

YES, DENIED, NO = Verdict.ALLOWED, Verdict.DENIED, Verdict.NOT_ALLOWED
CLUSTER = "arn:aws:ecs:us-east-1:123456789012:cluster/blue"
TASK = "arn:aws:ecs:us-east-1:123456789012:task/blue/0123"
RUN = "ecs:RunTask"


class Case(NamedTuple):
    rule: str
    policy: Any  # one statement or several; the rest of the document is added
    wanted: Verdict
    action: str = RUN
    resource: str = TASK
    values: dict[str, Any] = {}


def allow(**more: Any) -> dict[str, Any]:
    return {"Effect": "Allow", "Action": "*", "Resource": "*"} | more


def deny(**more: Any) -> dict[str, Any]:
    return allow(**more) | {"Effect": "Deny"}


def when(operator: str, key: str, *wanted: Any) -> dict[str, Any]:
    return allow(Condition={operator: {key: wanted[0] if len(wanted) == 1 else list(wanted)}})


def without(statement: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in statement.items() if name not in names}


AT = {"aws:CurrentTime": "2026-11-19T12:00:00Z"}
FROM = {"aws:SourceIp": "203.0.113.7"}
TAGS = {"aws:TagKeys": ["team", "env"]}
WHO = {"aws:userid": "AROA:0123", "aws:PrincipalArn": "arn:aws:iam::123456789012:role/app"}

CASES = [
    # Allow, deny, default.
    Case("what no statement speaks of is denied", allow(Action="s3:GetObject"), NO),
    Case("an allow allows", allow(), YES),
    Case("an explicit deny overrides an allow", [allow(), deny()], DENIED),
    Case("the order of statements does not matter", [deny(), allow()], DENIED),
    Case("a deny of something else denies nothing", [allow(), deny(Action="ecs:StopTask")], YES),
    Case("a deny alone is told from silence", deny(), DENIED),
    Case("statements add up", [allow(Action="ecs:StopTask"), allow(Action="ecs:RunTask")], YES),
    # Actions.
    Case("the action's service is not case-sensitive", allow(Action="ECS:RunTask"), YES),
    Case("the action's name is not case-sensitive", allow(Action="ecs:runtask"), YES),
    Case("* stands for any characters of an action", allow(Action="ecs:Run*"), YES),
    Case("? stands for exactly one", allow(Action="ecs:RunTas?"), YES),
    Case("? does not stand for none", allow(Action="ecs:RunTask?"), NO),
    Case("* may stand in the middle", allow(Action="ecs:R*k"), YES),
    Case("a service's all actions are those of no other", allow(Action="logs:*"), NO),
    Case("of several actions one is enough", allow(Action=["logs:*", "ecs:*"]), YES),
    Case("NotAction speaks of all but the named", without(allow(NotAction="iam:*"), "Action"), YES),
    Case("what NotAction names is not spoken of", without(allow(NotAction=["ecs:*", "iam:*"]), "Action"), NO),
    Case(
        "a deny with NotAction denies all but the named", [allow(), without(deny(NotAction="iam:*"), "Action")], DENIED
    ),
    Case("what a deny's NotAction names stays", [allow(), without(deny(NotAction="ecs:*"), "Action")], YES),
    # Resources.
    Case("a resource is named by its ARN", allow(Resource=TASK), YES),
    Case("a resource is case-sensitive", allow(Resource=TASK.replace("blue", "Blue")), NO),
    Case("* in an ARN's segment", allow(Resource="arn:aws:ecs:*:123456789012:task/blue/*"), YES),
    Case("* goes over slashes", allow(Resource="arn:aws:ecs:us-east-1:123456789012:task/*"), YES),
    Case("* at the end goes over colons", allow(Resource="arn:aws:ecs:us-east-1:*"), YES),
    Case("an ARN that is cut short is completed with wildcards", allow(Resource="arn:aws:ecs"), YES),
    Case("a completed ARN is still of its service", allow(Resource="arn:aws:logs"), NO),
    Case("? in an ARN", allow(Resource=TASK[:-1] + "?"), YES),
    Case("of several resources one is enough", allow(Resource=[CLUSTER, TASK]), YES),
    Case("an action without resources needs *", allow(Resource="arn:aws:ecs:*:*:*"), NO, resource="*"),
    Case("* is what an action without resources is met by", allow(), YES, resource="*"),
    Case("NotResource speaks of all but the named", without(allow(NotResource=CLUSTER), "Resource"), YES),
    Case("what NotResource names is not spoken of", without(allow(NotResource=TASK), "Resource"), NO),
    Case("a deny with NotResource", [allow(), without(deny(NotResource=CLUSTER), "Resource")], DENIED),
    # Conditions: strings.
    Case("StringEquals", when("StringEquals", "ecs:cluster", CLUSTER), YES, values={"ecs:cluster": CLUSTER}),
    Case("StringEquals is case-sensitive", when("StringEquals", "aws:userid", "a"), NO, values={"aws:userid": "A"}),
    Case(
        "a key's name is not case-sensitive", when("StringEquals", "AWS:UserID", "a"), YES, values={"aws:userid": "a"}
    ),
    Case("StringEquals takes no wildcard", when("StringEquals", "aws:userid", "a*"), NO, values={"aws:userid": "ab"}),
    Case("StringEqualsIgnoreCase", when("StringEqualsIgnoreCase", "k:k", "AB"), YES, values={"k:k": "aB"}),
    Case("StringLike takes wildcards", when("StringLike", "k:k", "a?c*"), YES, values={"k:k": "abcd"}),
    Case("StringNotEquals", when("StringNotEquals", "k:k", "a"), YES, values={"k:k": "b"}),
    Case(
        "several values after a not: none may match", when("StringNotEquals", "k:k", "a", "b"), NO, values={"k:k": "b"}
    ),
    Case("several values: one is enough", when("StringEquals", "k:k", "a", "b"), YES, values={"k:k": "b"}),
    Case("StringNotLike", when("StringNotLike", "k:k", "a*"), NO, values={"k:k": "abc"}),
    # Keys that are not there.
    Case("a missing key is no match", when("StringEquals", "k:k", "a"), NO),
    Case("a missing key matches an operator that says not", when("StringNotEquals", "k:k", "a"), YES),
    Case("IfExists is true of a missing key", when("StringEqualsIfExists", "k:k", "a"), YES),
    Case("IfExists still asks a key that is there", when("StringEqualsIfExists", "k:k", "a"), NO, values={"k:k": "b"}),
    Case("Null true: the key must be missing", when("Null", "k:k", True), YES),
    Case("Null true: the key is there", when("Null", "k:k", "true"), NO, values={"k:k": "a"}),
    Case("Null false: the key must be there", when("Null", "k:k", "false"), YES, values={"k:k": "a"}),
    # And, or.
    Case(
        "all keys of an operator", allow(Condition={"StringEquals": {"k:a": "1", "k:b": "2"}}), NO, values={"k:a": "1"}
    ),
    Case(
        "all operators",
        allow(Condition={"StringEquals": {"k:a": "1"}, "Bool": {"k:b": "true"}}),
        YES,
        values={"k:a": "1", "k:b": "true"},
    ),
    Case("a deny whose condition is not met denies nothing", [allow(), deny(Condition={"Bool": {"k:b": "true"}})], YES),
    Case(
        "a deny whose condition is met",
        [allow(), deny(Condition={"Bool": {"aws:SecureTransport": "false"}})],
        DENIED,
        values={"aws:SecureTransport": "false"},
    ),
    # Numbers, dates, truths, addresses, ARNs, bytes.
    Case("NumericEquals compares numbers", when("NumericEquals", "k:n", "10"), YES, values={"k:n": "10.0"}),
    Case("NumericLessThan", when("NumericLessThan", "k:n", 10), NO, values={"k:n": "10"}),
    Case("NumericLessThanEquals", when("NumericLessThanEquals", "k:n", 10), YES, values={"k:n": "10"}),
    Case(
        "NumericGreaterThan is no comparison of texts",
        when("NumericGreaterThan", "k:n", "9"),
        YES,
        values={"k:n": "10"},
    ),
    Case("what is no number is no match", when("NumericGreaterThan", "k:n", "9"), NO, values={"k:n": "many"}),
    Case("DateLessThan", when("DateLessThan", "aws:CurrentTime", "2026-11-19T13:00:00Z"), YES, values=AT),
    Case(
        "DateGreaterThan with an offset",
        when("DateGreaterThan", "aws:CurrentTime", "2026-11-19T12:30:00+01:00"),
        YES,
        values=AT,
    ),
    Case("a date as seconds", when("DateGreaterThan", "aws:CurrentTime", "1763553599"), YES, values=AT),
    Case("Bool", when("Bool", "aws:SecureTransport", True), YES, values={"aws:SecureTransport": "true"}),
    Case("IpAddress with a network", when("IpAddress", "aws:SourceIp", "203.0.113.0/24"), YES, values=FROM),
    Case("IpAddress with an address", when("IpAddress", "aws:SourceIp", "203.0.113.7"), YES, values=FROM),
    Case(
        "an address of the other family is outside", when("IpAddress", "aws:SourceIp", "2001:db8::/32"), NO, values=FROM
    ),
    Case("NotIpAddress", when("NotIpAddress", "aws:SourceIp", "203.0.113.0/24"), NO, values=FROM),
    Case("IPv6", when("IpAddress", "aws:SourceIp", "2001:db8::/32"), YES, values={"aws:SourceIp": "2001:db8::7"}),
    Case(
        "ArnLike goes part by part",
        when("ArnLike", "ecs:cluster", "arn:aws:ecs:*:*:cluster/*"),
        YES,
        values={"ecs:cluster": CLUSTER},
    ),
    Case(
        "a wildcard of ArnLike stays in its part",
        when("ArnLike", "ecs:cluster", "arn:*:cluster/blue"),
        NO,
        values={"ecs:cluster": CLUSTER},
    ),
    Case(
        "ArnEquals does what ArnLike does",
        when("ArnEquals", "ecs:cluster", CLUSTER[:-1] + "*"),
        YES,
        values={"ecs:cluster": CLUSTER},
    ),
    Case("ArnNotEquals", when("ArnNotEquals", "ecs:cluster", CLUSTER), NO, values={"ecs:cluster": CLUSTER}),
    Case("BinaryEquals compares bytes", when("BinaryEquals", "k:b", "QUI="), YES, values={"k:b": "QUI="}),
    # Several values in the request.
    Case(
        "ForAllValues: every value is named",
        when("ForAllValues:StringEquals", "aws:TagKeys", "env", "team", "x"),
        YES,
        values=TAGS,
    ),
    Case("ForAllValues: one is not", when("ForAllValues:StringEquals", "aws:TagKeys", "env"), NO, values=TAGS),
    Case("ForAllValues is true of no values at all", when("ForAllValues:StringEquals", "aws:TagKeys", "env"), YES),
    Case("ForAnyValue: one is enough", when("ForAnyValue:StringEquals", "aws:TagKeys", "env"), YES, values=TAGS),
    Case("ForAnyValue: none is", when("ForAnyValue:StringEquals", "aws:TagKeys", "x"), NO, values=TAGS),
    Case("ForAnyValue is false of no values at all", when("ForAnyValue:StringEquals", "aws:TagKeys", "env"), NO),
    Case("ForAllValues with not", when("ForAllValues:StringNotEquals", "aws:TagKeys", "env"), NO, values=TAGS),
    Case("ForAnyValue with not", when("ForAnyValue:StringNotEquals", "aws:TagKeys", "env"), YES, values=TAGS),
    # Variables.
    Case(
        "a variable in a resource",
        allow(Resource="arn:aws:ecs:us-east-1:123456789012:task/${k:c}/*"),
        YES,
        values={"k:c": "blue"},
    ),
    Case(
        "a variable's value is literal",
        allow(Resource="arn:aws:ecs:us-east-1:123456789012:task/${k:c}/*"),
        NO,
        values={"k:c": "*"},
    ),
    Case("a variable without a value matches nothing", allow(Resource="arn:aws:ecs:us-east-1:*:task/${k:c}*"), NO),
    Case("a variable's default", allow(Resource="arn:aws:ecs:us-east-1:*:task/${k:c, 'blue'}/*"), YES),
    Case(
        "a variable in a condition",
        when("StringEquals", "k:a", "${aws:userid}"),
        YES,
        values=WHO | {"k:a": "AROA:0123"},
    ),
    Case("${*} is a star", when("StringLike", "k:a", "x${*}"), NO, values={"k:a": "xy"}),
    Case("${*} matches a star", when("StringLike", "k:a", "x${*}"), YES, values={"k:a": "x*"}),
]


def decision(case: Case, version: str = "2012-10-17") -> Decision:
    policy = policy_of({"Version": version, "Statement": case.policy})
    return decide([policy], Request(case.action, ((case.resource,),), keys(case.values)))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.rule)
def test_a_request_is_decided_as_iam_documents_it(case):
    assert decision(case).verdict is case.wanted


def test_no_rule_is_shown_twice():
    assert len({case.rule for case in CASES}) == len(CASES) >= 50


def test_variables_are_plain_text_in_documents_of_the_older_version():
    case = Case("", allow(Resource="arn:aws:ecs:us-east-1:123456789012:task/${k:c}/*"), NO, values={"k:c": "blue"})

    assert decision(case, "2008-10-17").verdict is NO
    assert decision(case, "2012-10-17").verdict is YES


def test_every_resource_of_a_request_must_be_allowed():
    policy = policy_of({"Statement": allow(Resource=TASK)})

    answer = decide([policy], Request(RUN, ((TASK,), (CLUSTER,))))

    assert answer == Decision(NO, CLUSTER)


def test_a_resource_may_be_known_by_several_names():
    policy = policy_of({"Statement": [allow(), deny(Resource="arn:aws:logs:*:*:log-group:web:*")]})
    group = ("arn:aws:logs:us-east-1:1:log-group:web", "arn:aws:logs:us-east-1:1:log-group:web:log-stream:")

    answer = decide([policy], Request("logs:PutLogEvents", (group,)))

    assert (answer.verdict, answer.resource) == (DENIED, group[0])


def test_the_statement_that_decided_is_named():
    policy = policy_of({"Statement": [allow(), deny(Sid="NoRuns", Action=RUN)]})

    answer = decide([policy], Request(RUN, ((TASK,),)))

    assert answer.statement is not None
    assert answer.statement.label == "statement 2 (NoRuns)"


GOOD = {"Version": "2012-10-17", "Statement": [allow()]}


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ([], "it is no object"),
        ({}, "Statement is missing or empty"),
        ({"Statement": []}, "Statement is missing or empty"),
        (GOOD | {"Version": "2020-01-01"}, "Version is '2020-01-01'; write 2012-10-17"),
        (GOOD | {"statement": []}, "'statement' is unknown; write Statement"),
        ({"Statement": ["x"]}, "Statement 1 is no object"),
        ({"Statement": [allow(), allow(Effect="allow")]}, "Statement 2: Effect is 'allow'; write Allow or Deny"),
        ({"Statement": allow(NotAction="*")}, "Statement 1 has both Action and NotAction"),
        ({"Statement": without(allow(), "Resource")}, "Statement 1 has neither Resource nor NotResource"),
        ({"Statement": allow(Principal="*")}, "Statement 1 names a principal"),
        ({"Statement": allow(Deeds="*")}, "Statement 1: 'Deeds' is unknown; known there: Sid"),
        ({"Statement": allow(Action="RunTask")}, "Action 'RunTask' is no action; write SERVICE:ACTION"),
        ({"Statement": allow(Action=[])}, "Action is an empty list"),
        ({"Statement": allow(Action=[{}])}, "Action is {}; write a text"),
        ({"Statement": allow(Resource="task/x")}, "Resource 'task/x' is no resource; write an ARN"),
        (GOOD | {"Statement": allow(Resource="arn:aws:ecs:${aws:userid")}, "has no end"),
        ({"Statement": allow(Sid="no way")}, "Sid is 'no way'"),
        ({"Statement": [allow(Sid="a"), allow(Sid="a")]}, "Statement 2: the Sid 'a' is that of another"),
        ({"Statement": allow(Condition=[])}, "Condition is no object"),
        ({"Statement": when("stringequals", "k:k", "a")}, "no condition operator; write StringEquals"),
        ({"Statement": when("Matches", "k:k", "a")}, "'Matches' is no condition operator; there are StringEquals"),
        ({"Statement": when("ForEach:StringLike", "k:k", "a")}, "'ForEach:' is no quantifier"),
        ({"Statement": when("NullIfExists", "k:k", "true")}, "Null asks whether a key is there"),
        ({"Statement": when("StringEquals", "cluster", "a")}, "'cluster' is no condition key"),
        ({"Statement": when("NumericEquals", "k:n", "ten")}, "k:n: 'ten' is no value for NumericEquals"),
        ({"Statement": when("IpAddress", "aws:SourceIp", "10.0.0.300")}, "'10.0.0.300' is no value for IpAddress"),
        ({"Statement": when("DateLessThan", "aws:CurrentTime", "noon")}, "'noon' is no value for DateLessThan"),
        ({"Statement": when("Bool", "k:b", "yes")}, "'yes' is no value for Bool"),
    ],
)
def test_a_document_that_is_no_policy_is_refused_with_its_place(document, said):
    with pytest.raises(BadDocument) as refused:
        policy_of(document)

    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"Statement": [', "line 1, column 16: it is not JSON"),
        ('{"Statement": [], "Statement": []}', "'Statement' stands twice"),
        ("[" * 100_000, "nested too deeply"),
        (" " * 200_000, "longer than 128 KiB"),
    ],
)
def test_a_text_that_is_no_policy_is_refused(text, said):
    with pytest.raises(BadDocument) as refused:
        read_policy(text)

    assert said in str(refused.value)


# Whatever the policies.

actions = st.sampled_from(["*", "ecs:*", "ecs:RunTask", "ecs:Run*", "logs:*", "ecs:StopTas?"])
resources = st.sampled_from(["*", TASK, CLUSTER, "arn:aws:ecs:*", "arn:aws:ecs:us-east-1:*:task/*", "arn:aws:logs"])
conditions = st.sampled_from(
    [{}, {"StringEquals": {"k:a": "1"}}, {"StringNotEquals": {"k:a": "1"}}, {"Null": {"k:a": "true"}}]
)


@st.composite
def statements(draw: st.DrawFn, effect: str = "") -> dict[str, Any]:
    action, resource = (
        draw(st.sampled_from(["Action", "NotAction"])),
        draw(st.sampled_from(["Resource", "NotResource"])),
    )
    return {
        "Effect": effect or draw(st.sampled_from(["Allow", "Deny"])),
        action: draw(st.lists(actions, min_size=1, max_size=2)),
        resource: draw(st.lists(resources, min_size=1, max_size=2)),
        "Condition": draw(conditions),
    }


policies = st.lists(statements(), min_size=1, max_size=4)
requests = st.builds(
    Request,
    st.sampled_from(["ecs:RunTask", "ecs:StopTask", "logs:PutLogEvents", "iam:PassRole"]),
    st.lists(st.sampled_from([(TASK,), (CLUSTER,), ("*",)]), min_size=1, max_size=3).map(tuple),
    st.sampled_from([{}, {"k:a": ("1",)}, {"k:a": ("2",)}]),
)


def answer_of(told: list[dict[str, Any]], request: Request) -> Decision:
    return decide([policy_of({"Version": "2012-10-17", "Statement": told})], request)


@given(policies, statements("Deny"), requests)
def test_one_more_deny_never_allows_more(told, more, request):
    assert answer_of(told, request).allowed or not answer_of([*told, more], request).allowed


@given(policies, statements("Allow"), requests)
def test_one_more_allow_never_allows_less(told, more, request):
    assert answer_of([*told, more], request).allowed or not answer_of(told, request).allowed


@given(policies, requests)
def test_order_and_splitting_change_nothing(told, request):
    apart = [policy_of({"Version": "2012-10-17", "Statement": [one]}) for one in reversed(told)]

    assert decide(apart, request).allowed == answer_of(told, request).allowed


@given(policies, requests)
def test_a_request_is_allowed_exactly_when_each_of_its_resources_is(told, request):
    parts = [answer_of(told, request._replace(resources=(one,))).allowed for one in request.resources]

    assert answer_of(told, request).allowed == all(parts)


def slow_glob(wanted: str, text: str) -> bool:
    """The plainest way to say it."""
    if not wanted:
        return not text
    if wanted[0] == "*":
        return slow_glob(wanted[1:], text) or (bool(text) and slow_glob(wanted, text[1:]))
    return bool(text) and wanted[0] in ("?", text[0]) and slow_glob(wanted[1:], text[1:])


@given(st.text("ab:.[*?", max_size=8), st.text("ab:.[\n", max_size=8))
def test_wildcards_match_as_the_plainest_reading_does(wanted, text):
    assert glob(pattern(wanted, variables=False).pieces, text) == slow_glob(wanted, text)


@given(st.text(max_size=12))
def test_a_text_matches_itself_when_its_variables_are_escaped(text):
    written = "".join(f"${{{one}}}" if one in "*?$" else one for one in text)

    assert pattern(written).matches(text, {})


def test_matching_takes_no_time_with_many_wildcards():
    assert not pattern("*a" * 2000 + "b").matches("a" * 5000, {})
