"""Terraform's AWS provider, unmodified, against a host with a real container engine: apply, change, plan, destroy.

The provider comes from wherever ``terraform init`` finds it; without a network, from a directory of plugins that
``SEXTON_TF_PLUGINS`` names or that is in one of the usual places.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from images import IMAGE
from nethosts import Lab
from node import until

CONFIGURATION = Path(__file__).parent.parent / "data" / "terraform"
PLUGINS = ("/opt/tf-plugins", "/usr/local/share/terraform/plugins", "/usr/share/terraform/plugins")
SECONDS = 240.0
"""Of one command: the provider alone needs ten, and it asks every ten seconds."""

pytestmark = [
    pytest.mark.docker,
    pytest.mark.timeout(600),
    pytest.mark.skipif(shutil.which("terraform") is None, reason="there is no terraform on this machine"),
]


class Terraform:
    """The configuration in a directory of its own, and the command."""

    def __init__(self, root: Path, lab: Lab) -> None:
        self._root = root
        shutil.copytree(CONFIGURATION, root)
        self._environment = lab.credentials() | {
            "PATH": os.environ["PATH"],
            "HOME": str(root),
            "CHECKPOINT_DISABLE": "1",
            "TF_IN_AUTOMATION": "1",
            "TF_VAR_endpoint": lab.endpoint,
            "TF_VAR_image": IMAGE,
        }
        plugins = [one for one in (os.environ.get("SEXTON_TF_PLUGINS"), *PLUGINS) if one and Path(one).is_dir()]
        config = os.environ.get("TF_CLI_CONFIG_FILE", "")
        if Path(config).is_file():
            self._environment["TF_CLI_CONFIG_FILE"] = config
            plugins = []
        self.run("init", *(f"-plugin-dir={one}" for one in plugins[:1]))

    def run(self, *words: str, good: tuple[int, ...] = (0,), **variables: object) -> str:
        """What the command printed; it must end with one of the good codes."""
        given = {f"TF_VAR_{name}": str(value) for name, value in variables.items()}
        try:
            done = subprocess.run(
                ["terraform", words[0], "-no-color", "-input=false", *words[1:]],
                cwd=self._root,
                env=self._environment | given,
                capture_output=True,
                text=True,
                timeout=SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise AssertionError(f"terraform {words[0]} takes too long:\n{(error.stdout or b'').decode()}") from None
        assert done.returncode in good, f"terraform {' '.join(words)}:\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def resources(self) -> list[str]:
        state = json.loads((self._root / "terraform.tfstate").read_text())
        return [f"{one['type']}.{one['name']}" for one in state["resources"] if one["mode"] == "managed"]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A host in namespaces, so that its tasks' own networks are not this machine's."""
    with Lab(tmp_path_factory.mktemp("terraform"), 1, {"SEXTON_SERVICE_SETTLE": "0.2s"}) as running:
        yield running


def test_apply_change_plan_destroy(lab: Lab, tmp_path: Path) -> None:
    terraform = Terraform(tmp_path / "configuration", lab)
    ecs, ec2 = lab.client("ecs"), lab.client("ec2")

    first = {"copies": 2, "message": "one", "team": "a", "insights": "enabled", "share": 100} | network(80, 1)
    terraform.run("apply", "-auto-approve", **first)
    assert running(ecs, "tf-web") == 2
    assert running(ecs, "tf-each") == 1

    # Another definition, another count, other tags and settings: a roll, a scaling, and updates in place.
    second = {"copies": 3, "message": "two", "team": "b", "insights": "disabled", "share": 50} | network(8080, 2)
    terraform.run("apply", "-auto-approve", **second)
    service = ecs.describe_services(services=["tf-web"], include=["TAGS"])["services"][0]
    assert (service["runningCount"], len(service["deployments"])) == (3, 1)
    assert {"key": "team", "value": "b"} in service["tags"]
    definition = ecs.describe_task_definition(taskDefinition=service["taskDefinition"])["taskDefinition"]
    assert definition["containerDefinitions"][0]["environment"] == [{"name": "MESSAGE", "value": "two"}]
    task = ecs.list_tasks(serviceName="tf-web")["taskArns"][0]
    tags = {one["key"]: one["value"] for one in ecs.list_tags_for_resource(resourceArn=task)["tags"]}
    assert tags.items() >= {"team": "b", "aws:ecs:serviceName": "tf-web"}.items()

    assert running(ecs, "tf-vpc") == 2
    addresses = {one["PrivateIpAddress"] for one in ec2.describe_network_interfaces()["NetworkInterfaces"]}
    assert len(addresses) == 2 and all(one.startswith("10.40.1.") for one in addresses)
    (group,) = ec2.describe_security_groups(Filters=[{"Name": "group-name", "Values": ["web"]}])["SecurityGroups"]
    allowed = {(one["IpProtocol"], one["FromPort"]) for one in group["IpPermissions"]}
    assert allowed == {("tcp", 8080), ("icmpv6", -1)}
    before = ec2.describe_vpcs(Filters=[{"Name": "is-default", "Values": ["true"]}])["Vpcs"]

    # 2 would mean that something is to be changed.
    assert "No changes." in terraform.run("plan", "-detailed-exitcode", **second)

    terraform.run("destroy", "-auto-approve", **second)
    assert terraform.resources() == []
    assert ecs.list_services()["serviceArns"] == []
    assert [one.rpartition("/")[2] for one in ecs.list_clusters()["clusterArns"]] == ["default"]
    assert ecs.list_task_definitions()["taskDefinitionArns"] == []
    named = ecs.describe_capacity_providers()["capacityProviders"]
    assert {one["name"] for one in named if one["status"] == "ACTIVE"} == {"FARGATE", "FARGATE_SPOT"}
    assert ec2.describe_vpcs()["Vpcs"] == before
    assert {one["VpcId"] for one in ec2.describe_subnets()["Subnets"]} == {before[0]["VpcId"]}
    assert [one["GroupName"] for one in ec2.describe_security_groups()["SecurityGroups"]] == ["default"]
    assert ec2.describe_network_interfaces()["NetworkInterfaces"] == []
    until(lambda: not ecs.list_tasks()["taskArns"], "no task is left")


def network(port: int, copies: int) -> dict[str, object]:
    return {"port": port, "vpc_copies": copies}


def running(ecs: Any, name: str) -> int:
    return int(ecs.describe_services(services=[name])["services"][0]["runningCount"])
