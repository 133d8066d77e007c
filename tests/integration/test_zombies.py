"""Real zombies on this host, named after the fact: their paths, their makers, the files and processes behind them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from sexton.care.graves import culprits, survey
from sexton.care.purging import Purge
from sexton.core.maker import shares
from sexton.core.purge import Allowed, Why
from sexton.core.zombie import below
from sexton.host.cgroup import census
from sexton.host.ghosts import PAGE
from sexton.host.memcg_walk import PROGRAM, walk
from zombies import ROOT, Graveyard, graveyard, numbered

HEX = "0123456789abcdef" * 4
TASK = "0123456789abcdef0123456789abcdef"
SOAK = os.environ.get("SEXTON_SOAK") == "1"
MANY = 70_000 if SOAK else 5_000
# The command alone, so that these tests hold whatever else the program has.
COMMAND = "import typer; from sexton.cli.zombies import zombies_command; typer.run(zombies_command)"

# Enters the first group, does something that leaves pages there, goes to the second and stays. Says so, ends at end of
# input.
STAYS = """
import ctypes, mmap, os, sys
inside, outside, what, file = sys.argv[1:5]
def enter(group):
    with open(group + "/cgroup.procs", "w") as procs:
        procs.write("0")
libc = ctypes.CDLL(None)
def mapped(name):
    opened = os.open(name, os.O_RDWR | os.O_CREAT)
    os.ftruncate(opened, 65536)
    memory = mmap.mmap(opened, 65536)
    return memory, ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(memory)))
# Once outside, so that inside nothing is allocated but what is meant to be.
warm, address = mapped(file + "-warm")
assert libc.mlock(address, 65536) == 0
memory, address = mapped(file)
payload = b"z" * 2**20
os.close(os.memfd_create("sexton-warm"))
enter(outside)
enter(inside)
if what == "anonymous":
    memory = mmap.mmap(-1, 2**20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.write(payload)
elif what == "memfd":
    shared = os.memfd_create("sexton-shared")
    os.write(shared, payload)
elif what == "locked":
    assert libc.mlock(address, 65536) == 0
enter(outside)
print("left", flush=True)
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


def zombies(*words: str, command: tuple[str, ...] = (sys.executable,)) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*command, "-c", COMMAND, *words], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.timeout(240)
def test_every_zombie_is_named_exactly_however_many_there_are(yard: Graveyard) -> None:
    names = numbered("z*", MANY)
    yard.make(names, yard.tmpfs / "pages")

    seen = survey(within=yard.path)

    assert seen.walk is not None
    assert seen.walk.finished
    dead = [seen.walk.groups[row] for row in seen.rows]
    assert {group.path for group in dead} == {f"{yard.path}/{name}" for name in names}
    assert {(group.refs, group.anon, group.file, group.unevictable) for group in dead} == {(1, 1, 0, 0)}
    assert {seen.walk.groups[group.above].path for group in dead} == {yard.path}


@pytest.mark.timeout(90)
def test_makers_shares_are_recovered_after_the_fact(yard: Graveyard) -> None:
    containers = [f"docker/{number:064x}" for number in range(700)]
    units = numbered("system.slice/nightly.service/run-*", 200)
    tasks = [f"ecs/{TASK}/{number:064x}" for number in range(100)]
    yard.make([*containers, *units, *tasks], yard.tmpfs / "pages")

    seen = json.loads(zombies("--under", yard.path, "--json").stdout)

    shares_of = {maker["kind"]: maker["share"] for maker in seen["makers"]}
    assert shares_of == {
        "container": pytest.approx(0.7, abs=0.01),
        "unit": pytest.approx(0.2, abs=0.01),
        "ECS task": pytest.approx(0.1, abs=0.01),
    }
    assert [(maker["maker"], maker["ids"]) for maker in seen["makers"]] == [
        (f"{yard.path}/docker", 700),
        ("nightly.service", 0),
        (f"{yard.path}/ecs", 1),
    ]


def test_long_names_and_deep_ones_are_whole(yard: Graveyard) -> None:
    long, deep = "n" * 255, "/".join(["deep"] * 12) + "/z"
    yard.make([long, deep, f"docker-{HEX}.scope"], yard.tmpfs / "pages")

    seen = walk(census(ROOT).tracked)

    found = {seen.groups[row].path for row in seen.dead() if below(seen.groups[row].path, yard.path)}
    assert found == {f"{yard.path}/{name}" for name in (long, deep, f"docker-{HEX}.scope")}


def test_a_table_that_is_too_small_is_made_larger(yard: Graveyard) -> None:
    yard.make(numbered("n" * 200 + "*", 3_000), yard.tmpfs / "pages")

    seen = walk(1)

    assert seen.finished
    assert sum(1 for row in seen.dead() if below(seen.groups[row].path, yard.path)) == 3_000


@pytest.mark.timeout(60)
def test_files_that_pin_them_are_told_by_path(yard: Graveyard) -> None:
    yard.make(numbered("a*", 30), yard.disk / "one log")
    yard.make(numbered("b*", 4), yard.disk / "many", each=True)
    yard.make(numbered("c*", 20), yard.tmpfs / "pages")

    seen = json.loads(zombies("--under", yard.path, "--by", "file", "--json").stdout)

    rows = {row["what"]: (row["zombies"], row["bytes"]) for row in seen["rows"]}
    assert rows.pop(str(yard.disk / "one log")) == (30, 30 * PAGE)
    assert rows.pop(str(yard.tmpfs / "pages")) == (20, 20 * PAGE)
    for number in range(4):
        assert rows.pop(f"{yard.disk}/many-{number}") == (1, PAGE)
    # Making files touches the file system's own pages, which have no file.
    assert all(what.startswith("metadata of the file system at /") for what in rows)


def leave_behind(yard: Graveyard, what: str) -> subprocess.Popen[str]:
    """A process that was in a group, left pages there and went on elsewhere; the group is removed."""
    yard._group("home")
    yard._group("left")
    file = str(yard.disk / "database")
    words = [sys.executable, "-S", "-c", STAYS, f"{yard.top}/left", f"{yard.top}/home", what, file]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "left\n"
    deadline = time.monotonic() + 5
    while (yard.top / "left").exists():
        try:
            (yard.top / "left").rmdir()
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    return process


@pytest.mark.parametrize(
    ("what", "why", "named"),
    [
        ("anonymous", Why.ANONYMOUS, "process {pid} (python"),
        ("memfd", Why.MEMORY, "shared memory memfd:sexton-shared"),
        ("locked", Why.LOCKED, "locked in memory (mlock)"),
    ],
)
def test_who_holds_what_nobody_can_reclaim_is_named(yard: Graveyard, what: str, why: Why, named: str) -> None:
    holder = leave_behind(yard, what)
    try:
        said = zombies("--under", yard.path, "--purge")
        plan = Purge(allowed=Allowed(caches=True), within=yard.path).plan()
    finally:
        holder.communicate("")

    assert plan.steps == ()
    assert [(left.why, left.zombies) for left in plan.left] == [(why, 1)]
    assert named.format(pid=holder.pid) in said.stdout
    if what != "anonymous":
        assert f"({holder.pid})" in said.stdout  # who uses or locks it
    yard.settle(lambda now: now == (1 if what == "locked" else 0))


def test_without_the_walk_arithmetic_tells_where_and_how_much(yard: Graveyard, tmp_path: Path) -> None:
    yard.make(numbered("z*", 500), yard.tmpfs / "pages")
    # Counters of many groups are brought together when somebody asks.
    seen = survey(within=yard.path, program=tmp_path / "none")

    assert seen.walk is None
    assert "not compiled" in seen.cannot_see[0]
    assert seen.shares == ()
    (ghost,) = [ghost for ghost in seen.ghosts if ghost.path == yard.path]
    assert (ghost.file, ghost.unevictable) == (0, 0)
    assert ghost.anon == pytest.approx(500, abs=70)  # per-CPU counters are exact to a batch


def test_an_ordinary_user_is_told_what_is_missing(yard: Graveyard) -> None:
    yard.make(numbered("z*", 120), yard.tmpfs / "pages")

    said = zombies("--under", yard.path, command=("setpriv", "--reuid=65534", "--clear-groups", sys.executable))

    # Others on this machine may have left enough zombies for a finding (1).
    assert said.returncode in (1, 2), said.stderr
    assert "zombie memory cgroups" in said.stdout
    assert "cannot see: cannot name zombies: the kernel does not permit it" in said.stdout
    assert "still held by dead groups" in said.stdout
    assert yard.path in said.stdout


def test_doctors_culprit_is_the_maker(yard: Graveyard) -> None:
    yard.make(numbered("system.slice/nightly.service/run-*", 1_200), yard.tmpfs / "pages")
    code = "import typer; from sexton.cli.doctor import doctor_command; typer.run(doctor_command)"

    begun = time.monotonic()
    said = subprocess.run(
        [sys.executable, "-c", code, "--json", "--state-dir", yard.disk, "--docker-host", "unix:///nowhere"],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )

    (finding,) = [item for item in json.loads(said.stdout)["findings"] if item["fingerprint"] == "memcg/zombies"]
    assert finding["culprit"].startswith("unit nightly.service (")
    assert any(item["what"] == "made by unit nightly.service" for item in finding["evidence"])
    assert time.monotonic() - begun < 5


def test_another_hosts_root_is_not_blamed_on_this_one(yard: Graveyard, tmp_path: Path) -> None:
    yard.make(numbered("z*", 50), yard.tmpfs / "pages")

    assert culprits(tmp_path, 100) == ()
    assert culprits(ROOT, 100) != ()


def test_naming_leaves_nothing_in_the_kernel(yard: Graveyard) -> None:
    yard.make(numbered("z*", 50), yard.tmpfs / "pages")
    before = census(ROOT).tracked

    for _ in range(5):
        walk(census(ROOT).tracked, pins=True)

    loaded = [path for path in Path("/proc").glob("[0-9]*/comm") if path.exists() and "memcg-walk" in _read(path)]
    assert loaded == []
    assert census(ROOT).tracked - before < 25  # fewer is the work of whoever came before


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


@pytest.mark.timeout(300)
def test_count_and_names_are_as_quick_as_promised(yard: Graveyard, capsys: pytest.CaptureFixture[str]) -> None:
    """Bounds leave room for a busy machine; the figures themselves are the benchmark's."""
    yard.make(numbered("z*", MANY), yard.tmpfs / "pages")

    def best(work) -> float:  # type: ignore[no-untyped-def]
        times = []
        for _ in range(5):
            begun = time.perf_counter()
            work()
            times.append(time.perf_counter() - begun)
        return min(times)

    count = best(lambda: census(ROOT))
    names = best(lambda: [group.path for group in walk(MANY).groups if group.dead])
    of = walk(MANY)
    makers = best(lambda: shares(group for group in of.groups if group.dead))
    with capsys.disabled():
        print(f"\n{MANY:,}: count {count * 1e3:.2f} ms, names {names * 1e3:.0f} ms, makers {makers * 1e3:.0f} ms")

    assert count < 0.005
    assert names < 0.2 + MANY * 10e-6
    assert PROGRAM.exists()
