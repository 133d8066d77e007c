"""What a container is told of its endpoint: variables that win over its own."""

from __future__ import annotations

from sexton.agent.metadata.identity import Names
from sexton.core.endpointrules import ADDRESS
from sexton.wire import acs_task


def of_container(names: Names, task: acs_task.Task, container: str) -> dict[str, str]:
    """The variables of one container; its ``AWS_CONTAINER_CREDENTIALS_RELATIVE_URI`` belongs here as well."""
    name = names.of(task.arn or "", container)
    base = f"http://{ADDRESS}"
    return {
        "ECS_CONTAINER_METADATA_URI": f"{base}/v3/{name}",
        "ECS_CONTAINER_METADATA_URI_V4": f"{base}/v4/{name}",
        "ECS_AGENT_URI": f"{base}/api/{name}",
    }
