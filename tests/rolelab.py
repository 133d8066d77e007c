"""Tasks with roles on a real engine: a control plane that containers reach, a roles file, and a Python with boto3.

Containers have no network but the engine's bridge, so the control plane listens on the bridge's own address, and tasks
find it by ``AWS_ENDPOINT_URL`` alone. No registry has an image with Python here: the host's own is mounted, read-only,
into a container that is otherwise made of busybox.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

import boto3

from engine import EngineFailed, PrivateEngine, engine_call
from images import build_busybox
from node import Node, until

ACCOUNT = "000000000000"
ROLE = f"arn:aws:iam::{ACCOUNT}:role/"
PYTHON = str(Path(sys.executable).resolve())
LIBRARIES = str(Path(boto3.__file__).parent.parent)
# What a Python of the host needs of it, whichever one it is.
HOST_PATHS = tuple(dict.fromkeys(("/usr", "/lib", "/lib64", sys.base_prefix, LIBRARIES)))

Json = dict[str, Any]


def statement(action: Any, resource: Any = "*", effect: str = "Allow", **more: Any) -> Json:
    return {"Effect": effect, "Action": action, "Resource": resource} | more


def write_roles(path: Path, roles: dict[str, list[Json]]) -> Path:
    """A roles file of local roles."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        "\n".join(
            f'[[role]]\narn = "{ROLE}{name}"\nsource = "local"\npolicy = \'\'\''
            + json.dumps({"Version": "2012-10-17", "Statement": statements})
            + "'''\n"
            for name, statements in roles.items()
        )
    )
    path.chmod(0o600)
    return path


def bridge_address(engine: PrivateEngine) -> str:
    """Where the host is, seen from the engine's containers."""
    network = json.loads(engine.call("GET", "/networks/bridge"))
    return str(network["IPAM"]["Config"][0]["Gateway"])


class RoleLab:
    """A node whose tasks have these roles, on an engine that may have others; a context manager."""

    def __init__(self, root: Path, engine: PrivateEngine, roles: dict[str, list[Json]], **environment: str) -> None:
        self.engine = engine
        self.image = build_busybox(engine.url)
        self.address = bridge_address(engine)
        self.roles_file = write_roles(root / "roles.toml", roles)
        self.node = Node(
            root,
            engine.url,
            split=True,
            leave_nothing=True,
            host=self.address,
            environment={
                "SEXTON_ROLES": str(self.roles_file),
                "SEXTON_TASK_ENDPOINT_PORT": "51679",  # another one where it is taken
                "SEXTON_ACCOUNT_ID": ACCOUNT,
            }
            | environment,
        )

    def __enter__(self) -> RoleLab:
        self.node.__enter__()
        self.ecs = self.node.ecs()
        return self

    def __exit__(self, *error: object) -> None:
        self.node.__exit__(*error)

    def define(self, family: str, *, container: Json | None = None, **fields: Any) -> str:
        """A definition with a container that waits to be told what to do, with Python and boto3 in it."""
        main = {
            "name": "main",
            "image": self.image,
            "memory": 128,
            "command": ["sleep", "1000000"],
            "environment": [
                {"name": "AWS_ENDPOINT_URL", "value": self.node.endpoint},
                {"name": "PYTHONPATH", "value": LIBRARIES},
                {"name": "PYTHONDONTWRITEBYTECODE", "value": "1"},
            ],
            "mountPoints": [
                {"sourceVolume": f"v{number}", "containerPath": path, "readOnly": True}
                for number, path in enumerate(HOST_PATHS)
            ],
        }
        answer = self.ecs.register_task_definition(
            family=family,
            containerDefinitions=[main | (container or {})],
            volumes=[{"name": f"v{number}", "host": {"sourcePath": path}} for number, path in enumerate(HOST_PATHS)],
            **fields,
        )
        return str(answer["taskDefinition"]["taskDefinitionArn"])

    def run(self, definition: str, **fields: Any) -> str:
        """Run one task of it, until it runs."""
        answer = self.ecs.run_task(taskDefinition=definition, **fields)
        assert answer["failures"] == [], answer["failures"]
        (task,) = answer["tasks"]
        arn = str(task["taskArn"])
        self.until(arn, "RUNNING")
        return arn

    def until(self, arn: str, status: str) -> Json:
        def look() -> Json | None:
            (task,) = self.ecs.describe_tasks(tasks=[arn])["tasks"]
            if task["lastStatus"] == "STOPPED" != status:
                raise AssertionError(f"the task stopped: {task.get('stoppedReason')} {task['containers']}")
            return dict(task) if task["lastStatus"] == status else None

        found: Json = until(look, f"{arn} is {status}")
        return found

    def container(self, arn: str) -> Json:
        """The engine's view of a task's only container."""
        filters = json.dumps({"label": [f"com.amazonaws.ecs.task-arn={arn}"]})
        (row,) = json.loads(engine_call(self.engine.url, "GET", f"/containers/json?all=1&filters={quote(filters)}"))
        found: Json = json.loads(engine_call(self.engine.url, "GET", f"/containers/{row['Id']}/json"))
        return found

    def environment(self, arn: str) -> dict[str, str]:
        return dict(line.split("=", 1) for line in self.container(arn)["Config"]["Env"])

    def shell(self, arn: str, command: str) -> str:
        """What a command in the task printed, both streams together; its failure is part of the answer."""
        try:
            return self.engine.cli("exec", self.container(arn)["Id"], "sh", "-c", f"{command} 2>&1; true")
        except EngineFailed as error:
            return str(error)

    def python(self, arn: str, program: str) -> str:
        """What a Python program in the task printed."""
        return self.engine.cli("exec", self.container(arn)["Id"], PYTHON, "-c", program)

    def fetch(self, arn: str, path: str, host: str = "169.254.170.2") -> str:
        """A GET from inside the task, as one line of status and the body; the failure's words when there is none."""
        return self.python(arn, FETCH.format(host=host, path=path)).strip()


FETCH = """
import http.client
try:
    line = http.client.HTTPConnection("{host}", timeout=3)
    line.request("GET", "{path}")
    answer = line.getresponse()
    print(answer.status, answer.read().decode())
except Exception as error:
    print("failed", type(error).__name__, error)
"""
