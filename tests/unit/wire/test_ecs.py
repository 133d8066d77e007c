"""API bodies that Amazon's agent really sent and received go through the ECS shapes unchanged."""

from __future__ import annotations

import json

import msgspec
import pytest

from sexton.wire import ecs
from sexton.wire.scalars import JsonValue
from unit.wire.captured import calls

CALLS = calls()


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call["op"])
def test_captured_request_and_answer_survive_the_shapes(call):
    operation = ecs.OPERATIONS[call["op"]]
    for shape, body in ((operation.request, call["raw"]), (operation.response, json.dumps(call["resp_body"]))):
        again = msgspec.json.encode(msgspec.json.decode(body, type=shape))

        assert json.loads(again) == without_nulls(json.loads(body))


def without_nulls(value: JsonValue) -> JsonValue:
    """In this protocol a null member means the same as none, and shapes write it as none."""
    if isinstance(value, dict):
        return {name: without_nulls(member) for name, member in value.items() if member is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value


def test_only_one_member_of_the_session_is_null():
    """So leaving nulls out of the comparison above hides nothing else."""
    different = [
        (call["op"], part)
        for call in CALLS
        for part in ("body", "resp_body")
        if without_nulls(call[part]) != call[part]
    ]

    assert different == [("RegisterContainerInstance", "resp_body")]
    answer = CALLS[0]["resp_body"]["containerInstance"]
    assert [name for name, member in answer.items() if member is None] == ["versionInfo"]


def test_the_capture_holds_the_calls_an_agent_makes():
    assert {call["op"] for call in CALLS} == {
        "RegisterContainerInstance",
        "DiscoverPollEndpoint",
        "SubmitTaskStateChange",
    }


def test_an_absent_field_is_not_sent_but_an_empty_list_is():
    assert (
        msgspec.json.encode(ecs.Resource(name="PORTS", string_set_value=())) == b'{"name":"PORTS","stringSetValue":[]}'
    )
