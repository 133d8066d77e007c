"""The way in to CloudWatch Logs: who may, what is refused, and that no request is our fault."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
import time
from collections import Counter
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sexton.cloud.sigv4_verify import SignatureFault, SignatureRefused, Verified
from sexton.control.logs.door import OPERATIONS, LogsDoor
from sexton.control.logs.shelf import Shelf
from sexton.core.roles import Role, may_log
from sexton.wire import logs
from unit.control.requests_of_model import requests
from unit.control.world import open_world

SOAK = os.environ.get("SEXTON_SOAK") == "1"
DAYS = 300 if SOAK else 30


class Trusting:
    """Lets everybody in: signatures have tests of their own."""

    def __init__(self, key="AKSXEXAMPLE"):
        self.key = key

    def verify(self, *_):
        return Verified(self.key, "us-east-1", "logs")


@asynccontextmanager
async def door_in(directory, verifier=None, *, shelf=True):
    async with open_world(Path(directory)) as world:
        kept = Shelf(Path(directory) / "logs", 1 << 30) if shelf else None
        if kept is not None:
            await kept.open()
        try:
            door = LogsDoor(world.context._replace(logs=kept), verifier or Trusting())

            async def ask(operation, **fields):
                reply = await door.serve(f"{logs.TARGET_PREFIX}.{operation}", [], json.dumps(fields).encode())
                return reply.status, json.loads(reply.body or b"{}")

            ask.world, ask.door = world, door
            yield ask
        finally:
            if kept is not None:
                await kept.close()


STREAM = {"logGroupName": "/g", "logStreamName": "s"}
MEANT = {
    "PutLogEvents": STREAM | {"logEvents": [{"timestamp": 1_700_000_000_000, "message": "a b"}]},
    "FilterLogEvents": {"logGroupName": "/g", "filterPattern": "a"},
    "GetLogEvents": STREAM,
    "CreateLogStream": {"logGroupName": "/g", "logStreamName": "t"},
}


def step(name):
    drawn = requests(name, "logs")
    return st.tuples(st.just(name), st.one_of(drawn, st.just(MEANT[name])) if name in MEANT else drawn)


days = st.permutations([*OPERATIONS, *["PutLogEvents", "FilterLogEvents", "GetLogEvents"] * 3]).flatmap(
    lambda names: st.tuples(*(step(name) for name in names))
)


async def live(sequence, outcomes):
    with tempfile.TemporaryDirectory() as directory:
        async with door_in(directory) as ask:
            await ask("CreateLogGroup", logGroupName="/g")
            await ask("CreateLogStream", logGroupName="/g", logStreamName="s")
            event = {"timestamp": int(time.time() * 1000), "message": "a b"}
            await ask("PutLogEvents", logGroupName="/g", logStreamName="s", logEvents=[event])
            for operation, request in sequence:
                status, answer = await ask(operation, **request)
                assert status < 500, (operation, request, answer)
                assert status == 200 or (answer["__type"] and answer["message"]), answer
                outcomes[operation, status] += 1


@pytest.mark.slow
@pytest.mark.timeout(900 if SOAK else 120)
def test_no_request_is_our_fault(caplog):
    outcomes = Counter()

    @settings(max_examples=DAYS, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(days)
    def check(sequence):
        asyncio.run(live(sequence, outcomes))
        assert "Traceback" not in caplog.text

    check()
    for operation in MEANT:
        assert outcomes[operation, 200], outcomes
    assert {operation for operation, _ in outcomes} == set(OPERATIONS) == set(logs.OPERATIONS)


async def test_what_is_no_operation_is_not_served_for_nothing_is_not_known(tmp_path):
    class Refusing:
        def verify(self, *_):
            raise SignatureRefused(SignatureFault.MISSING, "Request is missing Authentication Token")

    async with door_in(tmp_path, Refusing()) as ask:
        assert (await ask("MakeTea"))[1]["__type"] == "UnknownOperationException"
        assert (await ask("StartQuery"))[1]["__type"] == "MissingAuthenticationTokenException"
        assert (await ask("DescribeLogGroups"))[1]["__type"] == "MissingAuthenticationTokenException"
    async with door_in(tmp_path) as ask:
        status, told = await ask("StartQuery")
        assert (status, told["__type"]) == (400, "UnsupportedOperationException")
        status, told = await ask("PutLogEvents", logEvents=7)
        assert (status, told["__type"]) == (400, "SerializationException")
        status, told = await ask("CreateLogGroup", logGroupName="")
        assert "validation errors detected: Value '' at 'logGroupName' failed" in told["message"]


async def test_a_control_plane_without_logs_says_where_they_are(tmp_path):
    async with door_in(tmp_path, shelf=False) as ask:
        for operation in ("DescribeLogGroups", "PutLogEvents", "CreateLogGroup"):
            event = {"timestamp": 1, "message": "m"}
            fields = {"logStreamName": "s", "logEvents": [event]} if operation == "PutLogEvents" else {}
            named = {} if operation == "DescribeLogGroups" else {"logGroupName": "/g"}
            status, told = await ask(operation, **named, **fields)
            assert (status, told["__type"]) == (400, "UnsupportedOperationException")
            assert "SEXTON_LOGS_ENDPOINT" in told["message"]


@pytest.mark.parametrize(
    "role, operation, allowed",
    [
        (Role.ADMIN, "DeleteLogGroup", True),
        (Role.AGENT, "PutLogEvents", True),
        (Role.AGENT, "CreateLogStream", True),
        (Role.AGENT, "GetLogEvents", False),
        (Role.AGENT, "DeleteLogGroup", False),
        (Role.READ, "FilterLogEvents", True),
        (Role.READ, "DescribeLogGroups", True),
        (Role.READ, "PutLogEvents", False),
    ],
)
async def test_keys_may_what_their_role_says(tmp_path, role, operation, allowed):
    from sexton.control.records import KeyRecord

    assert may_log(role, operation) is allowed
    async with door_in(tmp_path) as ask:
        records = ask.world.records
        key = KeyRecord(access_key_id="AKSXEXAMPLE", secret_access_key="s", role=role, created_at=1.0)
        await records.commit([], [records.put(records.keys, key, "AKSXEXAMPLE")])
        event = {"timestamp": int(time.time() * 1000), "message": "m"}
        fields = {
            "PutLogEvents": {"logStreamName": "s", "logEvents": [event]},
            "CreateLogStream": {"logStreamName": "s"},
            "GetLogEvents": {"logStreamName": "s"},
            "DescribeLogGroups": {},
        }.get(operation, {})
        named = {} if operation == "DescribeLogGroups" else {"logGroupName": "/g"}
        _, told = await ask(operation, **named, **fields)
        assert (told.get("__type") == "AccessDeniedException") is not allowed, told
        if not allowed:
            assert f"logs:{operation}" in told["message"] and str(role) in told["message"]
