"""Work that may keep a core busy ends at its deadline, on one core, and takes its child along."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import pytest

from sexton.host.confined import chosen_core, run_confined

T = TypeVar("T")


@pytest.fixture
def fifo(tmp_path: Path) -> Iterator[Path]:
    """A group whose reclaim never ends: opening a pipe nobody reads."""
    os.mkfifo(tmp_path / "memory.force_empty")
    yield tmp_path


def endless(group: Path) -> dict[str, object]:
    return {"do": "reclaim", "group": str(group), "version": 1, "pages": 1, "seconds": 30}


def test_a_child_is_killed_at_its_deadline(fifo: Path) -> None:
    ended = run_confined(endless(fifo), 0.3)

    assert ended.killed
    assert not ended.stuck
    assert 0.3 <= ended.seconds < 1.0
    assert ended.said == {}


def test_a_child_that_is_done_says_what_it_did(tmp_path: Path) -> None:
    (tmp_path / "memory.force_empty").touch()

    ended = run_confined(endless(tmp_path), 5)

    assert (ended.killed, ended.said) == (False, {})
    assert (tmp_path / "memory.force_empty").read_text() == "0"


def test_v2_is_told_how_much_to_reclaim(tmp_path: Path) -> None:
    (tmp_path / "memory.reclaim").touch()

    run_confined({"do": "reclaim", "group": str(tmp_path), "version": 2, "pages": 3, "seconds": 1}, 5)

    assert (tmp_path / "memory.reclaim").read_text() == str(3 * os.sysconf("SC_PAGE_SIZE"))


def test_a_refusal_is_told(tmp_path: Path) -> None:
    ended = run_confined(endless(tmp_path), 5)

    assert "No such file" in str(ended.said["error"])


def test_files_that_are_gone_are_counted_and_the_others_go_on() -> None:
    with TemporaryDirectory(dir=Path(__file__).parent) as folder:
        where = os.fsencode(folder).hex()
        gone = (where, 2**31, 1, False, [(0, 1)])
        ended = run_confined({"do": "drop", "budget": 1.0, "files": [gone, gone, ("2f6e6f", 5, 1, False, [(0, 1)])]}, 5)

    assert ended.said == {"next": 3, "ESTALE": 2, "ENOENT": 1}


def test_a_budget_that_is_spent_stops_before_the_next_file() -> None:
    ended = run_confined({"do": "drop", "budget": 0.0, "files": [("2f", 2, 0, False, [])]}, 5)

    assert ended.said == {"next": 0}


def test_the_child_keeps_to_one_core_and_dies_with_its_parent(fifo: Path) -> None:
    code = f"from sexton.host.confined import run_confined;run_confined({endless(fifo)!r}, 60)"
    parent = subprocess.Popen([sys.executable, "-c", code])
    try:
        child = _wait_for(lambda: _children(parent.pid))
        _wait_for(lambda: os.sched_getaffinity(child[0]) == {chosen_core()})
    finally:
        parent.send_signal(signal.SIGKILL)
        parent.wait()

    _wait_for(lambda: not Path(f"/proc/{child[0]}").exists())


def _children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _wait_for(ask: Callable[[], T]) -> T:
    deadline = time.monotonic() + 10
    while not (answer := ask()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return answer
