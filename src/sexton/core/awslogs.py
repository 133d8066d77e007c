"""The log driver ``awslogs``: what a definition says of it, what the engine is told, and where the lines go.

The control plane makes the name of the stream, which no engine knows how to, and says where its own logs are. The
agent gives the engine the address of its relay on this host instead of that, so that a destination that is slow or
gone is the agent's trouble and never the task's. All else a definition says reaches the engine as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

DRIVER = "awslogs"
GROUP = "awslogs-group"
STREAM = "awslogs-stream"
PREFIX = "awslogs-stream-prefix"
REGION = "awslogs-region"
ENDPOINT = "awslogs-endpoint"
CREDENTIALS = "awslogs-credentials-endpoint"
CREATE_GROUP = "awslogs-create-group"
FLUSH = "awslogs-force-flush-interval-seconds"
# How a payload says that the execution role's keys sign.
EXECUTION_ROLE = "ExecutionRole"
# What the engine takes for true.
_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
# Lines are seen soon after they are written; the engine's own default is five seconds.
FLUSH_SECONDS = "1"


class Destination(NamedTuple):
    """Where a container's lines go. Without a stream's name the engine makes one of the container's id."""

    endpoint: str
    region: str
    group: str
    stream: str = ""
    create_group: bool = False
    execution_role: bool = False


def rendered(options: Mapping[str, str], container: str, task_id: str, endpoint: str) -> dict[str, str]:
    """The options of a definition as an agent is told them."""
    told = dict(options)
    prefix = told.pop(PREFIX, "")
    if prefix and not told.get(STREAM):
        told[STREAM] = f"{prefix}/{container}/{task_id}"
    if endpoint:
        told.setdefault(ENDPOINT, endpoint)
    return told


def destination(options: Mapping[str, str], region: str, auth: str | None) -> Destination:
    """Where the lines of these options go; the endpoint is empty where it is AWS itself."""
    return Destination(
        endpoint=options.get(ENDPOINT, ""),
        region=options.get(REGION) or region,
        group=options.get(GROUP, ""),
        stream=options.get(STREAM, ""),
        create_group=options.get(CREATE_GROUP, "") in _TRUE,
        execution_role=(auth or "").replace("_", "").lower() == EXECUTION_ROLE.lower(),
    )


def through_relay(options: Mapping[str, str], port: int, token: str, *, flush: bool) -> dict[str, str]:
    """The options for an engine on this host: its lines go to the relay, which knows by the token whose they are.

    An engine puts the address of ECS's credentials endpoint before the option that names the path to its keys. What
    is before an @ is a user's name in a URL, so this path leads to the relay, wherever that address would lead.
    """
    told = dict(options)
    told[ENDPOINT] = f"http://127.0.0.1:{port}/t/{token}"
    told[CREDENTIALS] = f"@127.0.0.1:{port}/c/{token}"
    if flush:
        told.setdefault(FLUSH, FLUSH_SECONDS)
    return told
