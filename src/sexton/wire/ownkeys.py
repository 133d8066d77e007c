"""Keys as ``/sexton/keys`` shows and takes them; no part of the ECS API."""

from __future__ import annotations

import msgspec


class CreateKey(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    role: str
    name: str = ""
    instance: str = msgspec.field(name="containerInstance", default="")


class RotateKey(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    grace_seconds: float | None = None


class KeyShown(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One key. The secret is there in the answer to its making, and never again."""

    access_key_id: str
    role: str
    status: str
    name: str = ""
    instance: str = msgspec.field(name="containerInstance", default="")
    created_at: float = 0.0
    created_by: str = ""
    ends_at: float = 0.0
    successor: str = ""
    own: bool = False
    secret_access_key: str = ""

    def __repr__(self) -> str:
        return f"KeyShown({self.access_key_id}, {self.role})"


class KeysShown(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    keys: tuple[KeyShown, ...]
