"""A request of every operation with every field that is honoured, and the world in which they mean something.

``REQUESTS`` has for each operation requests that together hold all its honoured fields with values that matter here:
left out, each makes another answer or another record. Names with a ``$`` stand for what the world has made.
"""

from __future__ import annotations

import itertools
import re
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from sexton.control.context import Call
from sexton.control.dispatch import OPERATIONS, check
from sexton.control.ec2 import defaults
from sexton.store.opening import open_store
from sexton.wire import ecs
from sexton.wire.errors import EcsError
from unit.control.requests_of_model import filled
from unit.control.serviceworld import Services
from unit.control.world import REGION, Json, World, world_over

HERE = "arn:aws:ecs:us-east-1:123456789012:"
KEPT = [{"key": "kept", "value": "1"}]
TAGS = [{"key": "colour", "value": "red"}]
# A record may keep what a request was, which is no effect of a field.
_FINGERPRINT = re.compile(rb'"fingerprint":"[0-9a-f]*"')
# What is told about the records has a time and an id of its own.
_TOLD = "events/"
FAR = "7a7a"  # a token behind everything
STRATEGY = [{"capacityProvider": "edge", "weight": 1}]
CONSTRAINTS = [{"type": "memberOf", "expression": "attribute:rack == 8"}]
SPREAD = [{"type": "spread", "field": "attribute:rack"}]
GROUP = {"autoScalingGroupArn": "group", "managedScaling": {"status": "ENABLED", "targetCapacity": 50}}
NETWORK = {"awsvpcConfiguration": {"subnets": ["$subnet"]}}
OFFERS = ("ecs.capability.task-eni", "sexton.capability.network", "ecs.capability.task-cpu-mem-limit")
SETTINGS = [{"name": "containerInsights", "value": "enabled"}]
CONFIGURATION = {"executeCommandConfiguration": {"logging": "DEFAULT"}}
CONNECT = {"namespace": "space"}
OVERRIDES = {"containerOverrides": [{"name": "main", "command": ["true"]}]}
PAGE = [{"maxResults": 1}, {"nextToken": FAR}]
OF_WEB = {"cluster": "blue", "service": "web"}
OF_OUT = {"cluster": "blue", "service": "out"}
TASK_SETTINGS = {
    "cluster": "blue",
    "taskDefinition": "web:1",
    "enableECSManagedTags": True,
    "group": "jobs",
    "overrides": OVERRIDES,
    "propagateTags": "TASK_DEFINITION",
    "startedBy": "me",
    "tags": TAGS,
}
SERVICE = {"cluster": "blue", "serviceName": "new", "taskDefinition": "web", "desiredCount": 1}


def _each(base: Json, *more: Json) -> list[Json]:
    return [base | one for one in more]


REQUESTS: dict[str, list[Json]] = {
    "ContinueServiceDeployment": [{"serviceDeploymentArn": "$deployment", "hookId": "h"}],
    "CreateCapacityProvider": [{"name": "more", "autoScalingGroupProvider": GROUP, "tags": TAGS}],
    "CreateCluster": [
        {
            "clusterName": "green",
            "tags": TAGS,
            "settings": SETTINGS,
            "configuration": CONFIGURATION,
            "capacityProviders": ["edge"],
            "defaultCapacityProviderStrategy": STRATEGY,
            "serviceConnectDefaults": CONNECT,
        }
    ],
    "CreateService": [
        SERVICE
        | {
            "deploymentConfiguration": {"maximumPercent": 300},
            "placementConstraints": CONSTRAINTS,
            "placementStrategy": SPREAD,
            "healthCheckGracePeriodSeconds": 5,
            "tags": TAGS,
            "enableECSManagedTags": True,
            "propagateTags": "SERVICE",
        },
        SERVICE | {"launchType": "EXTERNAL", "availabilityZoneRebalancing": "DISABLED"},
        SERVICE | {"capacityProviderStrategy": STRATEGY},
        SERVICE
        | {
            "taskDefinition": "small",
            "launchType": "FARGATE",
            "platformVersion": "1.3.0",
            "networkConfiguration": NETWORK,
        },
        {"cluster": "blue", "serviceName": "new", "taskDefinition": "web", "schedulingStrategy": "DAEMON"},
        {"cluster": "blue", "serviceName": "new", "deploymentController": {"type": "EXTERNAL"}},
    ],
    "CreateTaskSet": [
        OF_OUT
        | {
            "taskDefinition": "web:1",
            "externalId": "x",
            "launchType": "EXTERNAL",
            "scale": {"value": 10, "unit": "PERCENT"},
            "clientToken": "t",
            "tags": TAGS,
        },
        OF_OUT | {"taskDefinition": "web:1", "capacityProviderStrategy": STRATEGY},
        OF_OUT
        | {
            "taskDefinition": "small",
            "launchType": "FARGATE",
            "platformVersion": "1.3.0",
            "networkConfiguration": NETWORK,
        },
    ],
    "DeleteAccountSetting": [{"name": "containerInsights", "principalArn": "$root"}],
    "DeleteAttributes": [{"cluster": "blue", "attributes": [{"name": "rack", "targetId": "$instance"}]}],
    "DeleteCapacityProvider": [{"capacityProvider": "spare"}],
    "DeleteCluster": [{"cluster": "empty"}],
    "DeleteService": [OF_WEB | {"force": True}],
    "DeleteTaskDefinitions": [{"taskDefinitions": ["old:1"]}],
    "DeleteTaskSet": [OF_OUT | {"taskSet": "$set", "force": True}],
    "DeregisterContainerInstance": [{"cluster": "blue", "containerInstance": "$instance", "force": True}],
    "DeregisterTaskDefinition": [{"taskDefinition": "web:1"}],
    "DescribeCapacityProviders": _each(
        {"include": ["TAGS"]}, {"capacityProviders": ["edge"]}, {"cluster": "blue"}, *PAGE
    ),
    "DescribeClusters": [{"clusters": ["blue"], "include": ["TAGS"]}],
    "DescribeContainerInstances": [{"cluster": "blue", "containerInstances": ["$instance"], "include": ["TAGS"]}],
    "DescribeServiceDeployments": [{"serviceDeploymentArns": ["$deployment"]}],
    "DescribeServiceRevisions": [{"serviceRevisionArns": ["$revision"]}],
    "DescribeServices": [{"cluster": "blue", "services": ["web"], "include": ["TAGS"]}],
    "DescribeTaskDefinition": [{"taskDefinition": "web:1", "include": ["TAGS"]}],
    "DescribeTaskSets": [OF_OUT | {"taskSets": ["ecs-svc/1"]}, OF_OUT | {"include": ["TAGS"]}],
    "DescribeTasks": [{"cluster": "blue", "tasks": ["$task"], "include": ["TAGS"]}],
    "DiscoverPollEndpoint": [{"cluster": "no"}, {"cluster": "blue", "containerInstance": "no"}],
    "ExecuteCommand": [{"cluster": "blue", "container": "no", "command": "sh", "interactive": True, "task": "$task"}],
    "GetTaskProtection": [{"cluster": "blue", "tasks": ["$service_task"]}],
    "ListAccountSettings": _each(
        {},
        {"name": "containerInsights"},
        {"name": "containerInsights", "value": "nothing", "principalArn": "$root"},
        {"principalArn": "$root"},
        {"effectiveSettings": True, "maxResults": 1},
        {"effectiveSettings": True, "nextToken": FAR},
    ),
    "ListAttributes": _each(
        {"cluster": "blue", "targetType": "container-instance"},
        {"attributeName": "rack"},
        {"attributeName": "rack", "attributeValue": "8"},
        *PAGE,
    ),
    "ListClusters": PAGE,
    "ListContainerInstances": _each(
        {"cluster": "blue"}, {"filter": "attribute:rack == 7"}, {"status": "DRAINING"}, *PAGE
    ),
    "ListServiceDeployments": _each(OF_WEB, {"status": ["STOPPED"]}, {"createdAt": {"before": 5}}, *PAGE),
    "ListServices": _each(
        {"cluster": "blue"},
        {"launchType": "EXTERNAL"},
        {"schedulingStrategy": "DAEMON"},
        {"resourceManagementType": "ECS"},
        *PAGE,
    ),
    "ListServicesByNamespace": [{"namespace": "space"}],
    "ListTagsForResource": [{"resourceArn": "$task"}],
    "ListTaskDefinitionFamilies": _each({}, {"familyPrefix": "web"}, {"status": "INACTIVE"}, *PAGE),
    "ListTaskDefinitions": _each({}, {"familyPrefix": "web"}, {"status": "INACTIVE"}, {"sort": "DESC"}, *PAGE),
    "ListTasks": _each(
        {"cluster": "blue"},
        {"containerInstance": "$other"},
        {"family": "small"},
        {"startedBy": "nobody"},
        {"serviceName": "web"},
        {"desiredStatus": "STOPPED"},
        {"launchType": "EXTERNAL"},
        *PAGE,
    ),
    "PutAccountSetting": [{"name": "containerInsights", "value": "enabled", "principalArn": "$root"}],
    "PutAccountSettingDefault": [{"name": "containerInsights", "value": "enabled"}],
    "PutAttributes": [{"cluster": "blue", "attributes": [{"name": "x", "targetId": "$instance"}]}],
    "PutClusterCapacityProviders": [
        {"cluster": "blue", "capacityProviders": ["edge", "spare"], "defaultCapacityProviderStrategy": STRATEGY}
    ],
    "RegisterContainerInstance": [
        {
            "cluster": "blue",
            "instanceIdentityDocument": '{"instanceId": "i-1"}',
            "totalResources": [{"name": "CPU", "type": "INTEGER", "integerValue": 5}],
            "versionInfo": {"agentVersion": "1"},
            "attributes": [{"name": "a"}],
            "tags": TAGS,
            "clientToken": "t",
        },
        {"cluster": "blue", "containerInstanceArn": "$instance"},
    ],
    "RegisterTaskDefinition": [
        {
            "family": "x",
            "networkMode": "awsvpc",
            "requiresCompatibilities": ["FARGATE"],
            "cpu": "256",
            "memory": "512",
            "containerDefinitions": [{"name": "main", "image": "i"}],
        },
        {
            "family": "x",
            "taskRoleArn": "arn:aws:iam::123456789012:role/a",
            "executionRoleArn": "arn:aws:iam::123456789012:role/b",
            "networkMode": "host",
            "containerDefinitions": [{"name": "main", "image": "i", "memory": 8}],
            "volumes": [{"name": "v"}],
            "placementConstraints": CONSTRAINTS,
            "requiresCompatibilities": ["EC2"],
            "cpu": "256",
            "memory": "512",
            "tags": TAGS,
            "pidMode": "host",
            "ipcMode": "host",
            "enableFaultInjection": True,
            "proxyConfiguration": {"containerName": "main"},
        },
    ],
    "RunTask": [
        TASK_SETTINGS
        | {
            "count": 2,
            "placementConstraints": CONSTRAINTS,
            "placementStrategy": [{"type": "binpack", "field": "memory"}],
            "launchType": "EXTERNAL",
            "clientToken": "t",
        },
        {"cluster": "blue", "taskDefinition": "web:1", "placementStrategy": [{"type": "spread", "field": "no"}]},
        {"cluster": "blue", "taskDefinition": "web:1", "capacityProviderStrategy": STRATEGY},
        {
            "cluster": "blue",
            "taskDefinition": "small",
            "launchType": "FARGATE",
            "networkConfiguration": NETWORK,
            "platformVersion": "0",
        },
        {"cluster": "blue", "taskDefinition": "web:1", "networkConfiguration": NETWORK},
    ],
    "StartTask": [
        TASK_SETTINGS | {"containerInstances": ["$instance"]},
        {
            "cluster": "blue",
            "taskDefinition": "web:1",
            "containerInstances": ["$instance"],
            "networkConfiguration": NETWORK,
        },
    ],
    "StopServiceDeployment": [{"serviceDeploymentArn": "$deployment", "stopType": "ABORT"}],
    "StopTask": [{"cluster": "blue", "task": "$task", "reason": "because"}],
    "SubmitAttachmentStateChanges": [{"cluster": "no", "attachments": []}],
    "SubmitContainerStateChange": [
        {
            "cluster": "blue",
            "task": "$task",
            "containerName": "main",
            "runtimeId": "r",
            "status": "STOPPED",
            "exitCode": 3,
            "reason": "because",
            "networkBindings": [{"containerPort": 80, "hostPort": 80}],
        }
    ],
    "SubmitTaskStateChange": [
        {
            "cluster": "blue",
            "task": "$task",
            "status": "STOPPED",
            "reason": "because",
            "containers": [{"containerName": "main", "exitCode": 4}],
            "pullStartedAt": 1,
            "pullStoppedAt": 2,
            "executionStoppedAt": 3,
        },
        {
            "cluster": "blue",
            "task": "$networked",
            "attachments": [{"attachmentArn": "$attachment", "status": "ATTACHED"}],
        },
    ],
    "TagResource": [{"resourceArn": "$task", "tags": TAGS}],
    "UntagResource": [{"resourceArn": "$task", "tagKeys": ["kept"]}],
    "UpdateCapacityProvider": [
        {"name": "spare", "autoScalingGroupProvider": {"managedScaling": {"status": "ENABLED"}}}
    ],
    "UpdateCluster": [
        {
            "cluster": "blue",
            "settings": SETTINGS,
            "configuration": CONFIGURATION,
            "serviceConnectDefaults": CONNECT,
        }
    ],
    "UpdateClusterSettings": [{"cluster": "blue", "settings": SETTINGS}],
    "UpdateContainerAgent": [{"cluster": "blue", "containerInstance": "$instance"}],
    "UpdateContainerInstancesState": [{"cluster": "blue", "containerInstances": ["$instance"], "status": "DRAINING"}],
    "UpdateService": [
        OF_WEB
        | {
            "desiredCount": 3,
            "taskDefinition": "web:1",
            "deploymentConfiguration": {"maximumPercent": 300},
            "placementConstraints": CONSTRAINTS,
            "placementStrategy": SPREAD,
            "healthCheckGracePeriodSeconds": 5,
            "enableECSManagedTags": True,
            "propagateTags": "SERVICE",
        },
        OF_WEB | {"availabilityZoneRebalancing": "DISABLED"},
        OF_WEB | {"forceNewDeployment": True},
        OF_WEB | {"capacityProviderStrategy": STRATEGY},
        OF_WEB | {"deploymentController": {"type": "EXTERNAL"}},
        {"cluster": "blue", "service": "small", "platformVersion": "1.3.0"},
        {
            "cluster": "blue",
            "service": "small",
            "networkConfiguration": {"awsvpcConfiguration": {"subnets": ["$subnet"], "securityGroups": ["$group"]}},
        },
    ],
    "UpdateServicePrimaryTaskSet": [OF_OUT | {"primaryTaskSet": "$set"}],
    "UpdateTaskProtection": [
        {"cluster": "blue", "tasks": ["$service_task"], "protectionEnabled": True, "expiresInMinutes": 5}
    ],
    "UpdateTaskSet": [OF_OUT | {"taskSet": "$set", "scale": {"value": 10, "unit": "PERCENT"}}],
}

# What a client might give of fields that are refused or have no effect, where the model's shape does not tell.
VALUES: dict[str, Any] = {
    "loadBalancers": [{"targetGroupArn": "arn:tg", "containerName": "main", "containerPort": 80}],
    "serviceRegistries": [{"registryArn": "arn:sd"}],
    "serviceConnectConfiguration.enabled": True,
    "serviceConnectConfiguration": {"enabled": False},
    "deploymentConfiguration.alarms": {"enable": False, "rollback": False, "alarmNames": []},
    "deploymentConfiguration.alarms.enable": True,
    "monitoring": {"metricConfigurations": [{"metricNames": ["CPU"], "resolutionSeconds": 60}]},
    "zoneId": "use1-az1",
    "autoScalingGroupProvider": GROUP,
    "settings": SETTINGS,
    "configuration": CONFIGURATION,
    "serviceConnectDefaults": CONNECT,
    "nextToken": FAR,
    "ephemeralStorage": {"sizeInGiB": 21},
}


class Prepared:
    """A store with a world in it, copied for every request, and the names in it."""

    def __init__(self, directory: Path, names: dict[str, str]) -> None:
        self._directory = directory
        self._copies = itertools.count()
        self.names = names

    async def outcome(self, operation: str, request: Json) -> tuple[Any, Any]:
        """What a request is answered with, and what the store says after it."""
        copy = self._directory / f"copy{next(self._copies)}"
        shutil.copytree(self._directory / "made", copy)
        async with _world(copy) as world:
            answer: Any
            try:
                answer = await _do(world, operation, filled(request, self.names))
            except EcsError as error:
                answer = (error.code, error.message)
            page = await world.store.range("")
            after = {one.key: _FINGERPRINT.sub(b"", one.value) for one in page.items if not one.key.startswith(_TOLD)}
        shutil.rmtree(copy)
        return answer, after


async def _do(world: World, operation: str, fields: Json) -> Any:
    request = msgspec.json.decode(msgspec.json.encode(fields), type=ecs.OPERATIONS[operation].request)
    check(operation, request)
    answer = await OPERATIONS[operation](world.context, Call(REGION, "AKSX", world.now), request)
    return msgspec.json.decode(msgspec.json.encode(answer))


@asynccontextmanager
async def _world(directory: Path) -> AsyncIterator[World]:
    numbers = itertools.count(1)
    store = await open_store(f"sqlite://{directory / 'control.db'}")
    try:
        async with world_over(store) as world:
            # Ids that depend on nothing but their order, so that equal requests have equal outcomes.
            base = 1 << 100 if (directory / "begun").exists() else 1
            world.context = world.context._replace(new_id=lambda: f"{base + next(numbers) * 7919:032x}"[::-1])
            (directory / "begun").touch()
            yield world
    finally:
        await store.close()


async def prepare(directory: Path) -> Prepared:
    """Make the world."""
    made = directory / "made"
    made.mkdir()
    async with _world(made) as world:
        for name in ("default", "blue", "empty"):
            await world.do("CreateCluster", clusterName=name, tags=KEPT)
        for name in ("edge", "spare"):
            group = {"autoScalingGroupArn": "g"}
            await world.do("CreateCapacityProvider", name=name, autoScalingGroupProvider=group, tags=KEPT)
        for family in ("web", "web", "old"):
            await world.define(family, tags=KEPT)
        await world.do("DeregisterTaskDefinition", taskDefinition="old:1")
        sized = {"networkMode": "awsvpc", "cpu": "256", "memory": "512"}
        await world.define("small", container={"memory": 512, "cpu": 0}, **sized)
        instance, other = [
            await world.join(cluster="blue", cpu=4000, memory=4000, tags=KEPT, offers=OFFERS) for _ in range(2)
        ]
        await defaults.ensure(world.context, REGION)
        subnet, group = [next(table.all()).value.id for table in (world.records.subnets, world.records.groups)]
        network = {"awsvpcConfiguration": {"subnets": [subnet]}}
        for arn, rack in ((instance, "7"), (other, "8")):
            named = [("rack", rack), ("sexton.capacity-provider", "edge")]
            attributes = [{"name": name, "value": value, "targetId": arn} for name, value in named]
            await world.do("PutAttributes", cluster="blue", attributes=attributes)
        await world.do(
            "PutClusterCapacityProviders",
            cluster="blue",
            capacityProviders=["edge"],
            defaultCapacityProviderStrategy=[],
        )
        await world.do("PutAccountSetting", name="containerInsights", value="disabled", principalArn=_root())
        services = Services(world)
        await world.do(
            "CreateService", cluster="blue", serviceName="web", taskDefinition="web", desiredCount=2, tags=KEPT
        )
        await world.do(
            "CreateService",
            cluster="blue",
            serviceName="small",
            taskDefinition="small",
            desiredCount=0,
            launchType="FARGATE",
            networkConfiguration=network,
        )
        await world.do(
            "CreateService",
            cluster="blue",
            serviceName="out",
            desiredCount=2,
            deploymentController={"type": "EXTERNAL"},
        )
        task_set = (await world.do("CreateTaskSet", **OF_OUT, taskDefinition="web", tags=KEPT))["taskSet"]
        await services.decide()
        task = await world.do(
            "StartTask", cluster="blue", taskDefinition="web:1", containerInstances=[instance], tags=KEPT
        )
        networked = await world.do(
            "StartTask",
            cluster="blue",
            taskDefinition="small",
            containerInstances=[instance],
            networkConfiguration=network,
        )
        of_service = (await world.do("ListTasks", cluster="blue", serviceName="web"))["taskArns"][0]
        await world.do("UpdateService", **OF_WEB, forceNewDeployment=True)
        deployments = await world.do("ListServiceDeployments", **OF_WEB)
        deployment = deployments["serviceDeployments"][0]
        names = {
            "$instance": instance,
            "$other": other,
            "$task": task["tasks"][0]["taskArn"],
            "$service_task": of_service,
            "$subnet": subnet,
            "$group": group,
            "$networked": networked["tasks"][0]["taskArn"],
            "$attachment": f"{HERE}attachment/{networked['tasks'][0]['attachments'][0]['id']}",
            "$set": task_set["id"],
            "$deployment": deployment["serviceDeploymentArn"],
            "$revision": deployment["targetServiceRevisionArn"],
            "$root": _root(),
        }
    return Prepared(directory, names)


def _root() -> str:
    return "arn:aws:iam::123456789012:root"
