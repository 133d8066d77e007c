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
ServiceArn = NewType("ServiceArn", str)

DEFAULT_CLUSTER = "default"

_CLUSTER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,254}\Z")
_FAMILY = re.compile(r"[A-Za-z0-9_-]{1,255}\Z")
_ID = re.compile(r"[A-Za-z0-9-]{1,255}\Z")
_TASK_SET = re.compile(r"(?:\A|/)ecs-svc/[0-9]{1,20}\Z")


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


class OfService(NamedTuple):
    """Something that lives in a service: one of its revisions or deployments."""

    cluster: str
    service: str
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


def service_arn(place: Place, cluster: str, name: str) -> ServiceArn:
    return ServiceArn(place.arn(f"service/{cluster}/{name}"))


def service_revision_arn(place: Place, cluster: str, service: str, revision: str) -> str:
    return place.arn(f"service-revision/{cluster}/{service}/{revision}")


def service_deployment_arn(place: Place, cluster: str, service: str, deployment: str) -> str:
    return place.arn(f"service-deployment/{cluster}/{service}/{deployment}")


def task_set_arn(place: Place, cluster: str, service: str, task_set: str) -> str:
    return place.arn(f"task-set/{cluster}/{service}/{task_set}")


def attachment_arn(place: Place, attachment_id: str) -> str:
    return place.arn(f"attachment/{attachment_id}")


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


def parse_service(text: str) -> Member | None:
    """A service from its name or ARN (long, or the old one without a cluster)."""
    rest = _resource(text, "service")
    if rest is None:
        return None
    cluster, _, last = rest.rpartition("/")
    if not _FAMILY.match(last) or (cluster and not _CLUSTER.match(cluster)):
        return None
    return Member(cluster, last)


def _parse_of_service(text: str, kind: str) -> OfService | None:
    rest = _resource(text, kind) if text.startswith("arn:") else None
    parts = (rest or "").split("/")
    if len(parts) != 3 or not (_CLUSTER.match(parts[0]) and _FAMILY.match(parts[1]) and _ID.match(parts[2])):
        return None
    return OfService(*parts)


def parse_service_revision(text: str) -> OfService | None:
    """A service revision from its ARN; it has no shorter name."""
    return _parse_of_service(text, "service-revision")


def parse_service_deployment(text: str) -> OfService | None:
    """A service deployment from its ARN; it has no shorter name."""
    return _parse_of_service(text, "service-deployment")


def parse_task_set(text: str) -> str | None:
    """A task set's id, which has a slash in it, from the id or the ARN."""
    rest = _resource(text, "task-set")
    if rest is None:
        return None
    return "/".join(rest.split("/")[-2:]) if _TASK_SET.search(rest) else None


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


def region_of(arn: str) -> str:
    """The region of an ARN; empty when it is none."""
    parts = arn.split(":", 4)
    return parts[3] if len(parts) == 5 and parts[0] == "arn" else ""


def account_of(arn: str) -> str:
    """The account of an ARN; empty when it is none."""
    parts = arn.split(":", 5)
    return parts[4] if len(parts) == 6 and parts[0] == "arn" else ""


def last_part(arn: str) -> str:
    """The id at the end of an ARN."""
    return arn.rsplit("/", 1)[-1]
