"""Whatever a client asks for, it gets an answer or the API's own error: never our fault, never a traceback.

And whatever was accepted can be told to an agent, described, and read again after a restart, to the last record. Each
request of a day is sent as it was drawn and then with one part after the other spoilt, so that every operation gets
thousands of requests, most of them nearly right, which is where mistakes are.
"""

from __future__ import annotations

import asyncio
import copy
import json
import os
import tempfile
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sexton.cloud.sigv4_verify import Verified
from sexton.control.dispatch import OPERATIONS, Dispatcher
from sexton.core import render
from sexton.store.contract import Durability
from sexton.wire import ecs
from unit.control.requests_of_model import anything, filled, requests, words
from unit.control.world import open_world

SOAK = os.environ.get("SEXTON_SOAK") == "1"
# Of each operation.
REQUESTS = 20_000 if SOAK else 2_000
# A day is a world that begins anew, with every operation in it.
SPOILT = 15
DAYS = REQUESTS // (1 + SPOILT)

HEAVY = ["RegisterTaskDefinition", "RunTask", "SubmitTaskStateChange"]
MEANT = {
    "RegisterTaskDefinition": {"family": "api", "containerDefinitions": [{"name": "main", "image": "i", "memory": 6}]},
    "RunTask": {"taskDefinition": "web", "count": 2},
    "SubmitTaskStateChange": {"task": "$task", "status": "RUNNING"},
}

GONE = object()
# Where the requests of a day are spoilt, counted over all parts of each, and what is there instead: often nothing.
spoil = st.tuples(st.integers(0, 999), st.one_of(st.just(GONE), words, st.integers(-1, 2**31), anything))
spoils = st.lists(spoil, min_size=SPOILT, max_size=SPOILT)


@cache
def step(name):
    drawn = requests(name)
    return st.tuples(st.just(name), st.one_of(drawn, st.just(MEANT[name])) if name in MEANT else drawn)


days = st.permutations(sorted(OPERATIONS)).flatmap(lambda names: st.tuples(*(step(name) for name in names)))


def parts(value, path=()):
    """Where something is in a request, from the outside to the inside."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inside:
        yield (*path, key)
        yield from parts(one, (*path, key))


def spoilt(request, where, value):
    places = list(parts(request))
    if not places:
        return {"cluster": None if value is GONE else value}
    made = copy.deepcopy(request)
    *path, last = places[where % len(places)]
    here = made
    for key in path:
        here = here[key]
    if value is GONE:
        del here[last]
    else:
        here[last] = value
    return made


class Trusting:
    """Lets everybody in: signatures have tests of their own."""

    def verify(self, *_):
        return Verified("AKSXEXAMPLE", "us-east-1", "ecs")


def contents(world):
    return {table.prefix + key: entry.value for table in world.records._tables.values() for key, entry in table.items()}


def room(world):
    """What every host has left, as the scheduler counts it."""
    return {
        (region, cluster, host.arn): (host.used, host.used_ports, host.capacity)
        for region, cluster in [("us-east-1", "default"), ("us-east-1", "blue")]
        for host in world.context.scheduler.hosts(region, cluster)
    }


async def live(sequence, spoils, outcomes):
    with tempfile.TemporaryDirectory() as directory:
        async with open_world(Path(directory), durability=Durability.NORMAL) as world:
            await world.do("CreateCluster", clusterName="blue")
            await world.define()
            names = {"$instance": await world.join(cpu=10**6, memory=10**6), "$task": await world.run_one()}
            dispatcher = Dispatcher(world.context, Trusting())
            for operation, drawn in sequence:
                for request in (drawn, *(spoilt(drawn, *one) for one in spoils)):
                    body = json.dumps(filled(request, names)).encode()
                    reply = await dispatcher.serve(f"{ecs.TARGET_PREFIX}.{operation}", "/", [], body)
                    if reply.status != 200:
                        answer = json.loads(reply.body)
                        assert reply.status < 500, (operation, body, answer)
                        assert answer["__type"] and answer["message"], answer
                    outcomes[operation, reply.status] += 1
            for entry in world.records.tasks.all():
                definition = world.records.definition_of(entry.value)
                render.payload(entry.value.task, definition.definition, "1")
            before = contents(world), room(world)
            assert all(used.memory >= 0 and used.cpu >= 0 for used, _, _ in before[1].values())
        async with open_world(Path(directory), cluster=False) as world:
            assert (contents(world), room(world)) == before


@pytest.mark.slow
@pytest.mark.timeout(7200 if SOAK else 300)
def test_no_request_is_our_fault(caplog):
    outcomes = Counter()

    @settings(max_examples=DAYS, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(days, spoils)
    def check(sequence, spoils):
        asyncio.run(live(sequence, spoils, outcomes))
        assert "Traceback" not in caplog.text

    check()
    # The requests are worth something: what changes most was really done, and every operation was asked enough.
    for operation in HEAVY:
        assert outcomes[operation, 200], outcomes
    asked = Counter(dict.fromkeys(OPERATIONS, 0))
    for (operation, _), count in outcomes.items():
        asked[operation] += count
    assert min(asked.values()) >= REQUESTS, asked
    print(f"{asked.total()} requests, {sum(n for (_, status), n in outcomes.items() if status == 200)} done")
