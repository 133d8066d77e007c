"""What the caretaker finds: the shape of a finding, and the rules that turn readings into findings.

A probe reads the host and hands in plain numbers: a count of memory cgroups, one unit's restart counters, the turns
(start to death) of containers. The rules here say whether that is trouble, how bad, who does it, on what evidence
and what to do next. They are pure: time and earlier readings are arguments. A finding's fingerprint depends on the
trouble and its maker alone, never on numbers, so the same trouble has the same name in every look, on every day.

Nothing here survives a restart; what the last look counted is kept by ``care/memory.py``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum
from itertools import pairwise

import msgspec

# Zombies that already hold noticeable kernel memory and slow every walk of the tree: worth a person's time.
ZOMBIES_WARNING = 1_000
# At this many, old kernels stall a core for whole seconds on one read, and reclaim does so on new ones.
ZOMBIES_CRITICAL = 10_000
# Several times more tracked than live means that something leaks; below the floor every busy host looks so at times.
RATIO_WARNING = 4
RATIO_FLOOR = 200
# Slower growth, or growth seen over a shorter time, is the ordinary coming and going of containers.
GROWTH_PER_HOUR = 20
GROWTH_SPAN = 600.0
# A threshold that will be crossed within this time is announced now.
GROWTH_HORIZON = 24 * 3600.0

# One automatic restart is an accident, two with the unit down again (the third turn) are a loop.
UNIT_RESTARTS = 2
# A unit that is up and has restarted less often than this, since the last look or since boot, stumbles at times but
# does not loop.
UNIT_RESTARTS_PER_HOUR = 1.0
# A service that has been up for longer than this has got over whatever restarted it.
UNIT_SETTLED = 600.0
# A unit that failed so recently may be started again at once by whoever asked for it.
UNIT_STAYS_FAILED = 60.0
# From one turn a minute on, with nothing that will stop it, a loop costs the host something every day.
UNIT_CRITICAL_PER_HOUR = 60.0

# Containers that lived longer than this did some work before they died.
SHORT_LIFE = 60.0
# So many short failing lives of one kind are a loop; two may be a person trying something twice.
CONTAINER_TURNS = 3
# A container that is up again so soon after its death was restarted by a policy, not by a person or a timer.
PROMPT_RESTART = 10.0
# A loop whose last sign is older than this, and older than three of its periods, has ended.
LOOP_QUIET = 60.0
# Exit codes of a process that was told to go (INT, KILL, TERM): by themselves no failure of its own.
STOPPED_FROM_OUTSIDE = frozenset({130, 137, 143})

HOUR = 3600.0


class Severity(StrEnum):
    WARNING = "warning"
    CRITICAL = "critical"


class Evidence(msgspec.Struct, frozen=True):
    """One thing that was seen, and where anybody can see it again."""

    what: str
    value: str
    source: str


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    fingerprint: str
    severity: Severity
    title: str
    culprit: str
    evidence: tuple[Evidence, ...]
    next_step: str


class Change(msgspec.Struct, frozen=True):
    """How a number moved between the last look and this one."""

    by: int
    seconds: float

    @property
    def per_hour(self) -> float:
        return self.by / self.seconds * HOUR if self.seconds > 0 else 0.0


class MemcgCount(msgspec.Struct, frozen=True, kw_only=True):
    """Memory cgroups of one host: tracked is what the kernel holds, live is what still has a directory."""

    tracked: int
    live: int
    zombies: int
    source: str
    percpu_bytes: int | None = None
    slab_bytes: int | None = None


class UnitRestarts(msgspec.Struct, frozen=True, kw_only=True):
    """One service unit as the service manager reports it. ``up`` is the age of its main process, None when there is
    none; ``since_last`` is how its restart counter moved since the last look, None when that is not known."""

    name: str
    active_state: str
    sub_state: str
    result: str
    restarts: int
    policy: str
    delay: float
    limit_interval: float
    limit_burst: int
    exit_status: int
    up: float | None = None
    since_last: Change | None = None


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """One life of a container. ``died`` and ``exit_code`` are None while it runs."""

    container_id: str
    name: str
    image: str
    started: float
    died: float | None = None
    exit_code: int | None = None
    oom_killed: bool = False

    @property
    def life(self) -> float | None:
        return None if self.died is None else max(0.0, self.died - self.started)


def seconds_until(count: int, change: Change, threshold: int) -> float | None:
    """When the count crosses the threshold at the pace it has now; None when it never does or already has."""
    if change.per_hour <= 0 or count >= threshold:
        return None
    return (threshold - count) / change.per_hour * HOUR


def judge_zombies(count: MemcgCount, change: Change | None) -> Finding | None:
    """Are there too many zombie memory cgroups, or will there be soon?"""
    crossing = None if change is None else seconds_until(count.zombies, change, ZOMBIES_WARNING)
    growing = (
        change is not None
        and change.seconds >= GROWTH_SPAN
        and change.per_hour >= GROWTH_PER_HOUR
        and crossing is not None
        and crossing <= GROWTH_HORIZON
    )
    leaking = count.zombies >= RATIO_FLOOR and count.tracked >= RATIO_WARNING * count.live
    if count.zombies >= ZOMBIES_CRITICAL:
        severity = Severity.CRITICAL
    elif count.zombies >= ZOMBIES_WARNING or leaking or growing:
        severity = Severity.WARNING
    else:
        return None
    title = f"{count.zombies:,} zombie memory cgroups: the kernel tracks {count.tracked:,}, {count.live:,} are live"
    evidence = [
        Evidence("tracked memory cgroups", f"{count.tracked:,}", count.source),
        Evidence("live memory cgroups", f"{count.live:,}", count.source),
        Evidence("tracked to live", f"{count.tracked / max(count.live, 1):.1f} to 1", "arithmetic"),
    ]
    if change is not None:
        pace = f" ({change.per_hour:+,.0f} an hour)" if change.seconds >= GROWTH_SPAN else ""
        grown = f"{change.by:+,} in {span(change.seconds)}{pace}"
        evidence.append(Evidence("growth since the last look", grown, "last look"))
    for threshold in (ZOMBIES_WARNING, ZOMBIES_CRITICAL):
        ahead = (
            None if change is None or change.seconds < GROWTH_SPAN else seconds_until(count.zombies, change, threshold)
        )
        if ahead is not None:
            evidence.append(Evidence(f"at this pace {threshold:,}", f"in {span(ahead)}", "arithmetic"))
    if count.percpu_bytes is not None:
        evidence.append(Evidence("per-CPU kernel memory", size(count.percpu_bytes), "/proc/meminfo Percpu"))
    if count.slab_bytes is not None:
        evidence.append(Evidence("unreclaimable slab", size(count.slab_bytes), "/proc/meminfo SUnreclaim"))
    return Finding(
        fingerprint="memcg/zombies",
        severity=severity,
        title=title,
        culprit="not known: the kernel counts removed cgroups but does not name them",
        evidence=tuple(evidence),
        next_step=(
            "First stop what makes them: a unit or container that loops, if this report names one; 'sexton zombies' "
            "tells where they are. Then 'sexton zombies --purge' says what would free them without a reboot and who "
            "holds the rest, and with --yes does."
        ),
    )


def loops_for_ever(unit: UnitRestarts) -> bool:
    """Will the service manager restart this unit without end? True when its start limit is off or cannot be reached."""
    if unit.policy in ("", "no"):
        return False
    if unit.limit_interval <= 0 or unit.limit_burst <= 0:
        return True
    return unit.limit_burst * unit.delay >= unit.limit_interval


def judge_unit(unit: UnitRestarts, uptime: float) -> Finding | None:
    """Does this unit crash and restart over and over, or did it until its start limit ended that?"""
    since_boot = Change(unit.restarts, uptime)
    recent = unit.since_last if unit.since_last is not None and unit.since_last.by > 0 else None
    pace = max(since_boot.per_hour, recent.per_hour if recent else 0.0)
    between = unit.up is None and unit.active_state in ("inactive", "activating", "deactivating")
    down = unit.sub_state.startswith("auto-restart") or between
    unsettled = down or (unit.up is not None and unit.up < UNIT_SETTLED)
    # Down at this very moment is proof enough; a unit that is up, though young, must have restarted often as well.
    looping = unit.restarts >= UNIT_RESTARTS and (down or (unsettled and pace >= UNIT_RESTARTS_PER_HOUR))
    # The limit leaves the last failure's own result in place, so the counter of a unit now failed tells as much.
    gave_up = unit.active_state == "failed" and (unit.result == "start-limit-hit" or unit.restarts >= UNIT_RESTARTS)
    if not looping and not gave_up:
        return None
    endless = loops_for_ever(unit)
    evidence = [
        Evidence(
            "state",
            f"{unit.active_state} ({unit.sub_state}), result {unit.result}",
            "systemd ActiveState, SubState, Result",
        ),
        Evidence("automatic restarts", f"{unit.restarts:,}", "systemd NRestarts"),
        Evidence("last exit status", str(unit.exit_status), "systemd ExecMainStatus"),
    ]
    if recent is not None:
        grown = f"{recent.by:+,} in {span(recent.seconds)} ({recent.per_hour:,.0f} an hour)"
        evidence.append(Evidence("restarts since the last look", grown, "last look"))
    limit = (
        f"Restart={unit.policy}, RestartSec={unit.delay:g} s, {unit.limit_burst} starts in {unit.limit_interval:g} s"
    )
    verdict = "nothing stops it" if endless else "the start limit may stop it"
    if not gave_up:
        evidence.append(
            Evidence(
                "can it loop for ever", f"{'yes' if endless else 'no'}: {limit}; {verdict}", "systemd unit settings"
            )
        )
    severity = Severity.CRITICAL if endless and looping and pace >= UNIT_CRITICAL_PER_HOUR else Severity.WARNING
    if looping:
        title = f"{unit.name} crash-loops"
    elif unit.restarts >= UNIT_RESTARTS:
        title = f"{unit.name} crash-looped until systemd gave up on it"
    else:  # by a timer, a socket or a script: automatic restarts would have been counted
        title = f"{unit.name} was started more often than its start limit allows, and is refused now"
    return Finding(
        fingerprint=f"unit-loop/{unit.name}",
        severity=severity,
        title=title,
        culprit=unit.name,
        evidence=tuple(evidence),
        next_step=(
            f"Read why it fails: journalctl -u {unit.name} -n 50. If this host does not need it: "
            f"systemctl disable --now {unit.name} (mask it where a package upgrade would bring it back)."
        ),
    )


class FailedUnit(msgspec.Struct, frozen=True, kw_only=True):
    """A unit that failed ``ago`` seconds ago and is still down. ``result`` and ``exit_status`` are those of a
    service."""

    name: str
    ago: float
    result: str = ""
    exit_status: int | None = None


def judge_failed(unit: FailedUnit) -> Finding | None:
    """Has this unit failed and been left like that?"""
    if unit.ago < UNIT_STAYS_FAILED:
        return None
    how = [unit.result] if unit.result not in ("", "success") else []
    how += [f"status {unit.exit_status}"] if unit.result == "exit-code" and unit.exit_status else []
    evidence = [Evidence("failed", f"{span(unit.ago)} ago", "systemd StateChangeTimestamp")]
    if how:
        evidence.append(Evidence("how", ", ".join(how), "systemd Result, ExecMainStatus"))
    return Finding(
        fingerprint=f"unit-failed/{unit.name}",
        severity=Severity.WARNING,
        title=f"{unit.name} has failed{': ' if how else ''}{', '.join(how)}",
        culprit=unit.name,
        evidence=tuple(evidence),
        next_step=(
            f"Read why: journalctl -u {unit.name} -n 50. Once the reason is over: systemctl start {unit.name}, or "
            f"systemctl reset-failed {unit.name} to have it forgotten."
        ),
    )


def judge_containers(turns: Iterable[Turn], now: float) -> tuple[Finding, ...]:
    """Which kinds of container die young over and over? A kind is an image and a name without its changing part."""
    kinds: dict[tuple[str, str], list[Turn]] = {}
    for turn in turns:
        kinds.setdefault((turn.image, name_pattern(turn.name)), []).append(turn)
    found = (
        _judge_kind(image, pattern, sorted(lives, key=lambda t: t.started), now)
        for (image, pattern), lives in kinds.items()
    )
    return tuple(sorted((finding for finding in found if finding is not None), key=lambda f: f.fingerprint))


def _judge_kind(image: str, pattern: str, lives: list[Turn], now: float) -> Finding | None:
    back_soon: set[tuple[str, float]] = set()
    for earlier, later in pairwise(sorted(lives, key=lambda t: (t.container_id, t.started))):
        if earlier.container_id != later.container_id or earlier.died is None:
            continue
        if later.started - earlier.died <= PROMPT_RESTART:
            back_soon.add((earlier.container_id, earlier.started))
    failed = [t for t in lives if _failed(t) or (t.container_id, t.started) in back_soon]
    short = [t for t in failed if t.life is not None and t.life < SHORT_LIFE]
    if len(short) < CONTAINER_TURNS:
        return None
    first, last = short[0], short[-1]
    period = (last.started - first.started) / (len(short) - 1)
    last_sign = max(t.died if t.died is not None else t.started for t in lives)
    newest = lives[-1]
    settled = newest.died is None and now - newest.started > max(SHORT_LIFE, 3 * period)
    if settled or now - last_sign > max(LOOP_QUIET, 3 * period):
        return None
    ids = {t.container_id for t in short}
    codes = sorted({t.exit_code for t in short if t.exit_code is not None})
    maker = (
        "a restart policy restarts one container"
        if len(ids) == 1
        else f"{len(ids)} containers were made one after another"
    )
    who = f"{pattern} (image {image})"
    source = "container engine events"
    return Finding(
        fingerprint=f"container-loop/{image}/{pattern}",
        severity=Severity.WARNING,
        title=f"containers {who} crash-loop: {len(short)} short lives in {span(last.started - first.started)}",
        culprit=who,
        evidence=(
            Evidence("short lives that failed", f"{len(short)}, one every {span(period)}; {maker}", source),
            Evidence("longest of them", span(max(t.life or 0.0 for t in short)), source),
            Evidence("exit codes", ", ".join(map(str, codes)) or "not known", source),
            Evidence(
                "newest",
                f"{newest.name} ({newest.container_id[:12]}), started {span(max(0.0, now - newest.started))} ago",
                source,
            ),
        ),
        next_step=(
            "Read what the last one said (docker logs) and find who starts it: a restart policy (docker inspect, "
            "RestartPolicy), or a unit or script that runs it again each time it ends. Stop that, not the container."
        ),
    )


def _failed(turn: Turn) -> bool:
    if turn.oom_killed:
        return True
    return turn.exit_code is not None and turn.exit_code != 0 and turn.exit_code not in STOPPED_FROM_OUTSIDE


# Two lower-case words joined by an underscore, as engines invent for containers nobody named.
_INVENTED = re.compile(r"^[a-z]+_[a-z]+\d?$")
_CHANGING = re.compile(r"[0-9a-f]{8,}|\d+")


def name_pattern(name: str) -> str:
    """A container's name without what changes from one to the next: numbers, hexadecimal ids, invented names."""
    return "*" if _INVENTED.match(name) or not name else _CHANGING.sub("*", name)


def merged(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """One finding for each fingerprint: where two probes saw the same trouble, the worse severity, the first one's
    words and the evidence of both."""
    by_name: dict[str, Finding] = {}
    for finding in findings:
        other = by_name.get(finding.fingerprint)
        if other is None:
            by_name[finding.fingerprint] = finding
            continue
        told = {item.what for item in other.evidence}
        by_name[finding.fingerprint] = msgspec.structs.replace(
            other,
            severity=Severity.CRITICAL if Severity.CRITICAL in (other.severity, finding.severity) else other.severity,
            evidence=other.evidence + tuple(item for item in finding.evidence if item.what not in told),
        )
    return tuple(by_name.values())


def span(seconds: float) -> str:
    """A duration as a person says it."""
    for unit, length in (("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"


def counted(many: int, what: str) -> str:
    """So many of something."""
    return f"{many:,} {what}" if many == 1 else f"{many:,} {what}s"


def size(count: int) -> str:
    """Bytes as a person says them."""
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.1f} MiB"
