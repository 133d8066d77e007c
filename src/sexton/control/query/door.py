"""From a signed form to an answer in XML: the way into the services that speak so.

Which service is asked is what the signature was made for. In order, and the first that fails answers: the service
is known, the signature is right, the form names an action that is served, the caller may do it
(``authority.authorize``, the one place to judge that), and its parameters are what the action takes. The client gets
the service's own error shape, whatever happens.
"""

from __future__ import annotations

import itertools
import logging
import time
import uuid
from collections.abc import Iterable, Mapping

from sexton.cloud.sigv4_verify import SignatureRefused, Verifier, read_authorization
from sexton.control import authority
from sexton.control.context import Call, Context
from sexton.control.ec2.service import EC2
from sexton.control.query.service import Answer, Operation, Service
from sexton.control.query.sts import STS
from sexton.store.contract import StoreError
from sexton.wire.errors import SERVER_FAULT, AccessDeniedException, EcsError
from sexton.wire.query import DryRun, Node, QueryError, Request, as_request, read_form

log = logging.getLogger(__name__)

SERVICES: Mapping[str, Service] = {service.name: service for service in (EC2, STS)}

FORM = "application/x-www-form-urlencoded"
XML = "text/xml;charset=UTF-8"
# Actions that change nothing: they are served from memory while the store is away.
READS = ("Describe", "Get", "List")


class QueryReply:
    """An answer: status, body, and the id that finds it in the log."""

    __slots__ = ("body", "request_id", "status")

    def __init__(self, status: int, body: bytes, request_id: str) -> None:
        self.status = status
        self.body = body
        self.request_id = request_id


class QueryDoor:
    """Serves forms; holds nothing between them."""

    def __init__(self, context: Context, verifier: Verifier) -> None:
        self._context = context
        self._verifier = verifier
        # As in the dispatcher, ids only have to differ; these services write theirs as UUIDs.
        self._numbers = itertools.count()
        self._process = uuid.uuid4().hex[:20]

    async def serve(
        self, path: str, headers: Iterable[tuple[str, str]], body: bytes, remote: str = "", *, secure: bool = False
    ) -> QueryReply:
        request_id = str(uuid.UUID(f"{self._process}{next(self._numbers):012x}"))
        headers = list(headers)
        service = _service(headers)
        try:
            action, answer = await self._serve(service, path, headers, body, remote, secure)
            text = service.success(action, answer, request_id)
            return QueryReply(200, _document(text), request_id)
        except QueryError as error:
            refusal = error
        except SignatureRefused as error:
            code, status = service.codes.signature[error.kind]
            refusal = QueryError(code, error.message, status)
        except EcsError as error:
            refused = isinstance(error, AccessDeniedException)
            code = service.codes.denied if refused else "ServiceUnavailable"
            status = 403 if refused else max(error.status, SERVER_FAULT)
            refusal = QueryError(code, error.message, status)
        except StoreError as error:
            log.error("store refused", extra={"request_id": request_id, "reason": str(error)})
            refusal = _unavailable("The control plane's store cannot take writes now; try again.")
        except Exception:
            # The edge, as in the dispatcher: what is our fault still answers, and is found in the log.
            log.exception("action failed", extra={"request_id": request_id})
            text = f"The control plane failed to serve this request; its log has it as {request_id}."
            refusal = QueryError("InternalFailure", text, SERVER_FAULT)
        return QueryReply(refusal.status, _document(service.failure(refusal, request_id)), request_id)

    async def _serve(
        self,
        service: Service,
        path: str,
        headers: list[tuple[str, str]],
        body: bytes,
        remote: str,
        secure: bool,
    ) -> tuple[str, Answer]:
        now = time.time()
        who = self._verifier.verify("POST", path, "", headers, body, now)
        tree = read_form(body)
        action = tree.pop("Action", None)
        tree.pop("Version", None)
        if not isinstance(action, str) or not action:
            raise QueryError("MissingAction", "The request must contain the parameter Action.")
        operation = service.operations.get(action)
        if operation is None:
            text = f"The action {action[:100]} is not valid for this endpoint: this control plane does not serve it."
            raise QueryError("InvalidAction", text)
        call = Call.by(who, now, remote, secure=secure)
        authority.authorize(self._context, call, f"{service.name}:{action}")
        request = _read(tree, operation)
        if isinstance(request, DryRun) and request.dry_run:
            raise QueryError("DryRunOperation", "Request would have succeeded, but DryRun flag is set.", 412)
        return action, await self._operate(action, operation, call, request)

    async def _operate(self, action: str, operation: Operation, call: Call, request: Request) -> Answer:
        """Serve it from what this process has seen; of a no that news from other replicas may turn into a yes, once
        more with the news."""
        context = self._context
        trouble = context.trouble()
        if trouble and not action.startswith(READS):
            raise _unavailable(f"The control plane's store is away, so it takes no changes: {trouble}")
        try:
            return await operation.serve(context, call, request)
        except QueryError as error:
            stale = bool(context.replica) and not trouble and error.status < SERVER_FAULT
            if not stale or not await context.records.catch_up():
                raise
        return await operation.serve(context, call, request)


def _service(headers: list[tuple[str, str]]) -> Service:
    """The service that the signature was made for; of a signature for another, the verifier has the word."""
    signed = next((value for name, value in headers if name.lower() == "authorization"), "")
    try:
        claim, _ = read_authorization(signed)
    except SignatureRefused:
        return STS
    return SERVICES.get(claim.service, STS)


def _read(tree: Mapping[str, Node], operation: Operation) -> Request:
    return as_request(tree, operation.request)


def _unavailable(message: str) -> QueryError:
    return QueryError("ServiceUnavailable", message, 503)


def _document(text: str) -> bytes:
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}'.encode()
