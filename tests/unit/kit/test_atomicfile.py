"""A file is the old text or the new one: for a reader beside it, and after a death in the middle of a write."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from sexton.kit.atomicfile import write_atomic


def test_content_and_mode(tmp_path):
    path = tmp_path / "deep" / "down" / "keys"
    write_atomic(path, b"one", mode=0o600)
    write_atomic(path, b"two", mode=0o600)

    assert path.read_bytes() == b"two"
    assert path.stat().st_mode & 0o777 == 0o600
    assert os.listdir(path.parent) == ["keys"]


def test_no_moment_in_which_others_may_read_a_secret(tmp_path):
    """The draft has the final mode before it has a byte."""
    path = tmp_path / "keys"
    seen = []
    done = threading.Event()

    def watch():
        while not done.is_set():
            for entry in os.scandir(tmp_path):
                with contextlib.suppress(FileNotFoundError):
                    seen.append(entry.stat().st_mode & 0o077)

    watcher = threading.Thread(target=watch)
    watcher.start()
    for _ in range(50):
        write_atomic(path, b"secret", mode=0o600)
    done.set()
    watcher.join()

    assert seen
    assert not any(seen)


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "file"
    write_atomic(path, b"old")

    with pytest.raises(TypeError):
        write_atomic(path, "not bytes")  # type: ignore[arg-type]

    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_a_directory_in_the_way_is_an_error_that_leaves_nothing(tmp_path):
    (tmp_path / "file").mkdir()

    with pytest.raises(OSError):
        write_atomic(tmp_path / "file", b"x")

    assert os.listdir(tmp_path) == ["file"]


def test_a_death_at_any_moment_leaves_one_whole_text(tmp_path):
    path = tmp_path / "file"
    code = (
        "import sys, pathlib; from sexton.kit.atomicfile import write_atomic\n"
        "path = pathlib.Path(sys.argv[1])\n"
        "for n in range(10**9): write_atomic(path, str(n % 10).encode() * 200_000); print(n, flush=True)\n"
    )
    for turn in range(8):
        child = subprocess.Popen([sys.executable, "-c", code, path], stdout=subprocess.PIPE)
        assert child.stdout is not None
        child.stdout.readline()
        time.sleep(turn * 0.0007)  # not a wait for anything: a different instant each time
        child.send_signal(signal.SIGKILL)
        child.communicate()
        text = path.read_bytes()
        assert len(text) == 200_000
        assert len(set(text)) == 1
