"""When what a task needs cannot be had: registries that are slow, wrong or cut off, a full disk, services away.

Each fault is made on real parts: a line that misbehaves before Debian's registry, an engine whose disk is a small file
system, an endpoint where nobody listens. Nothing is lost, doubled or left, and the reason says what it was.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine import PrivateEngine
from faultyline import FaultyLine
from images import build_busybox
from node import Node, free_port, until
from registry import Registry, make_image

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(180)]

Json = dict[str, Any]
WAIT = {"Delay": 0.1, "MaxAttempts": 1000}
DISK_MIB = 96
LARGE = 24 << 20
BUSYBOX = "sexton/busybox:latest"


class Site:
    """An engine whose disk is small and that tries a download once, a node that always pulls, a registry and a line."""

    def __init__(self, root: Path, registry: Registry) -> None:
        self.registry = registry
        self.engine = PrivateEngine(root / "engine", options=["--max-download-attempts=1"])
        disk = root / "engine" / "data"
        disk.mkdir(parents=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "sexton-tests", disk], check=True)
        self.line = FaultyLine(registry.port)
        self.away = free_port()
        self.node = Node(
            root / "node",
            self.engine.url,
            leave_nothing=True,
            environment={
                "ECS_IMAGE_PULL_BEHAVIOR": "always",
                "ECS_ENGINE_TASK_CLEANUP_WAIT_DURATION": "1s",
                "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.away}",
            },
        )
        self._number = 0

    def __enter__(self) -> Site:
        try:
            self.engine.start()
            build_busybox(self.engine.url)
            self.small = self.push(BUSYBOX, "faults/small:1")
            self.line.__enter__()
            self.node.start()
            self.ecs = self.node.ecs()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            assert self.node.terminate() == [0]
            assert self.node.containers() == []
            assert json.loads(self.engine.call("GET", "/volumes"))["Volumes"] in (None, [])
            assert "Traceback" not in self.node.control.log
        finally:
            self.close()

    def close(self) -> None:
        self.node.close()
        self.line.__exit__()
        self.engine.close()

    def push(self, image: str, name: str) -> str:
        """Move an image into the registry; its name at the far end of the line, where the engine has never been."""
        self.registry.push(self.engine, image, name)
        if image != BUSYBOX:
            self.engine.cli("rmi", image)
        return f"127.0.0.1:{self.line.port}/{name}"

    def run(self, image: str, *, command: list[str] | None = None, **container: Any) -> str:
        self._number += 1
        family = f"faults-{self._number}"
        self.ecs.register_task_definition(
            family=family,
            networkMode="none",
            containerDefinitions=[
                {"name": "main", "image": image, "memory": 32, "command": command or ["true"]} | container
            ],
        )
        return str(self.ecs.run_task(taskDefinition=family)["tasks"][0]["taskArn"])

    def stopped(self, task: str) -> Json:
        self.ecs.get_waiter("tasks_stopped").wait(tasks=[task], WaiterConfig=WAIT)
        found: Json = self.ecs.describe_tasks(tasks=[task])["tasks"][0]
        return found

    def ended_well(self, task: str) -> None:
        shown = self.stopped(task)
        assert shown["containers"][0].get("exitCode") == 0, shown

    def pulled(self, image: str) -> None:
        """Run a task whose image holds nothing that runs."""
        self.is_whole(self.run(image, command=["/content"]))

    def is_whole(self, task: str) -> None:
        """That the engine tried to start it says that its image came whole."""
        shown = self.stopped(task)
        assert shown["containers"][0]["reason"].startswith("CannotStartContainerError"), shown

    def said(self, words: str) -> bool:
        return words in self.node.control.log

    def wants(self, task: str) -> bool:
        return self.said(f"task={task} container=main was=NONE is=MANIFEST_PULLED")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, registry: Registry) -> Iterator[Site]:
    with Site(tmp_path_factory.mktemp("faults"), registry) as site:
        yield site


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ("401 Unauthorized", "unauthorized"),
        ("404 Not Found", "not found"),
        ("403 Forbidden", "denied"),
    ],
)
def test_a_registry_that_says_no_is_asked_once(site: Site, status: str, words: str) -> None:
    code = {"401": "UNAUTHORIZED", "403": "DENIED", "404": "MANIFEST_UNKNOWN"}[status[:3]]
    site.line.status(status, json.dumps({"errors": [{"code": code, "message": words}]}).encode())
    began, before = time.monotonic(), site.line.connections
    try:
        task = site.stopped(site.run(site.small))
    finally:
        site.line.mend()

    assert task["stopCode"] == "TaskFailedToStart"
    assert task["stoppedReason"].startswith("CannotPull")
    assert task["containers"][0]["reason"].startswith("CannotPull")
    assert site.line.connections - before < 12 and time.monotonic() - began < 20


def test_a_registry_that_is_broken_for_a_while_costs_no_task(site: Site) -> None:
    site.line.status("503 Service Unavailable")
    task = site.run(site.small)
    until(lambda: site.line.connections > 3, "the registry is asked again")
    site.line.mend()

    site.ended_well(task)


def test_an_image_that_is_cut_off_in_the_middle_comes_in_the_end(site: Site) -> None:
    image = site.push(make_image(site.engine, "sexton/cut:1", 2 << 20), "faults/cut:1")
    site.line.cut_after = 300_000
    task = site.run(image, command=["/content"])
    until(lambda: site.line.cuts >= 2, "the line was cut twice", 20)
    site.line.mend()
    site.is_whole(task)

    assert site.said('msg="pull failed"')


def test_a_slow_registry_holds_back_nobody_else(site: Site) -> None:
    image = site.push(make_image(site.engine, "sexton/slow:1", 4 << 20), "faults/slow:1")
    site.line.pause = 0.1
    slow = site.run(image, command=["/content"])
    until(lambda: site.said(f'msg="pull began" image={image.rpartition(":")[0]}@'), "the slow pull began", 60)
    before = time.monotonic()
    beside = site.registry.push(site.engine, BUSYBOX, "faults/beside:1")
    site.ended_well(site.run(beside))
    took = time.monotonic() - before
    until(lambda: site.said('msg="pull goes on"'), "it is said how far the slow one is", 60)
    assert site.ecs.describe_tasks(tasks=[slow])["tasks"][0]["lastStatus"] == "PENDING" and took < 20

    site.ecs.stop_task(task=slow, reason="too slow")
    shown = site.stopped(slow)
    site.line.mend()
    assert shown["stoppedReason"] == "too slow"


def test_many_tasks_make_one_pull(site: Site) -> None:
    image = site.push(BUSYBOX, "faults/many:1")
    site.line.pause = 1.0  # the pull lasts until all have asked for it
    tasks = [site.run(image) for _ in range(10)]
    until(lambda: all(site.wants(task) for task in tasks), "all want the image", 60)
    site.line.mend()
    for task in tasks:
        site.ended_well(task)

    repository = image.rpartition(":")[0]
    assert site.node.control.log.count(f'msg="pull began" image={repository}@') == 1


def test_services_that_are_away_end_the_task_by_name(site: Site) -> None:
    task = site.stopped(site.run(site.small, secrets=[{"name": "A", "valueFrom": "/p"}]))

    reason = task["stoppedReason"]
    assert reason.startswith(
        "Fetching secret data from SSM Parameter Store in us-east-1: cannot reach http://127.0.0.1:"
    )
    assert str(site.away) in reason and "Check endpoint and network" in reason


def test_a_full_disk_makes_room_of_what_nobody_uses(site: Site) -> None:
    old = site.push(make_image(site.engine, "sexton/old:1", LARGE), "faults/old:1")
    new = site.push(make_image(site.engine, "sexton/new:1", LARGE), "faults/new:1")
    site.pulled(old)
    until(lambda: not site.node.containers(), "the task is removed")
    data = site.engine.root / "data"
    filler = data / "filler"
    # What is left is too little for the new image with its download, and enough once the old one is gone.
    filler.write_bytes(b"x" * (_free(data) - LARGE))
    try:
        site.pulled(new)
    finally:
        filler.unlink()

    assert site.said("no space left on device") and site.said('msg="disk is short"')
    assert site.said(f'msg="image removed" image={old}')


def _free(path: Path) -> int:
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize
