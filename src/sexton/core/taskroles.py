"""The two roles that a task may have: its own, and the one with which it is made ready.

A definition names them and an override may name others; a short name is a role of this account. What this says is
only which roles are meant: whether there are keys of them is said by the roles file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from sexton.wire import ecs

# The words of the wire.
TASK, EXECUTION = "TaskApplication", "TaskExecution"


class BadRole(ValueError):  # noqa: N818 - the message is for a person
    """A name that no role can have."""


class TaskRole(NamedTuple):
    """One role of a task."""

    kind: str  # TASK or EXECUTION
    arn: str


def of_task(
    definition: ecs.TaskDefinition, overrides: ecs.TaskOverride | None, partition: str, account: str
) -> tuple[TaskRole, ...]:
    """A task's roles; BadRole for a name that cannot be one."""
    from sexton.core.rolesfile import whole_arn  # heavy, and agents come here for two words alone

    given = (
        (TASK, (overrides and overrides.task_role_arn) or definition.task_role_arn),
        (EXECUTION, (overrides and overrides.execution_role_arn) or definition.execution_role_arn),
    )
    found = []
    for kind, name in given:
        if name:
            arn = whole_arn(name, partition, account)
            if arn is None:
                raise BadRole(f"Role is not valid: {name}")
            found.append(TaskRole(kind, arn))
    return tuple(found)


def refusal(role_arn: str, why: str) -> str:
    """That a task cannot have its role, in the words that ECS uses, and why."""
    return f"ECS was unable to assume the role '{role_arn}' that was provided for this task. {why}"
