"""Whether tasks are held to limits of their own: where it can be done, never where it was declined, and whoever insists
gets it or no agent."""

from __future__ import annotations

from pathlib import Path

import pytest

from sexton.agent.abilities import may_limit
from sexton.agent.standdown import StandDown
from sexton.host.taskcgroup import TaskCgroups
from sexton.settings import Settings


@pytest.fixture
def usable(tmp_path: Path) -> TaskCgroups:
    (tmp_path / "cgroup.controllers").touch()
    return TaskCgroups(tmp_path)


@pytest.fixture
def none(tmp_path: Path) -> TaskCgroups:
    return TaskCgroups(tmp_path / "nothing")


async def test_wherever_it_can_be_done(
    usable: TaskCgroups, none: TaskCgroups, caplog: pytest.LogCaptureFixture
) -> None:
    assert await may_limit(Settings(), usable) and not caplog.messages
    assert not await may_limit(Settings(), none)
    assert not await may_limit(Settings(), None)
    assert caplog.messages == ["tasks have no limits of their own here"] * 2


async def test_never_where_it_was_declined(usable: TaskCgroups, caplog: pytest.LogCaptureFixture) -> None:
    assert not await may_limit(Settings(task_limits=False), usable) and not caplog.messages


async def test_whoever_insists_gets_it_or_no_agent(usable: TaskCgroups, none: TaskCgroups) -> None:
    assert await may_limit(Settings(task_limits=True), usable)
    with pytest.raises(StandDown, match="cannot hold tasks to limits"):
        await may_limit(Settings(task_limits=True), none)
