"""Errors of the wire, in both directions.

    WireError                       a frame or body that cannot be read as what it should be
    EcsError                        an error that the ECS API answers with: code, message, HTTP status
    +- <Code>                       one class for each code of the service model and of the protocol in front of it

A class is named exactly as its code, so the control plane raises ``ClusterNotFoundException("Cluster not found.")``
and the dispatcher encodes it, while the agent's client gives ``decode_error`` the answer it got and raises the same
class. A code that is not listed here stays a plain ``EcsError`` that carries the code: newer services add some.
"""

# ruff: noqa: N818  (a class carries the API's own code as its name)

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import msgspec

from sexton.wire.scalars import JsonValue

CLIENT_FAULT = 400
SERVER_FAULT = 500

# Ways JSON from outside fails to decode: bad syntax or types, nesting deeper than the stack, bytes that are no text.
UNREADABLE = (msgspec.MsgspecError, RecursionError, UnicodeError)


class WireError(ValueError):
    """Bytes from outside that are not what the protocol says. The message names what was being read."""


class EcsError(Exception):
    """An error answer of the ECS API. ``members`` are fields of the error shape beyond its message, ``request_id``
    is the service's own where it gave one."""

    known: ClassVar[dict[str, type[EcsError]]] = {}
    default_status: ClassVar[int] = CLIENT_FAULT
    request_id: str = ""

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        status: int | None = None,
        members: Mapping[str, JsonValue] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or type(self).__name__
        self.status = status or self.default_status
        self.members: Mapping[str, JsonValue] = members or {}

    def __init_subclass__(cls) -> None:
        EcsError.known[cls.__name__] = cls

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


def encode_error(error: EcsError) -> bytes:
    """The body of an error answer."""
    return msgspec.json.encode({"__type": error.code, "message": error.message, **error.members})


def decode_error(status: int, body: bytes) -> EcsError:
    """The error that an answer with a failing status stands for. Never raises: a proxy may have sent anything."""
    try:
        answer = msgspec.json.decode(body, type=dict[str, JsonValue])
    except UNREADABLE:
        answer = {}
    spelt = answer.pop("__type", None)
    # Some services qualify the code with a namespace before '#' or a URL after ':'.
    code = spelt.rpartition("#")[2].partition(":")[0] if isinstance(spelt, str) else ""
    texts = [answer.pop(key, None) for key in ("message", "Message")]
    message = next((text for text in texts if isinstance(text, str)), f"the service answered HTTP {status}")
    if not code:
        code = InternalFailure.__name__ if status >= SERVER_FAULT else "UnknownError"
    return EcsError.known.get(code, EcsError)(message, code=code, status=status, members=answer)


# Codes of the service model.


class AccessDeniedException(EcsError):
    pass


class AttributeLimitExceededException(EcsError):
    pass


class BlockedException(EcsError):
    pass


class ClientException(EcsError):
    pass


class ClusterContainsCapacityProviderException(EcsError):
    pass


class ClusterContainsContainerInstancesException(EcsError):
    pass


class ClusterContainsServicesException(EcsError):
    pass


class ClusterContainsTasksException(EcsError):
    pass


class ClusterNotFoundException(EcsError):
    pass


class ConflictException(EcsError):
    """The client token was already used; ``members["resourceIds"]`` names the tasks it made."""


class DaemonNotActiveException(EcsError):
    pass


class DaemonNotFoundException(EcsError):
    pass


class GatewayNotFoundException(EcsError):
    pass


class InvalidParameterException(EcsError):
    pass


class LimitExceededException(EcsError):
    pass


class MissingVersionException(EcsError):
    pass


class NamespaceNotFoundException(EcsError):
    pass


class NoUpdateAvailableException(EcsError):
    pass


class PlatformTaskDefinitionIncompatibilityException(EcsError):
    pass


class PlatformUnknownException(EcsError):
    pass


class ResourceInUseException(EcsError):
    pass


class ResourceNotFoundException(EcsError):
    pass


class ServerException(EcsError):
    default_status = SERVER_FAULT


class ServiceDeploymentNotFoundException(EcsError):
    pass


class ServiceNotActiveException(EcsError):
    pass


class ServiceNotFoundException(EcsError):
    pass


class TargetNotConnectedException(EcsError):
    pass


class TargetNotFoundException(EcsError):
    pass


class TaskSetNotFoundException(EcsError):
    pass


class UnsupportedFeatureException(EcsError):
    pass


class UpdateInProgressException(EcsError):
    pass


# Codes of CloudWatch Logs beyond those that it shares with ECS.


class InvalidOperationException(EcsError):
    pass


class InvalidSequenceTokenException(EcsError):
    pass


class DataAlreadyAcceptedException(EcsError):
    pass


class OperationAbortedException(EcsError):
    pass


class ResourceAlreadyExistsException(EcsError):
    pass


class ServiceUnavailableException(EcsError):
    default_status = 503


class TooManyTagsException(EcsError):
    pass


class UnsupportedOperationException(EcsError):
    """An operation of the service that this control plane does not serve."""


class ValidationException(EcsError):
    pass


# Codes of the protocol in front of every operation.


class ExpiredTokenException(EcsError):
    """The temporary keys that signed the request have come to their end."""


class IncompleteSignatureException(EcsError):
    """The Authorization header is there but lacks a part."""


class InternalFailure(EcsError):
    """The service failed in a way no operation foresees."""

    default_status = SERVER_FAULT


class InvalidSignatureException(EcsError):
    """The signature does not match, or its date is too far from now ("Signature expired: ...")."""


class MissingAuthenticationTokenException(EcsError):
    """The request is not signed at all."""


class RequestEntityTooLargeException(EcsError):
    """The body is longer than the service reads."""

    default_status = 413


class SerializationException(EcsError):
    """The body is not JSON, or a field has another JSON type than its shape."""


class ThrottlingException(EcsError):
    """Too many requests; the client backs off and tries again."""


class UnknownOperationException(EcsError):
    """The X-Amz-Target names no operation of this API."""


class UnrecognizedClientException(EcsError):
    """The access key is not known here."""
