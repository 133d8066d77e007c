"""``sexton top``: this host and its tasks, live: what is promised, what is used, what is held back.

The agent answers with counters and every picture compares two answers, so figures are those of the time between two
pictures, whatever the agent's own pace is. Following a figure from here: ``core/usage.py``, ``agent/use.py``,
``host/container_counters.py``.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import sys
import time
from collections.abc import Iterator
from enum import StrEnum

import msgspec
import typer

from sexton.cli.connection import ask_agent, fail, local
from sexton.cli.top_picture import Order, picture
from sexton.core.usage import Rates, Usage, rates

# Two looks are this far apart where only one picture is wanted.
ONCE_SECONDS = 1.0
LEAST_SECONDS = 0.5


class Sort(StrEnum):
    CPU = "cpu"
    MEMORY = "memory"
    NAME = "name"


def top(
    once: bool = typer.Option(False, "--once", help="One picture, measured over a second, and no more."),
    json_: bool = typer.Option(
        False, "--json", help="One JSON object a picture instead of a table; the fields are in docs/sizing.md."
    ),
    every: float = typer.Option(2.0, help="Seconds between two pictures.", min=LEAST_SECONDS, max=3600.0),
    sort: Sort = typer.Option(Sort.CPU, metavar="cpu|memory|name", help="What tasks are ordered by."),
) -> None:
    """Show what tasks on this host are promised and what they use; q or Ctrl-C ends it.

    Without a terminal there is one picture, as with --once.
    """
    order = Order[sort.name]
    try:
        before = asyncio.run(_ask())
        if once or (not json_ and not sys.stdout.isatty()):
            time.sleep(ONCE_SECONDS)
            _one(before, asyncio.run(_ask()), order, json_=json_)
        elif json_:
            _stream(before, every, order)
        else:
            _live(before, every, order)
    except KeyboardInterrupt:
        raise typer.Exit(0) from None
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nobody reads what is still buffered
        raise typer.Exit(0) from None


async def _ask() -> Usage:
    async with local("/use", {}) as answer:
        try:
            return msgspec.json.decode(await answer.read(), type=Usage)
        except msgspec.MsgspecError:
            raise fail("cannot understand the agent's answer; it is of another version, restart it") from None


async def _ask_again() -> Usage | None:
    """Nothing while the agent is away, as it is when it is started again."""
    answer = await ask_agent("/use", {})
    try:
        return msgspec.json.decode(answer, type=Usage) if answer is not None else None
    except msgspec.MsgspecError:
        return None


def _one(before: Usage, after: Usage, order: Order, *, json_: bool) -> None:
    from rich.console import Console

    found = rates(before, after)
    if json_:
        sys.stdout.write(_json(after, found) + "\n")
        sys.stdout.flush()
        return
    console = Console(width=None if sys.stdout.isatty() else 120, highlight=False, markup=False)
    console.print(picture(after, found, order, console.width))


def _stream(before: Usage, every: float, order: Order) -> None:
    while True:
        time.sleep(every)
        after = asyncio.run(_ask())
        _one(before, after, order, json_=True)
        before = after


def _live(before: Usage, every: float, order: Order) -> None:
    from rich.console import Console, Group
    from rich.live import Live
    from rich.text import Text

    console = Console(highlight=False, markup=False)
    found = rates(before, before)
    with _keys(), Live(console=console, screen=True, auto_refresh=False) as live:
        pause = ONCE_SECONDS  # the first figures come soon
        while True:
            live.update(picture(before, found, order, console.width, console.height), refresh=True)
            if _quits(pause):
                return
            after = asyncio.run(_ask_again())
            while after is None:
                lost = Text("the agent does not answer; this is the last picture, and it is asked again", style="red")
                live.update(Group(lost, picture(before, found, order, console.width, console.height - 1)), refresh=True)
                if _quits(every):
                    return
                after = asyncio.run(_ask_again())
            found = rates(before, after)
            before, pause = after, every


@contextlib.contextmanager
def _keys() -> Iterator[None]:
    """Single keys, unseen, where standard input is a terminal."""
    if not sys.stdin.isatty():
        yield
        return
    import termios
    import tty

    saved = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin)
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, saved)


def _quits(seconds: float) -> bool:
    """Wait that long; whether somebody pressed q meanwhile."""
    ends = time.monotonic() + seconds
    while (left := ends - time.monotonic()) > 0:
        if not sys.stdin.isatty():
            time.sleep(left)
            return False
        if select.select([sys.stdin], [], [], left)[0] and sys.stdin.read(1) in ("q", "Q"):
            return True
    return False


def _json(usage: Usage, found: Rates) -> str:
    """The agent's answer, with what happened between the two looks beside each part."""
    whole = msgspec.to_builtins(usage)
    whole["host"] |= {"cpu": found.cpu, "steal": found.steal, "stalled": dict(found.stalled)}
    for task in whole.get("tasks", ()):
        rate = found.tasks.get(task["arn"])
        task |= {"cpu": rate.cpu, "throttled_share": rate.throttled} if rate else {"cpu": None, "throttled_share": None}
        task["stalled"] = dict(rate.stalled) if rate else {}
        for container in task.get("containers", ()):
            one = rate.containers.get(container["name"]) if rate else None
            container["cpu"] = one.cpu if one else None
    return msgspec.json.encode(whole).decode()
