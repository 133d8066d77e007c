"""From a signed HTTP request to an operation's answer.

In order, and the first that fails answers: the target names an operation, the signature is right, the body is what
the operation's request looks like, the operation is served here, and the request obeys the service model. Whatever
happens, the client gets the API's own error shape.
"""

from __future__ import annotations

import itertools
import logging
import secrets
import time
from collections.abc import Iterable, Mapping

import msgspec

from sexton.cloud.sigv4_verify import SignatureRefused, Verifier
from sexton.control import authority
from sexton.control.context import Call, Context, Operation
from sexton.control.fields import Fields, refuse
from sexton.control.ops import (
    accountsettings,
    agentcalls,
    attributes,
    capacity,
    clusters,
    clustersettings,
    containeragent,
    execute,
    instances,
    protection,
    servicedeployments,
    services,
    tags,
    taskdef_removal,
    taskdefs,
    tasks,
    tasksets,
    unsupported,
)
from sexton.store.contract import StoreError
from sexton.wire import constraints, ecs
from sexton.wire.errors import (
    SERVER_FAULT,
    UNREADABLE,
    EcsError,
    InternalFailure,
    InvalidParameterException,
    SerializationException,
    ServerException,
    UnknownOperationException,
    UnsupportedFeatureException,
    encode_error,
)

log = logging.getLogger(__name__)

_MODULES = (
    accountsettings,
    agentcalls,
    attributes,
    capacity,
    clusters,
    clustersettings,
    containeragent,
    execute,
    instances,
    protection,
    servicedeployments,
    services,
    tags,
    taskdef_removal,
    taskdefs,
    tasks,
    tasksets,
    unsupported,
)
OPERATIONS: Mapping[str, Operation] = {
    name: operation for module in _MODULES for name, operation in module.OPERATIONS.items()
}
# The operations with fields that are not honoured.
FIELDS: Mapping[str, Fields] = {
    name: fields for module in _MODULES for name, fields in getattr(module, "FIELDS", {}).items()
}

_PREFIX = ecs.TARGET_PREFIX + "."
# Operations that change nothing: they are served from memory while the store is away.
_READS = ("Describe", "List")


class Reply:
    """An answer: status, body, the id that finds it in the log, and whether it may be of yesterday."""

    __slots__ = ("body", "request_id", "stale", "status")

    def __init__(self, status: int, body: bytes, request_id: str, *, stale: bool = False) -> None:
        self.status = status
        self.body = body
        self.request_id = request_id
        self.stale = stale


class Dispatcher:
    """Serves the API's requests; holds nothing between them."""

    def __init__(self, context: Context, verifier: Verifier) -> None:
        self._context = context
        self._verifier = verifier
        self._encoder = msgspec.json.Encoder()
        self._decoders: dict[str, msgspec.json.Decoder[msgspec.Struct]] = {}
        # Ids only have to differ: drawing each from the system costs more than verifying a signature's last step.
        self._numbers = itertools.count()
        self._process = secrets.token_hex(10)

    async def serve(
        self,
        target: str | None,
        path: str,
        headers: Iterable[tuple[str, str]],
        body: bytes,
        remote: str = "",
        *,
        secure: bool = False,
    ) -> Reply:
        request_id = f"{self._process}{next(self._numbers):012x}"
        try:
            answer = await self._serve(target, path, headers, body, remote, secure)
            return Reply(200, self._encoder.encode(answer), request_id, stale=bool(self._context.trouble()))
        except EcsError as error:
            refusal = error
        except SignatureRefused as error:
            refusal = EcsError(error.message, code=str(error.kind))
        except StoreError as error:
            log.error("store refused", extra={"request_id": request_id, "target": target, "reason": str(error)})
            refusal = ServerException("The control plane's store cannot take writes now; try again.", status=503)
        except Exception:
            # The edge: an operation that fails in an unforeseen way must still answer, and must be found in the log.
            log.exception("operation failed", extra={"request_id": request_id, "target": target})
            refusal = InternalFailure(
                f"The control plane failed to serve this request; its log has it as {request_id}."
            )
        return Reply(refusal.status, encode_error(refusal), request_id)

    async def _serve(
        self,
        target: str | None,
        path: str,
        headers: Iterable[tuple[str, str]],
        body: bytes,
        remote: str,
        secure: bool,
    ) -> msgspec.Struct:
        name = (target or "").removeprefix(_PREFIX)
        known = ecs.OPERATIONS.get(name)
        if target is None or not target.startswith(_PREFIX) or known is None:
            raise UnknownOperationException(
                "The request names no operation of Amazon ECS; its X-Amz-Target must be "
                f"{_PREFIX} and the operation's name."
            )
        now = time.time()
        who = self._verifier.verify("POST", path, "", headers, body, now)
        decoder = self._decoders.get(name)
        if decoder is None:
            decoder = self._decoders[name] = msgspec.json.Decoder(known.request)
        try:
            request = decoder.decode(body or b"{}")
        except UNREADABLE as error:
            raise SerializationException(f"cannot read the body as a request of {name}: {error}") from None
        call = Call.by(who, now, remote, secure=secure)
        authority.check(self._context, call, name, request)
        operation = OPERATIONS.get(name)
        if operation is None:
            raise UnsupportedFeatureException(f"The operation {name} is not served by this control plane yet.")
        check(name, request)
        return await self._operate(name, operation, call, request)

    async def _operate(self, name: str, operation: Operation, call: Call, request: msgspec.Struct) -> msgspec.Struct:
        """Serve it from what this process has seen; of a no that news from other replicas may turn into a yes, once
        more with the news."""
        context = self._context
        trouble = context.trouble()
        if trouble and not name.startswith(_READS):
            raise ServerException(f"The control plane's store is away, so it takes no changes: {trouble}", status=503)
        if not context.replica or trouble:
            return await operation(context, call, request)
        try:
            answer = await operation(context, call, request)
        except EcsError as error:
            if error.status >= SERVER_FAULT or not await context.records.catch_up():
                raise
        else:
            if not _in_vain(name, answer) or not await context.records.catch_up():
                return answer
        return await operation(context, call, request)


def _in_vain(name: str, answer: msgspec.Struct) -> bool:
    """Whether an answer that changed nothing names something that this process does not know, or has no room for."""
    if isinstance(answer, ecs.RunTaskResponse | ecs.StartTaskResponse):
        return bool(answer.failures) and not answer.tasks
    return name.startswith(_READS) and bool(getattr(answer, "failures", None))


def check(name: str, request: msgspec.Struct) -> None:
    """The API's error for a request that breaks the service model, or says what is refused here."""
    violations = constraints.check(request)
    if violations:
        raise InvalidParameterException(constraints.describe(violations))
    if name in FIELDS:
        refuse(request, FIELDS[name])
