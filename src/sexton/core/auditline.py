"""One line of the audit log: who asked for keys, when, and what came of it; never a key, never an id that gives one.

    2026-11-18T18:52:45Z 200 172.17.0.2:40912 "/v2/credentials" "aws-sdk" arn:...:task/x GetCredentials 2 c arn:...

What a stranger can put into a line (his user agent) is in quotes and can neither end them nor the line.
"""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from typing import NamedTuple

VERSION = 2
LONGEST_WORD = 512
_NOTHING = "-"


class What(StrEnum):
    """What was asked for. UNKNOWN: an id that is nobody's. LIMITED: nobody looked, it was one too many."""

    TASK = "GetCredentials"
    EXECUTION = "GetCredentialsExecutionRole"
    UNKNOWN = "GetCredentialsInvalidRoleType"
    LIMITED = ""


class Asked(NamedTuple):
    """One request."""

    at: float
    status: int
    remote: str  # address and port
    path: str  # without an id
    user_agent: str
    what: What
    task: str = ""


def line(asked: Asked, cluster: str, instance_arn: str) -> str:
    """The line of one request."""
    when = datetime.fromtimestamp(asked.at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    words = [when, str(asked.status), asked.remote or _NOTHING, _quoted(asked.path), _quoted(asked.user_agent)]
    words.append(asked.task or _NOTHING)
    if asked.what:
        words.append(asked.what)
    if asked.what in (What.TASK, What.EXECUTION):
        words += [str(VERSION), cluster, instance_arn]
    return " ".join(words)


def _quoted(text: str) -> str:
    """In quotes, on one line, of a length that fills no disk."""
    safe = "".join(_shown(one) for one in text[:LONGEST_WORD])
    return f'"{safe or _NOTHING}"'


def _shown(one: str) -> str:
    if one in '"\\':
        return f"\\{one}"
    return one if one.isprintable() else f"\\x{ord(one):02x}"
