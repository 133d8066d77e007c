"""Everything beside tasks as the stock AWS CLI and boto3 drive it: clusters, providers, services, task sets, tags.

Against a real node on a real container engine. The CLI's own waiters look every fifteen seconds, so a quicker client
waits first where something has to happen.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import WaiterError

from engine import PrivateEngine
from node import Node, until

pytestmark = [pytest.mark.docker, pytest.mark.timeout(180)]

AWS = Path(sys.executable).with_name("aws")
QUICK = {"Delay": 1, "MaxAttempts": 60}
STAY = ["sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.1; done"]
Json = dict[str, Any]
Aws = Callable[..., Json]


@pytest.fixture(scope="module")
def node(engine_session: PrivateEngine, busybox_image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    quick = {"SEXTON_SERVICE_SETTLE": "0.2s"}
    with Node(tmp_path_factory.mktemp("control-plane"), engine_session.url, environment=quick) as running:
        yield running


@pytest.fixture(scope="module")
def ecs(node: Node) -> Any:
    return node.ecs()


@pytest.fixture
def aws(node: Node, tmp_path: Path) -> Aws:
    """The AWS CLI with nothing but an endpoint and a key; gives what it printed."""
    environment = node.credentials() | {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "AWS_ENDPOINT_URL": node.endpoint,
        "AWS_PAGER": "",
        "AWS_EC2_METADATA_DISABLED": "true",
    }

    def call(*arguments: str, good: int = 0) -> Json:
        done = subprocess.run([AWS, "ecs", *arguments], capture_output=True, text=True, env=environment, timeout=60)
        assert done.returncode == good, done.stderr
        return json.loads(done.stdout) if done.stdout.strip() else {"said": done.stderr}

    return call


def define(ecs: Any, family: str, image: str, command: list[str] = STAY) -> str:
    answer = ecs.register_task_definition(
        family=family,
        networkMode="none",
        containerDefinitions=[{"name": "main", "image": image, "memory": 16, "command": command}],
        tags=[{"key": "team", "value": "a"}],
    )
    return str(answer["taskDefinition"]["taskDefinitionArn"])


def test_clusters_providers_settings_and_attributes(aws: Aws, ecs: Any) -> None:
    group = json.dumps({"autoScalingGroupArn": "group"})
    aws("create-capacity-provider", "--name", "metal", "--auto-scaling-group-provider", group)
    aws("create-cluster", "--cluster-name", "blue", "--settings", "name=containerInsights,value=enabled")
    (cluster,) = aws("describe-clusters", "--clusters", "blue", "--include", "SETTINGS")["clusters"]
    assert cluster["settings"] == [{"name": "containerInsights", "value": "enabled"}]
    put = aws(
        "put-cluster-capacity-providers",
        *("--cluster", "blue", "--capacity-providers", "metal", "FARGATE"),
        *("--default-capacity-provider-strategy", "capacityProvider=metal,weight=1"),
    )
    assert put["cluster"]["capacityProviders"] == ["metal", "FARGATE"]
    aws("tag-resource", "--resource-arn", cluster["clusterArn"], "--tags", "key=team,value=a")
    assert ecs.list_tags_for_resource(resourceArn=cluster["clusterArn"])["tags"] == [{"key": "team", "value": "a"}]
    names = [arn.rpartition("/")[2] for arn in aws("list-clusters", "--page-size", "1")["clusterArns"]]
    assert names == ["blue", "default"]

    setting = aws("put-account-setting-default", "--name", "containerInsights", "--value", "enabled")["setting"]
    assert (setting["name"], setting["value"]) == ("containerInsights", "enabled")

    (host,) = aws("list-container-instances", "--filter", "runningTasksCount == 0")["containerInstanceArns"]
    aws("put-attributes", "--attributes", f"name=rack,value=7,targetId={host}")
    found = aws("list-attributes", "--target-type", "container-instance", "--attribute-name", "rack")["attributes"]
    assert [(one["name"], one["value"], one["targetId"]) for one in found] == [("rack", "7", host)]
    assert aws("list-container-instances", "--filter", "attribute:rack == 8")["containerInstanceArns"] == []

    aws("put-cluster-capacity-providers", "--cluster", "blue", "--capacity-providers", "[]",
        "--default-capacity-provider-strategy", "[]")  # fmt: skip
    aws("delete-capacity-provider", "--capacity-provider", "metal")
    assert aws("delete-cluster", "--cluster", "blue")["cluster"]["status"] == "INACTIVE"


def test_a_service_from_the_command_line(aws: Aws, ecs: Any, busybox_image: str) -> None:
    define(ecs, "cli", busybox_image)
    made = aws(
        "create-service",
        *("--service-name", "cli", "--task-definition", "cli", "--desired-count", "2", "--tags", "key=team,value=a"),
        *("--propagate-tags", "SERVICE", "--enable-ecs-managed-tags", "--disable-execute-command"),
        *("--placement-strategy", "type=spread,field=instanceId"),
    )["service"]
    assert (made["status"], made["launchType"], made["propagateTags"]) == ("ACTIVE", "EC2", "SERVICE")
    ecs.get_waiter("services_stable").wait(services=["cli"], WaiterConfig=QUICK)
    aws("wait", "services-stable", "--services", "cli")
    task = aws("list-tasks", "--service-name", "cli", "--query", "taskArns[0]")
    (shown,) = aws("describe-tasks", "--tasks", str(task), "--include", "TAGS")["tasks"]
    assert {"key": "team", "value": "a"} in shown["tags"] and shown["group"] == "service:cli"

    define(ecs, "cli", busybox_image)
    aws("update-service", "--service", "cli", "--task-definition", "cli", "--desired-count", "1")
    ecs.get_waiter("services_stable").wait(services=["cli"], WaiterConfig=QUICK)
    (service,) = aws("describe-services", "--services", "cli", "--include", "TAGS")["services"]
    assert (service["runningCount"], service["taskDefinition"][-2:]) == (1, ":2")
    refused = aws("update-service", "--service", "cli", "--enable-execute-command", good=255)
    assert "(UnsupportedFeatureException)" in refused["said"] and "enableExecuteCommand" in refused["said"]

    aws("delete-service", "--service", "cli", "--force")
    ecs.get_waiter("services_inactive").wait(services=["cli"], WaiterConfig=QUICK)
    aws("wait", "services-inactive", "--services", "cli")


def test_task_sets(aws: Aws, ecs: Any, busybox_image: str) -> None:
    define(ecs, "sets", busybox_image)
    home = ("--cluster", "default", "--service", "sets")
    ecs.create_service(serviceName="sets", desiredCount=2, deploymentController={"type": "EXTERNAL"})
    one = aws("create-task-set", *home, "--task-definition", "sets", "--scale", "value=50,unit=PERCENT")["taskSet"]

    def steady(running: int) -> bool:
        (found,) = ecs.describe_task_sets(cluster="default", service="sets")["taskSets"]
        return (found["stabilityStatus"], found["runningCount"]) == ("STEADY_STATE", running)

    until(lambda: steady(1), "half of two tasks run")
    aws("update-task-set", *home, "--task-set", one["id"], "--scale", "value=100,unit=PERCENT")
    until(lambda: steady(2), "all of them run")
    aws("update-service-primary-task-set", *home, "--primary-task-set", one["taskSetArn"])
    (service,) = ecs.describe_services(services=["sets"])["services"]
    assert service["taskSets"][0]["status"] == "PRIMARY" and service["taskDefinition"] == one["taskDefinition"]
    aws("delete-task-set", *home, "--task-set", one["id"], "--force")
    until(lambda: not ecs.describe_task_sets(cluster="default", service="sets")["taskSets"], "the task set is gone")
    ecs.delete_service(service="sets", force=True)
    ecs.get_waiter("services_inactive").wait(services=["sets"], WaiterConfig=QUICK)
    assert ecs.list_tasks()["taskArns"] == []


def test_every_waiter_comes_to_an_end(ecs: Any, busybox_image: str) -> None:
    define(ecs, "waits", busybox_image)
    define(ecs, "fails", busybox_image, ["false"])
    good, bad = (ecs.run_task(taskDefinition=one)["tasks"][0]["taskArn"] for one in ("waits", "fails"))
    ecs.get_waiter("tasks_running").wait(tasks=[good], WaiterConfig=QUICK)
    ecs.get_waiter("tasks_stopped").wait(tasks=[bad], WaiterConfig=QUICK)
    with pytest.raises(WaiterError, match="STOPPED"):
        ecs.get_waiter("tasks_running").wait(tasks=[bad], WaiterConfig=QUICK)
    ecs.stop_task(task=good)
    ecs.get_waiter("tasks_stopped").wait(tasks=[good], WaiterConfig=QUICK)
    for name in ("services_stable", "services_inactive"):
        with pytest.raises(WaiterError, match="MISSING"):
            ecs.get_waiter(name).wait(services=["nobody"], WaiterConfig=QUICK)
    arn = "arn:aws:ecs:us-east-1:123456789012:daemon"
    for name, asked in (
        ("daemon_active", {"daemonArn": f"{arn}/default/x"}),
        ("daemon_deployment_successful", {"daemonDeploymentArns": [f"{arn}-deployment/default/x/y"]}),
        ("daemon_task_definition_active", {"daemonTaskDefinition": "x"}),
    ):
        with pytest.raises(WaiterError, match="UnsupportedFeature"):
            ecs.get_waiter(name).wait(**asked, WaiterConfig=QUICK)
