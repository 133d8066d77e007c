"""The variables of Amazon's agent that change nothing here, each with the reason.

Whoever copies a config file hears once, by name, what it cannot have; nothing is swallowed. When one of them comes to
have an effect it moves to a table of rows.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Cause(StrEnum):
    """Why a variable has no effect."""

    NO_CONTAINER = "the agent is a program of the host, not a container"
    WINDOWS = "it concerns Windows hosts"
    ANOTHER_WAY = "done in another way"
    NOT_YET = "not served yet"
    CLOUD = "it needs parts of Amazon's that cannot be had here"


class Unused(NamedTuple):
    """One variable without effect. ``harmless`` when a task runs just the same."""

    name: str
    cause: Cause
    reason: str
    harmless: bool = True


def _all(cause: Cause, rows: dict[str, str], *, harmless: bool = True) -> tuple[Unused, ...]:
    return tuple(Unused(name, cause, reason, harmless) for name, reason in rows.items())


UNUSED: tuple[Unused, ...] = (
    *_all(
        Cause.NO_CONTAINER,
        {
            "ECS_HOST_DATA_DIR": "ECS_DATADIR is a path of the host already",
            "ECS_LOG_DRIVER": "its standard error goes to the journal",
            "ECS_LOG_OPTS": "there is no container whose log they could shape",
            "ECS_INIT_DOCKER_LOG_FILE_SIZE": "there is no container log; see ECS_LOG_MAX_FILE_SIZE_MB",
            "ECS_INIT_DOCKER_LOG_FILE_NUM": "there is no container log; see ECS_LOG_MAX_ROLL_COUNT",
            "ECS_AGENT_LABELS": "there is nothing to label",
            "ECS_AGENT_APPARMOR_PROFILE": "the unit file confines it",
            "ECS_AGENT_RUN_PRIVILEGED": "the unit file confines it",
            "ECS_AGENT_PID_NAMESPACE_HOST": "it sees the host's processes anyway",
        },
    ),
    *_all(
        Cause.ANOTHER_WAY,
        {
            "ECS_POLL_METRICS": "counters are always read from cgroup files, which costs less than either of its ways",
            "ECS_ENABLE_PROMETHEUS_METRICS": "metrics are always served, as /metrics on the introspection port",
            "ECS_ENABLE_RUNTIME_STATS": "it is the profiler of another language; /metrics says what this one uses",
            "ECS_UPDATES_ENABLED": "updates come as packages; one that the control plane sends is refused",
            "ECS_UPDATE_DOWNLOAD_DIR": "updates come as packages",
            "ECS_ALLOW_OFFHOST_INTROSPECTION_ACCESS": "SEXTON_INTROSPECTION names the address, and no rule closes it",
            "ECS_OFFHOST_INTROSPECTION_INTERFACE_NAME": "SEXTON_INTROSPECTION names the address",
            "ECS_SKIP_LOCALHOST_TRAFFIC_FILTER": "loopback is opened to nobody, so nothing has to be closed again",
            "ECS_CNI_PLUGINS_PATH": "tasks' networks are wired without plug-ins",
            "ECS_AWSVPC_ADDITIONAL_LOCAL_ROUTES": "tasks reach what their groups and the host let them reach",
            "ECS_ENABLE_AWSLOGS_EXECUTIONROLE_OVERRIDE": "the keys of a task's execution role sign wherever it has one",
            "ECS_PAUSE_LABELS": "what holds a task's network is no container of the task and carries no labels of it",
            "ECS_INSTANCE_IP_COMPATIBILITY": "either family is used as the network has it",
        },
    ),
    *_all(
        Cause.NOT_YET,
        {
            "ECS_ENABLE_FIRELENS_ASYNC": "FireLens is not served yet",
        },
        harmless=False,
    ),
    *_all(
        Cause.CLOUD,
        {
            "ECS_ENABLE_INF_SUPPORT": "the runtime for Neuron devices is part of Amazon's machine images",
            "ECS_ENABLE_HIGH_DENSITY_ENI": "trunk interfaces exist in Amazon's network only",
            "ECS_EBSTA_SUPPORTED": "attaching EBS volumes needs Amazon's driver image",
            "ECS_GMSA_SUPPORTED": "credential specs need Amazon's credentials-fetcher",
            "CREDENTIALS_FETCHER_HOST": "credential specs need Amazon's credentials-fetcher",
            "CREDENTIALS_FETCHER_HOST_DIR": "credential specs need Amazon's credentials-fetcher",
            "CREDENTIALS_FETCHER_SECRET_NAME_FOR_DOMAINLESS_GMSA": "credential specs need Amazon's credentials-fetcher",
            "ECS_DOMAIN_JOINED_LINUX_INSTANCE": "credential specs need Amazon's credentials-fetcher",
        },
        harmless=False,
    ),
    *_all(
        Cause.WINDOWS,
        {
            "ECS_FSX_WINDOWS_FILE_SERVER_SUPPORTED": "Linux hosts cannot mount it",
            "ECS_ENABLE_CPU_UNBOUNDED_WINDOWS_WORKAROUND": "nothing to work around",
            "ECS_ENABLE_MEMORY_UNBOUNDED_WINDOWS_WORKAROUND": "nothing to work around",
        },
    ),
)
