"""The query protocols of AWS: a form in, XML out, as EC2, STS and IAM speak them.

A form's names are paths (``IpPermissions.1.IpRanges.2.CidrIp``); ``read_form`` makes the tree that they describe, with
a list wherever the parts of a path are numbers, and ``as_request`` the typed request. Both refuse by the services' own
codes. ``element`` writes an answer: a mapping is a sequence of elements, a list its members.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import parse_qsl
from xml.sax.saxutils import escape

import msgspec

# The largest request there is here has 60 rules of a dozen fields each.
MOST_FIELDS = 10_000
MOST_PARTS = 12

T = TypeVar("T", bound=msgspec.Struct)
Node = Any  # a text, a list of nodes, or a mapping of them

_NUMBER = re.compile(r"[0-9]{1,6}\Z", re.ASCII)
# What XML 1.0 cannot hold, escaped or not.
_NO_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_UNKNOWN = re.compile(r"unknown field `([^`]*)`")
_MISSING = re.compile(r"missing required field `([^`]*)`")


class QueryError(Exception):
    """An error answer of a query service: its code, a message, and the HTTP status."""

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.status = status

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


class Request(msgspec.Struct, frozen=True, kw_only=True, rename="pascal", forbid_unknown_fields=True):
    """What is common to requests: a field that is not named is refused by its name, never left out in silence."""


class DryRun(Request, frozen=True, kw_only=True):
    """A request that may ask only whether it would be allowed."""

    dry_run: bool = False


def read_form(body: bytes) -> dict[str, Node]:
    """The tree that a form describes."""
    try:
        pairs = parse_qsl(
            body.decode(),
            keep_blank_values=True,
            strict_parsing=bool(body),
            max_num_fields=MOST_FIELDS,
            errors="strict",
        )
    except ValueError:
        raise QueryError("MalformedQueryString", "The body is no form of key=value pairs in UTF-8.") from None
    root: dict[str, Node] = {}
    for path, value in pairs:
        _put(root, path, value)
    return {name: _listed(node) for name, node in root.items()}


def _put(root: dict[str, Node], path: str, value: str) -> None:
    *parents, last = path.split(".", MOST_PARTS)
    here = root
    for part in parents:
        below = here.setdefault(part, {})
        if not isinstance(below, dict):
            raise _twice(path)
        here = below
    if last in here:
        raise _twice(path)
    here[last] = value


def _twice(path: str) -> QueryError:
    return QueryError("InvalidParameterCombination", f"The parameter {path[:100]} is given twice, or as two things.")


def _listed(node: Node) -> Node:
    """The node with mappings from numbers made lists, in the order of the numbers."""
    if not isinstance(node, dict):
        return node
    below = {name: _listed(one) for name, one in node.items()}
    if all(_NUMBER.match(name) for name in below):
        return [below[name] for name in sorted(below, key=int)]
    return below


def as_request(tree: Mapping[str, Node], kind: type[T]) -> T:
    """The tree as this kind of request."""
    try:
        return msgspec.convert(tree, kind, strict=False)
    except msgspec.ValidationError as error:
        text = str(error)
        if unknown := _UNKNOWN.search(text):
            raise QueryError("UnknownParameter", f"The parameter {unknown[1]} is not recognized") from None
        if missing := _MISSING.search(text):
            raise QueryError("MissingParameter", f"The request must contain the parameter {missing[1]}") from None
        raise QueryError("InvalidParameterValue", f"A parameter has an invalid value: {text}") from None
    except RecursionError:
        raise QueryError("MalformedQueryString", "The parameters are nested too deeply.") from None


def text(value: str) -> str:
    """Text as it stands in XML; what XML cannot hold is replaced."""
    return escape(_NO_XML.sub("\ufffd", value))


def element(name: str, value: object, member: str) -> str:
    """One element with all that is below it. Members of lists are called ``member``; None is not written."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return f"<{name}>{'true' if value else 'false'}</{name}>"
    if isinstance(value, Mapping):
        return f"<{name}>{''.join(element(key, one, member) for key, one in value.items())}</{name}>"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"<{name}>{''.join(element(member, one, member) for one in value)}</{name}>"
    return f"<{name}>{text(str(value))}</{name}>"
