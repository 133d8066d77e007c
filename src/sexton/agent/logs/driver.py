"""Whether a container logs by ``awslogs``, and what it is told when its lines cannot go there.

Apart from ``ways``, which only hosts with such containers load.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sexton.core import awslogs


class NoWay(Exception):  # noqa: N818 - becomes the reason of a task
    """The lines of a container cannot go where its definition wants them."""


def options_of(body: Mapping[str, Any]) -> dict[str, Any] | None:
    """The part of a create request that says how a container logs, where it logs by this driver."""
    config = body.get("HostConfig", {}).get("LogConfig")
    if not isinstance(config, dict) or config.get("Type") != awslogs.DRIVER:
        return None
    return config
