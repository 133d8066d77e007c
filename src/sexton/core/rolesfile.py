"""The roles file: for each role of tasks, where its keys come from. TOML, read strictly.

    [[role]]
    arn = "arn:aws:iam::123456789012:role/app-*"     an ARN, with wildcards if need be; or a role's bare name
    source = "local"                                 keys made here, limited by a policy
    policy-file = "app.json"                         beside this file; or policy = '''{...}''' in its place
    duration = "1h"                                  how long a set of keys is good

    source = "assume-role"    keys from STS: role-arn (of itself), profile, region, external-id, duration
    source = "profile"        keys of a profile of ~/.aws: profile
    source = "static"         keys that stand here: access-key-id, secret-access-key, session-token

The first role that fits a name is meant. What cannot be used is refused with the line of its entry and the name of its
key: a misspelt word must not become a permission.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

import msgspec

from sexton.core import values
from sexton.core.iam_document import BadDocument, Policy, policy_of, read_policy
from sexton.core.iam_pattern import pattern
from sexton.core.values import BadValue

LARGEST = 1 << 20
SHORTEST_SECONDS, LONGEST_SECONDS = 900.0, 43200.0
"""What AWS allows for a role's keys."""
DURATION_SECONDS = 3600.0

_HEADER = re.compile(r"^[ \t]*\[\[\s*role\s*\]\]", re.MULTILINE)
_ROLE = re.compile(r"arn:[a-z*?-]+:iam::[0-9*?]{1,12}:role/[\w+=,.@/*?-]+", re.ASCII)
_NAME = re.compile(r"[\w+=,.@/*?-]{1,512}", re.ASCII)
_PLAIN_ROLE = re.compile(r"arn:[a-z-]+:iam::[0-9]{12}:role/[\w+=,.@/-]{1,512}", re.ASCII)
_ROLE_NAME = re.compile(r"[\w+=,.@-]{1,64}", re.ASCII)


class Source(StrEnum):
    """Where a role's keys come from."""

    ASSUME_ROLE = "assume-role"
    PROFILE = "profile"
    STATIC = "static"
    LOCAL = "local"


_KEYS: Mapping[Source, tuple[str, ...]] = {
    Source.ASSUME_ROLE: ("role-arn", "profile", "region", "external-id", "duration"),
    Source.PROFILE: ("profile",),
    Source.STATIC: ("access-key-id", "secret-access-key", "session-token"),
    Source.LOCAL: ("policy", "policy-file", "duration"),
}
_NEEDED: Mapping[Source, tuple[str, ...]] = {
    Source.PROFILE: ("profile",),
    Source.STATIC: ("access-key-id", "secret-access-key"),
}


class BadRoles(Exception):  # noqa: N818 - the message is for a person
    """The roles file cannot be used; the message names the place."""


class RoleEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One role, or all that fit a pattern."""

    arn: str
    source: Source
    line: int
    duration: float = DURATION_SECONDS
    role_arn: str = ""
    profile: str = ""
    region: str = ""
    external_id: str = ""
    access_key_id: str = ""
    secret_access_key: str = ""
    session_token: str = ""
    policy_file: str = ""
    policies: tuple[Policy, ...] = ()

    def fits(self, role_arn: str) -> bool:
        """Whether this is the entry of a role; a bare name is meant in every account."""
        wanted = self.arn if self.arn.startswith("arn:") else f"arn:*:iam::*:role/{self.arn}"
        return pattern(wanted, variables=False).matches(role_arn, {})

    def __repr__(self) -> str:
        return f"RoleEntry({self.arn}, {self.source})"


class RolesFile(msgspec.Struct, frozen=True):
    """What a roles file says, the first entry first."""

    entries: tuple[RoleEntry, ...] = ()

    def find(self, role_arn: str) -> RoleEntry | None:
        return next((one for one in self.entries if one.fits(role_arn)), None)


def whole_arn(role: str, partition: str, account: str) -> str | None:
    """A role's ARN from its ARN or its short name; None for what can be neither."""
    if role.startswith("arn:"):
        return role if _PLAIN_ROLE.fullmatch(role) else None
    return f"arn:{partition}:iam::{account}:role/{role}" if _ROLE_NAME.fullmatch(role) else None


def parse(text: str, read: Callable[[str], str]) -> RolesFile:
    """A roles file's text; ``read`` gives the text of a policy file, or BadRoles."""
    try:
        told = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadRoles(f"it is not TOML: {error}") from None
    for key in told:
        if key != "role":
            raise BadRoles(f"'{key}' is unknown; write each role as [[role]]")
    tables = told.get("role", [])
    if not isinstance(tables, list):
        raise BadRoles("role is no list; write each role as [[role]], with double brackets")
    lines = [text.count("\n", 0, found.start()) + 1 for found in _HEADER.finditer(text)]
    entries: list[RoleEntry] = []
    for number, table in enumerate(tables):
        line = lines[number] if len(lines) == len(tables) else 0
        where = f"line {line}: " if line else f"role {number + 1}: "
        entry = _entry(where, line, table, read)
        twin = next((one for one in entries if one.arn == entry.arn), None)
        if twin is not None:
            raise BadRoles(f"{where}'{entry.arn}' stands on line {twin.line} already; the first would always win")
        entries.append(entry)
    return RolesFile(tuple(entries))


def _entry(where: str, line: int, table: Any, read: Callable[[str], str]) -> RoleEntry:
    if not isinstance(table, dict):
        raise BadRoles(f"{where}it is no table; write [[role]] with its keys below")
    arn = _text(where, table, "arn")
    if not arn:
        raise BadRoles(f"{where}arn is missing; name the role by its ARN, such as arn:aws:iam::123456789012:role/app")
    if not (_ROLE if arn.startswith("arn:") else _NAME).fullmatch(arn):
        raise BadRoles(f"{where}arn '{arn}' is no role; write arn:aws:iam::ACCOUNT:role/NAME, or its bare name")
    where = f"{where}role '{arn}': "
    kind = _text(where, table, "source")
    if kind not in set(Source):
        said = f"source is '{kind}'" if kind else "source is missing"
        raise BadRoles(f"{where}{said}; write one of {', '.join(Source)}")
    source = Source(kind)
    for key in table:
        if key not in ("arn", "source", *_KEYS[source]):
            others = [one for one, known in _KEYS.items() if key in known]
            hint = f"; it is for {others[0]}" if others else f"; there are {', '.join(_KEYS[source])}"
            raise BadRoles(f"{where}'{key}' is unknown for source = \"{source}\"{hint}")
    texts = {
        key.replace("-", "_"): _text(where, table, key) for key in _KEYS[source] if key not in ("duration", "policy")
    }
    for key in _NEEDED.get(source, ()):
        if not texts[key.replace("-", "_")]:
            raise BadRoles(f"{where}{key} is missing")
    target = texts.get("role_arn", "")
    if target and not _PLAIN_ROLE.fullmatch(target):
        raise BadRoles(f"{where}role-arn '{target}' is no ARN of one role")
    policies = (_policy(where, table, read),) if source is Source.LOCAL else ()
    duration = _duration(where, table["duration"]) if "duration" in table else DURATION_SECONDS
    return RoleEntry(arn=arn, source=source, line=line, duration=duration, policies=policies, **texts)


def _text(where: str, table: Mapping[str, Any], key: str) -> str:
    value = table.get(key, "")
    if not isinstance(value, str):
        raise BadRoles(f"{where}{key} is {value!r}; write a text in quotes")
    return value


def _duration(where: str, value: Any) -> float:
    try:
        seconds = values.duration(value) if isinstance(value, str) else float(value)
    except (BadValue, TypeError, ValueError):
        seconds = 0.0
    if not SHORTEST_SECONDS <= seconds <= LONGEST_SECONDS:
        raise BadRoles(f'{where}duration is {value!r}; write a span from 15m to 12h, such as "1h"')
    return seconds


def _policy(where: str, table: Mapping[str, Any], read: Callable[[str], str]) -> Policy:
    """A local role's policy, in the file or beside it."""
    given, name = table.get("policy"), _text(where, table, "policy-file")
    if (given is None) == (not name):
        raise BadRoles(f"{where}a local role has either policy or policy-file; without one it could do nothing")
    try:
        if name:
            return read_policy(read(name))
        return read_policy(given) if isinstance(given, str) else policy_of(given)
    except BadDocument as error:
        raise BadRoles(f"{where}{f'policy-file {name}' if name else 'policy'}: {error}") from None
