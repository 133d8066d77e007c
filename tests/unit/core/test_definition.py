"""Which task definitions make sense, in ECS's own words, and the form in which they are shown back."""

from __future__ import annotations

import msgspec
import pytest

from sexton.core import definition
from sexton.wire import ecs


def request(*containers, **fields):
    """A good request, with containers given by what is different about them."""
    made = [{"name": "app", "image": "busybox", "memory": 64} | one for one in containers or ({},)]
    body = {"family": "web", "containerDefinitions": made} | fields
    return msgspec.convert(body, ecs.RegisterTaskDefinitionRequest)


def port(**fields):
    return {"portMappings": [fields]}


@pytest.mark.parametrize(
    "good",
    [
        request(),
        request({"name": "a"}, {"name": "b", "essential": False}),
        request({"memory": None, "memoryReservation": 32}),
        request({"memory": None}, memory="512"),
        request(cpu=".5 vCPU", memory="1 GB"),
        request(port(containerPort=80, hostPort=8080), networkMode="bridge"),
        request(port(containerPort=80, hostPort=80), networkMode="host"),
        request(port(containerPortRange="80-90")),
        request(
            {"mountPoints": [{"sourceVolume": "v", "containerPath": "/v"}]},
            volumes=[{"name": "v", "host": {"sourcePath": "/srv"}}],
        ),
        request(
            {"name": "a", "dependsOn": [{"containerName": "b", "condition": "START"}]},
            {"name": "b"},
        ),
        request(family="A_b-3"),
    ],
)
def test_definitions_that_make_sense(good):
    assert definition.check(good) is None


@pytest.mark.parametrize(
    "bad, problem",
    [
        (request(family=""), "Invalid family name"),
        (request(family="a b"), "Invalid family name"),
        (request(family="a\n"), "Invalid family name"),
        (request(family="x" * 256), "Invalid family name"),
        (request(containerDefinitions=[]), "Container list cannot be empty"),
        (request(networkMode="nat"), "Invalid network mode nat"),
        (request(cpu="lots"), "Invalid 'cpu' setting for task: lots"),
        (request(cpu="2 GB"), "Invalid 'cpu' setting for task: 2 GB"),
        (request(cpu="0"), "Invalid 'cpu' setting"),
        (request(memory="inf GB"), "Invalid 'memory' setting"),
        (request(memory="1 vCPU"), "Invalid 'memory' setting"),
        (request({"name": ""}), "Container.name should not be null or empty"),
        (request({"name": "a/b"}), "Invalid container name 'a/b'"),
        (request({"image": ""}), "Container.image should not be null or empty"),
        (request({"memory": None}), "At least one of 'memory' or 'memoryReservation'"),
        (request({"memory": 5}), "Memory must be at least 6 MiB"),
        (request({"memoryReservation": 5}), "Memory must be at least 6 MiB"),
        (request({"memoryReservation": 65}), "'memoryReservation' must be less than 'memory'"),
        (request({"cpu": -1}), "Invalid 'cpu' setting for container 'app'"),
        (request({"memory": 64}, memory="63"), "'memory' must not exceed the task's memory"),
        (request({}, {}), "Container name 'app' is used more than once"),
        (request({"essential": False}), "at least one essential container"),
        (request(volumes=[{"name": "v"}, {"name": "v"}]), "Volume names must be unique"),
        (request({"mountPoints": [{"sourceVolume": "v", "containerPath": "/v"}]}), "Unknown volume 'v'"),
        (request({"mountPoints": [{"sourceVolume": "v"}]}, volumes=[{"name": "v"}]), "Invalid 'containerPath'"),
        (request({"volumesFrom": [{"sourceContainer": "x"}]}), "Unknown container 'x' in volumesFrom"),
        (request({"volumesFrom": [{"sourceContainer": "app"}]}), "Unknown container 'app' in volumesFrom"),
        (request({"dependsOn": [{"containerName": "x", "condition": "START"}]}), "Unknown container 'x' in dependsOn"),
        (request({"dependsOn": [{"containerName": "app", "condition": "START"}]}), "Unknown container 'app'"),
        (
            request(
                {"name": "a", "dependsOn": [{"containerName": "b", "condition": "START"}]},
                {"name": "b", "dependsOn": [{"containerName": "a", "condition": "START"}]},
                {"name": "c"},
            ),
            "Containers wait for each other in a circle: a, b.",
        ),
        (request(port(hostPort=80)), "Invalid 'containerPort' setting"),
        (request(port(containerPort=65536)), "Invalid port 65536"),
        (request(port(containerPort=80, hostPort=-1)), "Invalid port -1"),
        (request(port(containerPort=80, protocol="sctp")), "Invalid 'protocol' setting"),
        (request(port(containerPort=80, hostPort=81), networkMode="host"), "must match"),
    ],
)
def test_the_first_problem_is_said(bad, problem):
    assert problem in (definition.check(bad) or "")


def test_defaults_are_shown_back():
    shown = definition.normalise(request(port(containerPort=80)).container_definitions[0])

    assert (shown.cpu, shown.essential) == (0, True)
    assert shown.port_mappings == (ecs.PortMapping(container_port=80, host_port=0, protocol="tcp"),)
    assert (shown.environment, shown.mount_points, shown.volumes_from) == ((), (), ())
    assert definition.normalise(shown) == shown


def test_a_range_of_ports_gets_no_host_port():
    shown = definition.normalise(request(port(containerPortRange="80-90")).container_definitions[0])

    assert shown.port_mappings[0].host_port is None


@pytest.mark.parametrize(
    "fields, launch_types",
    [
        ({}, ("EXTERNAL", "EC2")),
        ({"networkMode": "host"}, ("EXTERNAL", "EC2")),
        ({"networkMode": "awsvpc"}, ("EC2",)),
        ({"networkMode": "awsvpc", "cpu": "256", "memory": "512"}, ("EC2", "FARGATE")),
    ],
)
def test_launch_types(fields, launch_types):
    assert definition.compatibilities(request(**fields)) == launch_types
