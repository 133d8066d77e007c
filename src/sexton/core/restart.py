"""Whether a container that has just ended is started again in place, as its own restart policy says.

The policy is looked at once for each end, with what the engine says of it. A container that is started again stays
RUNNING for the control plane; nobody but its restart count shows that it was gone. There is no delay and no limit: one
that ends too soon after its last start is not started again, which bounds any loop to one start per period.
"""

from __future__ import annotations

from typing import NamedTuple

from sexton.wire import acs_task

# What the API fills in where a policy names no period.
DEFAULT_PERIOD = 300


class Verdict(NamedTuple):
    """``why`` says what is against a restart; empty when nothing is."""

    again: bool
    why: str = ""


def decide(
    policy: acs_task.RestartPolicy | None,
    *,
    ending: bool,
    exit_code: int | None,
    running_since: float,
    ended_at: float,
) -> Verdict:
    """``running_since`` is the last start, ``ended_at`` the end in question; both in seconds since the epoch."""
    if policy is None or not policy.enabled:
        return Verdict(again=False, why="restart policy is not enabled")
    if ending:
        return Verdict(again=False, why="container's desired status is stopped")
    if exit_code is None:
        return Verdict(again=False, why="exit code is nil")
    if exit_code in (policy.ignored_exit_codes or ()):
        return Verdict(again=False, why=f"exit code {exit_code} should be ignored")
    period = policy.restart_attempt_period if policy.restart_attempt_period is not None else DEFAULT_PERIOD
    if not running_since or ended_at - running_since < period:
        return Verdict(again=False, why="attempt reset period has not elapsed")
    return Verdict(again=True)
