"""Whatever is asked of everything that is neither a task nor a service: an answer or the API's own error.

As for all requests, nothing is ever our fault. Here names of every kind of resource turn up where the model only says
"text", so that requests reach what they are about; and what the records say afterwards is what a restart reads.
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
from sexton.control import retention
from sexton.control.dispatch import Dispatcher
from sexton.control.ops import (
    accountsettings,
    attributes,
    capacity,
    clustersettings,
    containeragent,
    execute,
    protection,
    tags,
    taskdef_removal,
)
from sexton.wire import ecs
from unit.control.ops.capacity_of import make, member
from unit.control.requests_of_model import filled, requests
from unit.control.world import open_world

MODULES = (
    accountsettings,
    attributes,
    capacity,
    clustersettings,
    containeragent,
    execute,
    protection,
    tags,
    taskdef_removal,
)
# These never succeed, since there is nothing that they could do here yet.
ALWAYS_REFUSED = {"ExecuteCommand", "UpdateContainerAgent"}
NAMES = sorted({name for module in MODULES for name in module.OPERATIONS})
ARN = "arn:aws:ecs:us-east-1:123456789012:"

# One request of each operation that means something; drawn ones replace parts of it, or stand alone.
FAIR = {
    "CreateCapacityProvider": {"name": "new", "autoScalingGroupProvider": {"autoScalingGroupArn": "g"}},
    "DeleteAccountSetting": {"name": "containerInsights"},
    "DeleteAttributes": {"attributes": [{"name": "rack", "targetId": "$instance"}]},
    "DeleteCapacityProvider": {"capacityProvider": "core"},
    "DeleteTaskDefinitions": {"taskDefinitions": ["web:1"]},
    "DescribeCapacityProviders": {"capacityProviders": ["edge"], "cluster": "default"},
    "ExecuteCommand": {"task": "$task", "command": "sh", "interactive": True},
    "GetTaskProtection": {"cluster": "default", "tasks": ["$task"]},
    "ListAccountSettings": {"effectiveSettings": True},
    "ListAttributes": {"targetType": "container-instance"},
    "ListTagsForResource": {"resourceArn": "$task"},
    "PutAccountSetting": {"name": "containerInsights", "value": "enabled"},
    "PutAccountSettingDefault": {"name": "awsvpcTrunking", "value": "enabled"},
    "PutAttributes": {"attributes": [{"name": "rack", "value": "7", "targetId": "$instance"}]},
    "PutClusterCapacityProviders": {
        "cluster": "default",
        "capacityProviders": ["edge", "core"],
        "defaultCapacityProviderStrategy": [{"capacityProvider": "edge", "weight": 1}],
    },
    "TagResource": {"resourceArn": f"{ARN}capacity-provider/edge", "tags": [{"key": "a", "value": "b"}]},
    "UntagResource": {"resourceArn": f"{ARN}task-definition/web:2", "tagKeys": ["a"]},
    "UpdateCapacityProvider": {"name": "edge", "autoScalingGroupProvider": {"managedDraining": "DISABLED"}},
    "UpdateCluster": {"cluster": "default", "settings": [{"name": "containerInsights", "value": "enabled"}]},
    "UpdateClusterSettings": {
        "cluster": "default",
        "settings": [{"name": "containerInsights", "value": "enhanced"}],
    },
    "UpdateContainerAgent": {"containerInstance": "$instance"},
    "UpdateTaskProtection": {"cluster": "default", "tasks": ["$task"], "protectionEnabled": True},
}


@st.composite
def step(draw, name):
    """A drawn request, or the fair one with a part of a drawn one in it."""
    drawn = draw(requests(name))
    if draw(st.booleans()):
        return name, drawn
    replaced = draw(st.sets(st.sampled_from(sorted(drawn)), max_size=1)) if drawn else ()
    return name, FAIR[name] | {field: drawn[field] for field in replaced}


# What a word of the drawn requests stands for, anew for each: names of resources, and values that settings have.
word = st.sampled_from(
    [
        "edge",
        "core",
        "FARGATE",
        "web:1",
        "web:2",
        "default",
        "$task",
        "$instance",
        "enabled",
        "off",
        "rack",
        f"{ARN}cluster/blue",
        f"{ARN}capacity-provider/edge",
        f"{ARN}task-definition/web:2",
        "arn:aws:iam::123456789012:root",
    ]
)
meanings = st.fixed_dictionaries({"web": word, "a": word, "b-1": word, "main": word, "other": word})
# Each operation in any order, and each once more as it is meant.
days = st.permutations(NAMES).flatmap(lambda names: st.tuples(*(st.tuples(step(name), meanings) for name in names)))


class Trusting:
    """Lets everybody in: signatures have tests of their own."""

    def verify(self, *_):
        return Verified("AKSXEXAMPLE", "us-east-1", "ecs")


def contents(world):
    return {table.prefix + key: entry.value for table in world.records._tables.values() for key, entry in table.items()}


async def live(sequence, outcomes):
    with tempfile.TemporaryDirectory() as directory:
        async with open_world(Path(directory)) as world:
            await world.do("CreateCluster", clusterName="blue")
            await world.define()
            await world.define()
            await world.do("DeregisterTaskDefinition", taskDefinition="web:1")
            await make(world)
            await make(world, "core")
            known = {"$instance": await member(world, "edge"), "$task": await world.run_one()}
            dispatcher = Dispatcher(world.context, Trusting())
            meant = [((name, FAIR[name]), {}) for (name, _), _ in sequence]
            for (operation, drawn), words in (one for both in zip(sequence, meant, strict=True) for one in both):
                body = json.dumps(filled(filled(drawn, words), known)).encode()
                reply = await dispatcher.serve(f"{ecs.TARGET_PREFIX}.{operation}", "/", [], body)
                answer = json.loads(reply.body)
                assert reply.status < 500, (operation, body, answer)
                assert reply.status == 200 or (answer["__type"] and answer["message"]), answer
                outcomes[operation, reply.status] += 1
            far = world.now + 10 * retention.KEEP_STOPPED_SECONDS
            await taskdef_removal.sweep(world.context, far)
            before = contents(world)
        async with open_world(Path(directory), cluster=False) as world:
            assert contents(world) == before


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_no_request_is_our_fault(caplog):
    outcomes = Counter()

    @settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(days)
    def check(sequence):
        asyncio.run(live(sequence, outcomes))
        assert "Traceback" not in caplog.text

    check()
    done = {operation for operation, status in outcomes if status == 200}
    # The requests are worth something: everything that can be done was really done.
    assert done == set(NAMES) - ALWAYS_REFUSED, outcomes
