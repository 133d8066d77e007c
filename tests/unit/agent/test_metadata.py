"""Metadata as a task reads it, field by field, against what Amazon's agent says in the same case.

The expected bodies are written out whole: a field more, a field less or another spelling is a failure.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
import msgspec
import pytest
from yarl import URL

from sexton.agent.metadata.identity import Names
from sexton.agent.metadata.metadata import MetadataApi
from sexton.agent.metadata.origin import Origin
from sexton.agent.metadata.routes import Routes
from sexton.agent.metadata.server import TaskServer
from sexton.agent.metadata.sights import Sights
from sexton.agent.metadata.tags import Tags
from sexton.agent.metadata.usage import Usage
from sexton.core.enginebody import engine_name
from sexton.core.sight import Place
from sexton.core.task import TaskStatus
from sexton.host.container_usage import ContainerUsage
from sexton.kit.allowance import Allowances
from sexton.kit.listener import Listener
from sexton.runtime.contract import EngineInfo, Unavailable
from sexton.runtime.fake import Behaviour, FakeRuntime
from sexton.wire import acs_task, ecs
from sexton.wire.errors import AccessDeniedException
from unit.agent.rig import CLUSTER, IMAGE, INSTANCE, Host, arn, container, now, task, until

PLACE = Place(CLUSTER, zone="eu-west-1a", zone_id="euw1-az2", vpc="vpc-1")
ENGINE = EngineInfo(name="fake", version="1", api_version="1.41")
ENI = acs_task.ElasticNetworkInterface(
    ec2_id="eni-1",
    mac_address="0a:00:00:00:00:01",
    ipv4_addresses=(acs_task.IPv4Address(private_address="10.7.0.9", primary=True),),
    domain_name_servers=("10.7.0.2",),
    domain_name=("eu-west-1.compute.internal",),
    private_dns_name="ip-10-7-0-9.eu-west-1.compute.internal",
    subnet_gateway_ipv4_address="10.7.0.1/24",
)


class Labels:
    """A control plane that has tags, or refuses."""

    def __init__(self) -> None:
        self.tags: dict[str, dict[str, str]] = {arn(): {"team": "a"}, INSTANCE: {"rack": "7"}}
        self.asked: list[str] = []

    async def call(self, operation: str, request: Any, shape: Any) -> Any:
        assert operation == "ListTagsForResource"
        self.asked.append(request.resource_arn)
        await asyncio.sleep(0)
        if request.resource_arn not in self.tags:
            raise AccessDeniedException("no tags for you")
        tags = self.tags[request.resource_arn]
        return ecs.ListTagsForResourceResponse(tags=tuple(ecs.Tag(key=k, value=v) for k, v in tags.items()))


class Asked:
    """A host whose tasks ask, each from an interface of the test's choice."""

    def __init__(self, host: Host, names: Names, server: TaskServer, plane: Labels, sights: Sights) -> None:
        self.host = host
        self.names = names
        self.plane = plane
        self.sights = sights
        self._server = server

    async def get(self, path: str, *, interface: str = "lo", task: str = "") -> tuple[int, Any]:
        listener = Listener(self._server.at(interface, task))
        port = await listener.open("127.0.0.1", 0)
        try:
            url = URL(f"http://127.0.0.1:{port}{path}", encoded=True)
            async with aiohttp.ClientSession() as session, session.get(url, allow_redirects=False) as reply:
                assert reply.headers["Content-Type"] == "application/json"
                return reply.status, msgspec.json.decode(await reply.read())
        finally:
            await listener.close()

    def name(self, container: str = "app", number: int = 1) -> str:
        return self.names.of(arn(number), container)


@asynccontextmanager
async def asking(tmp_path: Path, runtime: FakeRuntime | None = None, **settings: Any) -> AsyncIterator[Asked]:
    async with Host(runtime, **settings) as host:
        names = Names(b"k" * 32, lambda: host.engine.runners())
        plane = Labels()
        sights = Sights(host.runtime)
        usage = Usage(host.context, ENGINE, ContainerUsage(tmp_path, tmp_path / "proc"))
        routes = Routes()
        tags = Tags(plane)  # type: ignore[arg-type]
        MetadataApi(names, Origin(sights), sights, usage, tags, host.context.identity, lambda runner: PLACE).add_to(
            routes
        )
        yield Asked(host, names, TaskServer(routes, Allowances(1000, 1000)), plane, sights)


def without_times(body: dict[str, Any]) -> dict[str, Any]:
    """The same without what the clock says, after a look at its form."""
    for key in ("CreatedAt", "StartedAt", "PullStartedAt", "PullStoppedAt", "FinishedAt", "ExecutionStoppedAt"):
        if key in body:
            assert body[key].endswith("Z") and body[key][10] == "T"
    kept = {key: value for key, value in body.items() if not key.endswith("At")}
    return kept | {"Containers": [without_times(one) for one in body["Containers"]]} if "Containers" in body else kept


LABELS = {
    "com.amazonaws.ecs.cluster": CLUSTER,
    "com.amazonaws.ecs.container-name": "app",
    "com.amazonaws.ecs.task-arn": arn(),
    "com.amazonaws.ecs.task-definition-family": "web",
    "com.amazonaws.ecs.task-definition-version": "1",
    "dev.sexton.container-instance": INSTANCE,
}


def bridge_v3(host: Host, **more: Any) -> dict[str, Any]:
    info = host.only()
    return {
        "DockerId": info.id,
        "Name": "app",
        "DockerName": engine_name(task(), "app"),
        "Image": IMAGE,
        "ImageID": info.image_id,
        "Ports": [{"ContainerPort": 80, "Protocol": "tcp", "HostPort": 23000}],
        "Labels": LABELS,
        "DesiredStatus": "RUNNING",
        "KnownStatus": "RUNNING",
        "Limits": {"CPU": 256, "Memory": 128},
        "Type": "NORMAL",
        "Networks": [{"NetworkMode": "bridge", "IPv4Addresses": ["172.17.0.3"]}],
    } | more


def bridge_task(**more: Any) -> acs_task.Task:
    config = '{"LogConfig":{"Type":"json-file","Config":{"max-size":"1m"}}}'
    app = container(
        cpu=256,
        memory=128,
        container_arn="arn:c",
        port_mappings=(acs_task.PortMapping(container_port=80, protocol="tcp"),),
        docker_config=acs_task.DockerConfig(host_config=config),
    )
    return task(1, app, **({"launch_type": "EC2", "service_name": "shop", "cpu": 0.5, "memory": 256} | more))


V4_CONTAINER = {"LogDriver": "json-file", "LogOptions": {"max-size": "1m"}, "ContainerARN": "arn:c"}


async def test_a_container_in_bridge_mode(tmp_path: Path) -> None:
    async with asking(tmp_path) as asked:
        await asked.host.engine.take([bridge_task()], 1)
        await asked.host.until_running()
        status, v3 = await asked.get(f"/v3/{asked.name()}")
        assert (status, without_times(v3)) == (200, bridge_v3(asked.host))
        status, v4 = await asked.get(f"/v4/{asked.name()}")
        port = {"ContainerPort": 80, "Protocol": "tcp", "HostPort": 23000, "HostIp": "0.0.0.0"}
        assert (status, without_times(v4)) == (200, bridge_v3(asked.host, Ports=[port]) | V4_CONTAINER)
        assert list(v4)[:5] == ["DockerId", "Name", "DockerName", "Image", "ImageID"]


async def test_a_task_in_bridge_mode(tmp_path: Path) -> None:
    async with asking(tmp_path) as asked:
        await asked.host.engine.take([bridge_task()], 1)
        await asked.host.until_running()
        status, v3 = await asked.get(f"/v3/{asked.name()}/task")
        whole = {
            "Cluster": CLUSTER,
            "TaskARN": arn(),
            "Family": "web",
            "Revision": "1",
            "DesiredStatus": "RUNNING",
            "KnownStatus": "RUNNING",
            "Containers": [bridge_v3(asked.host)],
            "Limits": {"CPU": 0.5, "Memory": 256},
            "AvailabilityZone": "eu-west-1a",
        }
        assert (status, without_times(v3)) == (200, whole)
        assert {"PullStartedAt", "PullStoppedAt"} <= v3.keys() and "ExecutionStoppedAt" not in v3
        status, v4 = await asked.get(f"/v4/{asked.name()}/task")
        port = {"ContainerPort": 80, "Protocol": "tcp", "HostPort": 23000, "HostIp": "0.0.0.0"}
        whole |= {
            "Containers": [bridge_v3(asked.host, Ports=[port]) | V4_CONTAINER],
            "LaunchType": "EC2",
            "VPCID": "vpc-1",
            "ServiceName": "shop",
            "FaultInjectionEnabled": False,
            "AvailabilityZoneID": "euw1-az2",
        }
        assert (status, without_times(v4)) == (200, whole)


async def test_in_host_mode_the_address_is_empty_as_amazons_agent_has_it(tmp_path: Path) -> None:
    async with asking(tmp_path) as asked:
        mapping = acs_task.PortMapping(container_port=80, host_port=80, protocol="tcp")
        await asked.host.engine.take([task(1, container(port_mappings=(mapping,)), network_mode="host")], 1)
        await asked.host.until_running()
        _, v4 = await asked.get(f"/v4/{asked.name()}")
        assert v4["Networks"] == [{"NetworkMode": "host", "IPv4Addresses": [""]}]
        assert "Ports" not in v4  # the engine binds none
        assert v4["Limits"] == {"CPU": 2, "Memory": 0}
        assert "LogDriver" not in v4 and "Volumes" not in v4 and "Health" not in v4 and "RestartCount" not in v4
        _, whole = await asked.get(f"/v4/{asked.name()}/task")
        assert "Limits" not in whole and "ServiceName" not in whole and "LaunchType" not in whole


async def test_an_interface_of_its_own_is_told_in_full_by_version_4_alone(tmp_path: Path) -> None:
    async with asking(tmp_path) as asked:
        await asked.host.engine.take([task(network_mode="awsvpc", elastic_network_interfaces=(ENI,))], 1)
        await asked.host.until_running()
        v3_network = {"NetworkMode": "awsvpc", "IPv4Addresses": ["10.7.0.9"]}
        _, v3 = await asked.get(f"/v3/{asked.name()}", task=arn())
        assert v3["Networks"] == [v3_network]
        _, v4 = await asked.get(f"/v4/{asked.name()}", task=arn())
        assert v4["Networks"] == [
            v3_network
            | {
                "AttachmentIndex": 0,
                "MACAddress": "0a:00:00:00:00:01",
                "IPv4SubnetCIDRBlock": "10.7.0.0/24",
                "DomainNameServers": ["10.7.0.2"],
                "DomainNameSearchList": ["eu-west-1.compute.internal"],
                "PrivateDNSName": "ip-10-7-0-9.eu-west-1.compute.internal",
                "SubnetGatewayIpv4Address": "10.7.0.1/24",
            }
        ]


async def test_an_interface_with_ipv6(tmp_path: Path) -> None:
    six = msgspec.structs.replace(
        ENI,
        ipv4_addresses=(),
        ipv6_addresses=(acs_task.IPv6Address(address="fd00:7::9"),),
        subnet_gateway_ipv4_address=None,
        subnet_gateway_ipv6_address="fd00:7::1/64",
    )
    async with asking(tmp_path) as asked:
        await asked.host.engine.take([task(network_mode="awsvpc", elastic_network_interfaces=(six,))], 1)
        await asked.host.until_running()
        ((network,),) = [(await asked.get(f"/v4/{asked.name()}", task=arn()))[1]["Networks"]]
        assert network["IPv6Addresses"] == ["fd00:7::9"] and network["IPv6SubnetCIDRBlock"] == "fd00:7::/64"
        assert network["SubnetGatewayIpv6Address"] == "fd00:7::1/64" and "IPv4Addresses" not in network


async def test_version_2_knows_the_task_by_where_it_is_called_from(tmp_path: Path) -> None:
    async with asking(tmp_path) as asked:
        own = {"network_mode": "awsvpc", "elastic_network_interfaces": (ENI,)}
        await asked.host.engine.take([task(1, **own), task(2)], 1)
        await asked.host.until_running(1)
        await asked.host.until_running(2)
        for path in ("/v2/metadata", "/v2/metadata/"):
            status, body = await asked.get(path, task=arn(1))
            assert (status, body["TaskARN"]) == (200, arn(1))
            assert "LaunchType" not in body and "VPCID" not in body and "FaultInjectionEnabled" not in body
        mine, other = asked.host.known().runtime_id, asked.host.known(number=2).runtime_id
        status, body = await asked.get(f"/v2/metadata/{mine}", task=arn(1))
        assert (status, body["DockerId"], "ContainerARN" in body) == (200, mine, False)
        assert await asked.get(f"/v2/metadata/{other}", task=arn(1)) == (
            400,
            f"Unable to generate metadata for container '{other}'",
        )
        status, body = await asked.get("/v2/metadataWithTags", task=arn(1))
        assert (body["TaskTags"], body["ContainerInstanceTags"]) == ({"team": "a"}, {"rack": "7"})
        for path in ("/v2/metadata", "/v2/metadata/x", "/v2/stats", "/v2/stats/x", "/v2/metadataWithTags/"):
            assert await asked.get(path) == (
                400,
                "Unable to get task arn from request: unable to associate '127.0.0.1' with task",
            )
        assert await asked.get(f"/v2/stats/{other}", task=arn(1)) == (
            400,
            f"Unable to get container stats for: {other}",
        )
        assert await asked.get("/v2/stats", task=arn(1)) == (200, {mine: None})


NOBODY = "5b7c1a10-0000-4000-8000-000000000000"


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/v3/{}", 500, "V3 container metadata handler: unable to get container ID from request: unable to get docker"),
        ("/v3/{}/task", 500, "V3 task metadata handler: unable to get task arn from request: unable to get task Arn"),
        ("/v3/{}/taskWithTags", 500, "V3 task metadata handler: unable to get task arn from request"),
        ("/v3/{}/stats", 400, "V3 container stats handler: unable to get task arn from request"),
        ("/v3/{}/task/stats", 400, "V3 task stats handler: unable to get task arn from request"),
        ("/v3/{}/associations/gpu", 400, "V3 container associations handler: unable to get container id from request"),
        ("/v3/{}/associations/gpu/0", 400, "V3 container associations handler: unable to get task arn from request"),
        ("/v4/{}", 404, "V4 container metadata handler: unable to get container ID from request: unable to get docker"),
        ("/v4/{}/task", 404, "V4 task metadata handler: unable to get task arn from request: unable to get task Arn"),
        ("/v4/{}/taskWithTags", 404, "V4 task metadata handler: unable to get task arn from request"),
        ("/v4/{}/stats", 404, "V4 container stats handler: unable to get task arn from request"),
        ("/v4/{}/task/stats", 404, "V4 task stats handler: unable to get task arn from request"),
        ("/v4/{}/associations/gpu", 400, "V4 container associations handler: unable to get container id from request"),
        ("/v4/{}/associations/gpu/0", 400, "V4 container associations handler: unable to get task arn from request"),
    ],
)
async def test_nobody_of_that_name(tmp_path: Path, path: str, status: int, words: str) -> None:
    async with asking(tmp_path) as asked:
        for name in (NOBODY, "..x", '"<'):
            got, body = await asked.get(path.format(quote(name)))
            assert got == status
            assert body.startswith(words) and body.endswith(f" v3 endpoint ID: {name}")


async def test_tags_that_are_refused_are_named_by_version_4(tmp_path: Path) -> None:
    async with asking(tmp_path) as asked:
        await asked.host.engine.take([task()], 1)
        await asked.host.until_running()
        del asked.plane.tags[arn()]
        _, v4 = await asked.get(f"/v4/{asked.name()}/taskWithTags")
        assert v4["ContainerInstanceTags"] == {"rack": "7"} and "TaskTags" not in v4
        assert v4["Errors"] == [
            {
                "ErrorField": "TaskTags",
                "ErrorCode": "AccessDeniedException",
                "ErrorMessage": "no tags for you",
                "StatusCode": 400,
                "ResourceARN": arn(),
            }
        ]
        _, v3 = await asked.get(f"/v3/{asked.name()}/taskWithTags")
        assert "Errors" not in v3 and "TaskTags" not in v3


async def test_a_task_that_asks_for_tags_all_the_time_costs_the_control_plane_little(tmp_path: Path) -> None:
    async with asking(tmp_path) as asked:
        await asked.host.engine.take([task()], 1)
        await asked.host.until_running()
        await asyncio.gather(*(asked.get(f"/v4/{asked.name()}/taskWithTags") for _ in range(20)))
        assert sorted(asked.plane.asked) == sorted([arn(), INSTANCE])


async def test_statuses_exits_health_and_restarts(tmp_path: Path) -> None:
    def behave(body: Any) -> Behaviour:
        return Behaviour(exit_code=3) if "side" in body["Labels"].values() else Behaviour()

    runtime = FakeRuntime(images=[IMAGE], clock=now, behave=behave)
    async with asking(tmp_path, runtime) as asked:
        policy = acs_task.RestartPolicy(enabled=True)
        app = container(health_check_type="docker", restart_policy=policy, docker_config=_checked())
        await asked.host.engine.take([task(1, app, container("side", essential=False))], 1)
        await until(lambda: asked.host.known("side").exit_code == 3)
        _, whole = await asked.get(f"/v4/{asked.name()}/task")
        one, side = whole["Containers"]
        assert (one["Health"], one["RestartCount"], one["KnownStatus"]) == ({}, 0, "RUNNING")
        assert (side["ExitCode"], side["KnownStatus"], side["DesiredStatus"]) == (3, "STOPPED", "RUNNING")
        assert "FinishedAt" in side and "RestartCount" not in side


def _checked() -> acs_task.DockerConfig:
    return acs_task.DockerConfig(config='{"Healthcheck":{"Test":["CMD","true"]}}')


async def test_a_stopped_task_is_told_until_it_is_cleaned_up(tmp_path: Path) -> None:
    async with asking(tmp_path, cleanup_wait=60.0) as asked:
        await asked.host.engine.take([task()], 1)
        await asked.host.until_running()
        asked.host.engine.stop([arn()], "over")
        await until(lambda: asked.host.status() is TaskStatus.STOPPED)
        _, body = await asked.get(f"/v4/{asked.name()}/task")
        assert (body["DesiredStatus"], body["KnownStatus"]) == ("STOPPED", "STOPPED")
        assert body["ExecutionStoppedAt"] and body["Containers"][0]["ExitCode"] == 143
        status, words = await asked.get(f"/v4/{asked.name()}/stats")
        assert (status, words.partition(":")[0]) == (500, "Unable to get container stats for")


async def test_devices(tmp_path: Path) -> None:
    content = acs_task.AssociationContent(value='{"uuid": "GPU-1"}', encoding="base64")
    gpu = acs_task.Association(name="0", type="gpu", content=content, containers=("app",))
    async with asking(tmp_path) as asked:
        await asked.host.engine.take([task(1, container(), container("side"), associations=(gpu,))], 1)
        await asked.host.until_running()
        assert await asked.get(f"/v4/{asked.name()}/associations/gpu") == (200, {"Associations": ["0"]})
        assert await asked.get(f"/v3/{asked.name('side')}/associations/gpu") == (200, {"Associations": []})
        assert await asked.get(f"/v4/{asked.name()}/associations/gpu/0") == (200, {"uuid": "GPU-1"})
        status, words = await asked.get(f"/v4/{asked.name()}/associations/gpu/1")
        assert status == 400 and words.startswith("Unable to write container association response: ")
        assert (await asked.get(f"/v4/{asked.name()}/associations/gpu/"))[0] == 400


async def test_a_name_that_got_out_is_of_no_use_elsewhere(tmp_path: Path) -> None:
    own = {"network_mode": "awsvpc", "elastic_network_interfaces": (ENI,)}
    async with asking(tmp_path) as asked:
        await asked.host.engine.take([task(1), task(2, **own)], 1)
        await asked.host.until_running(1)
        await asked.host.until_running(2)
        bridged, owner = asked.name(), asked.name(number=2)
        # From the bridge, with an address that is not one of the task's; from another task's network.
        assert (await asked.get(f"/v4/{bridged}", interface="docker0"))[0] == 404
        assert (await asked.get(f"/v4/{bridged}", task=arn(2)))[0] == 404
        assert (await asked.get(f"/v4/{owner}", interface="docker0"))[0] == 404
        assert (await asked.get(f"/v4/{owner}", task=arn(1)))[0] == 404
        # The host itself may ask: the engine does, and people.
        assert (await asked.get(f"/v4/{bridged}"))[0] == (await asked.get(f"/v4/{owner}", task=arn(2)))[0] == 200


async def test_an_engine_that_is_away_costs_what_only_it_knows(tmp_path: Path) -> None:
    async with asking(tmp_path) as asked:
        await asked.host.engine.take([task()], 1)
        await asked.host.until_running()
        asked.host.runtime.fail("inspect", Unavailable("restarting"), times=100)
        status, body = await asked.get(f"/v4/{asked.name()}")
        assert (status, body["Name"], body["ImageID"]) == (200, "app", "")
        assert "Networks" not in body
        # From the bridge nobody can be told apart now, so nobody is served.
        assert (await asked.get(f"/v4/{asked.name()}", interface="docker0"))[0] == 404
