"""Whatever a client asks for, it gets an answer or the API's own error: never our fault, never a traceback.

And whatever was accepted can be told to an agent, described, and read again after a restart.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sexton.cloud.sigv4_verify import Verified
from sexton.control.dispatch import OPERATIONS, Dispatcher
from sexton.core import render
from sexton.wire import ecs
from unit.control.requests_of_model import filled, requests
from unit.control.world import open_world

SOAK = os.environ.get("SEXTON_SOAK") == "1"
# A day is a world that begins anew, with so many requests in it as there are operations, and a few more.
DAYS = 220 if SOAK else 22
REQUESTS = 20_000 if SOAK else 2_000
HEAVY_A_DAY = 4

HEAVY = ["RegisterTaskDefinition", "RunTask", "SubmitTaskStateChange"]
MEANT = {
    "RegisterTaskDefinition": {"family": "api", "containerDefinitions": [{"name": "main", "image": "i", "memory": 6}]},
    "RunTask": {"taskDefinition": "web", "count": 2},
    "SubmitTaskStateChange": {"task": "$task", "status": "RUNNING"},
}


def step(name):
    drawn = requests(name)
    return st.tuples(st.just(name), st.one_of(drawn, st.just(MEANT[name])) if name in MEANT else drawn)


# Every operation once, in a drawn order, and more of the heavy ones among them.
names = st.permutations([*OPERATIONS, *HEAVY * HEAVY_A_DAY])
days = names.flatmap(lambda names: st.tuples(*(step(name) for name in names)))


class Trusting:
    """Lets everybody in: signatures have tests of their own."""

    def verify(self, *_):
        return Verified("AKSXEXAMPLE", "us-east-1", "ecs")


async def live(sequence, outcomes):
    with tempfile.TemporaryDirectory() as directory:
        async with open_world(Path(directory)) as world:
            await world.do("CreateCluster", clusterName="blue")
            await world.define()
            names = {"$instance": await world.join(cpu=10**6, memory=10**6), "$task": await world.run_one()}
            dispatcher = Dispatcher(world.context, Trusting())
            for operation, request in sequence:
                body = json.dumps(filled(request, names)).encode()
                reply = await dispatcher.serve(f"{ecs.TARGET_PREFIX}.{operation}", "/", [], body)
                answer = json.loads(reply.body)
                assert reply.status < 500, (operation, body, answer)
                assert reply.status == 200 or (answer["__type"] and answer["message"]), answer
                outcomes[operation, reply.status] += 1
            for entry in world.records.tasks.all():
                definition = world.records.definition_of(entry.value)
                render.payload(entry.value.task, definition.definition, "1")
            for host in world.context.scheduler.hosts("us-east-1", "default"):
                assert host.used.memory >= 0
                assert host.used.cpu >= 0
            shown = [entry.value for _, entry in world.records.tasks.under("us-east-1")]
        async with open_world(Path(directory), cluster=False) as world:
            assert [entry.value for _, entry in world.records.tasks.under("us-east-1")] == shown


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
    # The requests are worth something: what changes most was really done.
    for operation in HEAVY:
        assert outcomes[operation, 200], outcomes
    assert outcomes.total() >= REQUESTS
    assert {operation for operation, _ in outcomes} == set(OPERATIONS)
