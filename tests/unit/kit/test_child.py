"""Child processes end in bounded time and leave no zombie, whatever the kernel can say about them."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest

from sexton.kit import child


@pytest.fixture(params=["pidfd", "polling"])
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Kernels before 5.3 cannot say when a child ends."""
    if request.param == "polling":

        def refuse(pid: int, flags: int = 0) -> int:
            raise OSError(38, "Function not implemented")

        monkeypatch.setattr(os, "pidfd_open", refuse)
    return str(request.param)


def _running() -> set[str]:
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


_before: set[str] = set()


@pytest.fixture(autouse=True)
def _others() -> None:
    """Children that were there before: engines of the session's other tests."""
    _before.clear()
    _before.update(_running())


def _children() -> set[str]:
    return _running() - _before


@pytest.mark.parametrize("code", [0, 1, 77])
async def test_exit_code(kernel: str, code: int) -> None:
    assert await child.run(["/bin/sh", "-c", f"exit {code}"], 5.0) == code
    assert not _children()


async def test_killed_at_its_deadline(kernel: str) -> None:
    began = time.monotonic()
    assert await child.run(["/bin/sh", "-c", "exec sleep 60"], 0.1) is None
    assert time.monotonic() - began < 2.0
    assert not _children()


async def test_cancelled_and_reaped_by_the_next(kernel: str) -> None:
    running = asyncio.get_running_loop().create_task(child.run(["/bin/sleep", "60"], 60.0))
    await asyncio.sleep(0.05)
    running.cancel()
    await asyncio.wait([running])
    assert running.cancelled()
    deadline = time.monotonic() + 5.0
    while _children() and time.monotonic() < deadline:
        await child.run(["/bin/true"], 5.0)
    assert not _children() and not child._left


async def test_many_at_once(kernel: str) -> None:
    codes = await asyncio.gather(*(child.run(["/bin/sh", "-c", f"exit {n}"], 10.0) for n in range(20)))
    assert codes == list(range(20)) and not _children()


async def test_program_that_is_not_there() -> None:
    with pytest.raises(OSError):
        await child.run(["/nowhere/at/all"], 1.0)
    assert not _children()


async def test_no_descriptor_is_left(kernel: str) -> None:
    await child.run(["/bin/true"], 1.0)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(10):
        await child.run(["/bin/true"], 1.0)
    assert len(os.listdir("/proc/self/fd")) == before
