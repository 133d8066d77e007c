"""The purge of zombie cgroups as the caretaker has it done: planned and carried out in a process of its own.

An account of what pins every zombie holds an entry for each page. Such an account is needed for seconds, while the
caretaker runs for months, so it is taken here and goes with this process; the caretaker is told sentences and numbers.

Called with the caretaker's process id and an order as JSON. Answers are lines of JSON on standard output: one for a
plan; for a run, one for each attempt as soon as it is proved. It ends when it is done, when its time is up, or with
the caretaker.
"""

from __future__ import annotations

import os
import signal
import sys
import time

import msgspec

_PR_SET_PDEATHSIG = 1
# A plan lists so many of the holders it cannot free.
LEFT_TOLD = 5


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """``seconds`` is how long attempts may be begun; 0: only plan."""

    caches: bool
    budget: float
    seconds: float = 0.0


class Planned(msgspec.Struct, frozen=True, tag="planned", kw_only=True):
    """What would be done, and what could not be freed, in sentences."""

    zombies: int
    steps: tuple[str, ...]
    left: tuple[str, ...]


class Attempted(msgspec.Struct, frozen=True, tag="attempted", kw_only=True):
    key: str
    says: str
    freed: int


class Fault(msgspec.Struct, frozen=True, tag="fault", kw_only=True):
    reason: str
    next_step: str = ""


Answer = Planned | Attempted | Fault


def _say(answer: Answer) -> None:
    line = msgspec.json.encode(answer) + b"\n"
    while line:
        line = line[os.write(1, line) :]


def _carry_out(order: Order) -> None:
    from sexton.care.grave_report import attempt_says, left_says, step_says
    from sexton.care.purging import Purge
    from sexton.core.purge import Allowed
    from sexton.host.pinned_files import read_mounts

    until = time.monotonic() + order.seconds
    purge = Purge(allowed=Allowed(caches=order.caches, budget=order.budget))
    if not order.seconds:
        plan, mounts = purge.plan(), read_mounts()
        left = tuple(left_says(one, mounts, {}) for one in plan.left[:LEFT_TOLD])
        _say(Planned(zombies=purge.seen.count.zombies, steps=tuple(map(step_says, plan.steps)), left=left))
        return
    run = purge.run()
    while time.monotonic() < until and (attempt := next(run, None)) is not None:
        _say(Attempted(key=attempt.step.key, says=attempt_says(attempt), freed=attempt.freed))


def main() -> int:
    import ctypes  # whoever only reads these shapes needs no part of it

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(sys.argv[1]):  # it went before it could take us along
        return 1
    from sexton.host.errors import HostFault

    try:
        _carry_out(msgspec.json.decode(sys.argv[2], type=Order))
    except HostFault as fault:
        _say(Fault(reason=str(fault), next_step=getattr(fault, "next_step", "")))
    return 0


if __name__ == "__main__":
    sys.exit(main())
