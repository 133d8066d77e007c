"""Which definitions ask for too much or too little of a host, judged by what they were measured to use.

Each figure of a definition is judged by itself: a task's cpu and memory, a container's cpu, memory and
memoryReservation. What proves that something is too small needs no long look: a process killed for memory, a limit
that was nearly reached, a quota that was used up. To say that something fits, or is too large, takes time in which it
could have shown the opposite.

The arithmetic is in the constants below. Advice is a whole step of a round figure, with room above what was seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum

import msgspec

from sexton.core.sizewindow import Measured, Spread

# A limit that memory came this near to has held by luck.
TIGHT = 0.9
# Something is called too large when half of it would do.
LOOSE = 0.5
# Room above the largest memory, and above the CPU of nearly all the time, that advice leaves.
MEMORY_ROOM = 1.25
CPU_ROOM = 1.3
# Quota periods that were used up: below this it is noise, from the second on advice is bolder.
THROTTLED = 0.05
THROTTLED_HARD = 0.25
# A container that promises itself no CPU but uses less than this need not.
UNPROMISED_CPU = 64
# Fewer samples than this are no distribution, however long they took.
LEAST_SAMPLES = 60
LEAST_MEMORY, LEAST_CPU, LEAST_TASK_CPU = 16, 32, 128

HOUR = 3600.0


class Verdict(StrEnum):
    UNDER = "under-sized"
    OVER = "over-sized"
    FITS = "fits"
    UNKNOWN = "not enough data"


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """One figure of one definition: what it is, whether it fits, what to set instead, and by which evidence."""

    family: str
    revision: str
    container: str  # empty: the task's own figure
    setting: str
    unit: str
    now: int
    verdict: Verdict
    set_to: int | None = None
    why: str = ""
    used: Spread | None = None
    seconds: float = 0.0
    samples: int = 0
    throttled: float | None = None
    oom_kills: int = 0


class _Finding(msgspec.Struct, frozen=True):
    verdict: Verdict
    why: str = ""
    set_to: int | None = None


def judge(measured: Iterable[Measured], enough: float = HOUR) -> list[Judgement]:
    """Every figure of every definition that was measured; ``enough`` is the seconds of use that an all-clear takes."""
    groups: dict[tuple[str, str], list[Measured]] = {}
    for one in measured:
        if one.family:
            groups.setdefault((one.family, one.revision), []).append(one)
    return [found for parts in groups.values() for found in _definition(parts, enough)]


def _definition(parts: Sequence[Measured], enough: float) -> list[Judgement]:
    task = next((one for one in parts if not one.container), None)
    found = _of_task(task, enough) if task is not None else []
    promised = task is not None and task.reserved.cpu_limit > 0
    for one in parts:
        if one.container:
            found += _of_container(one, enough, task_has_cpu=promised)
    return found


def _of_task(one: Measured, enough: float) -> list[Judgement]:
    found = []
    if one.reserved.cpu_limit and one.cpu is not None:
        found.append(_say(one, "cpu", one.reserved.cpu_limit, one.cpu, _quota(one, one.cpu, enough)))
    if one.reserved.memory_limit and one.memory is not None:
        found.append(_say(one, "memory", one.reserved.memory_limit, one.memory, _limit(one, one.memory, enough)))
    return found


def _of_container(one: Measured, enough: float, *, task_has_cpu: bool) -> list[Judgement]:
    found = []
    promised = one.reserved
    if one.cpu is not None and (promised.cpu or not task_has_cpu):
        found.append(_say(one, "cpu", promised.cpu, one.cpu, _promised_cpu(one, one.cpu, enough)))
    # One that was killed before it could be measured has been seen all the same.
    memory = one.memory or Spread(mean=0, p50=0, p95=0, p99=0, max=0)
    if promised.memory_limit and (one.memory is not None or one.oom_kills):
        found.append(_say(one, "memory", promised.memory_limit, memory, _limit(one, memory, enough)))
    if promised.memory and promised.memory != promised.memory_limit and one.memory is not None:
        finding = _promised_memory(one, one.memory, enough)
        found.append(_say(one, "memoryReservation", promised.memory, one.memory, finding))
    return found


def _say(one: Measured, setting: str, now: int, used: Spread, finding: _Finding) -> Judgement:
    return Judgement(
        family=one.family,
        revision=one.revision,
        container=one.container,
        setting=setting,
        unit="units" if setting == "cpu" else "MiB",
        now=now,
        verdict=finding.verdict,
        set_to=finding.set_to,
        why=finding.why,
        used=used,
        seconds=one.seconds,
        samples=one.samples,
        throttled=_throttled(one) if setting == "cpu" and one.periods else None,
        oom_kills=one.oom_kills if setting == "memory" else 0,
    )


def _quota(one: Measured, cpu: Spread, enough: float) -> _Finding:
    """A task's cpu, which its kernel holds it to."""
    now, share = one.reserved.cpu_limit, _throttled(one)
    if share >= THROTTLED and one.samples >= 2:
        factor = 1.5 if share >= THROTTLED_HARD else 1.25
        lost = _time(one.throttled_seconds)
        why = f"its quota ran out in {100 * share:.0f} % of its periods, which held it back for {lost}"
        return _Finding(Verdict.UNDER, why, _cpu(max(now * factor, cpu.p95 * CPU_ROOM), LEAST_TASK_CPU))
    if (short := _too_short(one, enough)) is not None:
        return short
    wanted = _cpu(cpu.p99 * CPU_ROOM, LEAST_TASK_CPU)
    if wanted <= now * LOOSE:
        return _Finding(Verdict.OVER, f"99 % of the time it used no more than {cpu.p99:g} units", wanted)
    return _Finding(Verdict.FITS)


def _promised_cpu(one: Measured, cpu: Spread, enough: float) -> _Finding:
    """A container's cpu: a weight and a promise, nothing that holds it back."""
    now = one.reserved.cpu
    if (short := _too_short(one, enough)) is not None:
        return short
    wanted = _cpu(cpu.p95 * CPU_ROOM, LEAST_CPU)
    if not now:
        if cpu.p95 < UNPROMISED_CPU:
            return _Finding(Verdict.FITS)
        return _Finding(
            Verdict.UNDER, f"it is promised none and uses {cpu.p95:g} units: nothing keeps it from others", wanted
        )
    if cpu.p95 > now:
        why = f"it uses {cpu.p95:g} units, which it has only for as long as others leave them"
        return _Finding(Verdict.UNDER, why, wanted)
    if wanted <= now * LOOSE:
        return _Finding(Verdict.OVER, f"95 % of the time it used no more than {cpu.p95:g} units", wanted)
    return _Finding(Verdict.FITS)


def _limit(one: Measured, memory: Spread, enough: float) -> _Finding:
    """A memory limit: what reaches it is killed."""
    now = one.reserved.memory_limit
    wanted = _memory(memory.max * MEMORY_ROOM)
    if one.oom_kills:
        times = "once" if one.oom_kills == 1 else f"{one.oom_kills} times"
        return _Finding(
            Verdict.UNDER, f"the kernel has killed in it for memory {times}", max(_memory(now * 1.5), wanted)
        )
    if memory.max >= TIGHT * now:
        return _Finding(Verdict.UNDER, f"it came to {100 * memory.max / now:.0f} % of its limit", wanted)
    if (short := _too_short(one, enough)) is not None:
        return short
    if wanted <= now * LOOSE:
        return _Finding(Verdict.OVER, f"it never held more than {memory.max:g} MiB", wanted)
    return _Finding(Verdict.FITS)


def _promised_memory(one: Measured, memory: Spread, enough: float) -> _Finding:
    """A reservation: what it is short of is missing to others."""
    now, limit = one.reserved.memory, one.reserved.memory_limit
    if (short := _too_short(one, enough)) is not None:
        return short
    wanted = _memory(memory.p95 * MEMORY_ROOM)
    if limit:
        wanted = min(wanted, limit)
    if memory.p95 > now:
        return _Finding(Verdict.UNDER, f"it holds {memory.p95:g} MiB, which its host may have given to others", wanted)
    if wanted <= now * LOOSE:
        return _Finding(Verdict.OVER, f"95 % of the time it held no more than {memory.p95:g} MiB", wanted)
    return _Finding(Verdict.FITS)


def _too_short(one: Measured, enough: float) -> _Finding | None:
    if one.seconds >= enough and one.samples >= LEAST_SAMPLES:
        return None
    if one.seconds >= enough:
        return _Finding(Verdict.UNKNOWN, f"{one.samples} of {LEAST_SAMPLES} samples")
    return _Finding(Verdict.UNKNOWN, f"{_time(one.seconds)} of {_time(enough)}")


def _throttled(one: Measured) -> float:
    return one.throttled / one.periods if one.periods else 0.0


def _memory(mib: float) -> int:
    return max(_up(mib, ((512, 16), (4096, 64)), 256), LEAST_MEMORY)


def _cpu(units: float, least: int) -> int:
    return max(_up(units, ((512, 32), (2048, 64)), 256), least)


def _up(value: float, steps: tuple[tuple[int, int], ...], last: int) -> int:
    """Rounded up to a figure that a person would choose."""
    step = next((step for below, step in steps if value <= below), last)
    return -int(-value // step) * step


def _time(seconds: float) -> str:
    for size, unit in ((86400.0, "days"), (3600.0, "h"), (60.0, "min")):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"
