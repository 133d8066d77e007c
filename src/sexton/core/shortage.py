"""Rules about what a host runs out of: an engine that answers, space and inodes, memory, and time to get work done.

Each rule takes plain numbers and gives findings. Thresholds are where a person can still act: a file system that is
full, a host that has killed, or one where nothing gets done most of the time is past the point at which waiting helps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from sexton.core.finding import Evidence, Finding, Severity, size, span
from sexton.core.maker import maker_of

# An engine answers in some milliseconds; one that takes this long holds up every start and stop.
ENGINE_SLOW = 1.0

# Of a file system's space or inodes. The second leaves minutes on a busy host.
DISK_WARNING = 0.90
DISK_CRITICAL = 0.97
# With this much left a large file system is not short, whatever its percentage.
DISK_ENOUGH = 50 * 2**30

# Percent of a minute in which nothing got done for want of it. A disk that is busy is ordinary, memory that short
# never is.
MEMORY_WARNING = 10.0
MEMORY_CRITICAL = 40.0
IO_WARNING = 60.0
IO_CRITICAL = 90.0

# A kill that is older is history.
OOM_RECENT = 3600.0
# So many of one maker within that time are no accident.
OOM_REPEATED = 3


class Fill(msgspec.Struct, frozen=True, kw_only=True):
    """One file system. ``uses`` is what of it is known to be whose, the largest first."""

    mount: str
    device: str
    size: int
    free: int
    used: float
    inodes: int
    inodes_used: float
    uses: tuple[str, ...] = ()


class Kill(msgspec.Struct, frozen=True, kw_only=True):
    """``ago`` seconds; ``limit`` is the group whose limit was hit, empty when the host had no memory left."""

    ago: float
    pid: int
    name: str
    group: str
    limit: str


def judge_engine(seconds: float | None, deadline: float, source: str) -> Finding | None:
    """Does the engine answer, and in time? None seconds: it took the call and said nothing."""
    if seconds is not None and seconds < ENGINE_SLOW:
        return None
    stuck = seconds is None
    told = f"no answer within {deadline:g} s" if seconds is None else f"an answer after {span(seconds)}"
    return Finding(
        fingerprint="engine/stuck" if stuck else "engine/slow",
        severity=Severity.CRITICAL if stuck else Severity.WARNING,
        title="the container engine is stuck: it takes calls and does not answer"
        if stuck
        else f"the container engine is slow: {told}",
        culprit="the container engine",
        evidence=(Evidence("asked what it is", told, source),),
        next_step=(
            "Look at what it waits for: systemctl status docker containerd, journalctl -u docker -n 50, whether its "
            "disk is full, whether its processes sleep in the kernel (ps -eo stat,wchan,cmd | grep ^D). Containers run "
            "on while it is restarted only with live-restore."
        ),
    )


def judge_disk(fill: Fill) -> tuple[Finding, ...]:
    """Is this file system short of space, or of inodes?"""
    found = []
    short_of_space = fill.used >= DISK_WARNING and fill.free < DISK_ENOUGH
    if short_of_space:
        found.append(_short(fill, "space", fill.used, f"{size(fill.free)} free of {size(fill.size)}", "df"))
    if fill.inodes and fill.inodes_used >= DISK_WARNING:
        left = round(fill.inodes * (1 - fill.inodes_used))
        found.append(_short(fill, "inodes", fill.inodes_used, f"{left:,} free of {fill.inodes:,}", "df -i"))
    return tuple(found)


def _short(fill: Fill, what: str, used: float, left: str, tool: str) -> Finding:
    evidence = [
        Evidence(f"{what} used", f"{used:.1%}, {left}", f"statvfs of {fill.mount}"),
        Evidence("device", fill.device, "/proc/mounts"),
        *(Evidence("of it", use, "sum of files") for use in fill.uses),
    ]
    return Finding(
        fingerprint=f"disk/{what}/{fill.mount}",
        severity=Severity.CRITICAL if used >= DISK_CRITICAL else Severity.WARNING,
        title=f"{fill.mount} runs out of {what}: {used:.0%} used",
        culprit=fill.uses[0] if fill.uses else f"not known: nobody's files on {fill.mount} were summed up",
        evidence=tuple(evidence),
        next_step=(
            f"See what grows ({tool} {fill.mount}; du -xh --max-depth=2 {fill.mount}). An engine's: docker system df; "
            "images nobody uses go with docker image prune, logs by a limit (log-opts max-size) in its settings."
        ),
    )


def judge_pressure(
    resource: str, full: float, full_long: float, where: str | None, where_full: float, source: str
) -> Finding | None:
    """Does nothing get done on this host for want of memory or disk? ``where`` is the group that waits most."""
    warning, critical = {"memory": (MEMORY_WARNING, MEMORY_CRITICAL), "io": (IO_WARNING, IO_CRITICAL)}[resource]
    if full < warning:
        return None
    word = "disk" if resource == "io" else "memory"
    evidence = [
        Evidence("nothing got done", f"{full:.0f} % of the last minute, {full_long:.0f} % of the last five", source)
    ]
    if where is not None:
        told = f"{where}: {where_full:.0f} % of the last minute"
        evidence.append(Evidence("waits most", told, f"{resource}.pressure"))
    return Finding(
        fingerprint=f"pressure/{resource}",
        severity=Severity.CRITICAL if full >= critical else Severity.WARNING,
        title=f"the host waits for {word}: nothing got done {full:.0f} % of the last minute",
        culprit=(
            f"{where} waits most; whether it is the cause is not known"
            if where is not None
            else "not known: only cgroup v2 tells which group waits"
        ),
        evidence=tuple(evidence),
        next_step=(
            "See who takes it: systemd-cgtop -m; give what grows a limit, or the host more memory."
            if resource == "memory"
            else "See who writes and reads: iotop -o or systemd-cgtop -i; look at the disk itself: iostat -x 1, dmesg."
        ),
    )


def judge_kills(kills: Sequence[Kill]) -> tuple[Finding, ...]:
    """Who was killed lately because memory ran out?"""
    found = []
    by_maker: dict[str, list[Kill]] = {}
    for kill in kills:
        if kill.ago <= OOM_RECENT:
            by_maker.setdefault(_maker(kill), []).append(kill)
    for maker, mine in sorted(by_maker.items()):
        host = any(not kill.limit for kill in mine)
        names = Counter(kill.name for kill in mine)
        newest = min(mine, key=lambda kill: kill.ago)
        why = "the host had no memory left" if host else f"{newest.limit} hit its own limit"
        many = f"{len(mine)} processes" if len(mine) > 1 else "a process"
        found.append(
            Finding(
                fingerprint=f"oom/{maker}",
                severity=Severity.CRITICAL if host or len(mine) >= OOM_REPEATED else Severity.WARNING,
                title=f"{many} of {maker} killed for want of memory within the hour: {why}",
                culprit=maker,
                evidence=(
                    Evidence("victims", ", ".join(f"{name} ({n})" for name, n in names.most_common(5)), "kernel log"),
                    Evidence("newest", f"{newest.name} (pid {newest.pid}), {span(newest.ago)} ago", "kernel log"),
                    Evidence("why", why, "kernel log: oom_memcg"),
                    Evidence("its group", newest.group or "not known", "kernel log: task_memcg"),
                ),
                next_step=(
                    "The host itself was short: give what uses most a limit, or the host more memory. A victim is not "
                    "always the cause."
                    if host
                    else "Raise that group's limit if it needs the memory, or find its leak: look at how its use grew."
                ),
            )
        )
    return tuple(found)


def _maker(kill: Kill) -> str:
    maker = maker_of(kill.limit or kill.group) if kill.limit or kill.group else None
    if maker is None:
        return kill.name
    return f"{maker.kind} {maker.id[:12]} below {maker.name}" if maker.id else maker.name
