"""Whatever a client asks for, it gets an answer or the API's own error: never our fault, never a traceback.

And whatever was accepted can be told to an agent, described, and read again after a restart.
"""

from __future__ import annotations

import asyncio
import json
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

steps = st.sampled_from(sorted(OPERATIONS)).flatmap(lambda name: st.tuples(st.just(name), requests(name)))
HEAVY = ["RegisterTaskDefinition", "RunTask", "SubmitTaskStateChange"]
MEANT = {
    "RegisterTaskDefinition": {"family": "api", "containerDefinitions": [{"name": "main", "image": "i", "memory": 6}]},
    "RunTask": {"taskDefinition": "web", "count": 2},
    "SubmitTaskStateChange": {"task": "$task", "status": "RUNNING"},
}
heavy = st.sampled_from(HEAVY).flatmap(
    lambda name: st.tuples(st.just(name), st.one_of(requests(name), st.just(MEANT[name])))
)


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
@pytest.mark.timeout(120)
def test_no_request_is_our_fault(caplog):
    outcomes = Counter()

    @settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(st.lists(st.one_of(steps, heavy), min_size=2, max_size=8))
    def check(sequence):
        asyncio.run(live(sequence, outcomes))
        assert "Traceback" not in caplog.text

    check()
    # The requests are worth something: what changes most was really done.
    for operation in HEAVY:
        assert outcomes[operation, 200], outcomes
