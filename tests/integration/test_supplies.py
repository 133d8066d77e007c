"""What tasks are given from elsewhere, on real parts: moto's services, registries, an engine's volumes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cloudparts import Moto
from engine import EngineFailed, PrivateEngine
from node import Node, until
from registry import PASSWORD, USER, Registry
from sexton.core.volumes import Where, mountable
from sexton.wire import acs_task

pytestmark = [pytest.mark.docker, pytest.mark.timeout(120)]

Json = dict[str, Any]
WAIT = {"Delay": 0.1, "MaxAttempts": 400}
SECRET = "hunter2"  # in every value of these tests, so that one search finds them all


@pytest.fixture(scope="module")
def node(
    engine_session: PrivateEngine, busybox_image: str, moto: Moto, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Node]:
    settings = {
        **moto.environment(),
        "ECS_IMAGE_PULL_BEHAVIOR": "default",
        "ECS_ENGINE_TASK_CLEANUP_WAIT_DURATION": "1s",
        "ECS_LOGLEVEL": "debug",
    }
    root = tmp_path_factory.mktemp("supplies")
    with Node(root, engine_session.url, leave_nothing=True, environment=settings) as node:
        yield node
        assert node.terminate() == [0]
        assert node.containers() == []
        assert "Traceback" not in node.control.log
        assert SECRET not in node.control.log
        for path in root.rglob("*"):
            if path.is_file():
                assert SECRET.encode() not in path.read_bytes(), path


class Tasks:
    """Registers definitions, runs them, waits for their ends."""

    def __init__(self, node: Node, image: str) -> None:
        self._ecs = node.ecs()
        self._image = image
        self._number = 0

    def run(self, *containers: Json, **more: Any) -> str:
        self._number += 1
        defaults = {"name": "main", "image": self._image, "memory": 32, "cpu": 16}
        family = f"supplies-{self._number}"
        self._ecs.register_task_definition(
            family=family, networkMode="none", containerDefinitions=[defaults | one for one in containers], **more
        )
        answer = self._ecs.run_task(taskDefinition=family)
        assert answer["failures"] == []
        return str(answer["tasks"][0]["taskArn"])

    def stopped(self, task: str) -> Json:
        self._ecs.get_waiter("tasks_stopped").wait(tasks=[task], WaiterConfig=WAIT)
        found: Json = self._ecs.describe_tasks(tasks=[task])["tasks"][0]
        return found

    def close(self) -> None:
        self._ecs.close()


@pytest.fixture(scope="module")
def tasks(node: Node, engine_session: PrivateEngine, busybox_image: str, registry: Registry) -> Iterator[Tasks]:
    image = registry.push(engine_session, busybox_image, "supplies/busybox:1")
    tasks = Tasks(node, image)
    yield tasks
    tasks.close()


def code(task: Json) -> Any:
    return task["containers"][0].get("exitCode"), task["containers"][0].get("reason", ""), task.get("stoppedReason")


def test_values_reach_the_program(tasks: Tasks, moto: Moto) -> None:
    moto.client("ssm").put_parameter(Name="/supplies/p", Value=f"{SECRET}-p", Type="SecureString")
    asm = moto.client("secretsmanager")
    arn = asm.create_secret(Name="supplies/db", SecretString=json.dumps({"user": f"{SECRET}-u"}))["ARN"]
    old = asm.describe_secret(SecretId=arn)
    asm.put_secret_value(SecretId=arn, SecretString=json.dumps({"user": f"{SECRET}-new"}))
    assert old["ARN"] == arn
    s3 = moto.client("s3")
    s3.create_bucket(Bucket="supplies")
    s3.put_object(Bucket="supplies", Key="app.env", Body=f"# x\nFILE={SECRET} f\nOWN=file\n".encode())
    script = (
        f'[ "$P" = {SECRET}-p ] && [ "$U" = {SECRET}-new ] && [ "$OLD" = {SECRET}-u ] && '
        f'[ "$FILE" = "{SECRET} f" ] && [ "$OWN" = own ] && [ "$AWS_REGION" = us-east-1 ]'
    ).replace(SECRET, '"$A"2')  # the definition is written down, so it does not hold the word
    container = {
        "command": ["sh", "-c", script],
        "environment": [{"name": "OWN", "value": "own"}, {"name": "A", "value": "hunter"}],
        "secrets": [
            {"name": "P", "valueFrom": "/supplies/p"},
            {"name": "U", "valueFrom": f"{arn}:user::"},
            {"name": "OLD", "valueFrom": f"{arn}:user:AWSPREVIOUS:"},
        ],
        "environmentFiles": [{"type": "s3", "value": "arn:aws:s3:::supplies/app.env"}],
    }

    assert code(tasks.stopped(tasks.run(container)))[0] == 0


def test_what_is_missing_is_named_in_the_api(tasks: Tasks) -> None:
    missing = "arn:aws:secretsmanager:us-east-1:123456789012:secret:none-AbCdEf"
    task = tasks.stopped(
        tasks.run(
            {
                "secrets": [
                    {"name": "A", "valueFrom": "/supplies/none"},
                    {"name": "B", "valueFrom": missing},
                ]
            }
        )
    )

    reason = task["stoppedReason"]
    assert "Fetching secret data from SSM Parameter Store in us-east-1: invalid parameters: /supplies/none" in reason
    assert f"The task can't retrieve the secret with ARN '{missing}'" in reason
    assert task["stopCode"] == "TaskFailedToStart"


def test_an_image_behind_a_password(
    tasks: Tasks, moto: Moto, locked_registry: Registry, engine_session: PrivateEngine, busybox_image: str
) -> None:
    ref = locked_registry.push(engine_session, busybox_image, "supplies/app:1")
    login = json.dumps({"username": USER, "password": PASSWORD})
    arn = moto.client("secretsmanager").create_secret(Name="supplies/login", SecretString=login)["ARN"]
    container = {"image": ref, "command": ["true"], "repositoryCredentials": {"credentialsParameter": arn}}

    task = tasks.stopped(tasks.run(container))
    assert code(task)[0] == 0, code(task)
    digests = json.loads(engine_session.call("GET", f"/images/{ref}/json"))["RepoDigests"]
    assert f"{ref.rpartition(':')[0]}@{task['containers'][0]['imageDigest']}" in digests

    engine_session.cli("rmi", ref)
    refused = tasks.stopped(tasks.run({"image": ref, "command": ["true"]}))
    assert refused["containers"][0]["reason"].startswith("CannotPullImageManifestError: ")
    assert "no basic auth credentials" in refused["containers"][0]["reason"]


def volumes(engine: PrivateEngine) -> set[str]:
    return {one["Name"] for one in json.loads(engine.call("GET", "/volumes"))["Volumes"] or ()}


def test_volumes_live_as_long_as_they_should(tasks: Tasks, engine_session: PrivateEngine, tmp_path: Path) -> None:
    before = volumes(engine_session)
    mounts = [
        {"sourceVolume": "own", "containerPath": "/own"},
        {"sourceVolume": "shared-data", "containerPath": "/shared"},
        {"sourceVolume": "host", "containerPath": "/host", "readOnly": True},
    ]
    (tmp_path / "in").write_text("from the host")
    script = "echo $N >> /shared/x && echo 1 > /own/x && grep host /host/in && ! touch /host/y && wc -l < /shared/x"
    shared = {"scope": "shared", "autoprovision": True, "driver": "local", "labels": {"of": "supplies"}}
    given = [
        {"name": "own"},
        {"name": "shared-data", "dockerVolumeConfiguration": shared},
        {"name": "host", "host": {"sourcePath": str(tmp_path)}},
    ]
    try:
        for _ in range(2):
            task = tasks.stopped(tasks.run({"command": ["sh", "-c", script], "mountPoints": mounts}, volumes=given))
            assert code(task)[0] == 0, code(task)
        until(lambda: volumes(engine_session) - before == {"shared-data"}, "only the shared volume is left")
        assert json.loads(engine_session.call("GET", "/volumes/shared-data"))["Labels"] == {"of": "supplies"}
    finally:
        until(lambda: _gone(engine_session, "shared-data"), "the shared volume can be removed")
    alone = {"scope": "shared", "autoprovision": False}
    task = tasks.stopped(
        tasks.run(
            {"mountPoints": [{"sourceVolume": "nobody-s", "containerPath": "/x"}]},
            volumes=[{"name": "nobody-s", "dockerVolumeConfiguration": alone}],
        )
    )
    assert task["stoppedReason"].startswith("CannotInspectVolumeError: ")


def _gone(engine: PrivateEngine, name: str) -> bool:
    try:
        engine.call("DELETE", f"/volumes/{name}")
    except EngineFailed as error:
        return "no such volume" in str(error)
    return True


def test_an_engine_takes_the_options_of_a_network_file_system(engine_session: PrivateEngine) -> None:
    volume = acs_task.Volume(
        name="efs",
        type="efs",
        efs_volume_configuration=acs_task.EFSVolumeConfiguration(file_system_id="fs-1", root_directory="/app"),
    )
    task = acs_task.Task(arn="arn:aws:ecs:us-east-1:1:task/c/" + "1" * 32, family="f", version="1", volumes=(volume,))
    made = mountable(task, volume, Where(region="eu-west-1"))
    body = {"Name": made.name, "Driver": made.driver, "DriverOpts": made.options}
    engine_session.call("POST", "/volumes/create", body)
    try:
        found = json.loads(engine_session.call("GET", f"/volumes/{made.name}"))
        assert found["Driver"] == "local"
        assert found["Options"] == {
            "type": "nfs",
            "device": ":/app",
            "o": "addr=fs-1.efs.eu-west-1.amazonaws.com,nfsvers=4.1,rsize=1048576,wsize=1048576,hard,timeo=600,"
            "retrans=2,noresvport",
        }
    finally:
        engine_session.call("DELETE", f"/volumes/{made.name}")
