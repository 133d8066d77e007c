"""A policy document as IAM writes it, read strictly: a misspelt word must not become a permission, or lose one.

    JSON text or what it holds -> ``Policy``, or ``BadDocument`` with the place in the document and what would do

Element names are as IAM spells them. A role's policy says what the role may do, so it names no principal.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from sexton.core.iam_conditions import ARN_PARTS, Condition, operator_of, wanted_of
from sexton.core.iam_pattern import Pattern, pattern

ALLOW, DENY = "Allow", "Deny"
WITH_VARIABLES = "2012-10-17"
VERSIONS = (WITH_VARIABLES, "2008-10-17")
LARGEST = 128 * 1024
"""Many times what IAM takes: more is a mistake, and each request looks at all of it."""

_ELEMENTS = ("Sid", "Effect", "Action", "NotAction", "Resource", "NotResource", "Condition")
_ACTION = re.compile(r"(\*|[A-Za-z0-9-]+):[A-Za-z0-9*?]+")
_SID = re.compile(r"[A-Za-z0-9]*")
_KEY = re.compile(r"[A-Za-z0-9-]+:.+", re.DOTALL)


class BadDocument(ValueError):  # noqa: N818 - the message is for a person
    """The document is no policy; the message names the place."""


class Statement(NamedTuple):
    """One statement; of actions and resources, one of each pair says something."""

    number: int  # from 1, as people count
    sid: str
    effect: str
    actions: tuple[Pattern, ...]
    not_actions: tuple[Pattern, ...]
    resources: tuple[Pattern, ...]
    not_resources: tuple[Pattern, ...]
    conditions: tuple[Condition, ...]

    @property
    def label(self) -> str:
        """What a person finds it by."""
        return f"statement {self.number}" + (f" ({self.sid})" if self.sid else "")


class Policy(NamedTuple):
    """A document's statements, in order."""

    statements: tuple[Statement, ...]


NOTHING = Policy(())
"""A policy that allows nothing."""


def read_policy(text: str) -> Policy:
    """The policy that a JSON text holds."""
    if len(text) > LARGEST:
        raise BadDocument(f"it is longer than {LARGEST // 1024} KiB, no policy is")
    try:
        told = json.loads(text, object_pairs_hook=_once)
    except json.JSONDecodeError as error:
        raise BadDocument(f"line {error.lineno}, column {error.colno}: it is not JSON: {error.msg}") from None
    except RecursionError:
        raise BadDocument("it is nested too deeply") from None
    return policy_of(told)


def _once(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    """An object in which every name stands once: the second would silently win."""
    found: dict[str, object] = {}
    for name, value in pairs:
        if name in found:
            raise BadDocument(f"'{name}' stands twice in one object; join the two")
        found[name] = value
    return found


def policy_of(told: object) -> Policy:
    """The policy that a document's content says."""
    if not isinstance(told, Mapping):
        raise BadDocument('it is no object; write {"Version": "2012-10-17", "Statement": [...]}')
    _no_others("", told, ("Version", "Id", "Statement"))
    version = told.get("Version", VERSIONS[1])
    if version not in VERSIONS:
        raise BadDocument(f"Version is {version!r}; write {WITH_VARIABLES}")
    given = told.get("Statement")
    statements = [given] if isinstance(given, Mapping) else given
    if not isinstance(statements, Sequence) or isinstance(statements, str) or not statements:
        raise BadDocument("Statement is missing or empty; write a list with one statement or more")
    seen: set[str] = set()
    read = []
    for number, one in enumerate(statements, 1):
        statement = _statement(number, one, variables=version == WITH_VARIABLES)
        if statement.sid and statement.sid in seen:
            raise BadDocument(f"Statement {number}: the Sid '{statement.sid}' is that of another statement")
        seen.add(statement.sid)
        read.append(statement)
    return Policy(tuple(read))


def _statement(number: int, told: object, *, variables: bool) -> Statement:
    where = f"Statement {number}"
    if not isinstance(told, Mapping):
        raise BadDocument(f"{where} is no object")
    if "Principal" in told or "NotPrincipal" in told:
        raise BadDocument(f"{where} names a principal; a role's policy speaks of the role alone, leave it out")
    _no_others(where, told, _ELEMENTS)
    sid = told.get("Sid", "")
    if not isinstance(sid, str) or not _SID.fullmatch(sid):
        raise BadDocument(f"{where}: Sid is {sid!r}; letters and digits alone")
    effect = told.get("Effect")
    if effect not in (ALLOW, DENY):
        raise BadDocument(f"{where}: Effect is {effect!r}; write {ALLOW} or {DENY}")
    for one in ("Action", "Resource"):
        if (one in told) == (f"Not{one}" in told):
            which = f"both {one} and Not{one}" if one in told else f"neither {one} nor Not{one}"
            raise BadDocument(f"{where} has {which}; write one of the two")
    return Statement(
        number,
        sid,
        str(effect),
        _actions(where, told, "Action"),
        _actions(where, told, "NotAction"),
        _resources(where, told, "Resource", variables=variables),
        _resources(where, told, "NotResource", variables=variables),
        tuple(_conditions(where, told.get("Condition", {}), variables=variables)),
    )


def _no_others(where: str, table: Mapping[str, object], known: Sequence[str]) -> None:
    for key in table:
        if key not in known:
            close = [one for one in known if one.lower() == key.lower()]
            hint = f"write {close[0]}" if close else f"known there: {', '.join(known)}"
            raise BadDocument(f"{where + ': ' if where else ''}'{key}' is unknown; {hint}")


def _texts(where: str, given: object) -> list[str]:
    """One text or a list of them; numbers and truths as JSON writes them."""
    several = given if isinstance(given, Sequence) and not isinstance(given, str) else [given]
    found = []
    for one in several:
        if isinstance(one, bool):
            found.append("true" if one else "false")
        elif isinstance(one, str | int | float):
            found.append(str(one))
        else:
            raise BadDocument(f"{where} is {one!r}; write a text or a list of texts")
    if not found:
        raise BadDocument(f"{where} is an empty list; it would match nothing")
    return found


def _actions(where: str, told: Mapping[str, object], name: str) -> tuple[Pattern, ...]:
    if name not in told:
        return ()
    found = _texts(f"{where}: {name}", told[name])
    for one in found:
        if one != "*" and not _ACTION.fullmatch(one):
            raise BadDocument(f"{where}: {name} '{one}' is no action; write SERVICE:ACTION, such as ecs:RunTask, or *")
    return tuple(pattern(one, variables=False) for one in found)


def _resources(where: str, told: Mapping[str, object], name: str, *, variables: bool) -> tuple[Pattern, ...]:
    if name not in told:
        return ()
    made = []
    for one in _texts(f"{where}: {name}", told[name]):
        if one != "*" and not one.startswith("arn:"):
            raise BadDocument(f"{where}: {name} '{one}' is no resource; write an ARN, with wildcards if need be, or *")
        made.append(_read(f"{where}: {name}", completed(one), variables=variables))
    return tuple(made)


def completed(arn: str) -> str:
    """An ARN with fewer parts than six has wildcards in place of the others."""
    missing = ARN_PARTS - len(re.sub(r"\$\{[^}]*\}", "", arn).split(":"))
    return arn + ":*" * missing if arn.startswith("arn:") and missing > 0 else arn


def _read(where: str, text: str, *, variables: bool) -> Pattern:
    try:
        return pattern(text, variables=variables)
    except ValueError as error:
        raise BadDocument(f"{where} '{text}': {error}") from None


def _conditions(where: str, told: object, *, variables: bool) -> Iterable[Condition]:
    if not isinstance(told, Mapping):
        raise BadDocument(f'{where}: Condition is no object; write {{"StringEquals": {{"ecs:cluster": "..."}}}}')
    for name, keys in told.items():
        try:
            operator = operator_of(name)
        except ValueError as error:
            raise BadDocument(f"{where}: Condition: {error}") from None
        place = f"{where}: Condition: {name}"
        if not isinstance(keys, Mapping) or not keys:
            raise BadDocument(f"{place} is no object of keys and values")
        for key, given in keys.items():
            if not _KEY.fullmatch(key):
                raise BadDocument(f"{place}: '{key}' is no condition key; write one such as aws:SourceIp")
            try:
                wanted = tuple(
                    wanted_of(operator, one, variables=variables) for one in _texts(f"{place}: {key}", given)
                )
            except BadDocument:
                raise
            except ValueError as error:
                raise BadDocument(f"{place}: {key}: {error}") from None
            yield Condition(operator, key.lower(), wanted)
