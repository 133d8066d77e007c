"""What a definition needs of a host: every feature asks for its attribute, and plain ones for next to nothing."""

from __future__ import annotations

import msgspec
import pytest

from sexton.core import capabilities
from sexton.wire import ecs

COM = "com.amazonaws.ecs.capability."
ECS = "ecs.capability."


def needs(container=None, **task):
    body = {"containerDefinitions": [{"name": "app"} | (container or {})]} | task
    return set(capabilities.required(msgspec.convert(body, ecs.TaskDefinition)))


def test_a_plain_definition_needs_only_an_engine():
    assert needs() == {COM + "docker-remote-api.1.18"}


@pytest.mark.parametrize(
    "container, attribute",
    [
        ({"privileged": True}, COM + "privileged-container"),
        ({"dockerSecurityOptions": ["label:type:svirt"]}, COM + "selinux"),
        ({"dockerSecurityOptions": ["apparmor:profile"]}, COM + "apparmor"),
        ({"logConfiguration": {"logDriver": "syslog"}}, COM + "logging-driver.syslog"),
        (
            {"logConfiguration": {"logDriver": "syslog", "secretOptions": [{"name": "n", "valueFrom": "v"}]}},
            ECS + "secrets.ssm.bootstrap.log-driver",
        ),
        ({"healthCheck": {"command": ["true"]}}, ECS + "container-health-check"),
        ({"dependsOn": [{"containerName": "b", "condition": "START"}]}, ECS + "container-ordering"),
        ({"links": ["b"]}, ECS + "container-ordering"),
        ({"volumesFrom": [{"sourceContainer": "b"}]}, ECS + "container-ordering"),
        ({"restartPolicy": {"enabled": True}}, ECS + "container-restart-policy"),
        (
            {"repositoryCredentials": {"credentialsParameter": "arn"}},
            ECS + "private-registry-authentication.secretsmanager",
        ),
        ({"environmentFiles": [{"value": "arn", "type": "s3"}]}, ECS + "env-files.s3"),
        ({"firelensConfiguration": {"type": "fluentbit"}}, ECS + "firelens.fluentbit"),
        ({"credentialSpecs": ["x"]}, ECS + "gmsa"),
        ({"secrets": [{"name": "n", "valueFrom": "/p"}]}, ECS + "secrets.ssm.environment-variables"),
        (
            {"secrets": [{"name": "n", "valueFrom": "arn:aws:secretsmanager:x"}]},
            ECS + "secrets.asm.environment-variables",
        ),
        ({"portMappings": [{"containerPortRange": "1-2"}]}, ECS + "network.container-port-range"),
        ({"resourceRequirements": [{"type": "InferenceAccelerator", "value": "d"}]}, ECS + "task-eia"),
        ({"image": "1.dkr.ecr.eu-west-1.amazonaws.com/a"}, COM + "ecr-auth"),
    ],
)
def test_a_container_that_asks_for_more(container, attribute):
    assert attribute in needs(container)


@pytest.mark.parametrize(
    "task, attribute",
    [
        ({"networkMode": "awsvpc"}, ECS + "task-eni"),
        ({"taskRoleArn": "arn"}, COM + "task-iam-role"),
        ({"taskRoleArn": "arn", "networkMode": "host"}, COM + "task-iam-role-network-host"),
        ({"cpu": "256"}, ECS + "task-cpu-mem-limit"),
        ({"memory": "256"}, ECS + "task-cpu-mem-limit"),
        ({"pidMode": "task"}, ECS + "pid-ipc-namespace-sharing"),
        ({"ipcMode": "task"}, ECS + "pid-ipc-namespace-sharing"),
        ({"proxyConfiguration": {"containerName": "p"}}, ECS + "aws-appmesh"),
        ({"inferenceAccelerators": [{"deviceName": "d", "deviceType": "t"}]}, ECS + "task-eia"),
        ({"enableFaultInjection": True}, ECS + "fault-injection"),
        ({"volumes": [{"name": "v"}]}, ECS + "docker-plugin.local"),
        (
            {"volumes": [{"name": "v", "dockerVolumeConfiguration": {"driver": "rexray/ebs:1"}}]},
            ECS + "docker-plugin.rexray/ebs.1",
        ),
        ({"volumes": [{"name": "v", "efsVolumeConfiguration": {"fileSystemId": "f"}}]}, ECS + "efs"),
        (
            {
                "volumes": [
                    {"name": "v", "efsVolumeConfiguration": {"fileSystemId": "f", "transitEncryption": "ENABLED"}}
                ]
            },
            ECS + "efsAuth",
        ),
        ({"volumes": [{"name": "v", "configuredAtLaunch": True}]}, ECS + "storage.ebs-task-volume-attach"),
    ],
)
def test_a_task_that_asks_for_more(task, attribute):
    assert attribute in needs(**task)


def test_gpus_are_counted_and_need_no_attribute():
    assert needs({"resourceRequirements": [{"type": "GPU", "value": "1"}]}) == needs()


def test_a_path_of_the_host_needs_nothing():
    assert needs(volumes=[{"name": "v", "host": {"sourcePath": "/srv"}}]) == needs()


@pytest.mark.parametrize(
    "container, version",
    [
        ({"healthCheck": {"command": ["true"]}}, "1.24"),
        ({"linuxParameters": {"initProcessEnabled": True}}, "1.25"),
        ({"linuxParameters": {"initProcessEnabled": True}, "healthCheck": {"command": ["true"]}}, "1.25"),
        ({"linuxParameters": {"initProcessEnabled": False}}, "1.18"),
    ],
)
def test_the_engine_must_know_all_that_is_asked(container, version):
    assert {one for one in needs(container) if "docker-remote-api" in one} == {COM + "docker-remote-api." + version}


def test_an_execution_role_asks_for_its_uses():
    names = needs(
        {"image": "1.dkr.ecr.x/a", "logConfiguration": {"logDriver": "awslogs"}},
        executionRoleArn="arn:aws:iam::1:role/r",
    )

    assert {ECS + "execution-role-awslogs", ECS + "execution-role-ecr-pull"} <= names


@pytest.mark.parametrize(
    "body, names",
    [
        ({"containerDefinitions": [{"name": "a", "environment": [{"name": "n", "value": "v"}]}]}, ()),
        ({"containerDefinitions": [{"name": "a"}, {"name": "b", "secrets": [{"name": "n"}]}]}, ()),
        ({"containerDefinitions": [{"name": "a", "credentialSpecs": ["x"]}]}, ("credentialSpecs",)),
        ({"networkMode": "awsvpc", "taskRoleArn": "arn"}, ()),
        ({"volumes": [{"name": "v", "configuredAtLaunch": True}]}, ("configuredAtLaunch",)),
    ],
)
def test_what_no_payload_carries_is_named(body, names):
    assert capabilities.undeliverable(msgspec.convert(body, ecs.TaskDefinition)) == names


def test_a_task_of_many_processors_asks_for_an_agent_that_knows_them():
    assert ECS + "increased-task-cpu-limit" in needs(cpu="11 vCPU", memory="1 GB")
    assert ECS + "increased-task-cpu-limit" not in needs(cpu="10 vCPU", memory="1 GB")
