"""The caretaker as its users run it: it can never be the incident, it says what it cannot see, and no death costs it
what it knew."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from node import Role, free_port, until
from sexton.care.ledger import ledger_file, open_ledger
from sexton.cli.app import app
from sexton.core.ledger import ENTRIES_FIRST, ENTRIES_LAST, Kind
from zombies import graveyard, numbered

pytestmark = pytest.mark.timeout(120)

NOTHING_TO_DO = 5
OBEYS = 3.0
TRACES = Path("/sys/kernel/tracing/instances")
SOAK = os.environ.get("SEXTON_SOAK") == "1"
KILLS = 60 if SOAK else 6
ZOMBIES = 70_000 if SOAK else 2_000
# Enough to be a finding, and as many as nobody wants.
FEW, MANY = 1_500, 70_000 if SOAK else 12_000
# Its start, with Python's own, is not its steady cost.
WARM_SECONDS = 4.0
STEADY_SECONDS = 60.0 if SOAK else 10.0
NOWHERE = ("--docker-host", "unix:///nowhere.sock")


class Care:
    """One caretaker in a directory of its own, in as many lives as a test gives it."""

    def __init__(self, folder: Path, *words: str, **environment: str) -> None:
        self.data = folder / "data"
        environment = {**os.environ, "SEXTON_CARE_POLICY": f"{folder}/care.toml", **environment}
        words = ("--data-dir", str(self.data), *NOWHERE, *words)
        self.role = Role("care", folder / "care.log", words, environment)

    def start(self) -> None:
        before = self.role.log.count("msg=round")
        self.role.start()
        until(lambda: self.role.log.count("msg=round") > before, f"a round\n{self.role.log[-2000:]}")

    def ask(self, *words: str) -> Result:
        """In this process: an interpreter's start takes longer than most answers."""
        return CliRunner().invoke(app, words, env={"ECS_DATADIR": str(self.data)})


@pytest.fixture
def care(tmp_path: Path) -> Iterator[Care]:
    made = Care(tmp_path)
    try:
        yield made
    finally:
        made.role.kill()


def _freed(left: int) -> bool:
    """The kernel frees groups some time after what pinned them is gone, and the next test looks at the whole host."""
    return left < 100


def of_pid(pid: int) -> list[str]:
    return [line.split(":", 2)[2] for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines()]


def test_it_makes_no_group_no_child_and_obeys_at_any_moment(care: Care) -> None:
    for number, after in enumerate((0.0, 0.2, 0.5, 1.5)):
        care.role.start()
        until(lambda number=number: care.role.log.count("msg=starting") > number, "it is there")
        time.sleep(after)
        # It stays in the groups it was put into, and leaves no process behind in them.
        assert of_pid(care.role.pid) == of_pid(os.getpid())
        assert Path(f"/proc/{care.role.pid}/task/{care.role.pid}/children").read_text() == ""
        assert care.role.terminate(OBEYS) == 0
        assert "trace=" not in care.role.log
    assert sorted(path.name for path in care.data.iterdir()) == ["care"]  # its socket is gone


def instances_of(pid: int) -> list[str]:
    with contextlib.suppress(OSError):
        return [name for name in os.listdir(TRACES) if f"{pid}-" in name]
    return []


def test_what_it_traced_with_is_gone_after_its_end_and_after_its_death(care: Care) -> None:
    care.start()
    assert care.role.terminate(OBEYS) == 0
    assert instances_of(care.role.pid) == []
    care.start()
    care.role.kill()
    dead = care.role.pid
    care.start()
    until(lambda: instances_of(dead) == [], "the next one cleans up after the dead")
    assert care.role.terminate(OBEYS) == 0


def cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def rss(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.timeout(600 if SOAK else 120)
def test_its_steady_cost_is_small_measured_and_published_whatever_lies_around(tmp_path: Path) -> None:
    port = free_port()
    care = Care(tmp_path, "--metrics", f"127.0.0.1:{port}")
    with tempfile.TemporaryDirectory(dir="/var/tmp") as scratch, graveyard(Path(scratch)) as yard:
        yard.make(numbered("z*", ZOMBIES), yard.tmpfs / "pages")
        _steady(care, port)
    yard.settle(_freed)


def test_it_is_no_larger_for_many_zombies_than_for_few(tmp_path: Path) -> None:
    """Each was once an object in its memory, and each page that pins one another, and what that took stayed."""
    plain, contained = numbered("z*", MANY // 2), [f"docker/{number:064x}" for number in range(MANY // 2)]
    with tempfile.TemporaryDirectory(dir="/var/tmp") as scratch, graveyard(Path(scratch)) as yard:
        yard.make(plain[:FEW], yard.tmpfs / "few")
        few = _size(Care(tmp_path / "few"))
        yard.make(plain[FEW:] + contained, yard.tmpfs / "many")
        many = _size(Care(tmp_path / "many"))
    yard.settle(_freed)
    print(f"{FEW} and {MANY} zombies around: now {few['VmRSS']} and {many['VmRSS']} kB, at most {few} and {many}")
    assert many["VmRSS"] - few["VmRSS"] < 1024
    assert many["VmHWM"] - few["VmHWM"] < 2048


def _size(care: Care) -> dict[str, int]:
    """Its memory once it has named the zombies and said what could be done about them."""
    care.data.mkdir(parents=True)
    try:
        care.start()
        assert "culprit=" in care.role.log
        told = Path(f"/proc/{care.role.pid}/status").read_text().splitlines()
        return {name: int(line.split()[1]) for line in told for name in ("VmRSS", "VmHWM") if line.startswith(name)}
    finally:
        care.role.kill()


def _steady(care: Care, port: int) -> None:
    try:
        care.start()
        time.sleep(WARM_SECONDS)
        before, memory = cpu(care.role.pid), rss(care.role.pid)
        time.sleep(STEADY_SECONDS)
        spent, grown = cpu(care.role.pid) - before, rss(care.role.pid) - memory
        print(f"{ZOMBIES} zombies around: {spent / STEADY_SECONDS:.2%} of a core, memory {grown / 1024:+.0f} KiB")
        # One tick of the clock is its grain.
        assert spent <= 0.005 * STEADY_SECONDS + 0.02
        assert grown < 1 << 20
        assert memory < 50 << 20
        read = subprocess.run(
            ["curl", "-sf", f"http://127.0.0.1:{port}/metrics"], capture_output=True, text=True, check=True
        ).stdout
        told = next(line for line in read.splitlines() if line.startswith("sexton_care_cpu_seconds_total"))
        assert float(told.split()[1]) == pytest.approx(cpu(care.role.pid), abs=0.3)
    finally:
        care.role.kill()


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A directory that another user reaches and owns; pytest's own are private."""
    with tempfile.TemporaryDirectory(prefix="sexton-care-") as name:
        os.chown(name, 65534, 65534)
        yield Path(name)


def test_without_rights_it_says_what_it_cannot_see_and_claims_no_health(open_folder: Path) -> None:
    """Another user, no engine: the tracing is closed to it, and the names of removed groups."""
    care = Care(open_folder)
    care.role._command = ["setpriv", "--reuid=65534", "--clear-groups", *care.role._command]
    try:
        care.start()
        # With something found on this host, that is what it says.
        assert "no health is claimed" in care.role.log or "open: " in care.role.log
        assert "could not see: " in care.role.log
        seen = care.ask("findings")
        if "open for" not in seen.stdout:
            assert seen.exit_code == 2
        assert "could not see group-churn" in seen.stdout
        refused = subprocess.run(
            ["setpriv", "--reuid=65533", "--clear-groups", sys.executable, "-m", "sexton", "findings"],
            env={**os.environ, "ECS_DATADIR": str(care.data)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert refused.returncode == 1
        assert "run as root" in refused.stderr
        assert care.role.terminate(OBEYS) == 0
        assert "trace=" not in care.role.log
    finally:
        care.role.kill()


def test_a_second_caretaker_stands_down(care: Care, tmp_path: Path) -> None:
    care.start()
    (tmp_path / "second").mkdir()
    second = Role("care", tmp_path / "second.log", ("--data-dir", str(care.data), *NOWHERE), dict(os.environ))
    second.start()
    assert second.wait(30.0) == NOTHING_TO_DO
    assert f"process {care.role.pid} is using it" in second.log
    assert 'msg="standing down"' in second.log and "cure=" in second.log
    assert care.role.running


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"SEXTON_CARE_METRICS": "0.0.0.0:9999"}, "loopback addresses only"),
        ({"SEXTON_CARE_METRICS": "9999"}, "give an address and a port"),
        ({"SEXTON_CARE_ROOT": "/no/such/place"}, "no such directory"),
        ({"SEXTON_CARE_WEBHOOK": "ftp://x"}, "SEXTON_CARE_WEBHOOK"),
        ({"SEXTON_CARE_WEBHOOK_SECRET_FILE": "/no/such/file"}, "/no/such/file"),
    ],
)
def test_what_must_not_be_guessed_ends_the_start(tmp_path: Path, environment: dict[str, str], words: str) -> None:
    care = Care(tmp_path, **environment)
    care.role.start()

    assert care.role.wait(30.0) in (1, 2)
    assert words in care.role.log
    assert "Traceback" not in care.role.log


class Host:
    """A host's files, as a v1 kernel shows them, with as many zombies as is wanted."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "proc/1").mkdir(parents=True)
        (root / "proc/1/mounts").write_text("cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\n")
        (root / "proc/sys/kernel/random").mkdir(parents=True)
        (root / "proc/sys/kernel/random/boot_id").write_text("a-boot\n")
        (root / "proc/uptime").write_text("10000.00 1.00\n")
        top = root / "sys/fs/cgroup/memory"
        top.mkdir(parents=True)
        for name in ("cgroup.sane_behavior", "release_agent", "cgroup.procs"):
            (top / name).write_text("0\n")
        self.zombies(0)

    def zombies(self, many: int) -> None:
        draft = self.root / "proc/draft"
        draft.write_text(f"#subsys_name\thierarchy\tnum_cgroups\tenabled\nmemory\t4\t{many + 1}\t1\n")
        draft.replace(self.root / "proc/cgroups")


async def history_of(data: Path, fingerprint: str) -> tuple[Any, tuple[Any, ...]] | None:
    async with open_ledger(ledger_file(data)) as ledger:
        with contextlib.suppress(LookupError):
            return ledger.find(fingerprint), await ledger.history(fingerprint)
    return None


@pytest.mark.timeout(600)
def test_killed_at_any_instant_the_ledger_is_whole(tmp_path: Path) -> None:
    host = Host(tmp_path / "host")
    care = Care(tmp_path, "--root", str(host.root), SEXTON_CARE_EVERY="20ms")
    draw = random.Random(7)
    times = 0
    try:
        for _ in range(KILLS):
            care.start()
            until_ = time.monotonic() + draw.uniform(0.2, 1.2)
            while time.monotonic() < until_:
                host.zombies(draw.choice((0, 5_000, 20_000)))
                time.sleep(draw.uniform(0.01, 0.2))
            care.role.kill()
            found = asyncio.run(history_of(care.data, "memcg/zombies"))
            if found is None:
                continue
            record, entries = found
            kept = min(record.written, ENTRIES_FIRST + ENTRIES_LAST)
            assert len(entries) == kept
            begins = [entry.kind for entry in entries if entry.kind in (Kind.OPENED, Kind.REOPENED, Kind.RESOLVED)]
            assert record.open == (begins[-1] is not Kind.RESOLVED)
            assert record.times >= times
            times = record.times
        assert times >= 1
        # Whatever was left, the next one goes on, and what does not hold any more closes.
        host.zombies(0)
        care.start()

        def closed() -> bool:
            told = json.loads(care.ask("findings", "--all", "--json").stdout)
            # One that came and went this often closes late; until then it is known to be out of sight of nobody.
            return all(row["state"] == "resolved" or row["flapping"] for row in told["findings"])

        until(closed, "what was found is over")
        assert care.role.terminate(OBEYS) == 0
    finally:
        care.role.kill()


def test_findings_are_told_in_three_exit_codes_and_muted_by_name(tmp_path: Path) -> None:
    host = Host(tmp_path / "host")
    care = Care(tmp_path, "--root", str(host.root), SEXTON_CARE_EVERY="100ms")
    nothing = care.ask("findings")
    assert nothing.exit_code == 1
    assert "sexton doctor" in nothing.stderr
    try:
        host.zombies(5_000)
        care.start()
        seen = care.ask("findings")
        assert seen.exit_code == 1
        assert "WARNING" in seen.stdout and "memcg/zombies" in seen.stdout and "5,000 zombie" in seen.stdout
        told = care.ask("explain", "memcg").stdout
        # The fixture is no running kernel's: nobody can name these, and it is said.
        assert "? not known: the kernel counts removed cgroups" in told
        assert "what is unknown:" in told
        assert care.ask("explain", "memcg/other").exit_code == 1
        assert care.ask("findings", "mute", "memcg", "--for", "7d", "--reason", "known").exit_code == 0
        muted = care.ask("findings")
        assert "muted for another" in muted.stdout and "known" in muted.stdout
        assert muted.exit_code == 2  # nothing is open, but not everything can be seen in this tree
        assert care.ask("findings", "mute", "memcg", "--for", "soon").exit_code == 2
        assert care.ask("findings", "unmute", "memcg/zombies").exit_code == 0
        assert care.ask("findings").exit_code == 1
        # No remedy works on a tree of files, and that is an answer.
        fix = care.ask("fix", "memcg/zombies")
        assert fix.exit_code == 2
        assert "purge-memcg: cannot:" in fix.stdout
        care.role.terminate(OBEYS)
        later = care.ask("findings")
        assert later.exit_code == 1
        assert "no caretaker runs" in later.stdout
    finally:
        care.role.kill()
