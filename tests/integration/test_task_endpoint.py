"""The endpoint of tasks on a real engine: reached from every kind of task, through restarts, and by nobody else.

All of it is in a network namespace of its own, with a neighbour on the wire who tries as well.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from endpoint_host import INTROSPECTION, PORT, Asker, EndpointHost, endpoint_host
from inside import ENDPOINT, Inside, OwnNetwork, staying_in
from node import free_port, until
from sexton.agent.metadata.reach import Reach
from sexton.agent.metadata.routes import Call, Routes
from sexton.agent.metadata.server import TaskServer
from sexton.core.endpointrules import ADDRESS
from sexton.kit.allowance import Allowances
from sexton.settings import Settings

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EndpointHost]:
    with endpoint_host(tmp_path_factory.mktemp("endpoint")) as host:
        yield host


@pytest.fixture(scope="module")
def bridged(host: EndpointHost) -> list[Asker]:
    return host.run("bridge", "app", "side", portMappings=[{"containerPort": 80}])


@pytest.fixture(scope="module")
def hosted(host: EndpointHost) -> Asker:
    return host.run("host")[0]


V4_TASK = {
    "Cluster",
    "TaskARN",
    "Family",
    "Revision",
    "DesiredStatus",
    "KnownStatus",
    "Containers",
    "PullStartedAt",
    "PullStoppedAt",
    "AvailabilityZone",
    "LaunchType",
    "FaultInjectionEnabled",
}


def test_a_container_asks_with_what_it_was_told(host: EndpointHost, bridged: list[Asker]) -> None:
    app = bridged[0]
    body = json.loads(host.execute(app, "sh", "-c", "wget -qO- $ECS_CONTAINER_METADATA_URI_V4"))
    assert (body["DockerId"], body["Name"], body["KnownStatus"]) == (app.id, "app", "RUNNING")
    assert body["Networks"] == [{"NetworkMode": "bridge", "IPv4Addresses": [app.address]}]
    v3 = json.loads(host.execute(app, "sh", "-c", "wget -qO- $ECS_CONTAINER_METADATA_URI/task"))
    assert sorted(one["DockerId"] for one in v3["Containers"]) == sorted(one.id for one in bridged)
    written = json.loads(host.execute(app, "sh", "-c", "cat $ECS_CONTAINER_METADATA_FILE"))
    assert (written["ContainerID"], written["MetadataFileStatus"]) == (app.id, "READY")
    assert written["Networks"] == body["Networks"]


def test_the_variables_are_those_that_amazons_agent_sets(bridged: list[Asker]) -> None:
    """As its container's environment was recorded, except for the role's, which this task has not."""
    told = {name: value for name, value in bridged[0].variables.items() if name.startswith(("ECS_", "AWS_"))}
    name = r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
    forms = {
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EXECUTION_ENV": "AWS_ECS_EC2",  # the control plane's doing
        "AWS_REGION": "us-east-1",
        "ECS_AGENT_URI": f"http://169[.]254[.]170[.]2/api/{name}",
        "ECS_CONTAINER_METADATA_FILE": f"/opt/ecs/metadata/{name}/ecs-container-metadata.json",
        "ECS_CONTAINER_METADATA_URI": f"http://169[.]254[.]170[.]2/v3/{name}",
        "ECS_CONTAINER_METADATA_URI_V4": f"http://169[.]254[.]170[.]2/v4/{name}",
    }
    assert told.keys() == forms.keys()
    assert all(re.fullmatch(form, told[variable]) for variable, form in forms.items())
    same = {told[variable].rpartition("/")[2] for variable in forms if variable.endswith(("URI", "V4"))}
    assert same == {bridged[0].name} and bridged[0].name not in told["ECS_CONTAINER_METADATA_FILE"]
    assert bridged[1].name not in told.values()


def test_what_a_task_in_bridge_mode_is_told(host: EndpointHost, bridged: list[Asker]) -> None:
    app = bridged[0]
    answer = app.inside.ask(f"/v4/{app.name}/taskWithTags")
    assert (answer.status, answer.headers["Content-Type"]) == (200, "application/json")
    body = answer.json
    assert body.keys() == V4_TASK | {"TaskTags"}
    assert (body["TaskTags"], body["AvailabilityZone"], body["LaunchType"]) == ({"team": "a"}, "rack-7", "EC2")
    one = body["Containers"][0]
    assert (one["Ports"][0]["ContainerPort"], one["Ports"][0]["HostIp"]) == (80, "0.0.0.0")
    assert one["Volumes"][0]["Destination"] == os.path.dirname(app.variables["ECS_CONTAINER_METADATA_FILE"])
    assert one["Limits"] == {"CPU": 2, "Memory": 16}


def test_statistics_have_the_engines_shape(host: EndpointHost, bridged: list[Asker]) -> None:
    app = bridged[0]
    ours = app.inside.ask(f"/v4/{app.name}/stats").json
    theirs = json.loads(host.engine.call("GET", f"/containers/{app.id}/stats?stream=0"))

    def shape(value: Any, path: str = "") -> set[str]:
        if isinstance(value, dict):
            return {path}.union(*(shape(each, f"{path}/{key}") for key, each in value.items()))
        return {path}

    # Where the kernel's hierarchies are unlike what the engine expects, it has the skeleton alone.
    assert shape(theirs) - shape(ours) <= {"/os_type"}
    cpu, memory, wire = ours["cpu_stats"], ours["memory_stats"], ours["networks"]["eth0"]
    assert (
        {"cpu_usage", "system_cpu_usage", "online_cpus", "throttling_data"} == cpu.keys() == ours["precpu_stats"].keys()
    )
    assert 0 < cpu["cpu_usage"]["total_usage"] < cpu["system_cpu_usage"]
    assert ours["precpu_stats"]["system_cpu_usage"] < cpu["system_cpu_usage"]
    assert {"usage", "stats", "limit"} <= memory.keys() <= {"usage", "max_usage", "stats", "failcnt", "limit"}
    assert memory["limit"] == 16 << 20 and 0 < memory["usage"] <= memory["limit"]
    assert ours["pids_stats"]["current"] == 1
    counters = ("bytes", "packets", "errors", "dropped")
    assert wire.keys() == {f"{way}_{counter}" for way in ("rx", "tx") for counter in counters}
    assert wire["rx_bytes"] > 0 and ours["networks"].keys() == {"eth0"}
    assert ours["network_rate_stats"].keys() == {"rx_bytes_per_sec", "tx_bytes_per_sec"}
    assert (ours["id"], ours["num_procs"], ours["storage_stats"]) == (app.id, 0, {})
    assert "network_rate_stats" not in app.inside.ask(f"/v3/{app.name}/stats").json
    whole = app.inside.ask(f"/v4/{app.name}/task/stats").json
    assert whole.keys() == {one.id for one in bridged}


def test_a_task_in_host_mode_and_the_host_itself(host: EndpointHost, hosted: Asker) -> None:
    body = json.loads(host.execute(hosted, "sh", "-c", "wget -qO- $ECS_CONTAINER_METADATA_URI_V4/task"))
    assert body["TaskARN"] == hosted.task
    assert body["Containers"][0]["Networks"] == [{"NetworkMode": "host", "IPv4Addresses": [""]}]
    # The engine asks from here for its log drivers' keys.
    assert Inside(host.network.path()).ask(f"/v4/{hosted.name}").json["DockerId"] == hosted.id
    assert "networks" not in hosted.inside.ask(f"/v4/{hosted.name}/stats").json


def test_a_task_without_a_network_reaches_nothing(host: EndpointHost) -> None:
    (alone,) = host.run("none")
    assert "ECS_CONTAINER_METADATA_URI_V4" in alone.variables
    assert not alone.inside.reaches(ENDPOINT)
    assert json.loads(host.execute(alone, "sh", "-c", "cat $ECS_CONTAINER_METADATA_FILE"))["TaskARN"] == alone.task


def test_nobody_off_the_host_reaches_it(host: EndpointHost, bridged: list[Asker]) -> None:
    neighbour = Inside(host.network.path(host.network.neighbour))
    assert bridged[0].inside.reaches(ENDPOINT)
    for address in (ADDRESS, host.gateway, host.network.host_address):
        for port in (80, PORT, INTROSPECTION, host.node.port):
            assert not neighbour.reaches((address, port)), f"{address}:{port}"


def test_one_task_that_asks_too_much_is_told_so_and_no_other_notices(host: EndpointHost, bridged: list[Asker]) -> None:
    greedy, other = bridged
    # All at once on one connection: a slow machine must not be what keeps the rate.
    request = f"GET /v4/{greedy.name} HTTP/1.1\r\nHost: x\r\n"
    said = b""
    with contextlib.closing(greedy.inside.connect()) as connection:
        connection.settimeout(30)
        connection.sendall((f"{request}\r\n" * 149 + f"{request}Connection: close\r\n\r\n").encode())
        while part := connection.recv(1 << 16):
            said += part
    codes = [int(code) for code in re.findall(rb"HTTP/1[.]1 ([0-9]{3}) ", said)]
    assert len(codes) == 150 and set(codes) == {200, 429} and codes[:60] == [200] * 60
    assert b"You have reached maximum request limit." in said
    assert other.inside.ask(f"/v4/{other.name}").status == 200
    assert greedy.inside.ask(f"/v4/{greedy.name}/task").status == 200


def test_slashes_and_unknown_paths(bridged: list[Asker]) -> None:
    app = bridged[0]
    answer = app.inside.ask(f"//v4//{app.name}/task?x=1")
    assert (answer.status, answer.headers["Location"]) == (301, f"/v4/{app.name}/task?x=1")
    assert app.inside.ask("/latest/meta-data").status == 404
    words = f"Unable to get task arn from request: unable to associate '{app.address}' with task"
    assert (app.inside.ask("/v2/metadata").status, app.inside.ask("/v2/stats").json) == (400, words)


def test_introspection_shows_what_amazons_agent_does(host: EndpointHost, bridged: list[Asker]) -> None:
    url = f"http://127.0.0.1:{INTROSPECTION}/v1/tasks?dockerid={bridged[0].id[:12]}"
    with urllib.request.urlopen(url, timeout=10) as reply:
        task = json.load(reply)
    captured = json.loads((Path(__file__).parents[1] / "data/introspection_tasks.json").read_text())["Tasks"][0]
    assert task.keys() == captured.keys()
    one = task["Containers"][0]
    assert one.keys() - {"Ports"} == captured["Containers"][0].keys()
    assert one["Volumes"][0].keys() == captured["Containers"][0]["Volumes"][0].keys()


def test_a_restart_of_the_agent_changes_nothing_for_a_task(host: EndpointHost, bridged: list[Asker]) -> None:
    app = bridged[0]
    before = app.inside.ask(f"/v4/{app.name}/task").json
    host.node.kill()
    assert len(host.tables()) == 1, "what a killed agent leaves"
    host.node.start()
    until(lambda: app.inside.reaches(ENDPOINT), "the endpoint is there again")
    assert app.inside.ask(f"/v4/{app.name}/task").json == before
    assert len(host.tables()) == 1
    host.node.terminate()
    assert host.tables() == []
    assert not app.inside.reaches(ENDPOINT)
    host.node.start()
    until(lambda: app.inside.reaches(ENDPOINT), "the endpoint is there again")
    assert app.inside.ask(f"/v4/{app.name}").json["DockerId"] == app.id
    written = json.loads(host.execute(app, "sh", "-c", "cat $ECS_CONTAINER_METADATA_FILE"))
    assert written["MetadataFileStatus"] == "READY"


def test_an_agent_that_may_not_change_the_packet_filter_says_so_and_tells_tasks_of_nothing(
    host: EndpointHost, tmp_path: Path
) -> None:
    plain = host.node.role(
        "agent",
        *("--data-dir", f"{tmp_path}/agent", "--backend", host.node.endpoint, "--docker-host", host.engine.url),
        label="plain",
    )
    plain.environment |= host.node.credentials() | {"SEXTON_INTROSPECTION": "off"}
    # Without the right to change the network; everything else is as before.
    plain._command = ["setpriv", "--bounding-set=-net_admin", "--inh-caps=-all", *plain._command]
    plain.start()
    try:
        until(lambda: "agent ready" in plain.log, "the agent is ready")
        assert "tasks have no endpoint" in plain.log and "cannot" in plain.log
        assert len(host.tables()) == 1
    finally:
        plain.terminate()


class Bridge:
    """An engine that has nothing but a bridge."""

    def __init__(self, name: str) -> None:
        self.name = name

    async def bridge(self) -> str:
        return self.name


@pytest.fixture
def own() -> Iterator[OwnNetwork]:
    network = OwnNetwork()
    try:
        with staying_in(network.path()):
            yield network
    finally:
        network.close()


def attach(own: OwnNetwork, bridge: str) -> None:
    """A bridge with the neighbour on it, as a container would be."""
    for command in (
        f"-n {own.host} link add {bridge} type bridge",
        f"-n {own.host} addr add 10.77.0.1/24 dev {bridge}",
        f"-n {own.host} link set {bridge} up",
        f"-n {own.host} link add in0 type veth peer name in1 netns {own.neighbour}",
        f"-n {own.host} link set in0 master {bridge} up",
        f"-n {own.neighbour} addr add 10.77.0.2/24 dev in1",
        f"-n {own.neighbour} link set in1 up",
        f"-n {own.neighbour} route replace 169.254.170.2 via 10.77.0.1",
    ):
        own.ip(command)


def reach(tmp_path: Path, name: str = "one", bridge: str = "sxbr0", port: int = PORT) -> Reach:
    from aiohttp import web

    async def caller(call: Call) -> web.Response:
        return web.Response(text=f"{name} {call.caller.interface} {call.caller.address}")

    routes = Routes()
    routes.add("/who", caller)
    settings = Settings(data_dir=str(tmp_path / name), docker_host="unix:///x", task_endpoint_port=port)
    return Reach(TaskServer(routes, Allowances(1000, 1000)), Bridge(bridge), settings)  # type: ignore[arg-type]


async def who(place: Inside) -> str:
    return (await asyncio.to_thread(place.ask, "/who")).body.decode()


async def test_rules_that_somebody_flushed_and_a_bridge_made_anew(own: OwnNetwork, tmp_path: Path) -> None:
    attach(own, "sxbr0")
    container, itself = Inside(own.path(own.neighbour)), Inside(own.path())
    one = reach(tmp_path)
    assert await one.prepare()
    await one.start()
    try:
        assert await who(container) == "one sxbr0 10.77.0.2"  # with its own address
        assert await who(itself) == "one lo 192.0.2.2"
        subprocess.run(["nft", "flush", "ruleset"], check=True)
        assert not await asyncio.to_thread(container.reaches, ENDPOINT)
        await one.check()
        assert await who(container) == "one sxbr0 10.77.0.2"
        own.ip(f"-n {own.host} link delete sxbr0")
        own.ip(f"-n {own.host} link delete in0")
        await one.check()
        assert await who(itself) == "one lo 192.0.2.2"
        attach(own, "sxbr0")
        await one.check()
        assert await who(container) == "one sxbr0 10.77.0.2"
    finally:
        await one.close()
    assert subprocess.run(["nft", "list", "ruleset"], capture_output=True, check=True).stdout == b""


async def test_a_host_without_a_default_route(own: OwnNetwork, tmp_path: Path) -> None:
    own.ip(f"-n {own.host} route del default")
    own.ip(f"-n {own.host} route add 169.254.170.2 dev lo src 127.0.0.1 scope host proto 83")  # a killed one's
    itself = Inside(own.path())
    one = reach(tmp_path)
    assert await one.prepare()
    await one.start()
    try:
        assert await who(itself) == "one lo 127.0.0.1"
    finally:
        await one.close()
    assert "169.254" not in own.ip(f"-n {own.host} route show table all")


async def test_agents_beside_each_other_do_not_meet(own: OwnNetwork, tmp_path: Path) -> None:
    attach(own, "sxbr0")
    container, itself = Inside(own.path(own.neighbour)), Inside(own.path())
    first, second = reach(tmp_path, "first", "none0"), reach(tmp_path, "second", "sxbr0")
    try:
        assert await first.prepare()
        await first.start()
        assert await second.prepare()
        await second.start()
        # One port, two agents: each has its own socket, and only one serves what the host sends.
        assert (first.serves_host, second.serves_host) == (True, False)
        assert (await who(itself), await who(container)) == ("first lo 192.0.2.2", "second sxbr0 10.77.0.2")
        await first.close()
        await second.check()
        assert (await who(itself), await who(container)) == ("second lo 192.0.2.2", "second sxbr0 10.77.0.2")
    finally:
        await first.close()
        await second.close()


async def test_what_a_dead_agent_left_is_in_nobodys_way(own: OwnNetwork, tmp_path: Path) -> None:
    script = (
        "import asyncio, sys; sys.path[:0] = sys.argv[3:]; from pathlib import Path;"
        "from integration.test_task_endpoint import reach;"
        "one = reach(Path(sys.argv[1]), 'dead', 'none0', int(sys.argv[2]));"
        "run = asyncio.Runner(); run.run(one.prepare()); run.run(one.start()); print('up', flush=True);"
        "run.run(asyncio.sleep(60))"
    )
    import sys

    paths = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2] / "scripts")]
    command = [sys.executable, "-c", script, str(tmp_path), str(free_port()), *paths]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as dead:
        assert dead.stdout is not None and dead.stdout.readline() == b"up\n"
        alive = reach(tmp_path, "early", "none0", free_port())
        assert await alive.prepare()
        assert not alive.serves_host
        await alive.close()
        dead.send_signal(signal.SIGKILL)
    heir = reach(tmp_path, "heir", "none0")
    assert await heir.prepare()
    await heir.start()
    try:
        assert heir.serves_host
        assert await who(Inside(own.path())) == "heir lo 192.0.2.2"
        listed = subprocess.run(["nft", "list", "tables"], capture_output=True, check=True).stdout
        assert listed.count(b"table") == 1
    finally:
        await heir.close()


async def test_a_port_that_is_taken_is_no_failure(own: OwnNetwork, tmp_path: Path) -> None:
    import socket

    attach(own, "sxbr0")
    with socket.socket() as squatter:
        squatter.bind(("0.0.0.0", PORT))
        squatter.listen()
        one = reach(tmp_path)
        assert await one.prepare()
        await one.start()
        try:
            assert await who(Inside(own.path(own.neighbour))) == "one sxbr0 10.77.0.2"
            assert await who(Inside(own.path())) == "one lo 192.0.2.2"
        finally:
            await one.close()
