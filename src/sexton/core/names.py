"""Names of things in an account and region: ARNs (long format), ids, families.

Everything that takes a name from outside accepts what ECS accepts there: a short name, ``family:revision``, or
an ARN. A name that cannot be one is answered with None; whoever asked knows which error that is on its wire.
"""

from __future__ import annotations

import re
from typing import NamedTuple, NewType

TaskArn = NewType("TaskArn", str)
InstanceArn = NewType("InstanceArn", str)
ClusterArn = NewType("ClusterArn", str)
DefinitionArn = NewType("DefinitionArn", str)

DEFAULT_CLUSTER = "default"

_CLUSTER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,254}\Z")
_FAMILY = re.compile(r"[A-Za-z0-9_-]{1,255}\Z")
_ID = re.compile(r"[A-Za-z0-9-]{1,255}\Z")


class Place(NamedTuple):
    """The account and region a name lives in."""

    region: str
    account: str

    def arn(self, resource: str) -> str:
        return f"arn:{partition(self.region)}:ecs:{self.region}:{self.account}:{resource}"


class Member(NamedTuple):
    """Something that lives in a cluster: a task or a container instance. ``cluster`` is empty when not said."""

    cluster: str
    id: str


class Revision(NamedTuple):
    """A task definition; revision 0 means the newest active one."""

    family: str
    revision: int


def partition(region: str) -> str:
    """The ARN partition a region belongs to."""
    if region.startswith("cn-"):
        return "aws-cn"
    return "aws-us-gov" if region.startswith("us-gov-") else "aws"


def cluster_arn(place: Place, name: str) -> ClusterArn:
    return ClusterArn(place.arn(f"cluster/{name}"))


def task_arn(place: Place, cluster: str, task_id: str) -> TaskArn:
    return TaskArn(place.arn(f"task/{cluster}/{task_id}"))


def instance_arn(place: Place, cluster: str, instance_id: str) -> InstanceArn:
    return InstanceArn(place.arn(f"container-instance/{cluster}/{instance_id}"))


def container_arn(place: Place, cluster: str, task_id: str, container_id: str) -> str:
    return place.arn(f"container/{cluster}/{task_id}/{container_id}")


def capacity_provider_arn(place: Place, name: str) -> str:
    return place.arn(f"capacity-provider/{name}")


def definition_arn(place: Place, family: str, revision: int) -> DefinitionArn:
    return DefinitionArn(place.arn(f"task-definition/{family}:{revision}"))


def _resource(text: str, kind: str) -> str | None:
    """What follows ``kind/`` in an ARN; the text itself when it is no ARN; None for another service or kind."""
    if not text.startswith("arn:"):
        return text
    parts = text.split(":", 5)
    if len(parts) != 6 or parts[2] != "ecs" or not parts[5].startswith(f"{kind}/"):
        return None
    return parts[5].removeprefix(f"{kind}/")


def parse_cluster(text: str | None) -> str | None:
    """A cluster's name from a name or ARN; nothing said means the default cluster."""
    name = _resource(text, "cluster") if text else DEFAULT_CLUSTER
    return name if name is not None and _CLUSTER.match(name) else None


def _parse_member(text: str, kind: str) -> Member | None:
    rest = _resource(text, kind)
    if rest is None:
        return None
    cluster, _, last = rest.rpartition("/")
    if not _ID.match(last) or (cluster and not _CLUSTER.match(cluster)):
        return None
    return Member(cluster, last)


def parse_task(text: str) -> Member | None:
    """A task from its id or ARN (long, or the old one without a cluster)."""
    return _parse_member(text, "task")


def parse_instance(text: str) -> Member | None:
    """A container instance from its id or ARN."""
    return _parse_member(text, "container-instance")


def parse_definition(text: str) -> Revision | None:
    """A task definition from ``family``, ``family:revision`` or an ARN."""
    rest = _resource(text, "task-definition")
    if rest is None:
        return None
    family, colon, revision = rest.partition(":")
    if not _FAMILY.match(family) or (
        colon and not (revision.isdecimal() and len(revision) <= 10 and int(revision) > 0)
    ):
        return None
    return Revision(family, int(revision) if colon else 0)


def parse_capacity_provider(text: str) -> str | None:
    """A capacity provider's name from a name or ARN; its characters are those of a family's."""
    name = _resource(text, "capacity-provider")
    return name if name is not None and _FAMILY.match(name) else None


def principal_arn(place: Place, who: str) -> str:
    """Who makes requests: ``user/NAME``, ``role/NAME``, or ``root`` for the account itself."""
    return f"arn:{partition(place.region)}:iam::{place.account}:{who}"


def last_part(arn: str) -> str:
    """The id at the end of an ARN."""
    return arn.rsplit("/", 1)[-1]
