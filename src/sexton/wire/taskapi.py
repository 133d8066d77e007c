"""What a task reads from its agent about keys, protection and faults: bodies with fields in their order on the wire."""

from __future__ import annotations

from msgspec import Struct, field


class TaskCredentials(Struct, frozen=True, kw_only=True, rename="pascal"):
    """Keys of a role. ``expiration`` is the control plane's text as it came."""

    role_arn: str
    access_key_id: str
    secret_access_key: str
    token: str
    expiration: str

    def __repr__(self) -> str:
        return f"TaskCredentials({self.role_arn}, hidden)"


class CredentialsError(Struct, frozen=True, kw_only=True):
    """Why there are none."""

    code: str
    message: str
    status: int = field(name="HTTPErrorCode")


class ProtectionRequest(Struct, frozen=True, kw_only=True, rename="pascal", forbid_unknown_fields=True):
    """What a task asks for; whether the first field is there is judged by the side that receives it."""

    protection_enabled: bool | None = None
    expires_in_minutes: int | None = None


class Protection(Struct, frozen=True, kw_only=True, rename="pascal", omit_defaults=True):
    protection_enabled: bool | None = None
    expiration_date: str | None = None
    task_arn: str | None = None


class ProtectionFailure(Struct, frozen=True, kw_only=True, rename="pascal", omit_defaults=True):
    arn: str | None = None
    reason: str | None = None
    detail: str | None = None


class ApiError(Struct, frozen=True, kw_only=True, rename="pascal", omit_defaults=True):
    arn: str | None = None
    code: str | None = None
    message: str | None = None


class ProtectionReply(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One of the three, with the service's id of the request where it answered with an error."""

    request_id: str | None = field(name="requestID", default=None)
    protection: Protection | None = None
    failure: ProtectionFailure | None = None
    error: ApiError | None = None
