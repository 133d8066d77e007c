"""Blocking reads leave the loop free and never hold the process."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading

import pytest

from sexton.host.offload import in_thread


async def test_the_answer_comes_back() -> None:
    assert await in_thread("answer", lambda: 42) == 42


async def test_the_fault_comes_back() -> None:
    def broken() -> int:
        raise PermissionError("no")

    with pytest.raises(PermissionError, match="no"):
        await in_thread("fault", broken)


async def test_the_wait_can_be_given_up() -> None:
    release = threading.Event()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await in_thread("stuck", lambda: release.wait(10))
    release.set()


def test_a_stuck_read_does_not_keep_the_process() -> None:
    program = """
import asyncio, threading
from sexton.host.offload import in_thread
async def main():
    try:
        async with asyncio.timeout(0.1):
            await in_thread("stuck", threading.Event().wait)
    except TimeoutError:
        print("left")
asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=10, check=True)

    assert done.stdout == "left\n"
