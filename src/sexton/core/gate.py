"""The gate's decision: may the image that this freshly booted host was made from be released?

    readings over the settling time + limits + drift from the lock -> checks, each passed, failed or not done

A check that could not be done is never passed. The host has just booted, so the first half of the settling time is
left to its units to start and finish; growth is what the second half shows.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from sexton.core.finding import HOUR, Finding, Severity
from sexton.core.lock import Difference


class Result(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    BLIND = "could not check"


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One thing the gate looked at. ``rule`` is its kind, ``name`` says which of its kind; ``file`` is where a person
    would mend it, below the host's root."""

    rule: str
    name: str
    result: Result
    says: str
    details: tuple[str, ...] = ()
    file: str = ""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    memcgs: int
    growth_per_hour: float


class Count(msgspec.Struct, frozen=True, kw_only=True):
    """One count of memory cgroups, ``at`` seconds after the gate began to look."""

    at: float
    tracked: int
    live: int
    zombies: int


class Blind(msgspec.Struct, frozen=True):
    """A probe that could not look."""

    probe: str
    reason: str


# What the gate can find, and why that matters; SARIF shows it beside each result.
RULES = {
    "memcg-count": "The kernel tracks more memory cgroups than a freshly booted host should have.",
    "memcg-growth": "Zombie memory cgroups grow on an idle host: something leaks at each of its turns.",
    "loop": "A unit or container crashes and restarts over and over.",
    "drift": "The host starts other units, or behind other gates, than the lock says.",
    "finding": "The caretaker found something else that is critical.",
}


def judge(
    counts: tuple[Count, ...],
    findings: tuple[Finding, ...],
    blind: tuple[Blind, ...],
    drifted: tuple[Difference, ...] | None,
    limits: Limits,
    no_lock: str = "",
) -> tuple[Check, ...]:
    """All checks, in the order of ``RULES``. ``drifted`` is None when no lock was named, or, with ``no_lock`` saying
    why, when it could not be compared."""
    unseen = {one.probe: one.reason for one in blind}
    checks = [_count(counts, limits, unseen), _growth(counts, limits, unseen)]
    loops = [finding for finding in findings if is_loop(finding)]
    checks += [_found("loop", finding) for finding in loops]
    # A probe of loops that saw nothing leaves the question open even when another one found something.
    sightless = {name: reason for name, reason in unseen.items() if name != "memcg"}
    checks += [
        Check(rule="loop", name=name, result=Result.BLIND, says=f"cannot tell loops by {name}: {reason}")
        for name, reason in sorted(sightless.items())
    ]
    if not loops and not sightless:
        checks.append(Check(rule="loop", name="loops", result=Result.PASSED, says="nothing loops"))
    if no_lock:
        checks.append(Check(rule="drift", name="lock", result=Result.BLIND, says=no_lock))
    elif drifted is not None:
        checks += [_drift(one) for one in drifted] or [
            Check(rule="drift", name="lock", result=Result.PASSED, says="the host agrees with its lock")
        ]
    checks += [
        _found("finding", finding)
        for finding in findings
        if finding.severity is Severity.CRITICAL
        and not is_loop(finding)
        and not finding.fingerprint.startswith("memcg/")
    ]
    return tuple(checks)


def is_loop(finding: Finding) -> bool:
    return "loop" in finding.fingerprint.partition("/")[0]


def verdict(checks: tuple[Check, ...]) -> Result:
    """A failure says more than blindness; blindness is no pass."""
    results = {check.result for check in checks}
    if Result.FAILED in results:
        return Result.FAILED
    return Result.BLIND if Result.BLIND in results else Result.PASSED


def _count(counts: tuple[Count, ...], limits: Limits, unseen: dict[str, str]) -> Check:
    if not counts:
        return _blind("memcg-count", unseen)
    last = counts[-1]
    said = (
        f"{last.tracked:,} memory cgroups tracked, {last.live:,} live, {last.zombies:,} zombies; "
        f"at most {limits.memcgs:,} allowed"
    )
    passed = last.tracked <= limits.memcgs
    return Check(rule="memcg-count", name="count", result=Result.PASSED if passed else Result.FAILED, says=said)


def _growth(counts: tuple[Count, ...], limits: Limits, unseen: dict[str, str]) -> Check:
    if len(counts) < 2:
        return _blind("memcg-growth", unseen)
    since, last = counts[-2], counts[-1]
    seconds = max(last.at - since.at, 1e-3)
    by = last.zombies - since.zombies
    pace = by / seconds * HOUR
    allowed = f"at most {limits.growth_per_hour:,.0f} an hour allowed"
    said = f"{by:+,} zombies in {seconds:.0f} s ({pace:+,.0f} an hour); {allowed}"
    passed = pace <= limits.growth_per_hour
    return Check(rule="memcg-growth", name="growth", result=Result.PASSED if passed else Result.FAILED, says=said)


def _blind(rule: str, unseen: dict[str, str]) -> Check:
    reason = unseen.get("memcg", "no count was had")
    return Check(
        rule=rule, name=rule.partition("-")[2], result=Result.BLIND, says=f"cannot count memory cgroups: {reason}"
    )


def _found(rule: str, finding: Finding) -> Check:
    return Check(
        rule=rule,
        name=finding.fingerprint,
        result=Result.FAILED,
        says=finding.title,
        details=(
            f"culprit: {finding.culprit}",
            *(f"{item.what}: {item.value} [{item.source}]" for item in finding.evidence),
            finding.next_step,
        ),
    )


def _drift(one: Difference) -> Check:
    return Check(
        rule="drift",
        name=one.unit,
        result=Result.FAILED,
        says=f"{one.unit}: {one.was} in the lock, {one.now} here",
        details=(*one.why, *([one.warning] if one.warning else [])),
        file=one.file,
    )
