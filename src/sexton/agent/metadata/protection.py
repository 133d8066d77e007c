"""A task asks to be protected from scale-in and deployments, or whether it is: GET, PUT .../task-protection/v1/state.

The agent passes the question on to the control plane, about this one task and with the keys of the task's own role,
so that whoever may not protect a task cannot have its agent do so. Answers and errors are handed back in the words of
Amazon's agent.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime

import msgspec

from sexton.agent.metadata.identity import Names
from sexton.agent.metadata.origin import Origin
from sexton.agent.metadata.routes import Call, Routes
from sexton.agent.rolekeys import RoleKeys
from sexton.cloud.client import EcsClient, Unreachable
from sexton.cloud.credentials import CredentialSource, NoCredentials
from sexton.core.taskroles import TASK
from sexton.kit import web
from sexton.kit.listener import BodyBroken, BodyTooLarge, BodyTooSlow, read_body
from sexton.wire import ecs_agent as ecs
from sexton.wire.errors import UNREADABLE, EcsError
from sexton.wire.taskapi import ApiError, Protection, ProtectionFailure, ProtectionReply, ProtectionRequest

log = logging.getLogger(__name__)

PATH = "/api/{name}/task-protection/v1/state"
CALL_SECONDS = 4.0
LARGEST_BODY = 4096

Caller = Callable[[CredentialSource], EcsClient]
Found = ecs.GetTaskProtectionResponse | ecs.UpdateTaskProtectionResponse


class ProtectionPath:
    """Task protection for every container here. ``caller`` makes a client of the control plane with these keys."""

    def __init__(self, names: Names, origin: Origin, keys: RoleKeys, caller: Caller, cluster: str) -> None:
        self._names = names
        self._origin = origin
        self._keys = keys
        self._caller = caller
        self._cluster = cluster

    def add_to(self, routes: Routes) -> None:
        routes.add(PATH, self._serve)

    async def _serve(self, call: Call) -> web.Response:
        method = call.request.method
        if method not in ("GET", "PUT"):
            return web.Response(status=405, headers={"Allow": "GET, PUT"})
        asked = ProtectionRequest()
        if method == "PUT":
            try:
                body = await read_body(call.request, LARGEST_BODY)
                asked = msgspec.json.decode(body, type=ProtectionRequest)
            except (BodyBroken, BodyTooLarge, BodyTooSlow, *UNREADABLE):
                return _refused(400, "InvalidParameterException", "UpdateTaskProtection: failed to decode request")
        subject = self._names.find(call.found["name"])
        if subject is None or not await self._origin.is_of(call.caller, subject.runner):
            return _refused(404, "ResourceNotFoundException", "Failed to find a task for the request")
        arn = subject.runner.arn
        if method == "PUT" and asked.protection_enabled is None:
            return _refused(
                400, "InvalidParameterException", "Invalid request: does not contain 'ProtectionEnabled' field", arn
            )
        if self._keys.find(arn, TASK) is None:
            return _refused(
                403, "AccessDeniedException", "Invalid Request: no task IAM role credentials available for task", arn
            )
        return await self._pass_on(arn, asked if method == "PUT" else None)

    async def _pass_on(self, arn: str, asked: ProtectionRequest | None) -> web.Response:
        client = self._caller(self._keys.source(arn, TASK))
        try:
            async with asyncio.timeout(CALL_SECONDS):
                return _told(await self._ask(client, arn, asked), arn)
        except TimeoutError:
            return _refused(504, "RequestCanceled", "Timed out calling ECS Task Protection API", arn)
        except EcsError as error:
            return _refused(error.status, error.code, error.message, arn, error.request_id)
        except (Unreachable, NoCredentials) as error:
            log.warning("task protection cannot be asked about", extra={"task": arn, "reason": str(error)})
            return _refused(500, "ServerException", "Unexpected error occurred", arn)

    async def _ask(self, client: EcsClient, arn: str, asked: ProtectionRequest | None) -> Found:
        if asked is None:
            question = ecs.GetTaskProtectionRequest(cluster=self._cluster, tasks=(arn,))
            return await client.call("GetTaskProtection", question, ecs.GetTaskProtectionResponse)
        wish = ecs.UpdateTaskProtectionRequest(
            cluster=self._cluster,
            tasks=(arn,),
            protection_enabled=bool(asked.protection_enabled),
            expires_in_minutes=asked.expires_in_minutes,
        )
        return await client.call("UpdateTaskProtection", wish, ecs.UpdateTaskProtectionResponse)


def _told(answer: Found, arn: str) -> web.Response:
    """What the control plane says of the one task."""
    tasks, failures = answer.protected_tasks or (), answer.failures or ()
    if len(tasks) + len(failures) != 1:
        log.error("answer about task protection not understood", extra={"task": arn, "tasks": len(tasks)})
        return _refused(500, "ServerException", "Unexpected error occurred", arn)
    if failures:
        (one,) = failures
        return _json(200, ProtectionReply(failure=ProtectionFailure(arn=one.arn, reason=one.reason, detail=one.detail)))
    (task,) = tasks
    until = None
    if task.expiration_date is not None:
        moment = datetime.fromtimestamp(task.expiration_date, UTC)
        until = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    found = Protection(
        protection_enabled=bool(task.protection_enabled), expiration_date=until, task_arn=task.task_arn or arn
    )
    return _json(200, ProtectionReply(protection=found))


def _refused(status: int, code: str, message: str, arn: str = "", request_id: str = "") -> web.Response:
    error = ApiError(arn=arn or None, code=code, message=message)
    return _json(status, ProtectionReply(request_id=request_id or None, error=error))


def _json(status: int, reply: ProtectionReply) -> web.Response:
    return web.Response(status=status, body=msgspec.json.encode(reply), content_type="application/json")
