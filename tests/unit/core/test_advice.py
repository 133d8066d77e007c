"""A table of definitions and what they used, with what has to be said of each figure."""

from __future__ import annotations

from typing import Any

import pytest

from sexton.core.advice import Judgement, Verdict, judge
from sexton.core.reserved import Reserved
from sexton.core.sizewindow import Measured, Spread, Window, measured

UNDER, OVER, FITS, UNKNOWN = Verdict.UNDER, Verdict.OVER, Verdict.FITS, Verdict.UNKNOWN


def spread(p95: float, most: float | None = None) -> Spread:
    return Spread(mean=p95, p50=p95, p95=p95, p99=p95, max=most if most is not None else p95)


def used(reserved: Reserved, cpu: float = 0.0, memory: float = 0.0, **fields: Any) -> Measured:
    given = {"family": "web", "revision": "3", "container": "app", "seconds": 7200.0, "samples": 720}
    return Measured(**(given | {"reserved": reserved, "cpu": spread(cpu), "memory": spread(memory)} | fields))


def said(*parts: Measured) -> dict[tuple[str, str], Judgement]:
    return {(one.container, one.setting): one for one in judge(parts)}


@pytest.mark.parametrize(
    ("limit", "most", "more", "verdict", "advised"),
    [
        (512, 100, {}, OVER, 128),
        (512, 300, {}, FITS, None),
        (512, 461, {}, UNDER, 640),  # nine tenths
        (128, 20, {"oom_kills": 3}, UNDER, 192),
        (128, 120, {"oom_kills": 1, "seconds": 5.0, "samples": 1}, UNDER, 192),
        (512, 100, {"seconds": 600.0}, UNKNOWN, None),
        (512, 500, {"seconds": 20.0, "samples": 2}, UNDER, 640),
        (512, 100, {"samples": 20}, UNKNOWN, None),
        (16, 1, {}, FITS, None),  # smaller advice than this is none
    ],
)
def test_a_containers_memory(limit: int, most: float, more: dict[str, Any], verdict: str, advised: int | None) -> None:
    found = said(used(Reserved(memory=limit, memory_limit=limit), memory=most, **more))["app", "memory"]

    assert (found.now, found.verdict, found.set_to) == (limit, verdict, advised)


@pytest.mark.parametrize(
    ("promised", "p95", "verdict", "advised"),
    [
        (256, 30, OVER, 64),
        (256, 200, FITS, None),
        (256, 300, UNDER, 416),
        (0, 10, FITS, None),
        (0, 100, UNDER, 160),
    ],
)
def test_a_containers_cpu(promised: int, p95: float, verdict: str, advised: int | None) -> None:
    found = said(used(Reserved(cpu=promised), cpu=p95))["app", "cpu"]

    assert (found.verdict, found.set_to, found.throttled) == (verdict, advised, None)


@pytest.mark.parametrize(
    ("reserved", "p95", "verdict", "advised"),
    [
        (Reserved(memory=256, memory_limit=512), 50, OVER, 64),
        (Reserved(memory=256, memory_limit=512), 200, FITS, None),
        (Reserved(memory=256, memory_limit=512), 300, UNDER, 384),
        (Reserved(memory=256, memory_limit=320), 300, UNDER, 320),  # a promise above the limit cannot be set
        (Reserved(memory=256), 300, UNDER, 384),
    ],
)
def test_a_reservation(reserved: Reserved, p95: float, verdict: str, advised: int | None) -> None:
    found = said(used(reserved, memory=p95))["app", "memoryReservation"]

    assert (found.verdict, found.set_to) == (verdict, advised)


@pytest.mark.parametrize(
    ("cpu", "periods", "used_up", "verdict", "advised"),
    [
        (100, 1000, 0, OVER, 160),
        (400, 1000, 20, FITS, None),  # two percent are noise
        (400, 1000, 100, UNDER, 640),
        (500, 1000, 600, UNDER, 768),
        (20, 0, 0, OVER, 128),  # no task may ask for less
    ],
)
def test_a_tasks_cpu_is_a_quota(cpu: float, periods: int, used_up: int, verdict: str, advised: int | None) -> None:
    whole = used(Reserved(cpu=512, cpu_limit=512), cpu=cpu, container="", periods=periods, throttled=used_up)
    found = said(whole)["", "cpu"]

    assert (found.verdict, found.set_to) == (verdict, advised)
    assert found.throttled == (used_up / periods if periods else None)


def test_within_a_task_with_cpu_of_its_own_a_container_need_not_be_promised_any() -> None:
    whole = used(Reserved(cpu=512, cpu_limit=512), cpu=400, container="")

    assert ("app", "cpu") not in said(whole, used(Reserved(), cpu=400))
    assert ("app", "cpu") in said(used(Reserved(), cpu=400, container="app"))


def test_one_that_was_killed_before_it_was_ever_measured_has_advice() -> None:
    killed = used(Reserved(memory_limit=64), cpu=0, oom_kills=2, seconds=0.0, samples=0)
    killed = Measured(
        **{name: getattr(killed, name) for name in killed.__struct_fields__} | {"cpu": None, "memory": None}
    )
    (found,) = judge([killed])

    assert (found.setting, found.verdict, found.set_to) == ("memory", UNDER, 96)
    assert "2 times" in found.why


def test_the_host_is_no_definition() -> None:
    assert judge([used(Reserved(cpu=2048), family="", revision="", container="")]) == []


def test_windows_of_several_days_become_one() -> None:
    days = []
    for day in range(3):
        window = Window(
            family="web", revision="10", container="app", reserved=Reserved(cpu=64), first=day, last=day + 1
        )
        for value in range(1, 101):
            window.cpu.add(value * (day + 1))
            window.memory.add(1024.0 * value)
        window.seconds, window.oom_kills = 1000.0, 1
        days.append(window)
    days[0].reserved = Reserved(cpu=32)
    other = Window(family="web", revision="9", last=1.0)
    nine, ten = measured([*days, other])

    assert (nine.revision, ten.revision) == ("9", "10")  # in the order of numbers
    assert (nine.cpu, nine.samples) == (None, 0)
    assert (ten.seconds, ten.oom_kills, ten.samples, ten.first, ten.last) == (3000.0, 3, 300, 0.0, 3.0)
    assert (ten.reserved, ten.varied) == (Reserved(cpu=64), True)
    assert ten.cpu is not None and ten.cpu.max == 300.0 and 285 <= ten.cpu.p99 <= 300
    assert ten.memory is not None and ten.memory.max == 100.0
