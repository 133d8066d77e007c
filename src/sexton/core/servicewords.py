"""The sentences of service events, in the words that ECS uses for them.

Tools match on these texts, so each is one function. Those marked "observed" are not in ECS's documentation but in what
it has been seen to write; the one marked "ours" has no known original. Which task ids a start produced is
known to the shell alone, so it says ``started`` and ``unplaced`` itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def _ids(tasks: Sequence[str]) -> str:
    return " ".join(f"(task {task})" for task in tasks)


def _who(service: str, task_set: str) -> str:
    return f"(service {service}, taskSet {task_set})" if task_set else f"(service {service})"


def started(service: str, tasks: Sequence[str], *, replaced: int = 0, zone: str = "", task_set: str = "") -> str:
    """Said by the shell for every StartTasks that placed something; ``zone`` when the action named one."""
    if zone:
        return f"{_who(service, task_set)} has started {len(tasks)} tasks in {zone} to AZ Rebalance: {_ids(tasks)}."
    text = f"{_who(service, task_set)} has started {len(tasks)} tasks: {_ids(tasks)}."
    return f"{text} Amazon ECS replaced {replaced} tasks due to an unhealthy status." if replaced else text  # observed


def stopped(service: str, tasks: Sequence[str], *, task_set: str = "") -> str:
    return f"{_who(service, task_set)} has stopped {len(tasks)} running tasks: {_ids(tasks)}."


def stopped_for_balance(service: str, tasks: Sequence[str], zone: str) -> str:
    return f"(service {service}) has stopped {len(tasks)} running tasks in {zone} due to AZ rebalancing: {_ids(tasks)}."


def unplaced(service: str, closest: str = "", problem: str = "", *, zone: str = "", task_set: str = "") -> str:
    """Said by the shell when a start found no room. ``closest`` is the id of the host that lacked least, ``problem``
    one of ``PROBLEMS``."""
    if zone:
        return (
            f"(service {service}) is unable to place a task in {zone} "
            "because no container instance met all of its requirements."
        )
    text = (
        f"{_who(service, task_set)} was unable to place a task because no container instance met all of its "
        "requirements."
    )
    return f"{text} The closest matching (container-instance {closest}) {problem}." if closest and problem else text


def not_launched(service: str, error: str, *, task_set: str = "") -> str:
    """Said in the place of ``unplaced`` when tasks cannot have their roles or their network."""
    return f"{_who(service, task_set)} failed to launch a task with (error {error.rstrip('.')})."  # observed


# The ends of ``unplaced``, by the reason that placement gives.
PROBLEMS: Mapping[str, str] = {
    "RESOURCE:CPU": "has insufficient CPU units available",
    "RESOURCE:MEMORY": "has insufficient memory available",
    "RESOURCE:PORTS": "is already using a port required by your task",
    "RESOURCE:ENI": "has no address for the network interface required by your task",
    "RESOURCE:GPU": "has insufficient GPU resource available",
    "ATTRIBUTE": "is missing an attribute required by your task",
    "AGENT": 'encountered error "AGENT"',
}


def steady(service: str) -> str:
    return f"(service {service}) has reached a steady state."


def impaired(service: str, *, task_set: str = "") -> str:
    return f"{_who(service, task_set)} is unable to consistently start tasks successfully."


def unhealthy(service: str, task: str) -> str:
    return f"(service {service}) (task {task}) failed container health checks."  # observed


def stuck(service: str) -> str:
    return (
        f"(service {service}) was unable to stop or start tasks during a deployment because of the service deployment "
        "configuration. Update the minimumHealthyPercent or maximumPercent value and try again."
    )


def protected(service: str, deployment: str, count: int) -> str:
    return f"{_who(service, deployment)} was unable to scale in due to (reason {count} tasks under protection)"


def completed(service: str, deployment: str) -> str:
    return f"(service {service}) (deployment {deployment}) deployment completed."


def failed(service: str, deployment: str) -> str:
    return f"(service {service}) (deployment {deployment}) deployment failed: tasks failed to start."


def rolling_back(service: str, deployment: str) -> str:
    return f"(service {service}) rolling back to deployment {deployment}."


def halted(service: str, deployment: str) -> str:
    return f"(service {service}) (deployment {deployment}) deployment failed: stopped by the user."  # ours


def _zones(held: Mapping[str, int]) -> str:
    parts = [f"{count} tasks in {zone}" for zone, count in sorted(held.items())]
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])}, and {parts[-1]}"


def unbalanced(service: str, held: Mapping[str, int]) -> str:
    return f"(service {service}) is not AZ balanced with {_zones(held)}. AZ Rebalancing in progress."


def balanced(service: str, held: Mapping[str, int]) -> str:
    return f"(service {service}) is AZ balanced with {_zones(held)}."


def recomputed(service: str, task_set: str, count: int) -> str:
    return f"(service {service}) updated computedDesiredCount for taskSet {task_set} to {count}."  # observed


def set_steady(service: str, task_set: str) -> str:
    return f"{_who(service, task_set)} updated state to STEADY_STATE."  # observed
