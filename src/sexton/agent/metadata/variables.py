"""What a container is told of its endpoint: variables that win over its own."""

from __future__ import annotations

from sexton.agent.metadata.credentials import relative_uri
from sexton.agent.metadata.identity import Names
from sexton.core.endpointrules import ADDRESS
from sexton.wire import acs_task


def of_container(names: Names, task: acs_task.Task, container: str) -> dict[str, str]:
    """The variables of one container. Of keys only the place is told; they are asked for, and change."""
    name = names.of(task.arn or "", container)
    base = f"http://{ADDRESS}"
    told = {
        "ECS_CONTAINER_METADATA_URI": f"{base}/v3/{name}",
        "ECS_CONTAINER_METADATA_URI_V4": f"{base}/v4/{name}",
        "ECS_AGENT_URI": f"{base}/api/{name}",
    }
    role = task.role_credentials
    if role is not None and role.credentials_id:
        told["AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"] = relative_uri(role.credentials_id)
    return told
