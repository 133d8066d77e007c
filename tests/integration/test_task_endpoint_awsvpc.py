"""The endpoint of tasks with networks of their own: reached in the router, told apart by address, closed to others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from engine import engine_call
from inside import ENDPOINT, Inside
from node import until
from sites import transfer
from vpcagent import VpcAgent

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VpcAgent]:
    environment = {"SEXTON_TASK_ENDPOINT_PORT": "51679", "ECS_TASK_METADATA_RPS_LIMIT": "1000,1000"}
    environment |= {"ECS_POLLING_METRICS_WAIT_DURATION": "5s"}
    with VpcAgent(tmp_path_factory.mktemp("vpc-endpoint"), environment=environment) as host:
        host.run(5)
        host.run(6)
        yield host


def place(host: VpcAgent, number: int) -> Inside:
    return Inside(host.space_of(number))


def told(host: VpcAgent, number: int) -> str:
    """The path at which a task finds its metadata of version 4."""
    (one,) = [one for one in host.containers() if one["Labels"]["com.amazonaws.ecs.task-arn"] == host.arn(number)]
    shown = json.loads(engine_call(host.engine.url, "GET", f"/containers/{one['Id']}/json"))
    variables = dict(each.split("=", 1) for each in shown["Config"]["Env"])
    return urlsplit(variables["ECS_CONTAINER_METADATA_URI_V4"]).path


def ask(host: VpcAgent, number: int, path: str) -> tuple[int, Any]:
    answer = place(host, number).ask(path)
    return answer.status, answer.json


def test_a_task_is_told_of_its_own_interface(host: VpcAgent) -> None:
    until(lambda: place(host, 5).reaches(ENDPOINT), "the endpoint is open in the router")
    status, body = ask(host, 5, told(host, 5))
    assert (status, body["KnownStatus"]) == (200, "RUNNING")
    (network,) = body["Networks"]
    assert network == {
        "NetworkMode": "awsvpc",
        "IPv4Addresses": ["10.77.0.5"],
        "AttachmentIndex": 0,
        "MACAddress": "0a:77:00:00:00:05",
        "IPv4SubnetCIDRBlock": "10.77.0.0/16",
        "PrivateDNSName": "ip-10-77-0-5.ec2.internal",
        "SubnetGatewayIpv4Address": "10.77.0.1/16",
    }
    _, task = ask(host, 5, told(host, 5) + "/task")
    assert (task["TaskARN"], task["VPCID"]) == (host.arn(5), "vpc-1")
    _, stats = ask(host, 5, told(host, 5) + "/stats")
    assert stats["networks"].keys() == {"eth0"} and "network_rate_stats" in stats
    assert json.loads(host.exec(5, "sh", "-c", "wget -qO- $ECS_CONTAINER_METADATA_URI"))["DockerId"] == body["DockerId"]


def test_version_2_tells_tasks_apart_by_their_address(host: VpcAgent) -> None:
    for number in (5, 6):
        status, body = ask(host, number, "/v2/metadata")
        assert (status, body["TaskARN"]) == (200, host.arn(number))
        assert body["Containers"][0]["Networks"] == [{"NetworkMode": "awsvpc", "IPv4Addresses": [f"10.77.0.{number}"]}]
        assert list(ask(host, number, "/v2/stats")[1]) == [body["Containers"][0]["DockerId"]]
    other = ask(host, 6, "/v2/metadata")[1]["Containers"][0]["DockerId"]
    assert ask(host, 5, f"/v2/metadata/{other}") == (400, f"Unable to generate metadata for container '{other}'")


@pytest.mark.parametrize("end", ["", "/task", "/taskWithTags", "/stats", "/task/stats"])
def test_another_tasks_name_is_of_no_use(host: VpcAgent, end: str) -> None:
    assert ask(host, 6, told(host, 5) + end)[0] == 404
    assert ask(host, 5, told(host, 5) + end)[0] == 200


def test_another_tasks_address_is_of_no_use(host: VpcAgent) -> None:
    """Even with root's rights in its own network, where it can give itself any address."""
    host.in_task(6, "ip", "addr", "add", "10.77.0.5/32", "dev", "eth0")
    try:
        forger = Inside(host.space_of(6), ("10.77.0.5", 0))
        assert not forger.reaches(ENDPOINT, 1.0)
        forger = Inside(host.space_of(6), ("10.77.0.99", 0))
        host.in_task(6, "ip", "addr", "add", "10.77.0.99/32", "dev", "eth0")
        assert not forger.reaches(ENDPOINT, 1.0)
    finally:
        host.in_task(6, "ip", "addr", "del", "10.77.0.5/32", "dev", "eth0")
        host.in_task(6, "ip", "addr", "del", "10.77.0.99/32", "dev", "eth0")
    assert ask(host, 6, told(host, 6))[0] == 200


def test_from_its_own_network_a_task_reaches_nothing_of_the_host(host: VpcAgent) -> None:
    task = place(host, 5)
    for address in ("10.77.0.1", "10.98.0.2", "127.0.0.1", "169.254.170.2", "169.254.172.1"):
        for port in (51678, 51679, 7070, 22):
            assert not task.reaches((address, port), 0.3), f"{address}:{port}"


def test_a_restart_of_the_agent_changes_nothing(host: VpcAgent) -> None:
    path = told(host, 5)
    before = ask(host, 5, path + "/task")[1]
    host.agent.kill()
    assert not place(host, 5).reaches(ENDPOINT, 0.5)
    host.start_agent()
    until(lambda: place(host, 5).reaches(ENDPOINT, 0.5), "the endpoint is open again")
    assert ask(host, 5, path + "/task")[1]["Containers"] == before["Containers"]
    assert ask(host, 6, path)[0] == 404


def test_a_task_with_an_interface_of_the_host_is_served_in_its_own_namespace(host: VpcAgent) -> None:
    """As on Amazon ECS; the far end of a pair plays the VPC."""
    mac = "0a:99:00:00:00:31"
    wire = ("ip", "link", "add", "ens9", "address", mac, "type", "veth", "peer", "vpc9")
    host.namespace.run(*wire)
    host.namespace.run("ip", "addr", "add", "10.66.0.1/24", "dev", "vpc9")
    host.namespace.run("ip", "link", "set", "vpc9", "up")
    task = host.task(31)
    task["elasticNetworkInterfaces"] = [
        {
            "ec2Id": "eni-a",
            "macAddress": mac,
            "attachmentArn": "arn:attachment/31",
            "ipv4Addresses": [{"privateAddress": "10.66.0.5", "primary": True}],
            "subnetGatewayIpv4Address": "10.66.0.1/24",
        }
    ]
    host.plane.payload(task)
    host.until_told("RUNNING", 31)
    try:
        status, body = ask(host, 31, told(host, 31))
        assert (status, body["Networks"][0]["IPv4Addresses"]) == (200, ["10.66.0.5"])
        assert ask(host, 31, "/v2/metadata")[1]["TaskARN"] == host.arn(31)
        assert ask(host, 31, told(host, 5))[0] == ask(host, 5, told(host, 31))[0] == 404
        host.agent.kill()
        host.start_agent()
        until(lambda: place(host, 31).reaches(ENDPOINT, 0.5), "the endpoint is open again")
        assert ask(host, 31, told(host, 31)) == (status, body)
    finally:
        host.plane.payload(task | {"desiredStatus": "STOPPED"})
        host.until_told("STOPPED", 31)
        until(lambda: mac in host.namespace.run("ip", "link"), "the device is back on the host")
        host.namespace.run("ip", "link", "delete", "vpc9")


def test_what_passes_its_interface_is_counted_for_each_of_its_containers(host: VpcAgent) -> None:
    """By its own endpoint and to the control plane: of the task's network, and of no other's."""
    before = [ask(host, number, told(host, number) + "/stats")[1]["networks"]["eth0"] for number in (5, 6)]
    transfer(host.space_of(6), host.space_of(5), "10.77.0.5", 7300)

    def more(number: int, what: str) -> int:
        now = ask(host, number, told(host, number) + "/stats")[1]["networks"]["eth0"]
        return int(now[what] - before[number - 5][what])

    until(lambda: more(5, "rx_bytes") > 40_000 and more(6, "tx_bytes") > 40_000, "it is counted", 30.0)
    assert more(5, "tx_bytes") < 40_000 and more(6, "rx_bytes") < 40_000
    counted = before[0]["rx_bytes"] + 40_000

    def reported() -> bool:
        frames = [json.loads(text.partition("\r\n\r\n")[2]) for text in list(host.plane.telemetry)]
        metrics = [one for frame in frames for one in frame["message"].get("taskMetrics") or ()]
        rows = [one for each in metrics if each["taskArn"] == host.arn(5) for one in each["containerMetrics"]]
        return any(one.get("networkStatsSet", {}).get("rxBytes", {}).get("max", 0) > counted for one in rows)

    until(reported, "the control plane is told", 60)
