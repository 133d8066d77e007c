"""Where tasks without a network of their own can be reached, as it is reported and as it is, on a real engine."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest

from nethosts import inside
from vpcagent import VpcAgent

pytestmark = [pytest.mark.docker, pytest.mark.timeout(120)]

MAPPINGS = [
    {"containerPort": 7000, "hostPort": 0, "protocol": "tcp"},
    {"containerPort": 7100, "hostPort": 0, "protocol": "udp"},
    {"containerPortRange": "7200-7202", "protocol": "tcp"},
]
SPAN = range(42000, 42040)


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VpcAgent]:
    settings = {"ECS_EXCLUDE_IPV6_PORTBINDING": "false", "ECS_DYNAMIC_HOST_PORT_RANGE": f"{SPAN[0]}-{SPAN[-1]}"}
    with VpcAgent(tmp_path_factory.mktemp("bindings"), environment=settings) as agent:
        yield agent


def reported(host: VpcAgent, number: int, mode: str, mappings: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The bindings of a task with these mappings, as they were reported with its RUNNING."""
    task = host.task(number, mode=mode)
    task["containers"][0]["portMappings"] = mappings
    host.plane.payload(task)
    host.until_told("RUNNING", number)
    (running,) = [
        one.body
        for one in host.plane.reports
        if (one.body.get("task"), one.body.get("status")) == (host.arn(number), "RUNNING")
    ]
    return running["containers"][0].get("networkBindings") or []


def arrives(host: VpcAgent, number: int, address: str, port: int, at: int, protocol: str = "tcp") -> bool:
    """Whether what is sent to a port of the host's comes out at a task's."""
    kind = socket.SOCK_DGRAM if protocol == "udp" else socket.SOCK_STREAM
    with inside(host.space_of(number)):
        server = socket.socket(socket.AF_INET, kind)
    with inside(host.namespace.path):
        client = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, kind)
    with server, client:
        server.settimeout(5.0)
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(("0.0.0.0", at))
        if protocol == "tcp":
            server.listen()
        client.connect((address, port))
        client.send(b"to you")
        if protocol == "udp":
            return server.recv(100) == b"to you"
        served, _ = server.accept()
        with served:
            return served.recv(100) == b"to you"


def test_a_bridged_task_is_reached_at_what_is_reported(host: VpcAgent) -> None:
    bindings = reported(host, 1, "bridge", MAPPINGS)

    assert {one["bindIP"] for one in bindings} == {"0.0.0.0", "::"}
    assert len(bindings) == 2 * len(MAPPINGS)
    for one in bindings:
        address = "::1" if one["bindIP"] == "::" else "127.0.0.1"
        if "containerPortRange" in one:
            first, last = (int(port) for port in one["hostPortRange"].split("-"))
            assert (one["containerPortRange"], last - first, one["protocol"]) == ("7200-7202", 2, "tcp")
            assert not {"containerPort", "hostPort"} & one.keys() and {first, last} <= set(SPAN)
            assert all(arrives(host, 1, address, first + offset, 7200 + offset) for offset in range(3))
            continue
        assert one["hostPort"] in SPAN and one["containerPort"] == (7100 if one["protocol"] == "udp" else 7000)
        assert arrives(host, 1, address, one["hostPort"], one["containerPort"], one["protocol"])


def test_two_tasks_with_dynamic_ports_share_none(host: VpcAgent) -> None:
    first, second = (reported(host, number, "bridge", MAPPINGS[:2]) for number in (2, 3))

    def taken(bindings: list[dict[str, Any]]) -> set[tuple[int, str]]:
        return {(one["hostPort"], one["protocol"]) for one in bindings}

    assert len(taken(first)) == len(taken(second)) == 2 and not taken(first) & taken(second)


def test_a_task_on_the_hosts_network_has_its_own_ports_and_one_without_a_network_none(host: VpcAgent) -> None:
    # The engine binds nothing here, and what it does not bind is not reported, as ECS has it.
    assert reported(host, 4, "host", [{"containerPort": 7000, "protocol": "tcp"}]) == []
    assert arrives(host, 4, "127.0.0.1", 7000, 7000)

    assert reported(host, 5, "none", []) == []
    links = host.in_task(5, "ip", "-brief", "link").split()
    assert "lo" in links and not any(one.startswith("eth") for one in links)
