"""What an expression of the cluster query language says, as a tree, and how it is written.

A comparison has a subject (``attribute:NAME`` or one of the fields), an operator and, mostly, arguments; ``and``,
``or`` and ``not`` join them. ``written`` puts a tree back into text that reads as the same tree. The literal forms
that a field demands (version, date, number) are here too, so that reading and evaluating agree on them.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from enum import StrEnum

import msgspec

ATTRIBUTE = "attribute:"


class Field(StrEnum):
    AGENT_CONNECTED = "agentConnected"
    AGENT_VERSION = "agentVersion"
    EC2_INSTANCE_ID = "ec2InstanceId"
    REGISTERED_AT = "registeredAt"
    RUNNING_TASKS = "runningTasksCount"
    TASK_GROUP = "task:group"


class Operator(StrEnum):
    EQUAL = "=="
    NOT_EQUAL = "!="
    GREATER = ">"
    GREATER_EQUAL = ">="
    LESS = "<"
    LESS_EQUAL = "<="
    EXISTS = "exists"
    NOT_EXISTS = "!exists"
    IN = "in"
    NOT_IN = "!in"
    MATCHES = "=~"
    NOT_MATCHES = "!~"


# The operators' other names.
OPERATOR_WORDS = {
    "equals": Operator.EQUAL,
    "not_equals": Operator.NOT_EQUAL,
    "greater_than": Operator.GREATER,
    "greater_than_equal": Operator.GREATER_EQUAL,
    "less_than": Operator.LESS,
    "less_than_equal": Operator.LESS_EQUAL,
    "exists": Operator.EXISTS,
    "not_exists": Operator.NOT_EXISTS,
    "in": Operator.IN,
    "not_in": Operator.NOT_IN,
    "matches": Operator.MATCHES,
    "not_matches": Operator.NOT_MATCHES,
}
WITHOUT_ARGUMENT = frozenset({Operator.EXISTS, Operator.NOT_EXISTS})
WITH_LIST = frozenset({Operator.IN, Operator.NOT_IN})
WITH_PATTERN = frozenset({Operator.MATCHES, Operator.NOT_MATCHES})

_EQUALITY = (Operator.EQUAL, Operator.NOT_EQUAL)
_ORDER = (Operator.GREATER, Operator.GREATER_EQUAL, Operator.LESS, Operator.LESS_EQUAL)
_NAMES = (*_EQUALITY, Operator.IN, Operator.NOT_IN, Operator.MATCHES, Operator.NOT_MATCHES)
# What each field may be asked; an attribute may be asked anything.
ALLOWED: dict[Field, tuple[Operator, ...]] = {
    Field.AGENT_CONNECTED: _NAMES,
    Field.AGENT_VERSION: (*_EQUALITY, *_ORDER),
    Field.EC2_INSTANCE_ID: _NAMES,
    Field.REGISTERED_AT: (*_EQUALITY, *_ORDER),
    Field.RUNNING_TASKS: (*_EQUALITY, *_ORDER),
    Field.TASK_GROUP: (*_NAMES, Operator.EXISTS, Operator.NOT_EXISTS),
}


class Compare(msgspec.Struct, frozen=True):
    """``subject operator [argument]``."""

    subject: str
    operator: Operator
    arguments: tuple[str, ...] = ()


class Not(msgspec.Struct, frozen=True):
    part: Tree


class And(msgspec.Struct, frozen=True):
    parts: tuple[Tree, ...]


class Or(msgspec.Struct, frozen=True):
    parts: tuple[Tree, ...]


Tree = Compare | Not | And | Or

# What may stand without quotes: no white space and none of the language's own signs.
WORD = re.compile(r"""[^\s()\[\],'"!=<>&|~]+""")
_NUMBERS = r"[0-9]{1,18}(?:\.[0-9]{1,18}){0,7}"
_VERSION = re.compile(_NUMBERS)
_AGENT_VERSION = re.compile(rf"v?({_NUMBERS})(?![0-9.])")
_INSTANT = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?:T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?(?:Z|[+-][0-9]{2}:[0-9]{2})?)?"
)
_WHOLE = re.compile(r"[0-9]{1,18}")


def written(tree: Tree) -> str:
    """The tree as text that reads as the same tree."""
    match tree:
        case Compare(subject, operator, arguments):
            return " ".join((subject, operator, *_arguments(operator, arguments)))
        case Not(part):
            return f"not {_inner(part)}"
        case And(parts):
            return " and ".join(map(_inner, parts))
        case Or(parts):
            return " or ".join(map(_inner, parts))


def _inner(part: Tree) -> str:
    return f"({written(part)})" if isinstance(part, And | Or) else written(part)


def _arguments(operator: Operator, arguments: tuple[str, ...]) -> tuple[str, ...]:
    if operator in WITHOUT_ARGUMENT:
        return ()
    if operator in WITH_LIST:
        return (f"[{', '.join(map(_literal, arguments))}]",)
    return (_quoted(arguments[0]) if operator in WITH_PATTERN else _literal(arguments[0]),)


def _literal(text: str) -> str:
    return text if WORD.fullmatch(text) else _quoted(text)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def version(text: str) -> tuple[int, ...] | None:
    """A number or version number, comparable part by part: 1.9 before 1.10, and 1.2 is 1.2.0."""
    if not _VERSION.fullmatch(text):
        return None
    parts = [int(part) for part in text.split(".")]
    while parts and not parts[-1]:
        parts.pop()
    return tuple(parts)


def agent_version(text: str) -> tuple[int, ...] | None:
    """The version an agent reports, which may begin with "v" and end in a build's name."""
    found = _AGENT_VERSION.match(text)
    return version(found[1]) if found else None


def instant(text: str) -> float | None:
    """A date, or a date and time, in seconds since the epoch; without a zone it is UTC."""
    if not _INSTANT.fullmatch(text):
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:  # such as the 30th of February
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def whole(text: str) -> int | None:
    return int(text) if _WHOLE.fullmatch(text) else None
