"""A payload is taken apart task by task: what is wrong with one costs only that one, and never the agent."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sexton.agent import payload
from sexton.wire.errors import WireError
from unit.agent.rig import CLUSTER, INSTANCE, arn, container, task


def frame(*tasks: Any, **head: Any) -> bytes:
    message = {
        "messageId": "m1",
        "clusterArn": CLUSTER,
        "containerInstanceArn": INSTANCE,
        "seqNum": 4,
        "tasks": [msgspec.to_builtins(one) for one in tasks],
    } | head
    return msgspec.json.encode({"type": "PayloadMessage", "message": message})


def test_good_tasks_are_kept_beside_a_bad_one() -> None:
    bad = {"arn": arn(2), "containers": 5}
    read = payload.read(frame(task(1), bad, task(3)))
    assert [one.arn for one in read.tasks] == [arn(1), arn(3)]
    assert [one.arn for one in read.bad] == [arn(2)]
    assert read.bad[0].reason.startswith("UnrecogniedTaskError: Error loading task - ")
    assert (read.message_id, read.sequence) == ("m1", 4)


def test_task_that_is_no_object_at_all() -> None:
    read = payload.read(frame(task(1), 7, None, [], "x"))
    assert len(read.tasks) == 1 and [one.arn for one in read.bad] == ["", "", "", ""]


@pytest.mark.parametrize(
    ("problem", "words"),
    [
        (task(containers=()), "must have names"),
        (task(1, container("a"), container("a")), "each its own"),
        (task(1, container("")), "must have names"),
        (task(1, container(image="")), "has no image"),
        (task(network_mode="awsvpc"), "it has network mode awsvpc and no interface"),
        (task(arn=""), "has no ARN"),
    ],
)
def test_what_cannot_be_run_says_why(problem: Any, words: str) -> None:
    read = payload.read(frame(problem))
    assert not read.tasks and words in read.bad[0].reason


@pytest.mark.parametrize(
    "config",
    ["{", "5", "[]", '"x"', '{"HostConfig": 5}', '{"Labels": 7}', '{"Labels": ["a"]}', "[" * 50_000, '{"Env": {}}'],
)
@pytest.mark.parametrize("field", ["config", "hostConfig"])
def test_engine_settings_of_any_shape_cost_at_most_their_task(field: str, config: str) -> None:
    odd = msgspec.json.decode(msgspec.json.encode(task(2)))
    odd["containers"][0]["dockerConfig"] = {field: config}
    read = payload.read(frame(task(1), odd))
    assert arn(1) in [one.arn for one in read.tasks]
    assert len(read.tasks) + len(read.bad) == 2


def test_task_that_is_only_to_be_stopped_needs_no_more_than_its_name() -> None:
    read = payload.read(frame({"arn": arn(), "desiredStatus": "STOPPED"}))
    assert [one.arn for one in read.tasks] == [arn()] and not read.bad


@pytest.mark.parametrize(
    "data", [b"", b"{}", b'{"message": []}', b'{"message": {"tasks": []}}', b"[" * 50_000, b"\xff"]
)
def test_frame_without_what_every_payload_has(data: bytes) -> None:
    with pytest.raises(WireError):
        payload.read(data)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
_FIELDS = ["arn", "containers", "networkMode", "volumes", "cpu", "memory", "overrides", "desiredStatus", "family"]
_CONTAINER = ["name", "image", "portMappings", "mountPoints", "overrides", "dockerConfig", "environment", "command"]


@given(
    st.dictionaries(st.sampled_from(_FIELDS), _JSON, max_size=3),
    st.dictionaries(st.sampled_from(_CONTAINER), _JSON, max_size=3),
)
@settings(max_examples=300, deadline=None)
def test_strange_tasks_never_harm_their_neighbours(fields: dict[str, Any], inner: dict[str, Any]) -> None:
    odd = msgspec.json.decode(msgspec.json.encode(task(2)))
    odd["containers"][0] |= inner
    read = payload.read(frame(task(1), odd | fields))
    assert next(one.arn for one in read.tasks) == arn(1)
    assert len(read.tasks) + len(read.bad) == 2
    assert all(one.reason for one in read.bad)


@pytest.mark.parametrize(
    "odd",
    ["..", arn() + "/..", arn() + "\x00", "arn:aws:ecs:us-east-1:000000000000:task/default/..", "1" * 32, "arn:x"],
)
@pytest.mark.parametrize("status", ["RUNNING", "STOPPED"])
def test_arn_that_is_none_never_names_a_file_or_a_cgroup(odd: str, status: str) -> None:
    read = payload.read(frame(task(1, arn=odd, desired_status=status)))
    assert not read.tasks and "ARN" in read.bad[0].reason
