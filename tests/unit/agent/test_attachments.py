"""An interface that the agent made itself is confirmed until that is taken, or until nobody wants to hear it."""

from __future__ import annotations

from typing import Any

import pytest

from sexton.agent.attachments import Attachments
from sexton.cloud.client import Unreachable
from sexton.kit.supervise import Nursery
from sexton.wire import ecs
from sexton.wire.errors import InvalidParameterException
from unit.agent.rig import CLUSTER, Memory, arn, until

pytestmark = pytest.mark.looptime


class Desk:
    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.tries = 0
        self.taken: list[ecs.SubmitTaskStateChangeRequest] = []

    async def call(self, operation: str, request: Any) -> None:
        assert operation == "SubmitTaskStateChange"
        self.tries += 1
        if self.failures:
            raise self.failures.pop(0)
        self.taken.append(request)


def confirming(desk: Desk, nursery: Nursery) -> Attachments:
    return Attachments(Memory(), desk.call, CLUSTER, nursery)  # type: ignore[arg-type]


async def test_it_is_said_until_it_is_taken_and_nothing_else_is() -> None:
    nursery, desk = Nursery("test"), Desk(Unreachable("away"), Unreachable("away"))
    confirming(desk, nursery).confirm(arn(), "arn:attachment/1")
    await until(lambda: bool(desk.taken))
    await nursery.close()

    assert desk.taken == [
        ecs.SubmitTaskStateChangeRequest(
            cluster=CLUSTER,
            task=arn(),
            attachments=(ecs.AttachmentStateChange(attachment_arn="arn:attachment/1", status="ATTACHED"),),
        )
    ]


async def test_a_control_plane_that_does_not_know_the_task_is_not_asked_again() -> None:
    nursery, desk = Nursery("test"), Desk(InvalidParameterException("The referenced task was not found."))
    confirming(desk, nursery).confirm(arn(), "arn:attachment/1")
    await until(lambda: desk.tries > 0 and not len(nursery))
    await nursery.close()

    assert (desk.tries, desk.taken) == (1, [])
