"""Services as boto3 drives them, against a real node on a real container engine: from the first task to the last."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from typing import Any

import pytest

from engine import EngineFailed, PrivateEngine, engine_call
from node import Node, until

pytestmark = [pytest.mark.docker, pytest.mark.timeout(120)]

QUICK = {"Delay": 1, "MaxAttempts": 60}
SETTLE = 2.0
RECOVERY = 10.0
"""Within this time what was killed is replaced and has settled, on a loaded machine as well."""
STAY = "trap 'exit 0' TERM; while :; do sleep 0.1; done"


@pytest.fixture(scope="module")
def node(engine_session: PrivateEngine, busybox_image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    quick = {"SEXTON_SERVICE_SETTLE": f"{SETTLE}s"}
    with Node(tmp_path_factory.mktemp("services"), engine_session.url, environment=quick) as running:
        yield running


@pytest.fixture
def ecs(node: Node) -> Iterator[Any]:
    """A client; whatever services a test leaves are gone after it."""
    client = node.ecs()
    yield client
    left = [arn.rpartition("/")[2] for arn in client.list_services()["serviceArns"]]
    for name in left:
        client.delete_service(service=name, force=True)
    if left:
        client.get_waiter("services_inactive").wait(services=left, WaiterConfig=QUICK)


def define(ecs: Any, family: str, image: str, script: str = STAY) -> str:
    answer = ecs.register_task_definition(
        family=family,
        networkMode="none",
        containerDefinitions=[{"name": "main", "image": image, "memory": 16, "command": ["sh", "-c", script]}],
    )
    return str(answer["taskDefinition"]["taskDefinitionArn"])


def service(ecs: Any, name: str) -> dict[str, Any]:
    found: dict[str, Any] = ecs.describe_services(services=[name])["services"][0]
    return found


def tasks(ecs: Any, name: str) -> list[dict[str, Any]]:
    arns = ecs.list_tasks(serviceName=name)["taskArns"]
    found: list[dict[str, Any]] = ecs.describe_tasks(tasks=arns)["tasks"] if arns else []
    return found


def messages(ecs: Any, name: str) -> list[str]:
    return [one["message"] for one in service(ecs, name)["events"]]


def stable(ecs: Any, name: str) -> dict[str, Any]:
    ecs.get_waiter("services_stable").wait(services=[name], WaiterConfig=QUICK)
    return service(ecs, name)


def watch(look: Callable[[], bool], seconds: float = 60.0) -> None:
    """Call it again and again until it is content."""
    deadline = time.monotonic() + seconds
    while not look():
        assert time.monotonic() < deadline, "it never came to an end"


def test_a_service_is_kept_up_scaled_and_deleted(node: Node, ecs: Any, busybox_image: str) -> None:
    define(ecs, "kept", busybox_image)
    created = ecs.create_service(serviceName="kept", taskDefinition="kept", desiredCount=3)["service"]
    assert (created["status"], created["desiredCount"], created["schedulingStrategy"]) == ("ACTIVE", 3, "REPLICA")
    assert stable(ecs, "kept")["runningCount"] == 3
    until(
        lambda: any("has reached a steady state." in one for one in messages(ecs, "kept")), "the steady state is said"
    )

    victim = tasks(ecs, "kept")[0]
    container = victim["containers"][0]["runtimeId"]
    engine_call(node.engine_url, "POST", f"/containers/{container}/kill")
    until(
        lambda: (
            (now := [one for one in tasks(ecs, "kept") if one["lastStatus"] == "RUNNING"])
            and len(now) == 3
            and victim["taskArn"] not in {one["taskArn"] for one in now}
        ),
        "the killed container's task is replaced",
    )

    ecs.update_service(service="kept", desiredCount=5)
    assert stable(ecs, "kept")["runningCount"] == 5
    ecs.update_service(service="kept", desiredCount=1)
    assert stable(ecs, "kept")["runningCount"] == 1

    ecs.delete_service(service="kept", force=True)
    ecs.get_waiter("services_inactive").wait(services=["kept"], WaiterConfig=QUICK)
    assert tasks(ecs, "kept") == []
    assert ecs.list_services()["serviceArns"] == []


def test_a_new_revision_comes_within_the_bounds(ecs: Any, busybox_image: str) -> None:
    define(ecs, "rolled", busybox_image)
    bounds = {"minimumHealthyPercent": 75, "maximumPercent": 150}
    ecs.create_service(serviceName="rolled", taskDefinition="rolled", desiredCount=4, deploymentConfiguration=bounds)
    stable(ecs, "rolled")
    until(lambda: service(ecs, "rolled")["deployments"][0]["rolloutState"] == "COMPLETED", "the first comes to its end")
    second = define(ecs, "rolled", busybox_image)
    ecs.update_service(service="rolled", taskDefinition="rolled")

    seen: list[tuple[int, int]] = []

    def over() -> bool:
        found = service(ecs, "rolled")
        seen.append((found["runningCount"], found["runningCount"] + found["pendingCount"]))
        return [one["rolloutState"] for one in found["deployments"]] == ["COMPLETED"]

    watch(over)
    assert {one["taskDefinitionArn"] for one in tasks(ecs, "rolled")} == {second}
    assert min(running for running, _ in seen) >= 3
    assert max(live for _, live in seen) <= 6
    newest = ecs.list_service_deployments(service="rolled")["serviceDeployments"][0]
    assert newest["status"] == "SUCCESSFUL"


def test_a_revision_that_fails_gives_way_to_the_one_before(ecs: Any, busybox_image: str) -> None:
    good = define(ecs, "sound", busybox_image)
    breaker = {"deploymentCircuitBreaker": {"enable": True, "rollback": True}}
    ecs.create_service(serviceName="risky", taskDefinition="sound", desiredCount=3, deploymentConfiguration=breaker)
    stable(ecs, "risky")
    until(lambda: service(ecs, "risky")["deployments"][0]["rolloutState"] == "COMPLETED", "the first comes to its end")
    bad = define(ecs, "unsound", busybox_image, "exit 7")
    ecs.update_service(service="risky", taskDefinition=bad)
    served: list[int] = []

    def back() -> bool:
        found = service(ecs, "risky")
        served.append(sum(one["runningCount"] for one in found["deployments"] if one["taskDefinition"] == good))
        return found["taskDefinition"] == good and found["deployments"][0]["rolloutState"] == "COMPLETED"

    watch(back)
    assert min(served) == 3, "what serves is left alone"
    assert any("rolling back to deployment" in one for one in messages(ecs, "risky"))
    newest = ecs.list_service_deployments(service="risky")["serviceDeployments"][0]
    assert newest["status"] == "ROLLBACK_SUCCESSFUL"


def test_a_service_outlives_a_killed_control_plane(node: Node, ecs: Any, busybox_image: str) -> None:
    define(ecs, "lasting", busybox_image)
    ecs.create_service(serviceName="lasting", taskDefinition="lasting", desiredCount=2)
    stable(ecs, "lasting")
    before = {one["taskArn"] for one in tasks(ecs, "lasting")}
    ecs.update_service(service="lasting", desiredCount=3)
    node.kill()
    node.start()

    assert stable(ecs, "lasting")["runningCount"] == 3
    assert before <= {one["taskArn"] for one in tasks(ecs, "lasting")}


# One in three ends before it counts as healthy; the others stay.
FLAKY = f"case $(head -c 1 /proc/sys/kernel/random/uuid) in [0-4]) exit 7;; esac; {STAY}"
TEN = {"minimumHealthyPercent": 80, "maximumPercent": 130}
ROLLS = 10 if os.environ.get("SEXTON_SOAK") == "1" else 1


@pytest.mark.timeout(600)
def test_ten_tasks_keep_their_bounds_whatever_fails(node: Node, ecs: Any, busybox_image: str) -> None:
    """A service of ten tasks: revisions whose tasks fail now and then, containers killed meanwhile, and one revision
    that cannot work. Never fewer than eight run but for what was killed, never more than thirteen are there, every
    roll comes to its end, and what cannot work is given up."""
    random = Random(7)
    good = define(ecs, "ten", busybox_image)
    ecs.create_service(serviceName="ten", taskDefinition="ten", desiredCount=10, deploymentConfiguration=TEN)
    assert stable(ecs, "ten")["runningCount"] == 10
    for _ in range(ROLLS):
        good = define(ecs, "ten", busybox_image, FLAKY)
        ecs.update_service(service="ten", taskDefinition=good)
        killed: list[float] = []
        done = partial(_rolled, node, ecs, good, random, killed)
        watch(done, 120.0)
        assert killed, "some containers were killed on the way"
        now = tasks(ecs, "ten")
        assert len(now) == 10 and {one["taskDefinitionArn"] for one in now} == {good}
        until(lambda: "has reached a steady state." in messages(ecs, "ten")[0], "a steady state is said last")

    breaker = TEN | {"deploymentCircuitBreaker": {"enable": True, "rollback": True}}
    bad = define(ecs, "ten-bad", busybox_image, "exit 7")
    ecs.update_service(service="ten", taskDefinition=bad, deploymentConfiguration=breaker)
    watch(partial(_rolled, node, ecs, good, None, []), 120.0)
    newest = ecs.list_service_deployments(service="ten")["serviceDeployments"][0]
    assert newest["status"] == "ROLLBACK_SUCCESSFUL"
    assert {one["taskDefinitionArn"] for one in tasks(ecs, "ten")} == {good}


def _rolled(node: Node, ecs: Any, revision: str, random: Random | None, killed: list[float]) -> bool:
    """Whether the service has come to this revision; looks at its bounds, and kills a container now and then."""
    found = service(ecs, "ten")
    deployments = found["deployments"]
    running = sum(one["runningCount"] for one in deployments)
    assert running + found["pendingCount"] <= 13
    # A kill takes one away that the scheduler then has to bring back: for a moment that is nobody's fault.
    recently = sum(time.monotonic() - at < RECOVERY for at in killed)
    assert running >= 8 - recently, (running, killed)
    live = [one for one in tasks(ecs, "ten") if one["lastStatus"] == "RUNNING"]
    if random is not None and len(killed) < 3 and len(deployments) > 1 and live and not recently:
        container = random.choice(live)["containers"][0]["runtimeId"]
        with contextlib.suppress(EngineFailed):  # it has just ended by itself
            engine_call(node.engine_url, "POST", f"/containers/{container}/kill")
            killed.append(time.monotonic())
    return found["taskDefinition"] == revision and [one["rolloutState"] for one in deployments] == ["COMPLETED"]


@pytest.mark.timeout(240)
def test_a_task_counts_by_its_health_check_and_is_replaced_by_it(ecs: Any, busybox_image: str) -> None:
    """The agent tells every twenty seconds how its containers are."""
    # Healthy until somebody takes the file away: here it does so itself, in the first task alone.
    script = f"touch /tmp/well; [ -e /host/spoilt ] || (touch /host/spoilt; sleep 30; rm /tmp/well) & {STAY}"
    ecs.register_task_definition(
        family="checked",
        networkMode="none",
        volumes=[{"name": "host", "dockerVolumeConfiguration": {"scope": "shared", "autoprovision": True}}],
        containerDefinitions=[
            {
                "name": "main",
                "image": busybox_image,
                "memory": 16,
                "command": ["sh", "-c", script],
                "mountPoints": [{"sourceVolume": "host", "containerPath": "/host"}],
                "healthCheck": {"command": ["CMD", "test", "-e", "/tmp/well"], "interval": 5, "retries": 1},
            }
        ],
    )
    ecs.create_service(serviceName="checked", taskDefinition="checked", desiredCount=1)
    (first,) = stable(ecs, "checked") and tasks(ecs, "checked")
    until(lambda: service(ecs, "checked")["deployments"][0]["rolloutState"] == "COMPLETED", "it is healthy", 60)
    assert tasks(ecs, "checked")[0]["healthStatus"] == "HEALTHY"
    unhealthy = f"(task {first['taskArn'].rpartition('/')[2]}) failed container health checks."
    until(lambda: any(unhealthy in one for one in messages(ecs, "checked")), "it falls sick", 90)
    until(lambda: first["taskArn"] not in ecs.list_tasks(serviceName="checked")["taskArns"], "it is replaced", 90)
