"""A task in the host's network disturbs it by its agent, and what it began ends with it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from endpoint_host import PORT, Asker, EndpointHost, endpoint_host
from node import until

pytestmark = [pytest.mark.timeout(120)]

BLOCKED = {"Port": 8111, "Protocol": "tcp", "TrafficType": "egress"}


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EndpointHost]:
    with endpoint_host(tmp_path_factory.mktemp("faults")) as made:
        yield made


def run(host: EndpointHost, *, allowed: bool = True) -> Asker:
    ecs = host.node.ecs()
    definition = ecs.register_task_definition(
        family="disturbs",
        networkMode="host",
        enableFaultInjection=allowed,
        containerDefinitions=[
            {"name": "app", "image": host.image, "memory": 16, "command": ["sleep", "1000"], "stopTimeout": 2}
        ],
    )["taskDefinition"]["taskDefinitionArn"]
    (task,) = ecs.run_task(taskDefinition=definition)["tasks"]

    def running() -> dict[str, Any] | None:
        (found,) = ecs.describe_tasks(tasks=[task["taskArn"]])["tasks"]
        return found if found["lastStatus"] == "RUNNING" else None

    found = until(running, "the task runs")
    return host.asker(found["containers"][0]["runtimeId"], task["taskArn"])


def post(task: Asker, what: str, body: Any = None) -> tuple[int, Any]:
    path = f"/api/{task.name}/fault/v1/{what}"
    answer = task.inside.ask(path, "POST", body=json.dumps(body).encode() if body is not None else b"")
    return answer.status, answer.json


def faults() -> list[str]:
    """This host's tables of faults; the test is in its network."""
    listed = subprocess.run(["nft", "list", "tables"], capture_output=True, text=True, check=True).stdout
    return [line for line in listed.splitlines() if "sexton-fault-" in line]


def stop(host: EndpointHost, task: Asker) -> None:
    ecs = host.node.ecs()
    ecs.stop_task(task=task.task)
    until(lambda: ecs.describe_tasks(tasks=[task.task])["tasks"][0]["lastStatus"] == "STOPPED", "the task stops")


def test_a_fault_in_the_hosts_network_ends_with_its_task(host: EndpointHost) -> None:
    task = run(host)
    assert post(task, "network-blackhole-port/start", BLOCKED) == (200, {"Status": "running"})
    assert post(task, "network-packet-loss/start", {"LossPercent": 1, "Sources": ["198.51.100.0/24"]}) == (
        200,
        {"Status": "running"},
    )
    assert len(faults()) == 2 and all(task.task.rpartition("/")[2] in one for one in faults())
    # The agent is reached all the same, though a task here could block the very port that leads to it.
    assert post(task, "network-blackhole-port/status", BLOCKED) == (200, {"Status": "running"})

    stop(host, task)

    until(lambda: not faults(), "its faults are removed")


def test_a_task_blocks_the_endpoints_own_port_and_reaches_it_all_the_same(host: EndpointHost) -> None:
    task = run(host)
    path = f"/api/{task.name}/fault/v1/network-blackhole-port/start"

    def begun(traffic: str, port: int) -> bool:
        """One path takes one request in five seconds."""
        own = json.dumps({"Port": port, "Protocol": "tcp", "TrafficType": traffic}).encode()
        answer = task.inside.ask(path, "POST", body=own)
        return answer.status != 429 and answer.json == {"Status": "running"}

    for traffic, port in (("egress", 80), ("ingress", PORT)):
        until(partial(begun, traffic, port), f"{traffic} of {port} is blocked")
    assert len(faults()) == 2
    assert task.inside.ask(f"/v4/{task.name}").status == 200
    stop(host, task)
    until(lambda: not faults(), "its faults are removed")


def test_a_fault_of_a_task_that_ended_while_the_agent_was_dead_is_removed_at_its_start(host: EndpointHost) -> None:
    task = run(host)
    assert post(task, "network-blackhole-port/start", BLOCKED) == (200, {"Status": "running"})
    host.node.kill()
    host.engine.call("POST", f"/containers/{task.id}/kill")
    assert len(faults()) == 1

    host.node.start()

    until(lambda: not faults(), "what it left is removed")


def test_who_may_not_is_told_so(host: EndpointHost) -> None:
    task = run(host, allowed=False)
    assert post(task, "network-latency/stop") == (
        400,
        {"Error": f"enableFaultInjection is not enabled for task: {task.task}"},
    )
    stop(host, task)
