"""Real zombies freed without a reboot: what must goes, what is others' stays, and no core is held for long."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from sexton.care.purging import Purge
from sexton.care.remedies import purge_memcg
from sexton.care.remedy import Ground
from sexton.core.action import Plan
from sexton.core.finding import MemcgCount, judge_zombies
from sexton.core.policy import PurgeMemcg
from sexton.core.purge import Allowed, DropFiles, Reclaim, Why
from sexton.host.ghosts import PAGE
from zombies import Graveyard, graveyard, numbered

SOAK = os.environ.get("SEXTON_SOAK") == "1"
STUCK = 30_000 if SOAK else 4_000
# The command alone, so that these tests hold whatever else the program has.
COMMAND = "import typer; from sexton.cli.zombies import zombies_command; typer.run(zombies_command)"

# Touches pages of a file inside a group that lives on, and stays there.
LIVES = """
import os, sys
group, file, first, pages = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
with open(group + "/cgroup.procs", "w") as procs:
    procs.write("0")
opened = os.open(file, os.O_RDWR | os.O_CREAT)
os.pwrite(opened, b"l" * (4096 * pages), first * 4096)
os.fsync(opened)
print("warm", flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="session", autouse=True)
def compiled() -> None:
    """The walk, compiled when it is not."""
    script = Path(__file__).parents[2] / "scripts/build_bpf.sh"
    subprocess.run([script, "--must"], check=True, capture_output=True)


@pytest.fixture
def yard() -> Iterator[Graveyard]:
    with TemporaryDirectory(dir=Path(__file__).parent) as scratch, graveyard(Path(scratch)) as yard:
        yield yard


def zombies(*words: str) -> subprocess.CompletedProcess[str]:
    words = (sys.executable, "-c", COMMAND, *words)
    return subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)


@contextmanager
def live_workload(yard: Graveyard, file: Path, *, first: int = 0, pages: int) -> Iterator[Path]:
    """Its group; its page cache is warm while it lives."""
    group = yard.top / "live"
    group.mkdir()
    words = [sys.executable, "-S", "-c", LIVES, str(group), str(file), str(first), str(pages)]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "warm\n"
        yield group
    finally:
        process.communicate("")


def cached(group: Path) -> int:
    """Pages of page cache a group is charged for."""
    for line in (group / "memory.stat").read_text().splitlines():
        name, _, value = line.partition(" ")
        if name in ("cache", "file"):
            return int(value) // PAGE
    raise AssertionError(f"{group}/memory.stat tells no page cache")


def make_unlinked(yard: Graveyard, count: int) -> int:
    """Zombies pinned by a file that has no name any more: it cannot be opened by what it is. Its open handle."""
    file = yard.disk / "unlinked"
    yard.make(numbered("u*", count), file)
    handle = os.open(file, os.O_RDONLY)
    file.unlink()
    return handle


@pytest.mark.timeout(90)
def test_exact_pages_go_and_the_rest_of_the_same_file_stays(yard: Graveyard) -> None:
    shared = yard.disk / "shared"
    with live_workload(yard, shared, pages=2_000) as live:
        yard.make(numbered("z*", 400), shared, first=2_000)
        yard.make(numbered("m*", 100), yard.disk / "many", each=True)
        digest = hashlib.sha256(shared.read_bytes()).digest()
        before = cached(live)

        seen = json.loads(zombies("--under", yard.path, "--purge", "--yes", "--json").stdout)

        assert before >= 2_000
        assert cached(live) >= before * 0.95
        # Pages of the file system's own have no file; the group above may not be reclaimed while its cache is warm.
        assert {left["why"] for left in seen["plan"]["left"]} <= {"consent"}
        assert seen["named"] == yard.zombies() <= 50
        assert seen["attempts"][0]["key"] == "files"
        assert max(attempt["kernel_seconds"] for attempt in seen["attempts"]) <= 0.5
    assert hashlib.sha256(shared.read_bytes()).digest() == digest


def test_a_dry_run_changes_nothing_and_says_what_it_would(yard: Graveyard) -> None:
    yard.make(numbered("z*", 60), yard.disk / "log")

    said = zombies("--under", yard.path, "--purge")

    assert "would do" in said.stdout
    assert "1. drop exactly" in said.stdout
    assert "dry run: --yes does it" in said.stdout
    assert yard.zombies() == 60


def test_yes_without_purge_is_refused(yard: Graveyard) -> None:
    assert zombies("--yes").returncode == 2
    assert "belongs to --purge" in zombies("--yes").stderr


def test_dirty_pages_are_written_and_not_lost(yard: Graveyard) -> None:
    yard.make(numbered("z*", 50), yard.disk / "log")
    # Pages that were charged to a zombie and are written again stay charged to it, now dirty.
    handle = os.open(yard.disk / "log", os.O_RDWR)
    for _ in range(10):  # anybody on this host may write everything back at any moment
        os.pwrite(handle, b"new" * 1000, 0)
        purge = Purge(allowed=Allowed(), within=yard.path)
        (step, *_) = purge.plan().steps
        assert isinstance(step, DropFiles)
        if dirty := [file.dirty for file in step.files if file.pages >= 50] == [True]:
            break
    attempts = list(purge.run())

    assert dirty
    assert sum(attempt.freed for attempt in attempts) == 50
    assert os.pread(handle, 3000, 0) == b"new" * 1000
    os.close(handle)


@pytest.mark.timeout(60)
def test_what_cannot_be_opened_is_reclaimed_on_the_group_right_above(yard: Graveyard) -> None:
    handle = make_unlinked(yard, 80)
    purge = Purge(allowed=Allowed(), within=yard.path)

    attempts = list(purge.run())

    os.close(handle)
    assert [(type(attempt.step), attempt.step.key) for attempt in attempts][-1] == (Reclaim, f"reclaim {yard.path}")
    assert purge.plan().steps == ()
    assert yard.zombies() == 0


@pytest.mark.timeout(60)
def test_a_warm_cache_is_spent_only_with_consent(yard: Graveyard) -> None:
    handle = make_unlinked(yard, 50)
    with live_workload(yard, yard.disk / "warm", pages=8_000) as live:
        before = cached(live)

        refused = Purge(allowed=Allowed(), within=yard.path)
        done = list(refused.run())
        kept = cached(live)
        consented = list(Purge(allowed=Allowed(caches=True), within=yard.path).run())

    os.close(handle)
    assert [attempt for attempt in done if isinstance(attempt.step, Reclaim)] == []
    assert {(left.why, left.group) for left in refused.plan().left} == {(Why.CONSENT, yard.path)}
    assert kept >= before * 0.95
    assert sum(attempt.freed for attempt in consented) >= 50
    assert yard.zombies() == 0


@pytest.mark.timeout(240)
def test_what_nobody_can_free_ends_at_the_deadline_and_names_its_holder(yard: Graveyard) -> None:
    budget = 0.5 if SOAK else 0.15
    yard.make(numbered("t*", STUCK), yard.tmpfs / "pages")
    handle = make_unlinked(yard, 50)

    begun = time.monotonic()
    said = zombies("--under", yard.path, "--purge", "--yes", "--json", "--budget", str(budget))
    took = time.monotonic() - begun
    os.close(handle)

    seen = json.loads(said.stdout)
    for attempt in seen["attempts"]:
        assert attempt["kernel_seconds"] <= budget + 0.1, attempt  # and the start of its process
    assert seen["attempts"][-1]["key"] == f"reclaim {yard.path}"
    assert f"{yard.tmpfs}/pages" in {left["holder"] for left in seen["plan"]["left"]}
    assert max(left["zombies"] for left in seen["plan"]["left"]) >= STUCK
    assert yard.zombies() >= STUCK
    assert took < 60


def test_with_nothing_but_stuck_ones_no_reclaim_is_even_tried(yard: Graveyard) -> None:
    yard.make(numbered("t*", 500), yard.tmpfs / "pages")

    seen = json.loads(zombies("--under", yard.path, "--purge", "--yes", "--allow-drop-caches", "--json").stdout)

    assert seen["attempts"] == []
    assert [(left["why"], left["zombies"]) for left in seen["plan"]["left"]] == [("memory", 500)]


@pytest.mark.timeout(180)
def test_killed_at_any_instant_it_leaves_nothing_half_done(yard: Graveyard) -> None:
    yard.make(numbered("m*", 1_000), yard.disk / "many", each=True)
    words = [sys.executable, "-c", COMMAND, "--under", yard.path, "--purge", "--yes"]
    dice = random.Random(7)
    for _ in range(8):
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(dice.uniform(0.1, 1.2))  # the instant is the test's subject
        process.send_signal(signal.SIGKILL)
        process.wait()
    deadline = time.monotonic() + 5
    while left := [path for path in Path("/proc").glob("[0-9]*/cmdline") if b"confined_work.py" in _bytes(path)]:
        assert time.monotonic() < deadline, left
        time.sleep(0.02)

    first, second = (json.loads(zombies(*words[3:], "--json").stdout) for _ in range(2))

    assert first["plan"]["steps"] == []
    assert yard.zombies() == 0
    assert second["attempts"] == []
    assert {path.read_bytes() for path in yard.disk.iterdir()} == {b"z" * PAGE}


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


@pytest.mark.timeout(60)
def test_without_names_the_group_above_is_reclaimed(yard: Graveyard, tmp_path: Path) -> None:
    yard.make(numbered("z*", 400), yard.disk / "log")
    purge = Purge(allowed=Allowed(), within=yard.path, program=tmp_path / "not-compiled")

    plan = purge.plan()
    list(purge.run())

    assert not plan.named
    assert [step.key for step in plan.steps] == [f"reclaim {yard.path}"]
    yard.settle(lambda now: now == 0)


# As in a container that may look at the host's groups and no more.
READ_ONLY = """
set -e
mount --make-rprivate /
awk '$3 ~ /^cgroup2?$/ {print $2}' /proc/mounts | while read -r one; do mount -o remount,ro,bind "$one"; done
exec "$@"
"""


@pytest.mark.timeout(90)
def test_where_groups_are_read_only_what_was_refused_is_not_called_tried(yard: Graveyard) -> None:
    handle = make_unlinked(yard, 40)
    words = [sys.executable, "-c", COMMAND, "--under", yard.path, "--purge", "--yes"]

    said = subprocess.run(
        ["unshare", "-m", "sh", "-c", READ_ONLY, "sh", *words], capture_output=True, text=True, timeout=80, check=False
    )

    os.close(handle)
    assert "Read-only file system" in said.stdout, said.stderr
    assert "the means that would free them was refused, for the reason above" in said.stdout
    assert "in vain" not in said.stdout


def children() -> set[str]:
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


@pytest.mark.timeout(60)
async def test_the_caretakers_purge_is_a_process_of_its_own_that_ends_when_it_is_called_off(yard: Graveyard) -> None:
    yard.make(numbered("z*", 300), yard.disk / "log")
    ground = Ground(root=Path("/"), docker_host="", rule=PurgeMemcg(), now=time.time())
    finding = judge_zombies(MemcgCount(tracked=2_000, live=100, zombies=1_900, source="test"), None)
    assert finding is not None

    before = children()
    planned = await purge_memcg.plan(ground, finding)

    assert isinstance(planned, Plan)
    assert int(planned.facts["zombies"]) >= 300
    assert planned.notes[0].startswith("would drop exactly")
    assert yard.zombies() == 300
    async with aclosing(purge_memcg.carry_out(ground, planned, frozenset())) as work:
        did = await anext(work)
    assert did.key == "purge 1: files"
    assert yard.zombies() <= 50
    assert children() == before
