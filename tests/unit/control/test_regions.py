"""One endpoint serves every region: the one that a request was signed for is the one that it is about."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sexton.cloud.sigv4_verify import Verified
from sexton.control.dispatch import Dispatcher
from sexton.wire import ecs
from unit.control.world import ACCOUNT, World


class SignedFor:
    """Everybody is let in, and has signed for one region."""

    def __init__(self, region: str) -> None:
        self._region = region

    def verify(self, *_: object) -> Verified:
        return Verified("AKSXEXAMPLE", self._region, "ecs")


class Client:
    def __init__(self, world: World, region: str) -> None:
        self._dispatcher = Dispatcher(world.context, SignedFor(region))  # type: ignore[arg-type]

    async def __call__(self, operation: str, **fields: Any) -> dict[str, Any]:
        reply = await self._dispatcher.serve(f"{ecs.TARGET_PREFIX}.{operation}", "/", [], json.dumps(fields).encode())
        assert reply.status == 200, reply.body
        return dict(json.loads(reply.body))


@pytest.fixture
def paris(world: World) -> Client:
    return Client(world, "eu-west-3")


@pytest.fixture
def tokyo(world: World) -> Client:
    return Client(world, "ap-northeast-1")


async def test_names_are_free_in_every_region_and_say_which(paris: Client, tokyo: Client) -> None:
    first = await paris("CreateCluster", clusterName="blue")
    second = await tokyo("CreateCluster", clusterName="blue")

    assert first["cluster"]["clusterArn"] == f"arn:aws:ecs:eu-west-3:{ACCOUNT}:cluster/blue"
    assert second["cluster"]["clusterArn"] == f"arn:aws:ecs:ap-northeast-1:{ACCOUNT}:cluster/blue"
    await tokyo("DeleteCluster", cluster="blue")
    assert (await paris("ListClusters"))["clusterArns"] == [first["cluster"]["clusterArn"]]
    assert (await tokyo("ListClusters"))["clusterArns"] == []


async def test_what_is_in_one_region_is_in_no_other(world: World, paris: Client, tokyo: Client) -> None:
    container = {"name": "main", "image": "busybox", "memory": 100}
    for number in (1, 2):
        made = await paris("RegisterTaskDefinition", family="web", networkMode="none", containerDefinitions=[container])
        assert made["taskDefinition"]["revision"] == number
    made = await tokyo("RegisterTaskDefinition", family="web", networkMode="none", containerDefinitions=[container])
    assert made["taskDefinition"]["revision"] == 1

    for client in (paris, tokyo):
        await client("CreateCluster")
    attributes = [{"name": "com.amazonaws.ecs.capability.docker-remote-api.1.18"}]
    resources = [{"name": name, "type": "INTEGER", "integerValue": 1000} for name in ("CPU", "MEMORY")]
    joined = await paris("RegisterContainerInstance", attributes=attributes, totalResources=resources)
    arn = joined["containerInstance"]["containerInstanceArn"]
    assert arn.startswith(f"arn:aws:ecs:eu-west-3:{ACCOUNT}:container-instance/default/")
    assert (await tokyo("ListContainerInstances"))["containerInstanceArns"] == []
    # A host in the one region is no room in the other.
    with pytest.raises(AssertionError, match="No Container Instances were found in your cluster"):
        await tokyo("RunTask", taskDefinition="web")
    await paris("CreateService", serviceName="web", taskDefinition="web", desiredCount=0)
    assert (await tokyo("ListServices"))["serviceArns"] == []
    assert (await tokyo("DescribeServices", services=["web"]))["failures"][0]["reason"] == "MISSING"
