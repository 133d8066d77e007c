"""From a definition to the engine's create request: each field is followed to where the engine expects it."""

from __future__ import annotations

import json

import msgspec
import pytest

from sexton.core import enginebody, names, render
from sexton.wire import acs_task, ecs

PLACE = names.Place("eu-west-1", "123456789012")
MIB = 1 << 20
SECOND = 1_000_000_000


def definition(container=None, **task):
    first = {"name": "app", "image": "busybox", "memory": 64} | (container or {})
    body = {"family": "web", "revision": 3, "containerDefinitions": [first]} | task
    return msgspec.convert(body, ecs.TaskDefinition)


def payload(container=None, overrides=None, **task):
    given = definition(container, **task)
    record = ecs.Task(
        task_arn=names.task_arn(PLACE, "default", "t1"),
        cluster_arn=names.cluster_arn(PLACE, "default"),
        containers=render.containers_of(given, PLACE, "default", "t1", ("c1",)),
        overrides=msgspec.convert(overrides or {}, ecs.TaskOverride),
        desired_status="RUNNING",
        group="family:web",
    )
    return render.payload(record, given, PLACE.account)


def engine_body(container=None, overrides=None, bindings=(), parent="", **task):
    """All the way: over the wire, then as the agent makes its request of it."""
    sent = msgspec.json.decode(msgspec.json.encode(payload(container, overrides, **task)), type=acs_task.Task)
    return enginebody.create_body(sent, sent.containers[0], labels={}, bindings=bindings, cgroup_parent=parent)


def test_environment_files_of_a_request_stand_for_those_of_the_definition():
    ours, theirs = ({"value": f"arn:aws:s3:::b/{name}", "type": "s3"} for name in ("ours", "theirs"))
    defined = {"environmentFiles": [ours]}
    override = {"containerOverrides": [{"name": "app", "environmentFiles": [theirs]}]}

    assert payload(defined).containers[0].environment_files[0].value == ours["value"]
    assert payload(defined, override).containers[0].environment_files[0].value == theirs["value"]


def test_a_task_of_a_service_says_its_name():
    given = definition()
    record = ecs.Task(group="service:front", availability_zone="eu-west-1a", containers=())

    sent = render.payload(record, given, PLACE.account)

    assert (sent.service_name, sent.zone) == ("front", "eu-west-1a")
    assert payload().service_name is None


@pytest.mark.parametrize(
    ("launch_type", "said"),
    [(None, "AWS_ECS_EC2"), ("EC2", "AWS_ECS_EC2"), ("FARGATE", "AWS_ECS_FARGATE"), ("EXTERNAL", None)],
)
def test_containers_are_told_where_they_run_as_ecs_tells_them(launch_type, said):
    sent = render.payload(ecs.Task(launch_type=launch_type, containers=()), definition(), PLACE.account)

    assert sent.containers[0].environment.get("AWS_EXECUTION_ENV") == said


def test_what_a_definition_says_of_where_it_runs_counts():
    sent = payload({"environment": [{"name": "AWS_EXECUTION_ENV", "value": "mine"}]})

    assert sent.containers[0].environment == {"AWS_EXECUTION_ENV": "mine"}


@pytest.mark.parametrize(
    "field, value, key, expected",
    [
        ("image", "nginx:1", "Image", "nginx:1"),
        ("command", ["a", "b"], "Cmd", ["a", "b"]),
        ("entryPoint", ["sh", "-c"], "Entrypoint", ["sh", "-c"]),
        (
            "environment",
            [{"name": "A", "value": "1"}, {"name": "B", "value": "x=y"}],
            "Env",
            ["AWS_EXECUTION_ENV=AWS_ECS_EC2", "A=1", "B=x=y"],
        ),
        ("user", "1000:1000", "User", "1000:1000"),
        ("workingDirectory", "/srv", "WorkingDir", "/srv"),
        ("hostname", "h", "Hostname", "h"),
        ("interactive", True, "OpenStdin", True),
        ("pseudoTerminal", True, "Tty", True),
        ("dockerLabels", {"k": "v"}, "Labels", {"k": "v"}),
        ("disableNetworking", True, "NetworkDisabled", True),
        (
            "healthCheck",
            {"command": ["CMD", "true"]},
            "Healthcheck",
            {
                "Test": ["CMD", "true"],
                "Interval": 30 * SECOND,
                "Timeout": 5 * SECOND,
                "Retries": 3,
                "StartPeriod": 0,
            },
        ),
        (
            "healthCheck",
            {"command": ["CMD", "true"], "interval": 7, "timeout": 2, "retries": 9, "startPeriod": 4},
            "Healthcheck",
            {
                "Test": ["CMD", "true"],
                "Interval": 7 * SECOND,
                "Timeout": 2 * SECOND,
                "Retries": 9,
                "StartPeriod": 4 * SECOND,
            },
        ),
    ],
)
def test_fields_of_the_container(field, value, key, expected):
    assert engine_body({field: value})[key] == expected


@pytest.mark.parametrize(
    "field, value, expected",
    [
        ("cpu", 512, {"CpuShares": 512}),
        ("cpu", 0, {"CpuShares": 2}),
        ("cpu", 1 << 20, {"CpuShares": 262144}),
        ("memory", 64, {"Memory": 64 * MIB}),
        ("memory", 1, {"Memory": 4 * MIB}),
        ("memoryReservation", 32, {"MemoryReservation": 32 * MIB}),
        ("privileged", True, {"Privileged": True}),
        ("privileged", False, {"Privileged": False}),
        ("readonlyRootFilesystem", True, {"ReadonlyRootfs": True}),
        ("dnsServers", ["10.0.0.2"], {"Dns": ["10.0.0.2"]}),
        ("dnsSearchDomains", ["a.b"], {"DnsSearch": ["a.b"]}),
        ("extraHosts", [{"hostname": "db", "ipAddress": "10.0.0.3"}], {"ExtraHosts": ["db:10.0.0.3"]}),
        ("dockerSecurityOptions", ["no-new-privileges"], {"SecurityOpt": ["no-new-privileges"]}),
        (
            "ulimits",
            [{"name": "nofile", "softLimit": 10, "hardLimit": 20}],
            {"Ulimits": [{"Name": "nofile", "Soft": 10, "Hard": 20}]},
        ),
        ("systemControls", [{"namespace": "net.x", "value": "1"}], {"Sysctls": {"net.x": "1"}}),
        (
            "logConfiguration",
            {"logDriver": "json-file", "options": {"max-size": "1m"}},
            {"LogConfig": {"Type": "json-file", "Config": {"max-size": "1m"}}},
        ),
        (
            "logConfiguration",
            {"logDriver": "json-file", "options": {"mode": "non-blocking"}},
            {"LogConfig": {"Type": "json-file", "Config": {"mode": "non-blocking", "max-buffer-size": "10m"}}},
        ),
        ("linuxParameters", {"capabilities": {"add": ["SYS_TIME"]}}, {"CapAdd": ["SYS_TIME"]}),
        ("linuxParameters", {"capabilities": {"drop": ["ALL"]}}, {"CapDrop": ["ALL"]}),
        ("linuxParameters", {"initProcessEnabled": True}, {"Init": True}),
        ("linuxParameters", {"initProcessEnabled": False}, {"Init": False}),
        ("linuxParameters", {"sharedMemorySize": 8}, {"ShmSize": 8 * MIB}),
        (
            "linuxParameters",
            {"tmpfs": [{"containerPath": "/t", "size": 4, "mountOptions": ["noexec", "ro"]}]},
            {"Tmpfs": {"/t": "size=4m,noexec,ro"}},
        ),
        ("linuxParameters", {"maxSwap": 16, "swappiness": 0}, {"MemorySwap": 80 * MIB, "MemorySwappiness": 0}),
        (
            "linuxParameters",
            {"devices": [{"hostPath": "/dev/fuse"}]},
            {"Devices": [{"PathOnHost": "/dev/fuse", "PathInContainer": "/dev/fuse", "CgroupPermissions": "rwm"}]},
        ),
        (
            "linuxParameters",
            {"devices": [{"hostPath": "/dev/a", "containerPath": "/dev/b", "permissions": ["read"]}]},
            {"Devices": [{"PathOnHost": "/dev/a", "PathInContainer": "/dev/b", "CgroupPermissions": "r"}]},
        ),
    ],
)
def test_fields_of_the_host_configuration(field, value, expected):
    host = engine_body({field: value})["HostConfig"]

    assert {key: host.get(key) for key in expected} == expected


def test_what_is_not_said_is_not_sent():
    """An absent key leaves the engine's own default; an empty one would not."""
    body = engine_body()

    assert set(body) == {"Image", "Env", "HostConfig", "Labels"}
    assert set(body["HostConfig"]) == {"NetworkMode", "CpuShares", "Memory", "Binds", "PortBindings"}
    config = payload().containers[0].docker_config
    assert json.loads(config.config) == {}
    assert json.loads(config.host_config) == {"NetworkMode": "bridge"}


def test_what_the_agent_computes_is_never_in_the_texts():
    full = payload(
        {
            "cpu": 1,
            "environment": [{"name": "A", "value": "1"}],
            "portMappings": [{"containerPort": 80}],
            "mountPoints": [{"sourceVolume": "v", "containerPath": "/v"}],
            "links": ["b"],
        },
        volumes=[{"name": "v", "host": {"sourcePath": "/srv"}}],
    )
    given = full.containers[0].docker_config
    said = json.loads(given.config) | json.loads(given.host_config)

    assert not said.keys() & {
        *("Memory", "CpuShares", "CgroupParent", "Binds", "PortBindings", "Links", "VolumesFrom", "Env", "Image")
    }


@pytest.mark.parametrize("mode", ["bridge", "host", "none"])
def test_network_modes(mode):
    assert engine_body(networkMode=mode)["HostConfig"]["NetworkMode"] == mode
    assert payload(networkMode=mode).network_mode == mode


def test_mounts_of_the_host():
    mounts = [
        {"sourceVolume": "v", "containerPath": "/a"},
        {"sourceVolume": "v", "containerPath": "/b", "readOnly": True},
    ]
    body = engine_body({"mountPoints": mounts}, volumes=[{"name": "v", "host": {"sourcePath": "/srv"}}])

    assert body["HostConfig"]["Binds"] == ["/srv:/a", "/srv:/b:ro"]


def test_chosen_ports_and_the_tasks_cgroup_are_laid_in():
    bindings = (
        enginebody.Binding(container_port=80, host_port=8080, bind_ip="0.0.0.0", protocol="tcp"),
        enginebody.Binding(container_port=80, host_port=8081, bind_ip="0.0.0.0", protocol="tcp"),
    )
    body = engine_body(bindings=bindings, parent="/ecs/t1")

    assert body["ExposedPorts"] == {"80/tcp": {}}
    assert body["HostConfig"]["PortBindings"] == {"80/tcp": [{"HostPort": "8080"}, {"HostPort": "8081"}]}
    assert body["HostConfig"]["CgroupParent"] == "/ecs/t1"


def test_overrides_count_and_only_the_command_travels_as_one():
    own = {
        "name": "app",
        "command": [],
        "cpu": 7,
        "memory": 128,
        "memoryReservation": 16,
        "environment": [{"name": "B", "value": "2"}],
    }
    container = {"command": ["x"], "environment": [{"name": "A", "value": "1"}, {"name": "B", "value": "1"}]}
    sent = payload(container, {"containerOverrides": [own], "cpu": "512", "memory": "1 GB"})
    body = engine_body(container, {"containerOverrides": [own]})

    assert (sent.cpu, sent.memory) == (0.5, 1024)
    assert json.loads(sent.containers[0].overrides) == {"command": []}
    assert "Cmd" not in body
    assert body["Env"] == ["AWS_EXECUTION_ENV=AWS_ECS_EC2", "A=1", "B=2"]
    assert body["HostConfig"]["Memory"] == 128 * MIB
    assert body["HostConfig"]["MemoryReservation"] == 16 * MIB
    assert body["HostConfig"]["CpuShares"] == 7


def test_what_travels_beside_the_texts():
    one = payload(
        {
            "dependsOn": [{"containerName": "b", "condition": "START"}],
            "volumesFrom": [{"sourceContainer": "b", "readOnly": True}],
            "startTimeout": 5,
            "stopTimeout": 7,
            "restartPolicy": {"enabled": True, "ignoredExitCodes": [0]},
            "healthCheck": {"command": ["CMD", "true"]},
        },
        pidMode="task",
        volumes=[{"name": "d", "dockerVolumeConfiguration": {"scope": "shared", "autoprovision": True}}],
    )
    container = one.containers[0]

    assert (one.arn, one.family, one.version, one.desired_status) == (
        "arn:aws:ecs:eu-west-1:123456789012:task/default/t1",
        "web",
        "3",
        "RUNNING",
    )
    assert (one.pid_mode, one.group, one.launch_type, one.overrides) == ("task", "family:web", "EC2", "{}")
    assert container.container_arn == "arn:aws:ecs:eu-west-1:123456789012:container/default/t1/c1"
    assert (container.start_timeout, container.stop_timeout, container.health_check_type) == (5, 7, "docker")
    assert container.depends_on == (acs_task.ContainerDependency(container_name="b", condition="START"),)
    assert container.volumes_from == (acs_task.VolumeFrom(source_container="b", read_only=True),)
    assert container.restart_policy == acs_task.RestartPolicy(
        enabled=True, ignored_exit_codes=(0,), restart_attempt_period=300
    )
    volume = one.volumes[0]
    assert (volume.type, volume.docker_volume_configuration.driver) == ("docker", "local")
    assert (volume.docker_volume_configuration.scope, volume.docker_volume_configuration.autoprovision) == (
        "shared",
        True,
    )


def test_a_task_that_is_to_stop_is_sent_as_stopped():
    record = ecs.Task(task_arn="a", desired_status="STOPPED")

    assert render.payload(record, definition(), "1").desired_status == "STOPPED"


def test_the_containers_of_a_new_task_as_the_api_shows_them():
    (one,) = render.containers_of(
        definition({"cpu": 10, "memoryReservation": 32, "healthCheck": {"command": ["CMD", "true"]}}),
        PLACE,
        "default",
        "t1",
        ("c1",),
    )

    assert (one.cpu, one.memory, one.memory_reservation) == ("10", "64", "32")
    assert (one.last_status, one.health_status, one.task_arn) == (
        "PENDING",
        "UNKNOWN",
        "arn:aws:ecs:eu-west-1:123456789012:task/default/t1",
    )
