"""``sexton events``: what happens to tasks, container instances, services and deployments, as it happens.

Each event comes with a cursor. A connection that breaks is opened again behind the last event that was shown, so
nothing is missed or shown twice; the cursor can also be given by hand, for whoever goes on another day.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import aiohttp
import msgspec
import typer

from sexton.cli.connection import fail
from sexton.cli.own import stream
from sexton.cloud.client import Unreachable
from sexton.cloud.credentials import NoCredentials
from sexton.core import names
from sexton.core.values import BadValue, duration
from sexton.kit.retry import Backoff
from sexton.wire.errors import EcsError

BACKOFF = Backoff(first=0.5, cap=15.0)


class Told(NamedTuple):
    """One event as it came."""

    cursor: str
    data: bytes
    gap: bool = False


def events(
    follow: bool = typer.Option(False, "--follow", "-f", help="Go on as they happen."),
    since: str = typer.Option("", "--since", help="Only those of the last 10m, 1h30m and so on; or: oldest."),
    after: str = typer.Option("", "--after", metavar="CURSOR", help="Only those behind this one."),
    cluster: str = typer.Option("", "--cluster", "-c", help="Name or ARN of a cluster; without, all of the region."),
    json_: bool = typer.Option(False, "--json", help="One JSON object a line: cursor, and event as in EventBridge."),
) -> None:
    """Show state changes of tasks, container instances, services and deployments."""
    fields = {"follow": "true" if follow else "false"}
    if cluster:
        fields["cluster"] = cluster
    if since:
        try:
            fields["since"] = since if since == "oldest" else f"{time.time() - duration(since):.3f}"
        except BadValue as error:
            raise typer.BadParameter(str(error), param_hint="--since") from None
    try:
        asyncio.run(_show(fields, after, follow=follow, json_=json_))
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    except BrokenPipeError:
        raise typer.Exit(0) from None


async def _show(fields: dict[str, str], after: str, *, follow: bool, json_: bool) -> None:
    delays = BACKOFF.delays()
    while True:
        try:
            headers = {"Last-Event-ID": after} if after else {}
            async with stream("/sexton/events", fields, headers) as answer:
                async for one in read(answer):
                    delays = BACKOFF.delays()
                    if one.gap:
                        typer.echo("sexton: events are missing here: they are no longer kept", err=True)
                        continue
                    after = one.cursor
                    if one.data:
                        typer.echo(_as_json(one) if json_ else _as_line(one))
            if not follow:
                return
        except (Unreachable, EcsError, NoCredentials) as error:
            mendable = isinstance(error, Unreachable) or (isinstance(error, EcsError) and error.status >= 500)
            # One that never began is most likely a wrong address; one that was followed is worth waiting for.
            if not (follow and after and mendable):
                raise fail(str(error)) from None
        await asyncio.sleep(next(delays))


async def read(answer: aiohttp.ClientResponse) -> AsyncIterator[Told]:
    """Server-sent events out of an answer; one without data only says where the stream begins."""
    cursor, said, kind, data = "", "", "", b""
    try:
        async for raw in answer.content:
            line = raw.rstrip(b"\r\n")
            field, _, value = line.partition(b": ")
            if field == b"id":
                cursor = value.decode()
            elif field == b"event":
                kind = value.decode()
            elif field == b"data":
                data = value
            elif not line and (data or cursor != said):
                yield Told(cursor, data, kind == "gap")
                kind, data, said = "", b"", cursor
    except (aiohttp.ClientError, ConnectionError, TimeoutError) as error:
        raise Unreachable(f"the stream of events broke: {error or type(error).__name__}") from None


def _as_json(one: Told) -> str:
    return f'{{"cursor":"{one.cursor}","event":{one.data.decode()}}}'


def _as_line(one: Told) -> str:
    event: dict[str, Any] = msgspec.json.decode(one.data)
    detail: dict[str, Any] = event["detail"]
    kind = str(event["detail-type"])
    who = names.last_part(event["resources"][0])
    match kind:
        case "ECS Task State Change":
            said = f"{detail.get('lastStatus')} (wanted {detail.get('desiredStatus')})"
            if detail.get("stoppedReason"):
                said += f": {detail['stoppedReason']}"
            where = f"task {who[:12]}"
        case "ECS Container Instance State Change":
            said = f"{detail.get('status')}, agent {'' if detail.get('agentConnected') else 'not '}connected"
            where = f"instance {who[:12]}"
        case _:
            said = " ".join(str(detail[name]) for name in ("eventType", "eventName", "reason") if name in detail)
            where = f"service {who}"
    return _visible(f"{event['time']}  {where:<24} {said}")


def _visible(text: str) -> str:
    """Reasons come from engines and people: none of them may drive the reader's terminal."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)
