"""What EC2 makes an agent do: waiting out a warm pool, draining at a Spot notice, knowing another machine's state."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from sexton.agent import ec2
from sexton.agent.checkpoint import Self
from sexton.agent.standdown import StandDown
from sexton.agent.state import of_this_machine, open_state
from sexton.agent.steps.context import Identity as Member
from sexton.cloud.exchange import Unreachable
from sexton.cloud.instance import Identity, SpotNotice
from sexton.settings import Settings
from sexton.wire import ecs
from sexton.wire.errors import ServerException
from unit.agent.rig import CLUSTER, INSTANCE
from unit.agent.test_state import NOW, lived

pytestmark = pytest.mark.looptime

MEMBER = Member(CLUSTER, INSTANCE)


class Service:
    """An instance that answers as scripted; the last answer stays."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[float] = []

    async def _next(self) -> Any:
        self.asked.append(asyncio.get_running_loop().time())
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    spot_notice = lifecycle_state = identity = _next


class Office:
    """The control plane, which may refuse a few times."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.requests: list[ecs.UpdateContainerInstancesStateRequest] = []

    async def call(self, operation: str, request: Any, answer: Any) -> Any:
        assert operation == "UpdateContainerInstancesState"
        self.requests.append(request)
        given = self.answers.pop(0) if self.answers else ecs.UpdateContainerInstancesStateResponse()
        if isinstance(given, Exception):
            raise given
        return given


def now() -> float:
    return asyncio.get_running_loop().time()


async def watch(service: Service, office: Office, seconds: float = 600.0) -> bool:
    """Whether the watch ended by itself."""
    try:
        async with asyncio.timeout(seconds):
            await ec2.drain_at_notice(service, office, MEMBER)  # type: ignore[arg-type]
    except TimeoutError:
        return False
    return True


@pytest.mark.parametrize("action", ["terminate", "stop", "hibernate"])
async def test_a_notice_drains_this_instance_within_a_second_and_once(action: str) -> None:
    service, office = Service(None, None, SpotNotice(action, "soon")), Office()
    assert await watch(service, office)
    assert now() == 2.0 and service.asked == [0.0, 1.0, 2.0]
    (request,) = office.requests
    assert (request.cluster, request.container_instances, request.status) == (CLUSTER, (INSTANCE,), "DRAINING")


async def test_a_drain_that_is_refused_is_asked_for_until_it_is_taken() -> None:
    failed = ecs.UpdateContainerInstancesStateResponse(failures=(ecs.Failure(arn=INSTANCE, reason="MISSING"),))
    office = Office(ServerException("busy"), Unreachable("away"), failed)
    assert await watch(Service(SpotNotice("terminate", "")), office)
    assert len(office.requests) == 4


async def test_other_words_are_no_end() -> None:
    office = Office()
    assert not await watch(Service(SpotNotice("rebalance", "")), office, 30.0)
    assert office.requests == []


async def test_a_service_that_is_away_is_asked_ever_less_often_and_not_given_up() -> None:
    service, office = Service(*[Unreachable("away")] * 40, SpotNotice("stop", "")), Office()
    assert await watch(service, office, 3600.0)
    pauses = [b - a for a, b in zip(service.asked, service.asked[1:], strict=False)]
    assert max(pauses) <= 30.0 * 1.2 and pauses[-1] > 25.0


async def test_a_warm_pool_is_waited_out_by_the_minute() -> None:
    service = Service(None, "Warmed:Pending", Unreachable("away"), "Warmed:Stopped", "InService")
    await ec2.leave_warm_pool(service)  # type: ignore[arg-type]
    assert service.asked == [0.0, 60.0, 120.0, 180.0, 240.0]


async def test_an_instance_of_no_group_stands_down_after_two_hours() -> None:
    with pytest.raises(StandDown, match="no Auto Scaling lifecycle state"):
        await ec2.leave_warm_pool(Service(None))  # type: ignore[arg-type]
    assert now() == 119 * 60.0


async def test_identity_that_cannot_be_learnt_keeps_nobody_from_joining() -> None:
    assert await ec2.identity(Service(Unreachable("away"))) == Identity()  # type: ignore[arg-type]
    assert now() < 5.0
    me = Identity("d", "s", "i-1", "r")
    assert await ec2.identity(Service(Unreachable("away"), me)) == me  # type: ignore[arg-type]


async def test_tags_that_cannot_be_had_are_said_with_a_cure() -> None:
    nobody: Any = None
    assert await ec2.tags(nobody, {}, Identity(), Settings(), nobody) == {}
    with pytest.raises(StandDown, match="no EC2 instance that can be asked"):
        await ec2.tags(nobody, {}, Identity(), Settings(propagate_tags="ec2_instance"), nobody)


@pytest.mark.parametrize(
    ("was", "now_", "kept"), [("", "", True), ("", "i-1", True), ("i-1", "i-1", True), ("i-1", "", True)]
)
async def test_state_of_this_machine_is_kept(tmp_path: Path, was: str, now_: str, kept: bool) -> None:
    await lived(tmp_path)
    state = await open_state(tmp_path, NOW)
    await state.checkpoint.become(Self(cluster=CLUSTER, instance_arn=INSTANCE, ec2_instance_id=was))
    state = await of_this_machine(state, now_)
    assert len(state.tasks) == 2 and state.checkpoint.self.ec2_instance_id == (now_ or was)
    await state.store.close()


async def test_state_of_another_machine_is_discarded(tmp_path: Path) -> None:
    """An image made of a running instance brings that one's state along."""
    await lived(tmp_path)
    state = await open_state(tmp_path, NOW)
    await state.checkpoint.become(Self(cluster=CLUSTER, instance_arn=INSTANCE, ec2_instance_id="i-1"))
    state = await of_this_machine(state, "i-2")
    assert state.tasks == {} and state.checkpoint.self == Self()
    await state.store.close()
    again = await open_state(tmp_path, NOW)
    assert again.tasks == {} and again.checkpoint.self == Self() and not again.lost
    await again.store.close()
