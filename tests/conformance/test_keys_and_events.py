"""``sexton keys`` and ``sexton events`` as people type them, beside boto3, against a running node."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from node import Node, until

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with Node(tmp_path_factory.mktemp("keys"), "fake://") as running:
        yield running


def environment(node: Node, **more: str) -> dict[str, str]:
    kept = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    return kept | {"AWS_ENDPOINT_URL": node.endpoint, "ECS_DATADIR": f"{node.root}/control"} | more


def sexton(node: Node, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "sexton", *words],
        env=environment(node, **more),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def made(node: Node, *words: str) -> dict[str, str]:
    """The two lines that making a key prints, as an environment."""
    done = sexton(node, "keys", *words)
    assert done.returncode == 0, done.stderr
    return dict(line.split("=", 1) for line in done.stdout.splitlines())


def client(node: Node, key: dict[str, str]) -> object:
    return boto3.client(
        "ecs",
        endpoint_url=node.endpoint,
        region_name="us-east-1",
        aws_access_key_id=key["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=key["AWS_SECRET_ACCESS_KEY"],
        config=Config(retries={"total_max_attempts": 1}),
    )


def test_a_reader_made_on_the_command_line_reads_with_boto3_and_changes_nothing(node: Node) -> None:
    key = made(node, "create", "--role", "read", "--name", "dashboard")
    reader = client(node, key)

    assert reader.list_clusters()["clusterArns"]
    with pytest.raises(ClientError) as refused:
        reader.create_cluster(clusterName="more")
    assert refused.value.response["Error"]["Code"] == "AccessDeniedException"
    assert "the role read" in refused.value.response["Error"]["Message"]

    listed = sexton(node, "keys", "list")
    assert key["AWS_ACCESS_KEY_ID"] in listed.stdout
    assert "dashboard" in listed.stdout
    assert key["AWS_SECRET_ACCESS_KEY"] not in listed.stdout + node.control.log
    assert "AccessDeniedException" in sexton(node, "keys", "list", **key).stderr

    new = made(node, "rotate", key["AWS_ACCESS_KEY_ID"], "--grace", "0s")
    with pytest.raises(ClientError, match="UnrecognizedClientException"):
        reader.list_clusters()
    assert client(node, new).list_clusters()["clusterArns"]
    for word, works in (("disable", False), ("enable", True), ("delete", False)):
        done = sexton(node, "keys", word, new["AWS_ACCESS_KEY_ID"])
        assert (done.returncode, done.stdout.split()[1:]) == (0, ["is", f"{word}d"]), done.stderr
        if works:
            assert client(node, new).list_clusters()["clusterArns"]
        else:
            with pytest.raises(ClientError, match="UnrecognizedClientException"):
                client(node, new).list_clusters()


def test_the_agent_of_up_goes_on_when_the_control_planes_own_key_is_rotated(node: Node) -> None:
    before = node.credentials()

    new = made(node, "rotate", before["AWS_ACCESS_KEY_ID"], "--grace", "0s")

    until(lambda: node.credentials()["AWS_ACCESS_KEY_ID"] == new["AWS_ACCESS_KEY_ID"], "the keys file is renewed")
    ecs = node.ecs()
    container = {"name": "main", "image": "busybox", "memory": 16}
    ecs.register_task_definition(family="after", networkMode="none", containerDefinitions=[container])

    def run() -> list[dict[str, object]]:
        # Its connection ended with the old key, and it comes again with the new one.
        return list(ecs.run_task(taskDefinition="after")["tasks"])

    (task,) = until(run, "the agent to be connected with the new key")
    arn = str(task["taskArn"])
    until(
        lambda: ecs.describe_tasks(tasks=[arn])["tasks"][0]["lastStatus"] in ("RUNNING", "STOPPED"),
        "the agent reports with the new key",
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("create", "--role", "king"), "say one of admin, agent, read"),
        (("create",), "--role"),
        (("disable", "../clusters"), "give the id of an access key"),
        (("delete", "AKSXNOBODY"), "There is no key AKSXNOBODY"),
        (("rotate", "AKSXNOBODY", "--grace", "soon"), "must be a duration"),
    ],
)
def test_a_wrong_wish_is_told_with_what_to_do(node: Node, words: tuple[str, ...], said: str) -> None:
    done = sexton(node, "keys", *words)

    assert done.returncode != 0
    assert said in " ".join(done.stderr.split())


def test_events_are_shown_followed_and_resumed(node: Node) -> None:
    follower = subprocess.Popen(
        [sys.executable, "-m", "sexton", "events", "--follow", "--json"],
        env=environment(node),
        stdout=subprocess.PIPE,
        text=True,
    )
    lines: list[str] = []
    assert follower.stdout is not None
    reading = threading.Thread(target=lambda: lines.extend(iter(follower.stdout.readline, "")))  # type: ignore[union-attr]
    reading.start()
    try:
        ecs = node.ecs()
        container = {"name": "main", "image": "busybox", "memory": 16}
        ecs.register_task_definition(family="told", networkMode="none", containerDefinitions=[container])
        # The follower begins with what comes next, so tasks come until it has heard of one.
        until(lambda: ecs.run_task(taskDefinition="told")["tasks"] and lines, "the follower hears")
    finally:
        follower.terminate()
        reading.join()
        follower.wait()
        follower.stdout.close()
    first = json.loads(lines[0])
    assert first["event"]["source"] == "aws.ecs"

    everything = sexton(node, "events", "--since", "oldest", "--json").stdout.splitlines()
    behind = sexton(node, "events", "--after", json.loads(everything[2])["cursor"], "--json").stdout.splitlines()
    assert behind[: len(everything) - 3] == everything[3:]
    shown = sexton(node, "events", "--since", "10m", "--cluster", "default")
    assert "task " in shown.stdout
    assert "PENDING (wanted RUNNING)" in shown.stdout
    assert "must be a duration" in " ".join(sexton(node, "events", "--since", "x").stderr.split())
    refused = sexton(node, "events", "--after", "nonsense")
    assert (refused.returncode, "last event's id" in refused.stderr) == (1, True)
