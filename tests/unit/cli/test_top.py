"""The picture of sexton top: it fits into 80 columns and the terminal's height, and shows what is near a limit."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from sexton.cli.top_picture import Order, picture
from sexton.core.reserved import Reserved
from sexton.core.usage import ContainerUse, HostUse, Rates, TaskRate, TaskUse, Throttled, Usage, rates

MIB = 1 << 20


def task(number: int = 1, family: str = "web", containers: int = 1, held: int = 10 * MIB, **fields: Any) -> TaskUse:
    parts = tuple(
        ContainerUse(
            name=f"part-{part}",
            status="RUNNING",
            reserved=Reserved(cpu=256, memory=64, memory_limit=64),
            cpu_seconds=1.0,
            memory=held,
            held=held,
        )
        for part in range(containers)
    )
    given = {"revision": "12", "status": "RUNNING", "reserved": Reserved(cpu=256, memory=64), "throttled": Throttled()}
    arn = f"arn:{number}"
    return TaskUse(**({"id": f"{number:032x}", "arn": arn, "family": family, "containers": parts} | given | fields))


def usage(*tasks: TaskUse, at: float = 1.0) -> Usage:
    host = HostUse(
        cores=64,
        capacity=Reserved(cpu=65536, memory=500_000),
        reserved=Reserved(cpu=30_000, memory=256_000),
        memory=1 << 39,
        memory_used=1 << 38,
        stalled={"cpu": at, "memory": 0.0, "io": 0.0},
    )
    return Usage(
        at=at, instance="arn:aws:ecs:r:1:container-instance/c/" + "1" * 32, cluster="c", host=host, tasks=tasks
    )


def drawn(
    shown: Usage, found: Rates, order: Order = Order.CPU, rows: int | None = None, *, colour: bool = False
) -> str:
    console = Console(file=io.StringIO(), width=80, force_terminal=colour, color_system="standard" if colour else None)
    console.print(picture(shown, found, order, 80, rows))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_it_fits_into_80_columns_with_long_names_and_large_figures() -> None:
    long = task(family="a-family-with-a-name-that-nobody-would-type-twice", containers=3, held=999 * MIB,
                reserved=Reserved(cpu=65536, memory=500_000, cpu_limit=65536, memory_limit=500_000),
                stalled={"cpu": 1.0}, service="s")  # fmt: skip
    text = drawn(usage(long), rates(usage(long), usage(long, at=3.0)))

    assert max(map(len, text.splitlines())) <= 80
    assert "WAIT" in text and "<65536" in text and "<488G" in text and "part-2" in text


def test_what_does_not_fit_is_counted() -> None:
    shown = usage(*(task(number) for number in range(100)))
    text = drawn(shown, rates(shown, shown), rows=24)

    assert len(text.splitlines()) <= 24
    hidden = 100 - sum("web:12" in line for line in text.splitlines())
    assert f"{hidden} more lines do not fit" in text


@pytest.mark.parametrize(("order", "first"), [(Order.CPU, "busy"), (Order.MEMORY, "large"), (Order.NAME, "aaa")])
def test_order(order: Order, first: str) -> None:
    shown = usage(task(1, "busy"), task(2, "large", held=60 * MIB), task(3, "aaa"))
    found = Rates(None, None, {}, {"arn:1": TaskRate(cpu=200.0)})
    named = [line.split(":")[0] for line in drawn(shown, found, order).splitlines() if ":12 " in line]

    assert named[0] == first and len(named) == 3


def test_a_first_look_has_dashes_and_no_tasks_are_said() -> None:
    one = usage(task())
    assert " - " in drawn(one, rates(one, one))
    assert "no tasks on this host" in drawn(usage(), rates(usage(), usage()))
    assert "WAIT" not in drawn(one, rates(one, one))  # where nobody counts it


@pytest.mark.parametrize(
    ("held", "throttled", "red"), [(10 * MIB, 0.0, False), (60 * MIB, 0.0, True), (10 * MIB, 0.2, True)]
)
def test_near_a_limit_it_is_red(held: int, throttled: float, red: bool) -> None:
    shown = usage(task(held=held))
    text = drawn(shown, Rates(1.0, 0.0, {}, {"arn:1": TaskRate(cpu=1.0, throttled=throttled)}), colour=True)

    assert ("\x1b[31m" in text) == red
