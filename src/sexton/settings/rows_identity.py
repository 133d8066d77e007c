"""Settings of who this host is: its cluster, its endpoints, its attributes, what EC2 is asked."""

from __future__ import annotations

from functools import partial

from sexton.core import values
from sexton.core.values import BadValue
from sexton.settings.row import Setting


def _engine(raw: str) -> str:
    if not raw.startswith(("unix://", "tcp://", "fake://")):
        raise BadValue("must begin with unix:// or tcp://, such as unix:///var/run/docker.sock")
    return raw


ROWS: tuple[Setting, ...] = (
    Setting("ECS_CLUSTER", "cluster", values.text, "cluster to join, by name or ARN", key="Cluster"),
    Setting(
        "AWS_DEFAULT_REGION",
        "region",
        values.text,
        "region the agent signs for; on EC2, where nobody says one, the instance's own",
        key="AWSRegion",
    ),
    Setting(
        "ECS_BACKEND_HOST",
        "backend",
        values.text,
        "URL of the ECS API, or several separated by commas that serve the same; empty means Amazon's for the region",
        key="APIEndpoint",
    ),
    Setting(
        "DOCKER_HOST", "docker_host", _engine, "address of the container engine", strict=True, key="DockerEndpoint"
    ),
    Setting(
        "ECS_AGENT_CONFIG_FILE_PATH",
        "config_json",
        values.text,
        "JSON file of settings by the names of Amazon's agent; it need not be there",
    ),
    Setting(
        "ECS_INSTANCE_ATTRIBUTES",
        "instance_attributes",
        values.word_map,
        "attributes of this container instance, sent at its first registration",
        strict=True,
        key="InstanceAttributes",
    ),
    Setting(
        "ECS_CONTAINER_INSTANCE_TAGS",
        "instance_tags",
        values.word_map,
        "tags of this container instance",
        strict=True,
        key="ContainerInstanceTags",
    ),
    Setting(
        "ECS_CONTAINER_INSTANCE_PROPAGATE_TAGS_FROM",
        "propagate_tags",
        partial(values.choice, words=("none", "ec2_instance")),
        "where further tags of this container instance come from; ec2_instance needs ec2:DescribeTags",
    ),
    Setting(
        "ECS_EXTERNAL",
        "external",
        values.boolean,
        "this host is outside AWS: instance metadata is not asked, and the region must be given",
        key="External",
    ),
    Setting(
        "ECS_ALTERNATE_CREDENTIAL_PROFILE",
        "credential_profile",
        values.text,
        "profile of the rotating credentials file, which is read again every minute",
    ),
    Setting("ECS_DETAILED_OS_FAMILY", "os_family", values.text, "reported as attribute ecs.os-type-detailed"),
    Setting(
        "ECS_WARM_POOLS_CHECK",
        "warm_pools",
        values.boolean,
        "register only once the instance has left its Auto Scaling warm pool",
        key="WarmPoolsSupport",
    ),
    Setting(
        "ECS_ENABLE_SPOT_INSTANCE_DRAINING",
        "spot_draining",
        values.boolean,
        "drain this container instance at the notice that EC2 takes it back",
        key="SpotInstanceDrainingEnabled",
    ),
)
