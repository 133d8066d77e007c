"""Task protection as a task asks its agent for it, against a control plane that says what a test wants."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from sexton.agent.metadata import protection
from sexton.agent.metadata.identity import Names
from sexton.agent.metadata.protection import ProtectionPath
from sexton.agent.rolekeys import RoleKeys, Sent
from sexton.cloud.client import Unreachable
from sexton.cloud.credential_files import Static
from sexton.cloud.credentials import Credentials, Keyring
from sexton.core.task import DesiredTask
from sexton.core.taskroles import TASK
from sexton.wire import acs_task, ecs
from sexton.wire.errors import EcsError
from unit.agent.rig import arn, container, task
from unit.agent.taskport import serving


class ControlPlane:
    """Answers as scripted, and notes who asked for what."""

    def __init__(self):
        self.asked = []
        self.answer = None

    def client(self, source):
        self.source = source
        return self

    async def call(self, operation, request, shape):
        self.asked.append((operation, request, (await self.source.current()).access_key_id))
        answer = self.answer
        if isinstance(answer, Exception):
            raise answer
        if asyncio.iscoroutinefunction(answer):
            return await answer()
        return shape(**answer)


class Anybody:
    """Takes every caller for the task, unless it is in another one's own network."""

    async def is_of(self, caller, runner):
        return caller.task in ("", runner.arn)


@pytest.fixture
def world():
    """A task with a role, one without, and the path of each one's container."""
    runners = [SimpleNamespace(arn=arn(n), desired=DesiredTask(task=task(n))) for n in (1, 2)]
    names = Names(b"k" * 32, lambda: runners)
    keys = RoleKeys(Keyring([Static(Credentials("AKID", "secret"))]))
    own = acs_task.IAMRoleCredentials(credentials_id="id", access_key_id="ASIATASK", secret_access_key="secret")
    keys.take(Sent(arn(1), TASK, own))
    plane = ControlPlane()
    path = ProtectionPath(names, Anybody(), keys, plane.client, "default")
    return plane, path, [f"/api/{names.of(arn(n), container().name)}/task-protection/v1/state" for n in (1, 2)]


ON = ecs.ProtectedTask(task_arn=arn(), protection_enabled=True, expiration_date=1_800_000_000.5)


@pytest.mark.parametrize("method", ["GET", "PUT"])
async def test_the_task_is_asked_about_with_its_own_keys(world, method):
    plane, path, (own, _) = world
    plane.answer = {"protected_tasks": (ON,), "failures": ()}
    body = b'{"ProtectionEnabled":true,"ExpiresInMinutes":60}' if method == "PUT" else None
    async with serving(path) as port:
        said = await port.ask(own, method, body)
    assert (said.status, said.text) == (
        200,
        '{"protection":{"ProtectionEnabled":true,"ExpirationDate":"2027-01-15T08:00:00.500Z","TaskArn":"'
        + arn()
        + '"}}',
    )
    assert said.headers["Content-Type"] == "application/json"
    ((operation, request, key),) = plane.asked
    assert (request.cluster, request.tasks, key) == ("default", (arn(),), "ASIATASK")
    assert operation == {"GET": "GetTaskProtection", "PUT": "UpdateTaskProtection"}[method]
    if method == "PUT":
        assert (request.protection_enabled, request.expires_in_minutes) == (True, 60)


async def test_one_that_is_not_protected_has_no_end(world):
    plane, path, (own, _) = world
    plane.answer = {"protected_tasks": (ecs.ProtectedTask(task_arn=arn(), protection_enabled=False),)}
    async with serving(path) as port:
        said = await port.ask(own, "PUT", b'{"ProtectionEnabled":false}')
    assert said.text == '{"protection":{"ProtectionEnabled":false,"TaskArn":"' + arn() + '"}}'
    assert plane.asked[0][1].expires_in_minutes is None


async def test_a_failure_is_no_error(world):
    plane, path, (own, _) = world
    plane.answer = {"failures": (ecs.Failure(arn=arn(), reason="TASK_NOT_VALID", detail="why"),)}
    async with serving(path) as port:
        said = await port.ask(own)
    assert (said.status, said.text) == (
        200,
        '{"failure":{"Arn":"' + arn() + '","Reason":"TASK_NOT_VALID","Detail":"why"}}',
    )


@pytest.mark.parametrize(
    ("body", "message", "with_arn"),
    [
        (b"", "UpdateTaskProtection: failed to decode request", False),
        (b"nonsense", "UpdateTaskProtection: failed to decode request", False),
        (b'{"ProtectionEnabled":"yes"}', "UpdateTaskProtection: failed to decode request", False),
        (b'{"ProtectionEnabled":true,"X":1}', "UpdateTaskProtection: failed to decode request", False),
        (b'{"ProtectionEnabled":true,"ExpiresInMinutes":1.5}', "UpdateTaskProtection: failed to decode request", False),
        (b"[" * 5000, "UpdateTaskProtection: failed to decode request", False),
        (b"{}", "Invalid request: does not contain 'ProtectionEnabled' field", True),
        (b'{"ExpiresInMinutes":5}', "Invalid request: does not contain 'ProtectionEnabled' field", True),
    ],
)
async def test_a_wish_that_cannot_be_read_is_refused(world, body, message, with_arn):
    plane, path, (own, _) = world
    async with serving(path) as port:
        said = await port.ask(own, "PUT", body)
    error = {"Code": "InvalidParameterException", "Message": message}
    assert (said.status, said.json) == (400, {"error": ({"Arn": arn()} if with_arn else {}) | error})
    assert plane.asked == []


async def test_a_task_without_a_role_may_not(world):
    _, path, (_, other) = world
    async with serving(path) as port:
        said = await port.ask(other)
    assert said.status == 403
    assert said.json["error"]["Code"] == "AccessDeniedException"
    assert said.json["error"]["Arn"] == arn(2)


async def test_nobodys_name_and_other_verbs(world):
    plane, path, (own, _) = world
    async with serving(path) as port:
        said = await port.ask("/api/0123/task-protection/v1/state")
        assert (said.status, said.json) == (
            404,
            {"error": {"Code": "ResourceNotFoundException", "Message": "Failed to find a task for the request"}},
        )
        for method in ("POST", "DELETE", "PATCH"):
            assert (await port.ask(own, method)).status == 405
    async with serving(path, task=arn(2)) as port:
        assert (await port.ask(own)).status == 404
    assert plane.asked == []


async def test_the_services_own_error_is_handed_on(world):
    plane, path, (own, _) = world
    plane.answer = EcsError("You may not.", code="AccessDeniedException", status=400)
    plane.answer.request_id = "r-1"
    async with serving(path) as port:
        said = await port.ask(own)
    assert (said.status, said.json) == (
        400,
        {"requestID": "r-1", "error": {"Arn": arn(), "Code": "AccessDeniedException", "Message": "You may not."}},
    )


async def test_a_service_that_is_slow_or_away_or_says_too_much(world, monkeypatch):
    plane, path, (own, _) = world
    monkeypatch.setattr(protection, "CALL_SECONDS", 0.05)

    async def slow():
        await asyncio.sleep(60)

    async with serving(path) as port:
        plane.answer = slow
        said = await port.ask(own)
        assert (said.status, said.json["error"]["Code"], said.json["error"]["Message"]) == (
            504,
            "RequestCanceled",
            "Timed out calling ECS Task Protection API",
        )
        for answer in (Unreachable("gone"), {"protected_tasks": (ON, ON)}, {}):
            plane.answer = answer
            said = await port.ask(own)
            assert (said.status, said.json["error"]["Code"], said.json["error"]["Message"]) == (
                500,
                "ServerException",
                "Unexpected error occurred",
            )
