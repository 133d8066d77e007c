"""Keys of roles and faults for tasks with a network of their own: from there alone, and for that one alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from inside import Inside
from vpcagent import VpcAgent

pytestmark = [pytest.mark.docker, pytest.mark.timeout(120)]

BLOCKED = {"Port": 8112, "Protocol": "tcp", "TrafficType": "egress"}


def keys(number: int) -> dict[str, str]:
    return {
        "credentialsId": f"id-of-{number}",
        "roleArn": f"arn:aws:iam::123456789012:role/app-{number}",
        "accessKeyId": f"ASIA{number}",
        "secretAccessKey": "secret",
        "sessionToken": "token",
        "expiration": "2033-01-01T00:00:00Z",
    }


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VpcAgent]:
    with VpcAgent(tmp_path_factory.mktemp("vpc")) as agent:
        agent.networks(agent.interface(5), agent.interface(6))
        agent.plane.payload(*(agent.task(one, roleCredentials=keys(one), enableFaultInjection=True) for one in (5, 6)))
        agent.until_told("RUNNING", 5, 6)
        yield agent


def told(host: VpcAgent, number: int) -> dict[str, str]:
    return dict(line.split("=", 1) for line in host.exec(number, "env").splitlines())


def post(host: VpcAgent, number: int, what: str, body: Any) -> Any:
    path = told(host, number)["ECS_AGENT_URI"].partition("169.254.170.2")[2] + f"/fault/v1/{what}"
    return Inside(host.space_of(number)).ask(path, "POST", body=json.dumps(body).encode()).json


def test_each_task_gets_its_own_keys_and_no_others(host: VpcAgent) -> None:
    places = {number: told(host, number)["AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"] for number in (5, 6)}
    assert places[5] == "/v2/credentials/id-of-5"
    for number, other in ((5, 6), (6, 5)):
        inside = Inside(host.space_of(number))
        assert inside.ask(places[number]).json["AccessKeyId"] == f"ASIA{number}"
        refused = inside.ask(places[other])
        assert (refused.status, refused.json["code"]) == (400, "InvalidIdInRequest")


def test_a_fault_hits_the_network_of_its_task_alone(host: VpcAgent) -> None:
    assert post(host, 5, "network-blackhole-port/start", BLOCKED) == {"Status": "running"}

    assert "sexton-fault-" in host.in_task(5, "nft", "list", "tables")
    assert "sexton-fault-" not in host.in_task(6, "nft", "list", "tables")
    assert "sexton-fault-" not in host.namespace.run("nft", "list", "tables")
    refused = host.in_task(5, "python3", "-c", TRY)
    assert (refused.strip(), host.in_task(6, "python3", "-c", TRY).strip()) == (
        "TimeoutError",
        "ConnectionRefusedError",
    )

    assert post(host, 5, "network-blackhole-port/stop", BLOCKED) == {"Status": "stopped"}
    assert host.in_task(5, "python3", "-c", TRY).strip() == "ConnectionRefusedError"


TRY = """
import socket
line = socket.socket()
line.settimeout(1)
try:
    line.connect(("127.0.0.1", 8112))
except OSError as error:
    print(type(error).__name__)
"""
