"""Whether the engine answers, as told to the control plane: only what a check has found, and never by hanging."""

from __future__ import annotations

import asyncio

import pytest

from sexton.agent.instancehealth import InstanceHealth
from sexton.runtime.fake import FakeRuntime
from unit.agent.rig import now

pytestmark = pytest.mark.looptime


async def test_a_life_of_the_engine() -> None:
    runtime = FakeRuntime(clock=now)
    health = InstanceHealth(runtime, now)
    (first,) = health.take()
    assert (first.type, first.status) == ("ContainerRuntime", "INITIALIZING") and health.take() == ()
    await asyncio.sleep(5.0)
    await health.check()
    (good,) = health.take()
    assert good.status == "OK" and good.last_status_change == good.last_updated == now()
    await asyncio.sleep(5.0)
    await health.check()
    (same,) = health.take()
    assert same.last_status_change == good.last_status_change and same.last_updated == now()
    runtime.down()
    await health.check()
    (bad,) = health.take()
    assert bad.status == "IMPAIRED" and bad.status_reason and bad.last_status_change == now()


async def test_an_engine_that_hangs_is_impaired_and_asked_once_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = FakeRuntime(clock=now)
    asked = 0

    async def hang(labels: object) -> object:
        nonlocal asked
        asked += 1
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(runtime, "list", hang)
    health = InstanceHealth(runtime, now)
    began = now()
    await asyncio.gather(*(health.check() for _ in range(5)))
    assert (health.status.status, asked, now() - began) == ("IMPAIRED", 1, 2.0)
    assert "no answer within 2 s" in (health.status.status_reason or "")
