"""What the driver awslogs is told follows from a definition: streams named, endpoints given, all else as it is."""

from __future__ import annotations

import pytest

from sexton.core import awslogs


@pytest.mark.parametrize(
    "options, expected",
    [
        ({"awslogs-group": "g", "awslogs-stream-prefix": "p"}, {"awslogs-group": "g", "awslogs-stream": "p/main/t1"}),
        ({"awslogs-group": "g"}, {"awslogs-group": "g"}),
        ({"awslogs-stream-prefix": "p", "awslogs-stream": "own"}, {"awslogs-stream": "own"}),
        ({"mode": "non-blocking", "awslogs-multiline-pattern": "^A"},) * 2,
    ],
)
def test_a_prefix_becomes_a_stream_of_the_task(options, expected):
    assert awslogs.rendered(options, "main", "t1", "") == expected


def test_an_endpoint_is_given_unless_the_definition_has_one():
    assert awslogs.rendered({}, "c", "t", "http://here")["awslogs-endpoint"] == "http://here"
    told = awslogs.rendered({"awslogs-endpoint": "https://logs.example.com"}, "c", "t", "http://here")
    assert told["awslogs-endpoint"] == "https://logs.example.com"


@pytest.mark.parametrize(
    "auth, expected", [("ExecutionRole", True), ("EXECUTION_ROLE", True), (None, False), ("x", False)]
)
def test_a_destination_says_whose_keys_sign(auth, expected):
    options = {"awslogs-group": "g", "awslogs-region": "eu-west-1", "awslogs-create-group": "true"}
    to = awslogs.destination(options, "us-east-1", auth)

    assert (to.region, to.group, to.stream, to.create_group) == ("eu-west-1", "g", "", True)
    assert to.execution_role is expected
    assert awslogs.destination({}, "us-east-1", None).region == "us-east-1"


def test_the_engine_is_told_of_the_relay_and_of_nothing_else():
    given = {"awslogs-group": "g", "awslogs-endpoint": "https://logs", "awslogs-force-flush-interval-seconds": "7"}
    token = "ab" * 16
    told = awslogs.through_relay(given, 4000, token, flush=True)

    assert told == given | {
        "awslogs-endpoint": f"http://127.0.0.1:4000/t/{token}",
        "awslogs-credentials-endpoint": f"@127.0.0.1:4000/c/{token}",
    }
    assert awslogs.through_relay({}, 1, token, flush=True)["awslogs-force-flush-interval-seconds"] == "1"
    assert "awslogs-force-flush-interval-seconds" not in awslogs.through_relay({}, 1, token, flush=False)
