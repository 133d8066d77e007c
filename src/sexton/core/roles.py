"""What an access key may do, by its role: everything, what an agent does, or only to look.

A role says which operations are open to a key at all. Of an agent's key, ``control.authority`` asks besides whose
container instance or task a request speaks of: an agent speaks for its own alone.
"""

from __future__ import annotations

from enum import StrEnum


class Role(StrEnum):
    ADMIN = "admin"
    AGENT = "agent"
    READ = "read"


MEANING = {
    Role.ADMIN: "may do everything",
    Role.AGENT: "may do what the agent of its own container instance does",
    Role.READ: "may describe and list",
}

# What agents call, Amazon's and ours. An agent that was given no cluster makes the default one before it registers;
# one that is told of its host's end drains itself; a task asks its agent to be protected.
AGENT_OPERATIONS = frozenset(
    {
        "CreateCluster",
        "DeregisterContainerInstance",
        "DiscoverPollEndpoint",
        "GetTaskProtection",
        "RegisterContainerInstance",
        "SubmitAttachmentStateChanges",
        "SubmitContainerStateChange",
        "SubmitTaskStateChange",
        "UpdateContainerInstancesState",
        "UpdateTaskProtection",
    }
)


# What an agent's key may do with logs: send what its tasks write. Nothing of what others wrote.
AGENT_LOGS = frozenset({"CreateLogGroup", "CreateLogStream", "PutLogEvents"})


def may_log(role: Role, operation: str) -> bool:
    """Whether a key of this role may call an operation of CloudWatch Logs."""
    if role is Role.READ:
        return operation.startswith(("Describe", "List", "Get", "Filter"))
    return role is Role.ADMIN or operation in AGENT_LOGS


def may(role: Role, operation: str) -> bool:
    """Whether a key of this role may call an operation at all."""
    if role is Role.ADMIN:
        return True
    if role is Role.READ:
        return operation.startswith(("Describe", "List")) or operation == "GetTaskProtection"
    return operation in AGENT_OPERATIONS
