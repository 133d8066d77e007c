"""Hands tasks the keys of their roles.

    GET /v2/credentials/ID     as SDKs ask, by AWS_CONTAINER_CREDENTIALS_RELATIVE_URI; the log driver of an engine too
    GET /v1/credentials?id=ID  as the oldest SDKs asked

Whoever knows the id and is where its task is gets the keys: it is as good as they are, so it stands in no log. Where a
call comes from another task, the id is nobody's. Keys that are on their way after a restart are told from an id that
never was. Each request leaves one line in the audit log, whatever became of it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import NamedTuple

import msgspec

from sexton.agent.metadata.audit import Audit
from sexton.agent.metadata.routes import Call, Caller, Routes
from sexton.agent.rolekeys import RoleKeys
from sexton.core.auditline import What
from sexton.core.taskroles import TASK
from sexton.kit import web
from sexton.wire.taskapi import CredentialsError, TaskCredentials

V1 = "/v1/credentials"
V2 = "/v2/credentials"


class _Reply(NamedTuple):
    status: int
    body: msgspec.Struct
    what: What = What.UNKNOWN
    task: str = ""


IsOf = Callable[[Caller, str], Awaitable[bool]]
"""Whether a call may come from the task of this ARN."""


class CredentialsPaths:
    """Both versions of the credentials endpoint."""

    def __init__(self, keys: RoleKeys, audit: Audit, is_of: IsOf) -> None:
        self._keys = keys
        self._audit = audit
        self._is_of = is_of

    def add_to(self, routes: Routes) -> None:
        routes.add(V1, self._v1)
        routes.add(V2 + "/{id*}", self._v2)

    def limited(self, request: web.BaseRequest, caller: Caller) -> None:
        """Leave a line for a request that was one too many."""
        self._audit.limited(request, caller, HTTPStatus.TOO_MANY_REQUESTS, shown(request.path))

    async def _v1(self, call: Call) -> web.Response:
        return await self._answer(call, "V1", call.request.query.get("id", ""), V1)

    async def _v2(self, call: Call) -> web.Response:
        return await self._answer(call, "V2", call.found["id"], V2)

    async def _answer(self, call: Call, version: str, credentials_id: str, path: str) -> web.Response:
        reply = await self._reply(call.caller, f"Credentials{version}Request", credentials_id)
        self._audit.note(call.request, call.caller, reply.status, path, reply.what, reply.task)
        return web.Response(status=reply.status, body=msgspec.json.encode(reply.body), content_type="application/json")

    async def _reply(self, caller: Caller, prefix: str, credentials_id: str) -> _Reply:
        if not credentials_id:
            return _error(400, "NoIdInRequest", f"{prefix}: No Credential ID in the request")
        found = self._keys.under(credentials_id)
        if found is None or not await self._is_of(caller, found.task):
            return _error(400, "InvalidIdInRequest", f"{prefix}: Credentials not found")
        keys = found.keys
        if keys is None:
            return _error(503, "CredentialsUninitialized", f"{prefix}: Credentials uninitialized for ID")
        body = TaskCredentials(
            role_arn=keys.role_arn or "",
            access_key_id=keys.access_key_id or "",
            secret_access_key=keys.secret_access_key or "",
            token=keys.session_token or "",
            expiration=keys.expiration or "",
        )
        return _Reply(200, body, What.TASK if found.role == TASK else What.EXECUTION, found.task)


def shown(path: str) -> str:
    """A path without what only its task may know."""
    first, *rest = path.removeprefix("/").split("/")[:8]
    if path.startswith(V2):
        return V2
    return "/".join(["", first, *("-" if place == 0 and first != "v1" else part for place, part in enumerate(rest))])


def relative_uri(credentials_id: str) -> str:
    """Where an SDK in a container, or a log driver, asks for these keys."""
    return f"{V2}/{credentials_id}"


def _error(status: int, code: str, message: str) -> _Reply:
    return _Reply(status, CredentialsError(code=code, message=message, status=status))
