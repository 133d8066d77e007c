"""Zombies: counting, naming and purging, each beside what one would do without Sexton, in one run on this host.

Needs root. Makes its zombies below a group of its own and takes everything away again. Drops this host's clean page
cache once, for comparison. Run: ``python -m bench.zombies``
"""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import bench
from bench.subject import running
from sexton.care.purging import Purge
from sexton.core.maker import shares
from sexton.core.purge import Allowed
from sexton.host.cgroup import census
from sexton.host.memcg_walk import walk
from zombies import ROOT, Graveyard, graveyard, numbered

NAMED = 70_000
PAGE_CACHE = 40_000
STUCK = 30_000
WARM_PAGES = 50_000
TIMES = 7
# The unbounded write is ended when it has taken this long, so that a benchmark never becomes the incident.
PATIENCE = 60.0
CARE_WARM_SECONDS, CARE_SECONDS = 10.0, 60.0
# An hour of a host that says some thirty lines a second.
MATCHED = 100_000
# What its kernel and systemd monitors look for, in our words.
NPD_RULES = (
    r"Killed process \d+ (.+) total-vm:\d+kB",
    r"task \S+:\w+ blocked for more than \w+ seconds\.",
    r"unregister_netdevice: waiting for \w+ to become free",
    r"BUG: unable to handle kernel NULL pointer dereference",
    r"divide error: 0000 \[#\d+\] SMP",
    r"EXT4-fs error .*",
    r"Remounting filesystem read-only",
    r"CE memory read error .*",
    r"Starting (Docker Application Container Engine|containerd container runtime|Kubernetes kubelet)",
    r"restart counter is at [5-9]\b",
)

_WARM = """
import os, sys
with open(sys.argv[1] + "/cgroup.procs", "w") as procs:
    procs.write("0")
opened = os.open(sys.argv[2], os.O_RDWR | os.O_CREAT)
for page in range(0, int(sys.argv[3]), 1000):
    os.pwrite(opened, b"l" * 4096 * 1000, page * 4096)
os.fsync(opened)
print("warm", flush=True)
sys.stdin.read()
"""
_WRITE = "import os, sys; os.write(os.open(sys.argv[1], os.O_WRONLY), sys.argv[2].encode())"


def timed(work: Callable[[], Any]) -> dict[str, float]:
    """Milliseconds: the median and the least of a few, also of processor time, which a busy host stretches less."""
    times, cpu = [], []
    for _ in range(TIMES):
        before, begun = computed(), time.perf_counter()
        work()
        times.append((time.perf_counter() - begun) * 1000)
        cpu.append((computed() - before) * 1000)
    return {
        "ms": round(statistics.median(times), 2),
        "least_ms": round(min(times), 2),
        "cpu_ms": round(statistics.median(cpu), 2),
    }


def computed() -> float:
    """Seconds of processor time of this process and its children."""
    return sum(
        usage.ru_utime + usage.ru_stime
        for usage in (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
    )


def row(what: str, **figures: Any) -> dict[str, Any]:
    return {"what": what, **figures}


@contextmanager
def yard() -> Iterator[Graveyard]:
    with tempfile.TemporaryDirectory(prefix="sexton-bench-", dir="/var/tmp") as scratch, graveyard(Path(scratch)) as it:
        yield it


def looking() -> list[dict[str, Any]]:
    with yard() as here:
        units = numbered("system.slice/nightly.service/run-*", NAMED // 5)
        containers = [f"docker/{number:064x}" for number in range(NAMED * 7 // 10)]
        others = numbered("batch/job-*", NAMED // 10)
        here.make([*containers, *units, *others], here.tmpfs / "pages")
        mine = [group for group in walk(NAMED).groups if group.dead and group.path.startswith(here.path)]
        mix = "/".join(f"{share.share:.1%}" for share in shares(mine))
        mount = str(here.place.mount)
        find = timed(lambda: subprocess.run(["find", mount, "-type", "d"], stdout=subprocess.DEVNULL, check=True))
        return [
            row(f"count {NAMED:,}", **timed(lambda: census(ROOT))),
            row("find walk (sees live ones only)", **find),
            row(
                f"name all {NAMED:,} by former path",
                **timed(lambda: [group.path for group in walk(NAMED).groups if group.dead]),
                result=f"{len(mine):,} named",
            ),
            row("pins and their files as well", **timed(lambda: walk(NAMED, pins=True))),
            row("makers' shares of a 70/20/10 mix", **timed(lambda: shares(mine)), result=mix),
            caring(here),
            matching(),
        ]


def caring(here: Graveyard) -> dict[str, Any]:
    """The caretaker's own steady cost with all of them around, from outside."""
    with running("care", here.disk / "care", "--docker-host", "unix:///nowhere.sock") as care:
        time.sleep(CARE_WARM_SECONDS)
        before, memory, began = care.cpu_seconds(), care.memory_mb(), time.perf_counter()
        time.sleep(CARE_SECONDS)
        spent, took = care.cpu_seconds() - before, time.perf_counter() - began
        return row(
            f"caretaker, steady, {NAMED:,} zombies around",
            result=f"{spent / took:.2%} of one core; RSS {memory:.0f} -> {care.memory_mb():.0f} MB in {took:.0f} s",
        )


def matching() -> dict[str, Any]:
    """Rules over the text of a log, as node-problem-detector has them: an hour of a host whose agent restarts."""
    said = [
        'level=error time=2026-11-19T10:00:{0:02d}Z msg="Unable to register as a container instance: no credentials"',
        "systemd[1]: ecs.service: Main process exited, code=exited, status=1/FAILURE",
        "systemd[1]: ecs.service: Scheduled restart job, restart counter is at {0}.",
        "kernel: docker0: port {0}(veth1a2b3c4) entered blocking state",
    ]
    lines = [said[number % len(said)].format(number % 60) for number in range(MATCHED)]
    rules = [re.compile(text) for text in NPD_RULES]
    found: dict[str, int] = {}

    def match() -> None:
        found.clear()
        for line in lines:
            for rule in rules:
                if rule.search(line):
                    found[rule.pattern] = found.get(rule.pattern, 0) + 1

    times = timed(match)
    return row(
        f"text matching of {MATCHED:,} log lines instead ({len(rules)} rules, node-problem-detector's)",
        **times,
        result=f"{sum(found.values()):,} lines matched; no log has a line that counts or names a zombie",
    )


def cached(group: Path) -> int:
    for line in (group / "memory.stat").read_text().splitlines():
        name, _, value = line.partition(" ")
        if name in ("cache", "file"):
            return int(value)
    return 0


def confined(words: list[str]) -> tuple[float, float, bool]:
    """Run a child to its end or to the end of patience: seconds, seconds in the kernel, whether it had to be killed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_stime
    begun = time.perf_counter()
    child = subprocess.Popen([sys.executable, "-S", "-c", _WRITE, *words], stderr=subprocess.DEVNULL)
    killed = False
    try:
        child.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        killed = True
        child.send_signal(signal.SIGKILL)
        child.wait()
    kernel = resource.getrusage(resource.RUSAGE_CHILDREN).ru_stime - before
    return time.perf_counter() - begun, kernel, killed


@contextmanager
def workload(here: Graveyard) -> Iterator[Path]:
    """A live group beside the zombies' parent, with a warm cache."""
    group = here.top / "live"
    group.mkdir(exist_ok=True)
    words = [sys.executable, "-S", "-c", _WARM, str(group), str(here.disk / "warm"), str(WARM_PAGES)]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    try:
        yield group
    finally:
        process.communicate("")


def freeing() -> list[dict[str, Any]]:
    rows = []
    for title, each in (("one log", False), ("a file each", True)):
        with yard() as here:
            here.make(numbered("loop/z*", PAGE_CACHE), here.disk / "log", each=each)
            with workload(here) as live:
                before, warm = here.zombies(), cached(live)
                begun = time.perf_counter()
                attempts = list(Purge(allowed=Allowed(), within=here.path).run())
                took = time.perf_counter() - begun
                rows.append(
                    row(
                        f"purge {PAGE_CACHE:,} page-cache zombies, {title}",
                        ms=round(took * 1000),
                        result=f"{before:,} -> {here.zombies():,}",
                        steps=", ".join(attempt.step.key.split()[0] for attempt in attempts),
                        longest_in_kernel_s=round(max(attempt.kernel for attempt in attempts), 3),
                        live_cache_kept=f"{cached(live) / warm:.1%}",
                    )
                )
    with yard() as here:
        here.make(numbered("loop/z*", PAGE_CACHE), here.disk / "log")
        with workload(here) as live:
            before, warm = here.zombies(), cached(live)
            os.sync()
            took, kernel, _ = confined(["/proc/sys/vm/drop_caches", "1"])
            left = here.settle(lambda now: now < before // 10)
            rows.append(
                row(
                    "drop_caches instead",
                    ms=round(took * 1000),
                    result=f"{before:,} -> {left:,}",
                    longest_in_kernel_s=round(kernel, 3),
                    live_cache_kept=f"{cached(live) / warm:.1%}",
                )
            )
    return rows


def stuck() -> list[dict[str, Any]]:
    rows = []
    with yard() as here:
        here.make(numbered("loop/t*", STUCK), here.tmpfs / "pages")
        # A few that reclaim could free, whose file has no name: reason enough to try.
        here.make(numbered("loop/u*", 100), here.disk / "gone")
        handle = os.open(here.disk / "gone", os.O_RDONLY)
        (here.disk / "gone").unlink()
        begun = time.perf_counter()
        purge = Purge(allowed=Allowed(), within=here.path)
        attempts = list(purge.run())
        took = time.perf_counter() - begun
        os.close(handle)
        longest = max((attempt.seconds for attempt in attempts), default=0.0)
        kernel = max((attempt.kernel for attempt in attempts), default=0.0)
        left = purge.plan().left
        held = f"{left[0].zombies:,} left, held by {purge_holder(purge)}" if left else ""
        rows.append(
            row(
                f"purge with {STUCK:,} nobody can free, budget {Allowed().budget:g} s",
                ms=round(took * 1000),
                result=held,
                steps=f"{len(attempts)} attempts, longest {longest:.2f} s",
                longest_in_kernel_s=round(kernel, 3),
            )
        )
        target = here.top / "loop" / "memory.force_empty"
        if target.exists():
            took, kernel, killed = confined([str(target), "0"])
            rows.append(
                row(
                    "unbounded force_empty instead",
                    ms=round(took * 1000),
                    result=f"{here.zombies():,} left" + (", killed" if killed else ""),
                    longest_in_kernel_s=round(kernel, 3),
                )
            )
    return rows


def purge_holder(purge: Purge) -> str:
    from sexton.host.pinned_files import read_mounts

    holder = purge.plan().left[0].holder
    return "nobody known" if holder is None else read_mounts().says(holder)


def run() -> list[dict[str, Any]]:
    """The rows of this benchmark."""
    subprocess.run([Path(bench.__file__).parents[1] / "scripts/build_bpf.sh", "--must"], check=True)
    return [*looking(), *freeing(), *stuck()]


if __name__ == "__main__":
    for line in run():
        print(json.dumps(line))
