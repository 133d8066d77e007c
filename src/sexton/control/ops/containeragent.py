"""UpdateContainerAgent: this control plane has no newer agent to offer.

An agent is brought up to date where it was installed from, by the host's package manager or image; nothing here could
send it one. So every agent that says its version gets the API's word for "nothing newer", which tools take well.
"""

from __future__ import annotations

from sexton.control.context import Call, Context, Operation, active_cluster, invalid
from sexton.control.ops import instances
from sexton.wire import ecs
from sexton.wire.errors import MissingVersionException, NoUpdateAvailableException


async def update(
    context: Context, call: Call, request: ecs.UpdateContainerAgentRequest
) -> ecs.UpdateContainerAgentResponse:
    cluster = active_cluster(context, call, request.cluster).value.name
    entry = instances.find(context, call, cluster, request.container_instance)
    if entry is None:
        raise invalid("The referenced container instance was not found.")
    version = entry.value.instance.version_info
    if version is None or not version.agent_version:
        raise MissingVersionException("The agent of this container instance has not said which version it is.")
    raise NoUpdateAvailableException("There is no update available for your container agent.")


OPERATIONS: dict[str, Operation] = {
    "UpdateContainerAgent": update,
}
