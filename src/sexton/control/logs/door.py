"""From a signed HTTP request to an answer of CloudWatch Logs, in its JSON and with its own errors.

In order, as with ECS: the target names an operation, the signature is right, the body is what the operation takes,
the caller may, the request obeys the service model. What is stored is not in the records, so these operations go on
while the store is away; who may call them is.
"""

from __future__ import annotations

import itertools
import logging
import time
import uuid
from collections.abc import Iterable, Mapping

import msgspec

from sexton.cloud.sigv4_verify import SignatureRefused, Verifier
from sexton.control import authority
from sexton.control.context import Call, Context
from sexton.control.logs import events, groups, streams
from sexton.control.logs.asking import Operation, arn_of_request
from sexton.control.logs.following import TAIL
from sexton.core.roles import MEANING, Role, may_log
from sexton.wire import logs
from sexton.wire.constraints import Demands, describe
from sexton.wire.errors import (
    UNREADABLE,
    EcsError,
    InternalFailure,
    InvalidParameterException,
    SerializationException,
    ServiceUnavailableException,
    UnknownOperationException,
    UnsupportedOperationException,
    encode_error,
)
from sexton.wire.logs_table import CONSTRAINTS

log = logging.getLogger(__name__)

PREFIX = logs.TARGET_PREFIX + "."
# A batch of the largest size whose every character is written as an escape.
MOST_BODY = 7 << 20

OPERATIONS: Mapping[str, Operation] = {**groups.OPERATIONS, **streams.OPERATIONS, **events.OPERATIONS}
# What serves instead of the best known ones that are not served.
_INSTEAD = {
    "StartQuery": "FilterLogEvents searches with patterns",
    "StartLiveTail": "FilterLogEvents from the time of the newest line follows a group",
    "PutMetricFilter": "the metrics of tasks are those of the agent",
    "PutSubscriptionFilter": "FilterLogEvents and GetLogEvents hand lines out",
}


class LogsReply:
    """An answer: status, body, and the id that finds it in the log."""

    __slots__ = ("body", "request_id", "status")

    def __init__(self, status: int, body: bytes, request_id: str) -> None:
        self.status = status
        self.body = body
        self.request_id = request_id


class LogsDoor:
    """Serves the API; holds nothing between requests."""

    def __init__(self, context: Context, verifier: Verifier) -> None:
        self._context = context
        self._verifier = verifier
        self._demands = Demands(logs, CONSTRAINTS)
        self._encoder = msgspec.json.Encoder()
        self._decoders: dict[str, msgspec.json.Decoder[msgspec.Struct]] = {}
        # As in the dispatcher, ids only have to differ; this service writes its own as UUIDs.
        self._numbers = itertools.count()
        self._process = uuid.uuid4().hex[:20]

    async def serve(
        self,
        target: str,
        headers: Iterable[tuple[str, str]],
        body: bytes,
        remote: str = "",
        *,
        secure: bool = False,
        port: int = 0,
    ) -> LogsReply:
        request_id = str(uuid.UUID(f"{self._process}{next(self._numbers):012x}"))
        refusal: EcsError
        try:
            answer = await self._serve(target.removeprefix(PREFIX), headers, body, (remote, port), secure)
            return LogsReply(200, self._encoder.encode(answer) if answer is not None else b"", request_id)
        except EcsError as error:
            refusal = error
        except SignatureRefused as error:
            refusal = EcsError(error.message, code=str(error.kind))
        except OSError as error:
            log.error("logs cannot be kept", extra={"request_id": request_id, "target": target, "reason": str(error)})
            refusal = ServiceUnavailableException(f"The control plane's disk refuses: {error.strerror or error}")
        except Exception:
            # The edge, as in the dispatcher: what is our fault still answers, and is found in the log.
            log.exception("operation failed", extra={"request_id": request_id, "target": target})
            refusal = InternalFailure(
                f"The control plane failed to serve this request; its log has it as {request_id}."
            )
        return LogsReply(refusal.status, encode_error(refusal), request_id)

    async def _serve(
        self, name: str, headers: Iterable[tuple[str, str]], body: bytes, peer: tuple[str, int], secure: bool
    ) -> msgspec.Struct | None:
        known = logs.OPERATIONS.get(name)
        if known is None and name not in logs.REFUSED:
            raise UnknownOperationException("The request names no operation of CloudWatch Logs.")
        now, headers = time.time(), tuple(headers)
        who = self._verifier.verify("POST", "/", "", headers, body, now)
        if known is None:
            instead = f"; {_INSTEAD[name]}" if name in _INSTEAD else ""
            raise UnsupportedOperationException(f"This control plane does not serve {name}{instead}.")
        decoder = self._decoders.get(name)
        if decoder is None:
            decoder = self._decoders[name] = msgspec.json.Decoder(known.request)
        try:
            request = decoder.decode(body or b"{}")
        except UNREADABLE as error:
            raise SerializationException(f"cannot read the body as a request of {name}: {error}") from None
        call = Call.by(who, now, peer[0], secure=secure)
        if TAIL in next((value for header, value in headers if header.lower() == "user-agent"), ""):
            call = call._replace(tails=peer)
        self._authorize(call, name, request)
        violations = self._demands.check(request)
        if violations:
            raise InvalidParameterException(describe(violations))
        return await OPERATIONS[name](self._context, call, request)

    def _authorize(self, call: Call, name: str, request: msgspec.Struct) -> None:
        """Refuse what this key may not do."""
        context, action = self._context, f"logs:{name}"
        if authority.by_role_keys(call):
            try:
                arns = arn_of_request(context, call, request)
            except EcsError:
                arns = ("*",)
            authority.authorize(context, call, action, [arns], self._tags(call, request))
            return
        role = authority.role_of(context, call)
        if role is not Role.ADMIN and not may_log(role, name):
            raise authority.denied(context, call, action, f"its key has the role {role}, which {MEANING[role]}")

    def _tags(self, call: Call, request: msgspec.Struct) -> dict[str, str | tuple[str, ...] | None]:
        """The condition keys of a group's tags, and of those that the request brings."""
        found: dict[str, str | tuple[str, ...] | None] = {}
        name = getattr(request, "log_group_name", None)
        group = self._context.logs.get(call.region, name) if self._context.logs is not None and name else None
        if group is not None:
            found.update({f"aws:ResourceTag/{key}": value for key, value in group.record.tags.items()})
        given = getattr(request, "tags", None)
        if isinstance(given, dict):
            found.update({f"aws:RequestTag/{key}": value for key, value in given.items()})
        keys = tuple(given or ()) or tuple(getattr(request, "tag_keys", None) or ())
        if keys:
            found["aws:TagKeys"] = keys
        return found
