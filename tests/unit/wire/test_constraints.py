"""Requests are held to the service model, in the service's words; botocore's own validator is the second opinion."""

from __future__ import annotations

import json

import msgspec
import pytest
from botocore.loaders import Loader
from botocore.model import ServiceModel
from botocore.validate import ParamValidator
from hypothesis import given, settings
from hypothesis import strategies as st

from sexton.wire import ecs
from sexton.wire.constraints import MAX_VALUE_SHOWN, MAX_VIOLATIONS_SHOWN, check, describe
from sexton.wire.constraints_table import CONSTRAINTS
from unit.wire.captured import calls

SERVICE = ServiceModel(Loader().load_service_model("ecs", "service-2"))


def violations(operation: str, request: object) -> list[str]:
    decoded = msgspec.json.decode(json.dumps(request), type=ecs.OPERATIONS[operation].request)
    return [str(violation) for violation in check(decoded)]


@pytest.mark.parametrize("call", calls(), ids=lambda call: call["op"])
def test_what_a_real_agent_sends_is_fine(call):
    assert violations(call["op"], call["body"]) == []


@pytest.mark.parametrize(
    "operation, request_, expected",
    [
        ("DescribeTasks", {}, ["Value at 'tasks' MUST not be null"]),
        (
            "RunTask",
            {"taskDefinition": "a", "launchType": "MOON"},
            [f"Value 'MOON' at 'launchType' MUST satisfy enum value set: [{', '.join(ecs.LaunchType)}]"],
        ),
        (
            "RegisterTaskDefinition",
            {"family": "f", "containerDefinitions": [{}, {"secrets": [{"name": "n"}]}]},
            ["Value at 'containerDefinitions.2.member.secrets.1.member.valueFrom' MUST not be null"],
        ),
        (
            "DescribeTasks",
            {"tasks": [], "include": ["TAGS", "MOON", "SUN"]},
            [
                "Value '[TAGS, MOON, SUN]' at 'include' MUST satisfy constraint: "
                "[Member must satisfy enum value set: [TAGS]]"
            ],
        ),
        (
            "TagResource",
            {"resourceArn": "a", "tags": [{"key": ""}, {"key": "k" * 129}, {"key": "a#b"}]},
            [
                "Value '' at 'tags.1.member.key' MUST have length greater than or equal to 1",
                f"Value '{'k' * 129}' at 'tags.2.member.key' MUST have length less than or equal to 128",
                "Value 'a#b' at 'tags.3.member.key' "
                r"MUST satisfy regular expression pattern: ([\p{L}\p{Z}\p{N}_.:/=+\-@]*)",
            ],
        ),
        (
            "TagResource",
            {"resourceArn": "a", "tags": [{"key": "k"}] * 51},
            ["Value '[51 items]' at 'tags' MUST have length less than or equal to 50"],
        ),
        (
            "RunTask",
            {"taskDefinition": "a", "capacityProviderStrategy": [{"capacityProvider": "", "weight": 1001, "base": -1}]},
            [
                "Value '1001' at 'capacityProviderStrategy.1.member.weight' MUST have value less than or equal to 1000",
                "Value '-1' at 'capacityProviderStrategy.1.member.base' MUST have value greater than or equal to 0",
            ],
        ),
        (
            "CreateGateway",
            {"name": "g", "infrastructureRoleArn": "a", "configuration": {}},
            ["Value 'GatewayConfiguration' at 'configuration' MUST have exactly one of its members set"],
        ),
    ],
)
def test_each_kind_of_demand_is_told_in_the_words_of_the_service(operation, request_, expected):
    told = violations(operation, request_)

    assert told == [line.replace("MUST", "failed to satisfy constraint: Member must") for line in expected]


@pytest.mark.parametrize("key", ["größe", "a b", "a\u00a0b", "東京", "x1_.:/=+-@", "٣"])
def test_unicode_letters_separators_and_numbers_are_allowed_in_tags(key):
    assert violations("TagResource", {"resourceArn": "a", "tags": [{"key": key, "value": ""}]}) == []


@pytest.mark.parametrize("key", ["a\tb", "a\nb", "a,b", "\u200b", "k\n"])
def test_other_characters_are_not(key):
    assert len(violations("TagResource", {"resourceArn": "a", "tags": [{"key": key}]})) == 1


def test_one_violation_is_one_sentence_and_many_are_counted():
    one = check(ecs.DescribeTasksRequest())
    many = check(ecs.TagResourceRequest(resource_arn="a", tags=tuple(ecs.Tag(key="#") for _ in range(30))))

    assert describe(one) == (
        "1 validation error detected: Value at 'tasks' failed to satisfy constraint: Member must not be null"
    )
    assert describe(many).startswith("30 validation errors detected: Value '#' at 'tags.1.member.key' failed")
    assert describe(many).count("Value '#'") == MAX_VIOLATIONS_SHOWN


def test_a_huge_wrong_request_makes_a_small_answer():
    tags = tuple(ecs.Tag(key="#" * 100_000) for _ in range(5_000))
    told = describe(check(ecs.TagResourceRequest(resource_arn="a", tags=tags)))

    assert len(told) < MAX_VIOLATIONS_SHOWN * (MAX_VALUE_SHOWN + 300)


def test_every_entry_of_the_table_can_be_checked():
    """Builds the checks of every structure, so a name the shapes do not have cannot hide in the table."""
    for name in CONSTRAINTS:
        required = [member for member in CONSTRAINTS[name].members if member.required]
        union = 1 if CONSTRAINTS[name].union else 0

        assert len(check(getattr(ecs, name)())) == len(required) + union


def members(shape, depth):
    """Requests near the model: members left out, bounds met and missed, wrong words, all of the right JSON type."""
    if shape.type_name == "structure":
        if depth == 0:
            return st.just({})
        return st.fixed_dictionaries(
            {}, optional={name: members(inner, depth - 1) for name, inner in shape.members.items()}
        )
    if shape.type_name == "list":
        return st.lists(members(shape.member, depth), max_size=3)
    if shape.type_name == "map":
        return st.just({"k": "v"})
    if shape.type_name == "boolean":
        return st.booleans()
    if shape.type_name == "string":
        return st.sampled_from(["", "x", *shape.enum]) if shape.enum else st.text(max_size=3)
    if shape.type_name == "timestamp":
        return st.just(1.0)
    return st.sampled_from([-1, 0, 1, 50, 100_001])


OPERATIONS_TO_COMPARE = (
    "RunTask",
    "RegisterTaskDefinition",
    "CreateService",
    "CreateCapacityProvider",
    "SubmitTaskStateChange",
)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), operation=st.sampled_from(OPERATIONS_TO_COMPARE))
def test_botocore_agrees_on_what_is_missing_too_small_or_not_one_of_a_union(data, operation):
    """botocore checks members that must be there, lower bounds and unions; upper bounds and words only the service."""
    shape = SERVICE.operation_model(operation).input_shape
    request = data.draw(members(shape, depth=4))
    decoded = msgspec.json.decode(json.dumps(request), type=ecs.OPERATIONS[operation].request)
    report = ParamValidator().validate(request, shape)
    ours = [
        violation
        for violation in check(decoded)
        if "not be null" in violation.constraint
        or "greater than" in violation.constraint
        or "exactly one" in violation.constraint
    ]

    assert bool(ours) == report.has_errors(), report.generate_report()
