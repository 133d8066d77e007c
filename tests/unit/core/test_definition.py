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


def health(**fields):
    return {"healthCheck": {"command": ["CMD", "true"]} | fields}


def restart(**fields):
    return {"restartPolicy": {"enabled": True} | fields}


def ulimit(soft, hard):
    return {"name": "nofile", "softLimit": soft, "hardLimit": hard}


def waits(condition):
    return {"name": "a", "dependsOn": [{"containerName": "b", "condition": condition}]}


def serverless(*containers, **fields):
    """A definition that Fargate would take, but for what is different about it."""
    sized = {"networkMode": "awsvpc", "requiresCompatibilities": ["FARGATE"], "cpu": "256", "memory": "512"}
    return request(*containers, **(sized | fields))


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
        request(health(interval=300, timeout=120, retries=10, startPeriod=0)),
        request(restart(restartAttemptPeriod=60, ignoredExitCodes=[0, 137])),
        request({"ulimits": [ulimit(1024, -1), ulimit(1, 1) | {"name": "nproc"}]}),
        request({"links": ["db:database"]}, {"name": "db"}),
        request(waits("HEALTHY"), {"name": "b", **health()}),
        request(waits("SUCCESS"), {"name": "b", "essential": False}),
        request(
            port(containerPort=80, hostPort=80), {"name": "b", **port(containerPort=80, hostPort=80, protocol="udp")}
        ),
        serverless(),
        serverless(cpu="16 vCPU", memory="120 GB"),
        serverless(ephemeralStorage={"sizeInGiB": 21}),
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
        (request({"healthCheck": {"command": []}}), "Health check command cannot be empty"),
        (request(health(interval=4)), "interval must be between 5 and 300"),
        (request(health(timeout=1)), "timeout must be between 2 and 120"),
        (request(health(retries=11)), "retries must be between 1 and 10"),
        (request(health(startPeriod=301)), "startPeriod must be between 0 and 300"),
        (request(restart(restartAttemptPeriod=59)), "restartAttemptPeriod must be between 60 and 1800"),
        (request(restart(restartAttemptPeriod=1801)), "restartAttemptPeriod must be between 60 and 1800"),
        (request(restart(ignoredExitCodes=[1] * 51)), "at most 50 ignoredExitCodes"),
        (request({"ulimits": [ulimit(2, 1)]}), "softLimit must not exceed hardLimit"),
        (request({"ulimits": [ulimit(-1, 5)]}), "softLimit must not exceed hardLimit"),
        (request({"ulimits": [ulimit(1, 1), ulimit(1, 2)]}), "Ulimit 'nofile' is specified more than once"),
        (request({"stopTimeout": -1}), "Invalid 'stopTimeout'"),
        (request({"linuxParameters": {"swappiness": 101}}), "Invalid 'swappiness'"),
        (
            request({"mountPoints": [{"sourceVolume": "v", "containerPath": "/v"}] * 2}, volumes=[{"name": "v"}]),
            "Container path '/v' is mounted more than once",
        ),
        (
            request({"environment": [{"name": "A", "value": "b"}], "secrets": [{"name": "A", "valueFrom": "s"}]}),
            "The secret name must be unique",
        ),
        (
            request({"links": ["db"]}, {"name": "db"}, networkMode="host"),
            "Links are not supported when networkMode=host",
        ),
        (request({"links": ["nobody:db"]}), "Unknown container 'nobody' in links of 'app'"),
        (request(port(containerPort=80), networkMode="none"), "Port mappings are not supported when networkMode=none"),
        (request({"hostname": "h"}, networkMode="awsvpc"), "A hostname is not supported when networkMode=awsvpc"),
        (request({"dnsServers": ["1.1.1.1"]}, networkMode="awsvpc"), "dnsServers is not supported"),
        (request(port(containerPortRange="90-80")), "Invalid 'containerPortRange'"),
        (request(port(containerPortRange="80-90", hostPort=1)), "cannot be combined"),
        (request(port(containerPortRange="80-90"), networkMode="host"), "not supported when networkMode=host"),
        (
            request(port(containerPort=80, hostPort=80), {"name": "b", **port(containerPort=81, hostPort=80)}),
            "Host port 80/tcp is used more than once",
        ),
        (request(waits("HEALTHY"), {"name": "b"}), "must have a health check"),
        (request(waits("SUCCESS"), {"name": "b"}), "cannot be essential"),
        (request(waits("COMPLETE"), {"name": "b"}), "cannot be essential"),
        (request(volumes=[{}]), "Volume.name should not be null or empty"),
        (
            request(volumes=[{"name": "v", "host": {"sourcePath": "/v"}, "dockerVolumeConfiguration": {}}]),
            "cannot have more than one of",
        ),
        (
            request(volumes=[{"name": "v", "dockerVolumeConfiguration": {"scope": "task", "autoprovision": True}}]),
            "autoprovision is only supported with the scope 'shared'",
        ),
        (request(requiresCompatibilities=["FARGATE"]), "Fargate only supports network mode \u2018awsvpc\u2019."),
        (request(networkMode="awsvpc", requiresCompatibilities=["EXTERNAL"]), "does not support the network mode"),
        (request(ephemeralStorage={"sizeInGiB": 30}), "ephemeralStorage is only supported"),
        (serverless(cpu=None), "Fargate requires that 'cpu' be defined at the task level."),
        (serverless(memory=None), "Fargate requires that 'memory' be defined at the task level."),
        (serverless(memory="4096"), "No Fargate configuration exists for given values: 256 CPU, 4096 memory."),
        (serverless(cpu="8 vCPU", memory="18 GB"), "No Fargate configuration exists"),
        (serverless(ephemeralStorage={"sizeInGiB": 20}), "sizeInGiB must be between 21 and 200"),
        (serverless({"privileged": True}), "Fargate does not support 'privileged'"),
        (serverless({"stopTimeout": 121}), "at most 120"),
        (serverless({"logConfiguration": {"logDriver": "syslog"}}), "Fargate does not support log driver syslog"),
        (
            serverless({"logConfiguration": {"logDriver": "awslogs"}}),
            "execution role ARN to support log driver awslogs",
        ),
        (serverless(volumes=[{"name": "v", "host": {"sourcePath": "/v"}}]), "host.sourcePath should not be set"),
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
        ({"networkMode": "awsvpc", "cpu": "100", "memory": "512"}, ("EC2",)),
    ],
)
def test_launch_types(fields, launch_types):
    assert definition.compatibilities(request(**fields)) == launch_types


def test_ports_and_health_checks_are_shown_as_they_work():
    shown = definition.normalise(
        request(port(containerPort=80) | health(retries=2), networkMode="awsvpc").container_definitions[0], "awsvpc"
    )

    assert shown.port_mappings[0].host_port == 80
    assert (shown.health_check.interval, shown.health_check.timeout, shown.health_check.retries) == (30, 5, 2)
    assert definition.normalise(shown, "awsvpc") == shown
