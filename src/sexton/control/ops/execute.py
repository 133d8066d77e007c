"""ExecuteCommand: understood, and refused as ECS refuses it for a task that was started without it.

No task here can be started with execute command enabled yet, so that is the truth about each of them. What is wrong
with a request in other ways is told first, as the service does.
"""

from __future__ import annotations

from sexton.control.context import Call, Context, Operation, active_cluster, invalid
from sexton.control.ops import tasks
from sexton.wire import ecs


async def execute(context: Context, call: Call, request: ecs.ExecuteCommandRequest) -> ecs.ExecuteCommandResponse:
    cluster = active_cluster(context, call, request.cluster).value.name
    if not request.interactive:
        raise invalid("Interactive is the only mode supported currently.")
    entry = tasks.find(context, call, cluster, request.task)
    if entry is None:
        raise invalid("The referenced task was not found.")
    containers = [one.name for one in entry.value.task.containers or ()]
    if request.container is None and len(containers) > 1:
        raise invalid("A container name must be specified for a task with more than one container.")
    if request.container is not None and request.container not in containers:
        raise invalid(f"The container {request.container} is not a container of the task.")
    raise invalid(
        "The execute command failed because execute command was not enabled when the task was run or the execute "
        "command agent isn't running. Wait and try again or run a new task with execute command enabled and try again."
    )


OPERATIONS: dict[str, Operation] = {
    "ExecuteCommand": execute,
}
