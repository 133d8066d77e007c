"""What systemd hears: ready when it is so or has taken long enough, alive as often as asked, else nothing."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket

import pytest

from sexton.sdnotify import READY_SECONDS, Notifier


@pytest.fixture
def supervisor(tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
        line.bind(str(tmp_path / "notify"))
        line.setblocking(False)
        yield line


def heard(line):
    said = []
    with contextlib.suppress(BlockingIOError):
        while True:
            said.append(line.recv(4096).decode())
    return said


def notifier(line, **more):
    return Notifier({"NOTIFY_SOCKET": line.getsockname(), **more})


def test_each_thing_once_and_on_one_line(supervisor):
    one = notifier(supervisor)
    one.ready()
    one.ready()
    one.status("two\nlines")
    one.stopping()

    assert heard(supervisor) == ["READY=1", "STATUS=two lines", "STOPPING=1"]


def test_an_abstract_socket():
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
        line.bind(f"\0sexton-test-{os.getpid()}")
        Notifier({"NOTIFY_SOCKET": f"@sexton-test-{os.getpid()}"}).ready()

        assert line.recv(100) == b"READY=1"


@pytest.mark.parametrize("environ", [{}, {"NOTIFY_SOCKET": "/nowhere/at/all"}])
def test_nobody_there_is_no_failure(environ):
    one = Notifier(environ)
    one.ready()
    one.stopping()


@pytest.mark.parametrize(
    "environ, seconds",
    [
        ({}, 0.0),
        ({"WATCHDOG_USEC": "30000000"}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, 0.0),
        ({"WATCHDOG_USEC": "soon"}, 0.0),
    ],
)
def test_the_watchdog_is_ours_only_when_it_says_so(environ, seconds):
    assert Notifier(environ).watchdog == seconds


@pytest.mark.looptime
async def test_alive_in_half_the_time_and_ready_after_a_while(supervisor):
    one = notifier(supervisor, WATCHDOG_USEC="8000000")
    alive = asyncio.get_running_loop().create_task(one.keep_alive())
    await asyncio.sleep(READY_SECONDS + 3)
    alive.cancel()

    said = heard(supervisor)
    assert said.count("WATCHDOG=1") == 4 and said.count("READY=1") == 1


@pytest.mark.looptime
async def test_without_a_watchdog_only_ready_is_said(supervisor):
    await notifier(supervisor).keep_alive()

    assert heard(supervisor) == ["READY=1"]
    assert asyncio.get_running_loop().time() == READY_SECONDS
