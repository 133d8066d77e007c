"""The picture that ``sexton top`` draws: the host in three lines, then its tasks and their containers.

It fits into 80 columns. A limit has a ``<`` before it, what is only promised has none; a colour says that something is
near a limit, or above its promise.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from sexton.core.names import last_part
from sexton.core.usage import ContainerUse, Rates, TaskRate, TaskUse, Usage

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

MIB = 1024 * 1024
# From here on a figure is worth a colour: of a limit, of periods, of time.
NEAR = 0.9
HELD_BACK = 0.05
WAITING = 0.1
# Narrower than this a name says nothing.
LEAST_NAME = 12
_WAIT = "WAIT"
_HEADINGS = ("TASK, CONTAINER", "STATUS", "CPU", "OF", "MEM", "OF", "THR", _WAIT, "RST")
_NO_RATE = TaskRate()
_UNKNOWN = "-"


class Order(Enum):
    CPU = "cpu"
    MEMORY = "memory"
    NAME = "name"


class _Row(NamedTuple):
    cells: Sequence[tuple[str, str]]  # text and style


def picture(usage: Usage, found: Rates, order: Order, width: int, rows: int | None = None) -> RenderableType:
    """As wide as this at most. ``rows`` is the terminal's height; what does not fit is counted."""
    from rich.console import Group
    from rich.text import Text

    head = _head(usage, found)
    tasks = _sorted(usage, found, order)
    lines = [row for task in tasks for row in _task(task, found.tasks.get(task.arn, _NO_RATE))]
    hidden = 0
    if rows is not None and len(lines) > (room := max(rows - len(head) - 4, 1)):
        lines, hidden = lines[:room], len(lines) - room
    parts: list[RenderableType] = (
        [*head, Text(), _table(lines, width, waits=any(one.stalled for one in usage.tasks))]
        if tasks
        else [*head, Text("\nno tasks on this host")]
    )
    if hidden:
        parts.append(Text(f"{hidden} more lines do not fit", style="dim"))
    return Group(*parts)


def _head(usage: Usage, found: Rates) -> list[RenderableType]:
    from rich.text import Text

    host = usage.host
    title = Text.assemble(
        ("sexton top", "bold"), f"  cluster {usage.cluster}  instance {last_part(usage.instance)[:12]}  "
    )
    title.append(f"{len(usage.tasks)} task{'' if len(usage.tasks) == 1 else 's'}")
    used = f"{found.cpu:.0f}" if found.cpu is not None else _UNKNOWN
    # Clock ticks are coarse: a busy host may seem to have done a little more than it can.
    share = min(found.cpu / (host.cores * 1024), 1.0) if found.cpu is not None and host.cores else None
    cpu = Text.assemble(
        ("CPU     ", "bold"),
        f"used {used} of {host.cores * 1024} units ",
        (f"({_percent(share)})", "red" if (share or 0) >= NEAR else ""),
        f"  reserved {host.reserved.cpu} of {host.capacity.cpu}",
    )
    if found.steal is not None:
        cpu.append(f"  steal {_percent(found.steal)}", "red" if found.steal >= HELD_BACK else "")
    full = host.memory_used / host.memory if host.memory else None
    memory = Text.assemble(
        ("memory  ", "bold"),
        f"used {_bytes(host.memory_used)} of {_bytes(host.memory)} ",
        (f"({_percent(full)})", "red" if (full or 0) >= NEAR else ""),
        f"  reserved {_bytes(host.reserved.memory * MIB)} of {_bytes(host.capacity.memory * MIB)}",
    )
    lines: list[RenderableType] = [title, cpu, memory]
    if found.stalled:
        waits = Text.assemble(("waiting ", "bold"), "share of time in which something waited:")
        for name, value in found.stalled.items():
            waits.append(f"  {name} {_percent(value)}", "yellow" if value >= WAITING else "")
        lines.append(waits)
    return lines


def _table(rows: Sequence[_Row], width: int, *, waits: bool) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    shown = [at for at, heading in enumerate(_HEADINGS) if heading != _WAIT or waits]
    widths = [max(len(_HEADINGS[at]), *(len(row.cells[at][0]) for row in rows)) + 2 for at in shown]
    # Names give way: a figure that is cut is none.
    left = max(width - sum(widths[1:]) - 2, LEAST_NAME)
    table.add_column(_HEADINGS[0], no_wrap=True, overflow="ellipsis", max_width=left)
    for at in shown[1:]:
        table.add_column(_HEADINGS[at], justify="left" if at == 1 else "right", no_wrap=True)
    for row in rows:
        table.add_row(*(Text(row.cells[at][0], style=row.cells[at][1]) for at in shown))
    return table


def _sorted(usage: Usage, found: Rates, order: Order) -> list[TaskUse]:
    def memory(task: TaskUse) -> int:
        return sum(one.held or 0 for one in task.containers)

    def name(task: TaskUse) -> tuple[str, str, str]:
        return task.family, task.revision, task.id

    match order:
        case Order.CPU:
            return sorted(usage.tasks, key=lambda one: (-(found.tasks.get(one.arn, _NO_RATE).cpu or 0.0), name(one)))
        case Order.MEMORY:
            return sorted(usage.tasks, key=lambda one: (-memory(one), name(one)))
        case Order.NAME:
            return sorted(usage.tasks, key=name)


def _task(task: TaskUse, rate: TaskRate) -> list[_Row]:
    """One line; with several containers one more for each."""
    held = [one.held for one in task.containers if one.held is not None]
    worst = max(rate.stalled.values(), default=None)
    only = task.containers[0] if len(task.containers) == 1 else None
    promised = task.reserved
    limit = promised.memory_limit or (only.reserved.memory_limit if only else 0)
    whole = _Row(
        [
            (f"{task.family}:{task.revision} {task.id[:8]}", "bold"),
            _status(task.status, only.health if only else ""),
            _cpu(rate.cpu, promised.cpu, promised.cpu_limit),
            (_promise(promised.cpu, promised.cpu_limit), ""),
            _memory(sum(held) if held else None, promised.memory, limit),
            (_memory_promise(promised.memory, limit), ""),
            (_percent(rate.throttled), "red" if (rate.throttled or 0) >= HELD_BACK else ""),
            (_percent(worst), "yellow" if (worst or 0) >= WAITING else ""),
            _restarts(task.containers),
        ]
    )
    if only is not None:
        return [whole]
    return [whole, *(_container(one, rate) for one in task.containers)]


def _container(one: ContainerUse, rate: TaskRate) -> _Row:
    found = rate.containers.get(one.name)
    promised = one.reserved
    return _Row(
        [
            (f"  {one.name}", ""),
            _status(one.status, one.health),
            _cpu(found.cpu if found else None, promised.cpu, 0),
            (_promise(promised.cpu, 0), ""),
            _memory(one.held, promised.memory, promised.memory_limit),
            (_memory_promise(promised.memory, promised.memory_limit), ""),
            ("", ""),
            ("", ""),
            _restarts([one]),
        ]
    )


def _status(status: str, health: str) -> tuple[str, str]:
    if health == "UNHEALTHY":
        return health, "red"
    return status, "" if status == "RUNNING" else "yellow"


def _cpu(used: float | None, promised: int, limit: int) -> tuple[str, str]:
    if used is None:
        return _UNKNOWN, ""
    if limit and used >= NEAR * limit:
        return f"{used:.0f}", "red"
    return f"{used:.0f}", "yellow" if promised and used > promised else ""


def _memory(held: int | None, promised: int, limit: int) -> tuple[str, str]:
    if held is None:
        return _UNKNOWN, ""
    if limit and held >= NEAR * limit * MIB:
        return _bytes(held), "red"
    return _bytes(held), "yellow" if promised and held > promised * MIB else ""


def _promise(amount: int, limit: int) -> str:
    return f"<{limit}" if limit else str(amount) if amount else _UNKNOWN


def _memory_promise(amount: int, limit: int) -> str:
    if limit:
        return f"<{_bytes(limit * MIB)}"
    return _bytes(amount * MIB) if amount else _UNKNOWN


def _restarts(containers: Sequence[ContainerUse]) -> tuple[str, str]:
    count = sum(one.restarts for one in containers)
    return str(count), "yellow" if count else ""


def _percent(share: float | None) -> str:
    if share is None:
        return _UNKNOWN
    return f"{100 * share:.0f}%" if share >= 0.0995 or share == 0 else f"{100 * share:.1f}%"


def _bytes(amount: int) -> str:
    """Three digits and a letter."""
    value, unit = float(amount), "B"
    for unit in ("K", "M", "G", "T"):  # noqa: B007 - the last one is wanted
        value /= 1024
        if value < 1000:
            break
    return f"{value:.0f}{unit}" if value >= 100 or value == int(value) else f"{value:.1f}{unit}"
