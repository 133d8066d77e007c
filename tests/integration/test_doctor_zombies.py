"""Real zombies on this host's memory hierarchy: counted exactly, found, and gone again once their pages are."""

from __future__ import annotations

import asyncio
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sexton.care.look import Round, Verdict, look_around
from sexton.care.probes import memcg
from sexton.core.finding import RATIO_FLOOR
from sexton.host.cgroup import census, find_memory

ZOMBIES = 500
SETTLE_DEADLINE = 15.0
ATTEMPTS = 5

# One page of the file is first touched inside each group and stays charged to it after the group is removed. The file
# is on a tmpfs, where nothing can reclaim it. The maker is a process of its own: it moves itself about.
MAKER = """
import os, sys
parent, file, count = sys.argv[1], os.open(sys.argv[2], os.O_RDWR | os.O_CREAT), int(sys.argv[3])
def enter(group):
    with open(group + "/cgroup.procs", "w") as procs:
        procs.write("0")
os.makedirs(parent + "/home", exist_ok=True)
enter(parent + "/home")
for number in range(count):
    group = f"{parent}/z{number}"
    os.mkdir(group)
    enter(group)
    os.pwrite(file, b"z" * 4096, number * 4096)
    enter(parent + "/home")
    os.rmdir(group)
"""


class Zombies:
    """Makes them below a group of the test's own, and frees all of them at once."""

    def __init__(self, parent: Path, tmpfs: Path) -> None:
        self._parent = parent
        self._file = tmpfs / "pages"

    def make(self, count: int) -> None:
        subprocess.run([sys.executable, "-S", "-c", MAKER, self._parent, self._file, str(count)], check=True)

    def free(self) -> None:
        self._file.unlink(missing_ok=True)


@pytest.fixture
def zombies(tmp_path: Path) -> Iterator[Zombies]:
    place = find_memory(Path("/"))
    parent = place.mount / f"sexton-test-{secrets.token_hex(4)}"
    tmpfs = tmp_path / "tmpfs"
    tmpfs.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", tmpfs], check=True)
    parent.mkdir()
    try:
        if place.version == 2:
            for group in (place.mount, parent):
                (group / "cgroup.subtree_control").write_text("+memory")
        yield Zombies(parent, tmpfs)
    finally:
        subprocess.run(["umount", tmpfs], check=True)
        for top, below, _ in os.walk(parent, topdown=False):
            for name in below:
                os.rmdir(os.path.join(top, name))
        parent.rmdir()


def zombies_now() -> int:
    return census(Path("/")).zombies


def wait_until(enough: Callable[[int], bool]) -> None:
    """Counting is asynchronous in the kernel: the last of them goes some time after its last page."""
    deadline = time.monotonic() + SETTLE_DEADLINE
    while not enough(now := zombies_now()):
        assert time.monotonic() < deadline, f"{now} zombies"
        time.sleep(0.02)


def settled() -> int:
    """The number of zombies, once it stands still."""
    deadline = time.monotonic() + SETTLE_DEADLINE
    last, since = zombies_now(), time.monotonic()
    while time.monotonic() - since < 0.3:
        time.sleep(0.02)
        if (now := zombies_now()) != last:
            assert time.monotonic() < deadline, "other programs make and free zombies all the time"
            last, since = now, time.monotonic()
    return last


def make_exactly(zombies: Zombies, many: int) -> int:
    """Make so many and return how many others there were. Zombies of other programs may go at any moment, when the
    kernel reclaims old page cache; then the difference shows both, and is taken again."""
    seen = []
    for _ in range(ATTEMPTS):
        before = settled()
        zombies.make(many)
        seen.append(settled() - before)
        if seen[-1] == many:
            return before
        zombies.free()
        wait_until((before + many // 10).__ge__)
    raise AssertionError(f"made {many} zombies, counted {seen}")


@pytest.fixture(autouse=True)
def calm() -> None:
    """What earlier tests and other programs left behind is cleared away as the report itself advises."""
    if zombies_now() >= RATIO_FLOOR // 2:
        os.sync()
        Path("/proc/sys/vm/drop_caches").write_text("1")
        wait_until(lambda now: now < RATIO_FLOOR // 2)


def look(state: Path) -> Round:
    return asyncio.run(look_around(Path("/"), "unix:///nowhere", state, (memcg.PROBE,)))


@pytest.mark.timeout(90)
def test_zombies_are_counted_exactly_found_and_forgotten_when_they_are_gone(zombies: Zombies, tmp_path: Path) -> None:
    many = max(ZOMBIES, 4 * census(Path("/")).live)
    assert look(tmp_path).verdict is Verdict.HEALTHY

    before = make_exactly(zombies, many)
    seen = look(tmp_path)

    assert [finding.fingerprint for finding in seen.findings] == ["memcg/zombies"]
    evidence = {item.what: item.value for item in seen.findings[0].evidence}
    assert seen.findings[0].title.startswith(f"{before + many:,} zombie memory cgroups")
    assert evidence["growth since the last look"].startswith("+")

    zombies.free()
    wait_until(lambda now: now <= before + many // 10)

    assert look(tmp_path).verdict is Verdict.HEALTHY


@pytest.mark.timeout(60)
def test_the_count_agrees_with_the_tools_of_the_system(zombies: Zombies) -> None:
    zombies.make(20)
    settled()
    place = find_memory(Path("/"))
    if place.version == 1:
        rows = Path("/proc/cgroups").read_text().splitlines()
        tracked = next(int(row.split()[2]) for row in rows if row.startswith("memory"))
        found = subprocess.run(["find", place.mount, "-type", "d"], capture_output=True, text=True, check=True)
        live = len(found.stdout.splitlines())
    else:
        words = (place.mount / "cgroup.stat").read_text().split()
        numbers = dict(zip(words[::2], map(int, words[1::2]), strict=True))
        live = numbers["nr_descendants"] + 1
        tracked = live + numbers["nr_dying_descendants"]

    seen = census(Path("/"))

    assert (seen.tracked, seen.live, seen.unsettled) == (tracked, live, 0)


@pytest.mark.timeout(60)
def test_the_cost_of_a_count_does_not_grow_with_the_zombies(
    zombies: Zombies, capsys: pytest.CaptureFixture[str]
) -> None:
    before = settled()
    few = best_of_many()
    zombies.make(5_000)
    wait_until(lambda now: now >= 4_900)
    many = best_of_many()
    with capsys.disabled():
        print(f"\ncount: {few * 1e6:.0f} us with {before} zombies, {many * 1e6:.0f} us with {zombies_now()}")

    assert many < 5 * few + 0.001


def best_of_many() -> float:
    times = []
    for _ in range(50):
        begun = time.perf_counter()
        census(Path("/"))
        times.append(time.perf_counter() - begun)
    return min(times)


def test_inside_a_cgroup_namespace_it_says_that_it_cannot_know(tmp_path: Path) -> None:
    """What a container sees: its own part of the hierarchy as if it were the root."""
    place = find_memory(Path("/"))
    group = place.mount / f"sexton-test-{secrets.token_hex(4)}"
    options = ["-t", "cgroup", "-o", "memory", "cgroup"] if place.version == 1 else ["-t", "cgroup2", "cgroup2"]
    script = (
        'echo $$ > "$1/cgroup.procs" && shift && exec unshare -Cm sh -c '
        '\'umount -R /sys/fs/cgroup; mount "$@" && exec "$PY" -c "$CODE"\' inside "$@"'
    )
    code = "from pathlib import Path; from sexton.host.cgroup import census; print(census(Path('/')))"
    mount_point = tmp_path / "groups"
    mount_point.mkdir()
    group.mkdir()
    try:
        seen = subprocess.run(
            ["sh", "-c", script, "outside", group, *options, mount_point],
            env={**os.environ, "PY": sys.executable, "CODE": code},
            capture_output=True,
            text=True,
            timeout=15,
            check=False,
        )
    finally:
        deadline = time.monotonic() + SETTLE_DEADLINE
        while group.exists():
            try:
                group.rmdir()
            except OSError:
                assert time.monotonic() < deadline, f"cannot remove {group}"
                time.sleep(0.02)

    assert "Unreadable" in seen.stderr
    assert "only a part of the hierarchy is visible here" in seen.stderr
