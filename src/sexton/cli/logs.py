"""``sexton logs``: what a task has written, from wherever it can be read back.

The agent of this host reads from the engine, whatever the driver, as far as the engine can. What it cannot read, and
tasks of other hosts and of the past, are read from the log group that their definition names.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import AsyncIterator, Callable
from datetime import datetime
from typing import NamedTuple

import aiohttp
import msgspec
import typer

from sexton.cli.connection import (
    DEFAULT_ENDPOINT,
    DEFAULT_REGION,
    api,
    ask_agent,
    data_dir,
    fail,
    http_session,
    keyring,
    local,
)
from sexton.cli.tasks import find_task
from sexton.cloud import places
from sexton.cloud.client import Unreachable
from sexton.cloud.credentials import NoCredentials
from sexton.cloud.logs import LogsClient
from sexton.core import awslogs
from sexton.core.names import last_part
from sexton.core.values import BadValue, duration
from sexton.wire import ecs
from sexton.wire import logs as wire
from sexton.wire.errors import EcsError, ResourceNotFoundException

# How often a group is asked for more.
FOLLOW_SECONDS = 0.5


class _Line(msgspec.Struct, frozen=True):
    container: str
    stream: str = "stdout"
    text: str = ""
    time: float = 0.0
    error: str = ""


class Asked(NamedTuple):
    """What the command line asked for. ``since`` is a time, 0 for all."""

    task: str
    container: str
    cluster: str
    follow: bool
    tail: int
    since: float
    wanted: Callable[[str], object]

    def show(self, line: _Line) -> None:
        if self.wanted(line.text):
            prefix = f"{line.container} | " if not self.container else ""
            typer.echo(prefix + line.text, err=line.stream == "stderr")


class Source(NamedTuple):
    """A container's stream in a log group."""

    container: str
    endpoint: str
    region: str
    group: str
    stream: str


def logs(
    task: str = typer.Argument(help="The task's id, or the start of it."),
    container: str = typer.Argument("", help="One container of it; without, all of them."),
    follow: bool = typer.Option(False, "--follow", "-f", help="Go on as it writes."),
    tail: int = typer.Option(0, "--tail", "-n", min=0, help="Only so many of the last lines; 0 means all."),
    since: str = typer.Option("", "--since", "-s", help="Only lines from then on: 10m, 2h, or 2026-01-31T12:00:00Z."),
    grep: str = typer.Option("", "--grep", "-g", help="Only lines in which this regular expression is found."),
    cluster: str = typer.Option("default", "--cluster", "-c", help="Of a task that is not on this host."),
) -> None:
    """Show what a task has written."""
    try:
        wanted: Callable[[str], object] = re.compile(grep).search if grep else lambda _: True
    except re.error as error:
        raise fail(f"cannot read --grep '{grep}' as a regular expression: {error}") from None
    asked = Asked(task, container, cluster, follow, tail, _moment(since), wanted)
    try:
        asyncio.run(_logs(asked))
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    except BrokenPipeError:
        raise typer.Exit(0) from None
    except Unreachable as error:
        raise fail(str(error)) from None
    except NoCredentials as error:
        raise fail(
            f"no agent at {data_dir() / 'agent.sock'} knows task {task}, and the control plane cannot be asked: "
            f"{error}. Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or run as root here"
        ) from None
    except EcsError as error:
        raise fail(f"{error.code}: {error.message}") from None


def _moment(text: str) -> float:
    if not text:
        return 0.0
    try:
        return time.time() - duration(text)
    except BadValue:
        pass
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        raise fail(f"cannot read --since '{text}': give a duration such as 10m, or a time") from None


async def _logs(asked: Asked) -> None:
    if await ask_agent("/why", {"task": asked.task}) is None:
        sources = await _sources(asked, asked.task)
        if not sources:
            raise fail(
                f"cannot read what task {asked.task} wrote: it is not on this host, and its containers do not log to "
                "a group; ask on its host"
            )
        await _from_groups(asked, sources)
        return
    unread = await _from_host(asked)
    if not unread:
        return
    sources = [one for one in await _sources(asked, asked.task) if one.container in unread]
    for name in unread.keys() - {one.container for one in sources}:
        typer.echo(f"sexton: cannot read the log of {name}: {unread[name]}", err=True)
    if sources:
        await _from_groups(asked, sources)
    if len(sources) < len(unread):
        raise typer.Exit(1)


async def _from_host(asked: Asked) -> dict[str, str]:
    """Show what the engine of this host has; the containers that it cannot read, and why."""
    fields = {"task": asked.task, "tail": str(asked.tail), "follow": "1" if asked.follow else "0"}
    if asked.container:
        fields["container"] = asked.container
    if asked.since:
        fields["since"] = f"{asked.since:.3f}"
    unread: dict[str, str] = {}
    async with local("/logs", fields) as answer:
        try:
            async for raw in answer.content:
                line = msgspec.json.decode(raw, type=_Line)
                if line.error:
                    unread[line.container] = line.error
                else:
                    asked.show(line)
        except aiohttp.ClientPayloadError:
            raise fail("the agent ended while its log was read") from None
    return unread


async def _sources(asked: Asked, given: str) -> list[Source]:
    """Where the containers of a task log to."""
    async with api() as client:
        task = await find_task(client, asked.cluster, given)
        request = ecs.DescribeTaskDefinitionRequest(task_definition=task.task_definition_arn)
        answer = await client.call("DescribeTaskDefinition", request, ecs.DescribeTaskDefinitionResponse)
    definition = answer.task_definition or ecs.TaskDefinition()
    sources = []
    for one in definition.container_definitions or ():
        config = one.log_configuration
        if config is None or config.log_driver != awslogs.DRIVER or asked.container not in ("", one.name):
            continue
        told = awslogs.rendered(config.options or {}, one.name or "", last_part(task.task_arn or ""), "")
        to = awslogs.destination(told, DEFAULT_REGION, None)
        if to.stream:
            endpoint = to.endpoint or places.configured("CLOUDWATCH_LOGS", os.environ) or DEFAULT_ENDPOINT
            sources.append(Source(one.name or "", endpoint, to.region, to.group, to.stream))
    return sources


async def _from_groups(asked: Asked, sources: list[Source]) -> None:
    """Show streams of log groups, in rounds; within a round by time."""
    async with http_session() as http:
        client = LogsClient(http)
        readers = [_read(client, asked, one) for one in sources]
        while True:
            found = [line for reader in readers for line in await anext(reader)]
            for line in sorted(found, key=lambda one: one.time):
                asked.show(line)
            if not found and not asked.follow:
                return
            if not found:
                await asyncio.sleep(FOLLOW_SECONDS)


async def _read(client: LogsClient, asked: Asked, source: Source) -> AsyncIterator[list[_Line]]:
    """What came since the last time, again and again."""
    keys = keyring()
    token: str | None = None
    while True:
        request = wire.GetLogEventsRequest(
            log_group_name=source.group,
            log_stream_name=source.stream,
            start_time=int(asked.since * 1000) or None,
            start_from_head=not asked.tail or token is not None,
            limit=min(asked.tail, 10_000) if asked.tail and token is None else None,
            next_token=token,
        )
        try:
            page = await client.call(
                source.endpoint, source.region, keys, "GetLogEvents", request, wire.GetLogEventsResponse
            )
        except ResourceNotFoundException:
            yield []  # nothing was written yet
            continue
        token = page.next_forward_token
        yield [
            _Line(source.container, text=one.message or "", time=(one.timestamp or 0) / 1000)
            for one in page.events or ()
        ]
