"""Reports arrive at least once, in order per task, and one that cannot be delivered holds up nobody else."""

from __future__ import annotations

import asyncio

import pytest

from sexton.agent.reporter import MOST_AT_ONCE, Reporter
from sexton.cloud.client import Unreachable
from sexton.core.task import ContainerStatus, KnownContainer, KnownTask, TaskStatus
from sexton.kit.supervise import Nursery
from sexton.wire.errors import EcsError, InvalidParameterException
from unit.agent.rig import Desk, Host, arn, settle, task, until

pytestmark = pytest.mark.looptime


class Bureau:
    """A reporter, its desk, and what it was told was acknowledged."""

    def __init__(self) -> None:
        self.desk = Desk()
        self.heard: list[tuple[str, str]] = []
        self.nursery = Nursery("test")
        self.reporter = Reporter(
            self.desk,  # type: ignore[arg-type]
            "default",
            self.nursery,
            lambda task, known: self.heard.append((task, str(known.status))),
        )

    async def __aenter__(self) -> Bureau:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.nursery.close()


def known(number: int, status: TaskStatus, **fields: object) -> KnownTask:
    container = KnownContainer(name="app", status=ContainerStatus(status), **fields)  # type: ignore[arg-type]
    return KnownTask(arn=arn(number), status=status, containers=(container,))


RUNNING, STOPPED = TaskStatus.RUNNING, TaskStatus.STOPPED


async def test_order_of_one_task_holds_though_deliveries_fail() -> None:
    async with Bureau() as bureau:
        bureau.desk.failures = [Unreachable("away")] * 7
        bureau.reporter.report(known(1, RUNNING))
        bureau.reporter.report(known(1, STOPPED, exit_code=1))
        await until(lambda: len(bureau.heard) == 2)
    assert bureau.desk.told() == ["RUNNING", "STOPPED"]
    assert bureau.heard == [(arn(), "RUNNING"), (arn(), "STOPPED")]


async def test_same_news_is_told_once() -> None:
    async with Bureau() as bureau:
        for _ in range(3):
            bureau.reporter.report(known(1, RUNNING))
            await settle(1.0)
    assert bureau.desk.told() == ["RUNNING"]


async def test_refused_for_good_counts_as_delivered() -> None:
    async with Bureau() as bureau:
        bureau.desk.failures = [InvalidParameterException("The referenced task was not found.")]
        bureau.reporter.report(known(1, STOPPED))
        await until(lambda: bool(bureau.heard))
        await settle()
    assert bureau.desk.taken == [] and bureau.desk.tries == 1


@pytest.mark.parametrize(
    "error",
    [
        EcsError("no", code="AccessDeniedException", status=400),
        EcsError("no", code="ServerException", status=500),
        Unreachable("away"),
    ],
)
async def test_anything_else_is_tried_until_it_works(error: Exception) -> None:
    async with Bureau() as bureau:
        bureau.desk.failures = [error] * 40
        bureau.reporter.report(known(1, STOPPED))
        await until(lambda: bool(bureau.heard), seconds=3600)
        elapsed = asyncio.get_running_loop().time()
    assert bureau.desk.told() == ["STOPPED"]
    assert 600 < elapsed < 1500  # capped, so that the news is never much older than the control plane's absence


async def test_reports_that_fail_do_not_hold_up_the_others() -> None:
    async with Bureau() as bureau:
        stuck = {arn(number) for number in range(1, 21)}
        bureau.desk.fails = lambda change: Unreachable("not for you") if change.task in stuck else None
        for number in range(1, 31):
            bureau.reporter.report(known(number, RUNNING))
        await until(lambda: len(bureau.heard) == 10, seconds=2.0)


async def test_few_are_under_way_at_once() -> None:
    async with Bureau() as bureau:
        bureau.desk.seconds = 1.0
        for number in range(1, 101):
            bureau.reporter.report(known(number, RUNNING))
        await until(lambda: len(bureau.heard) == 100)
    assert bureau.desk.most_under_way == MOST_AT_ONCE


async def test_nothing_is_remembered_of_tasks_that_are_gone() -> None:
    async with Host(cleanup_wait=1.0) as host:
        await host.engine.take([task(number) for number in range(1, 6)], 1)
        for number in range(1, 6):
            await host.until_running(number)
            host.engine.stop([arn(number)], "")
        await host.until_gone()
        assert not host.reporter._last and not host.reporter._queues
        assert not host.checkpoint._dirty and len(host.work) == 4  # the checkpoint and the three of the engine


async def test_what_is_said_of_a_container() -> None:
    async with Bureau() as bureau:
        bureau.reporter.report(known(1, STOPPED, exit_code=7, reason="why", runtime_id="c1", image_digest="sha256:1"))
        await until(lambda: bool(bureau.heard))
    (one,) = bureau.desk.last().containers or ()
    assert (one.container_name, one.status, one.exit_code) == ("app", "STOPPED", 7)
    assert (one.reason, one.runtime_id, one.image_digest) == ("why", "c1", "sha256:1")


async def test_container_that_is_not_made_yet_is_not_told_of() -> None:
    async with Bureau() as bureau:
        first = KnownContainer(name="a", status=ContainerStatus.RUNNING)
        second = KnownContainer(name="b", status=ContainerStatus.PULLED)
        bureau.reporter.report(KnownTask(arn=arn(), status=TaskStatus.NONE, containers=(first, second)))
        await until(lambda: bool(bureau.heard))
    assert bureau.desk.last().status == "PENDING"
    assert [one.container_name for one in bureau.desk.last().containers or ()] == ["a"]
