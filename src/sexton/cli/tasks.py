"""``sexton ps`` and ``sexton why``: the tasks of a cluster, one task's story."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence

import msgspec
import typer

from sexton.cli.connection import api, ask_agent, call, fail
from sexton.cloud.client import EcsClient, Unreachable
from sexton.cloud.credentials import NoCredentials
from sexton.core import names
from sexton.core.evidence import Evidence
from sexton.core.explain import Explanation, explain, short
from sexton.wire import ecs
from sexton.wire.errors import EcsError

# What DescribeTasks takes in one call.
DESCRIBED_AT_ONCE = 100

_CLUSTER = typer.Option("default", "--cluster", "-c", help="Name or ARN of the cluster.")


def ps(
    cluster: str = _CLUSTER,
    everything: bool = typer.Option(False, "--all", "-a", help="Stopped tasks too."),
    json_: bool = typer.Option(False, "--json", help="The API's own records, one JSON object a line."),
) -> None:
    """List the tasks of a cluster."""
    tasks = call(lambda client: _all_tasks(client, cluster, stopped=everything))
    if json_:
        for task in tasks:
            typer.echo(msgspec.json.encode(task).decode())
        return
    if not tasks:
        typer.echo(f"no tasks in cluster {cluster}" + ("" if everything else "; --all shows stopped ones"))
        return
    _table(tasks)


def _table(tasks: Sequence[ecs.Task]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("TASK", "DEFINITION", "STATUS", "SINCE", "CONTAINERS", "PORTS", "WHY"):
        table.add_column(heading, overflow="fold" if heading == "WHY" else "ellipsis", no_wrap=heading != "WHY")
    now = time.time()
    for task in sorted(tasks, key=lambda one: one.created_at or 0, reverse=True):
        table.add_row(
            names.last_part(task.task_arn or "")[:12],
            (task.task_definition_arn or "").rpartition("/")[2],
            _status(task),
            _age(now - (task.stopped_at or task.started_at or task.created_at or now)),
            ", ".join(_brief(one) for one in task.containers or ()),
            ", ".join(_ports(task)),
            short(task),
        )
    # Cut to the terminal's width for people, never for a pipe.
    width = None if sys.stdout.isatty() else 240
    Console(width=width, highlight=False, markup=False).print(table)


def _status(task: ecs.Task) -> str:
    if task.desired_status == "STOPPED" and task.last_status != "STOPPED":
        return f"{task.last_status} (stopping)"
    return task.last_status or "?"


def _brief(container: ecs.Container) -> str:
    if container.exit_code is not None:
        return f"{container.name}={container.exit_code}"
    return container.name or ""


def _ports(task: ecs.Task) -> list[str]:
    return [
        f"{binding.host_port}->{binding.container_port}/{binding.protocol}"
        for container in task.containers or ()
        for binding in container.network_bindings or ()
        if task.last_status != "STOPPED"
    ]


def _age(seconds: float) -> str:
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds / size:.0f}{unit}"
    return f"{max(seconds, 0):.0f}s"


async def _all_tasks(client: EcsClient, cluster: str, *, stopped: bool) -> list[ecs.Task]:
    arns: list[str] = []
    for status in ("RUNNING", "STOPPED") if stopped else ("RUNNING",):
        token: str | None = None
        while True:
            request = ecs.ListTasksRequest(cluster=cluster, desired_status=status, next_token=token)
            answer = await client.call("ListTasks", request, ecs.ListTasksResponse)
            arns += answer.task_arns or ()
            token = answer.next_token
            if not token:
                break
    tasks: list[ecs.Task] = []
    for start in range(0, len(arns), DESCRIBED_AT_ONCE):
        described = ecs.DescribeTasksRequest(cluster=cluster, tasks=tuple(arns[start : start + DESCRIBED_AT_ONCE]))
        page = await client.call("DescribeTasks", described, ecs.DescribeTasksResponse)
        tasks += page.tasks or ()
    # A task that is on its way out is listed under what is wanted of it, which is to be stopped.
    if not stopped:
        return [one for one in tasks if one.last_status != "STOPPED"]
    return tasks


def why(
    task: str = typer.Argument(help="The task's id, the start of it, or its ARN."),
    cluster: str = _CLUSTER,
    json_: bool = typer.Option(False, "--json", help="The same as one JSON object."),
) -> None:
    """Say why a task is where it is, in sentences with evidence, and what to try next."""
    here = asyncio.run(_ask_host(task))
    explanation = _from_host(here) if here is not None and not _api_knows(cluster, here) else None
    if explanation is None:
        told = here.evidence if here is not None else None
        wanted = here.task.task_arn if here is not None and here.task.task_arn else task
        explanation = call(lambda client: _explain(client, cluster, wanted, told))
    if json_:
        typer.echo(msgspec.json.encode(explanation).decode())
        return
    typer.echo(explanation.headline)
    for cause in explanation.causes:
        typer.echo(f"  {cause}")
    if explanation.on_host:
        typer.echo("on its host:")
    for note in explanation.on_host:
        typer.echo(f"  {note}")
    for step in explanation.next_steps:
        typer.echo(f"next: {step}")


class _FromHost(msgspec.Struct, frozen=True):
    task: ecs.Task
    evidence: Evidence


async def _ask_host(task: str) -> _FromHost | None:
    """What the agent on this host knows of the task; nothing when there is none or it is not one of its tasks."""
    answer = await ask_agent("/why", {"task": task})
    return msgspec.json.decode(answer, type=_FromHost) if answer is not None else None


def _from_host(here: _FromHost) -> Explanation:
    return explain(here.task, None, None, time.time(), here.evidence)


def _api_knows(cluster: str, here: _FromHost) -> bool:
    """Whether the control plane can be asked as well: keys that may run an agent need not be allowed to look."""

    async def ask() -> bool:
        request = ecs.DescribeTasksRequest(cluster=cluster, tasks=(here.task.task_arn or "",))
        async with api() as client:
            answer = await client.call("DescribeTasks", request, ecs.DescribeTasksResponse)
            return bool(answer.tasks)

    try:
        return asyncio.run(ask())
    except (Unreachable, NoCredentials, EcsError):
        return False


async def _explain(client: EcsClient, cluster: str, given: str, evidence: Evidence | None) -> Explanation:
    task = await find_task(client, cluster, given)
    definition = await client.call(
        "DescribeTaskDefinition",
        ecs.DescribeTaskDefinitionRequest(task_definition=task.task_definition_arn),
        ecs.DescribeTaskDefinitionResponse,
    )
    instances = await client.call(
        "DescribeContainerInstances",
        ecs.DescribeContainerInstancesRequest(
            cluster=cluster, container_instances=(task.container_instance_arn or "",)
        ),
        ecs.DescribeContainerInstancesResponse,
    )
    found = instances.container_instances or ()
    return explain(task, definition.task_definition, found[0] if found else None, time.time(), evidence)


async def find_task(client: EcsClient, cluster: str, given: str) -> ecs.Task:
    """A task by what a person types: a whole id or ARN, or the start of an id when it is enough."""
    answer = await client.call(
        "DescribeTasks", ecs.DescribeTasksRequest(cluster=cluster, tasks=(given,)), ecs.DescribeTasksResponse
    )
    if answer.tasks:
        return answer.tasks[0]
    start = names.last_part(given)
    matching = [
        one
        for one in await _all_tasks(client, cluster, stopped=True)
        if start and names.last_part(one.task_arn or "").startswith(start)
    ]
    if len(matching) == 1:
        return matching[0]
    if matching:
        raise fail(f"{len(matching)} tasks of cluster {cluster} begin with '{start}'; give more of the id")
    raise fail(f"cluster {cluster} has no task '{given}'; 'sexton ps --all' lists them")
