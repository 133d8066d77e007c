"""Short-lived keys of a role: made from a seal and nothing else, so that nobody has to remember them.

    seal + (role, session name, times, a number) -> token; seal + token -> key id and secret
    seal + token -> the same again, on every control plane that has the seal, and after a restart

The token says whose the keys are, and carries a mark that only who has the seal can make; it holds no secret. The key
id begins as AWS's own temporary ones do, so that every client treats them alike.

Pure: the time and the number are arguments.
"""

from __future__ import annotations

import base64
import hmac
from hashlib import sha256
from typing import NamedTuple

import msgspec

from sexton.core import names
from sexton.wire.errors import UNREADABLE

PREFIX = "ASIA"
"""What the ids of temporary keys begin with."""

# Names the layout; a token of another one is no token of ours.
_LAYOUT = "SX1"
LONGEST_TOKEN = 4096


class Session(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Whose keys these are: a role, taken on under a name, for a while. Times are Unix seconds."""

    role_arn: str
    name: str
    issued_at: int
    expires_at: int
    number: str = ""  # tells keys apart that were made in the same second

    @property
    def arn(self) -> str:
        """Who makes the requests, as AWS writes it: the role's name without its path, and the session's."""
        parts = self.role_arn.split(":")
        partition, account = (parts[1], parts[4]) if len(parts) == 6 else ("aws", "")
        return f"arn:{partition}:sts::{account}:assumed-role/{self.role_name}/{self.name}"

    @property
    def role_name(self) -> str:
        return names.last_part(self.role_arn)

    @property
    def account(self) -> str:
        return names.account_of(self.role_arn)

    @property
    def user_id(self) -> str:
        """The role's unique id, always the same for an ARN, and the session's name."""
        digest = base64.b32encode(sha256(self.role_arn.encode()).digest()).decode()
        return f"AROA{digest[:17]}:{self.name}"


class SessionKeys(NamedTuple):
    """A set of keys."""

    access_key_id: str
    secret_access_key: str
    token: str
    session: Session

    def __repr__(self) -> str:
        return f"SessionKeys({self.access_key_id}, {self.session.arn}, hidden)"


def make(seal: bytes, session: Session) -> SessionKeys:
    """The keys of a session."""
    body = _text(msgspec.json.encode(session))
    return _keys(seal, f"{_LAYOUT}.{body}.{_text(_mark(seal, 'token', body))}", session)


def read(seal: bytes, token: str) -> SessionKeys | None:
    """The keys that belong to a token; None for one that this seal has not marked."""
    layout, _, rest = token.partition(".")
    body, _, mark = rest.partition(".")
    if layout != _LAYOUT or len(token) > LONGEST_TOKEN or not token.isascii():
        return None
    if not hmac.compare_digest(_text(_mark(seal, "token", body)), mark):
        return None
    try:
        session = msgspec.json.decode(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)), type=Session)
    except (*UNREADABLE, ValueError):
        return None
    return _keys(seal, token, session)


def credentials_id(seal: bytes, task_arn: str, role_type: str) -> str:
    """What a task asks its agent's endpoint with: the same for as long as the task lives, and not to be guessed."""
    digits = _mark(seal, "credentials-id", f"{role_type} {task_arn}").hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:32]))


def _keys(seal: bytes, token: str, session: Session) -> SessionKeys:
    key_id = PREFIX + base64.b32encode(_mark(seal, "id", token)).decode()[:16]
    return SessionKeys(key_id, _text(_mark(seal, "secret", token))[:40], token, session)


def _mark(seal: bytes, purpose: str, text: str) -> bytes:
    return hmac.digest(seal, f"{purpose}\0{text}".encode(), sha256)


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
