"""The networks of all tasks, for whoever may look."""

from __future__ import annotations

import time

from amazon_agent import recorded_calls
from plane import REGION
from sexton.control.context import Call
from sexton.control.ec2 import defaults
from sexton.wire import ecs

OFFERS = ("ecs.capability.task-eni", "sexton.capability.network", "com.amazonaws.ecs.capability.docker-remote-api.1.18")


async def test_every_interface_with_the_groups_of_its_vpc(admin):
    context = admin.plane.control._links[0]._context
    await defaults.ensure(context, REGION)
    subnet = next(context.records.subnets.all()).value
    body = recorded_calls("RegisterContainerInstance")[0]["body"]
    attributes = [{"name": one} for one in OFFERS] + [{"name": "sexton.network.address", "value": "192.0.2.1"}]
    _, joined = await admin.ecs("RegisterContainerInstance", **body | {"attributes": attributes})
    host = joined["containerInstance"]["containerInstanceArn"]
    from sexton.control.ops import instances

    call = Call(REGION, admin.key.access_key_id, time.time())
    await instances.change(context, call, "default", host, agent_connected=True)
    container = {"name": "main", "image": "bb", "memory": 8}
    await admin.ecs("RegisterTaskDefinition", family="web", networkMode="awsvpc", containerDefinitions=[container])
    status, empty = await admin.own("GET", "/sexton/network")
    assert (status, empty) == (200, {"state": {"revision": empty["state"]["revision"]}})
    network = {"awsvpcConfiguration": {"subnets": [subnet.id]}}
    _, ran = await admin.ecs("RunTask", taskDefinition="web", networkConfiguration=network)
    task = ecs.Task(task_arn=ran["tasks"][0]["taskArn"])

    _, found = await admin.own("GET", "/sexton/network")

    (interface,) = found["state"]["interfaces"]
    assert (interface["taskArn"], interface["host"]) == (task.task_arn, "192.0.2.1")
    assert [one["id"] for one in found["state"]["groups"]] == list(interface["groups"])
    assert found["state"]["subnets"][0]["cidr"] == subnet.cidr


async def test_only_for_those_who_may_look(admin):
    _, made = await admin.own("POST", "/sexton/keys", role="read")
    assert (await admin.with_key(made).own("GET", "/sexton/network"))[0] == 200
    _, made = await admin.own("POST", "/sexton/keys", role="agent")
    status, refused = await admin.with_key(made).own("GET", "/sexton/network")
    assert (status, refused["__type"]) == (400, "AccessDeniedException")
    assert (await admin.own("GET", "/sexton/network/more"))[0] == 404
