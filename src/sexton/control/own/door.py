"""Paths below ``/sexton/``: signed as the API is, answered in JSON, refused in the API's own shape.

GET    /sexton/keys                 every key, without its secret
POST   /sexton/keys                 a new one, with its secret
POST   /sexton/keys/ID/ACTION       disable, enable, rotate
DELETE /sexton/keys/ID
GET    /sexton/events               the stream of state changes
GET    /sexton/network              the networks of all tasks, as hosts are told of them
GET    /sexton/export               the whole store, as ``sexton control export`` writes it
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple, TypeVar
from urllib.parse import unquote

import msgspec

from sexton.cloud.sigv4_verify import SignatureRefused, Verifier
from sexton.control.context import Call
from sexton.kit import web
from sexton.kit.listener import BodyBroken, BodyTooLarge, BodyTooSlow, read_body
from sexton.store.contract import StoreError
from sexton.wire.errors import (
    UNREADABLE,
    EcsError,
    InternalFailure,
    SerializationException,
    ServerException,
    UnknownOperationException,
    encode_error,
)

log = logging.getLogger(__name__)

PREFIX = "/sexton/"
JSON = "application/json"
MOST_BODY = 64 << 10

T = TypeVar("T")


class Asked(NamedTuple):
    """One authenticated request to a path of ours."""

    call: Call
    http: web.BaseRequest
    parts: tuple[str, ...]  # of the path behind the prefix and the first word
    body: bytes

    def read(self, kind: type[T]) -> T:
        """The body as this kind of value, or the API's error."""
        try:
            return msgspec.json.decode(self.body or b"{}", type=kind)
        except UNREADABLE as error:
            raise SerializationException(f"cannot read the body: {error}") from None


Handler = Callable[[Asked], Awaitable[web.StreamResponse]]


def answer(value: object, status: int = 200) -> web.Response:
    return web.Response(status=status, body=msgspec.json.encode(value), content_type=JSON)


def nothing_here() -> EcsError:
    return UnknownOperationException("There is nothing here.", status=404)


class OwnDoor:
    """Lets requests in and gives them to the handler of their first word."""

    def __init__(self, verifier: Verifier, handlers: Mapping[str, Handler], body_seconds: float) -> None:
        self._verifier = verifier
        self._handlers = handlers
        self._body_seconds = body_seconds

    async def serve(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            return await self._serve(request)
        except EcsError as error:
            refusal = error
        except SignatureRefused as error:
            refusal = EcsError(error.message, code=str(error.kind), status=403)
        except StoreError as error:
            refusal = ServerException(f"The control plane's store is away: {error}", status=503)
        except (BodyTooLarge, BodyTooSlow, BodyBroken):
            refusal = SerializationException("cannot read the body: it is too long, too slow, or not whole")
        except ConnectionError:
            raise
        except Exception:
            # The edge, as in the dispatcher: what is our fault is told as such and found in the log.
            log.exception("request failed", extra={"path": request.path})
            if request.writer.output_size > 0:
                raise ConnectionResetError("the answer had already begun") from None
            refusal = InternalFailure("The control plane failed to serve this request; its log says why.")
        response = web.Response(status=refusal.status, body=encode_error(refusal), content_type=JSON)
        response.force_close()
        return response

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        body = await read_body(request, MOST_BODY, self._body_seconds)
        path, _, query = request.raw_path.partition("?")
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in request.raw_headers]
        now = time.time()
        who = self._verifier.verify(request.method, path, query, headers, body, now)
        word, *parts = (unquote(part) for part in path.removeprefix(PREFIX).split("/"))
        handler = self._handlers.get(word)
        if handler is None:
            raise nothing_here()
        return await handler(
            Asked(Call.by(who, now, request.remote or "", secure=request.secure), request, tuple(parts), body)
        )
