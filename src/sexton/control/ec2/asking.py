"""What EC2's requests have in common: tags, filters, pages, and how a resource that is named is found.

A describing operation gives its rows and a table of filters, each from a row to the texts it is compared with; unknown
filters are refused by name, as EC2 does, since a filter that is ignored shows too much.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from sexton.control.context import Call, Context
from sexton.control.networkrecords import GROUP, KINDS, Kind, Tags
from sexton.core import names
from sexton.wire.query import DryRun, QueryError, Request

MOST_TAGS = 50
MOST_FILTER_VALUES = 200
LEAST_PAGE, LARGEST_PAGE = 5, 1000

T = TypeVar("T")
Filters = Mapping[str, Callable[[T], Iterable[object]]]


class Tag(Request, frozen=True, kw_only=True):
    key: str
    value: str = ""


class TagSpecification(Request, frozen=True, kw_only=True):
    resource_type: str = ""
    tag: tuple[Tag, ...] = ()


class Filter(Request, frozen=True, kw_only=True):
    name: str
    value: tuple[str, ...] = ()


class Listing(DryRun, frozen=True, kw_only=True):
    """A request that describes what there is, a page at a time."""

    filter: tuple[Filter, ...] = ()
    max_results: int | None = None
    next_token: str | None = None


class Switch(Request, frozen=True, kw_only=True):
    """An attribute that is on or off."""

    value: bool


class Said(Request, frozen=True, kw_only=True):
    """An attribute that is a text."""

    value: str = ""


def invalid(message: str) -> QueryError:
    return QueryError("InvalidParameterValue", message)


def combination(message: str) -> QueryError:
    return QueryError("InvalidParameterCombination", message)


def required(value: object, name: str) -> None:
    if not value:
        raise QueryError("MissingParameter", f"The request must contain the parameter {name}")


def missing(kind: Kind, given: str) -> QueryError:
    return QueryError(kind.missing, f"The {kind.words} '{given}' does not exist")


def new_id(context: Context, kind: str) -> str:
    return f"{kind}-{context.new_id()[:17]}"


def busy(what: str) -> QueryError:
    """Too many writers want the same record; the client's own retry is the right answer."""
    return QueryError("RequestLimitExceeded", f"{what} is being changed by others; try again", 503)


def arn(context: Context, call: Call, resource: str) -> str:
    return f"arn:{names.partition(call.region)}:ec2:{call.region}:{context.account}:{resource}"


# Tags.


def new_tags(given: Sequence[TagSpecification], kind: Kind) -> Tags:
    """The tags that a resource is made with, or EC2's error."""
    tags: Tags = {}
    for one in given:
        if one.resource_type != kind.type:
            raise invalid(f"'{one.resource_type}' is not a valid taggable resource type for this operation.")
        tags = with_tags(tags, one.tag)
    return tags


def with_tags(tags: Tags, given: Iterable[Tag]) -> Tags:
    """The tags with these besides, or EC2's error."""
    after = dict(tags)
    for one in given:
        if not one.key or len(one.key) > 127 or len(one.value) > 255:
            raise invalid("A tag's key must have 1 to 127 characters, and its value at most 255.")
        if one.key.lower().startswith("aws:"):
            raise invalid(f"Tag keys starting with 'aws:' are reserved for internal use: {one.key}")
        after[one.key] = one.value
    if len(after) > MOST_TAGS:
        raise QueryError("TagLimitExceeded", f"A resource cannot have more than {MOST_TAGS} tags.")
    return after


def shown_tags(tags: Tags) -> list[dict[str, str]]:
    return [{"key": key, "value": value} for key, value in sorted(tags.items())]


# Filters and pages.


def _parts(pattern: str) -> list[str]:
    """A filter's value: ``*`` and ``?`` stand for anything and for any character, unless a backslash is before them."""
    return re.findall(r"\\.|.", pattern, re.DOTALL)


def matches(parts: Sequence[str], text: str) -> bool:
    """Whether a text is what the parts of a pattern mean; never slower than the product of their lengths."""
    at = part = held = 0
    star = -1
    while at < len(text):
        if part < len(parts) and parts[part] == "*":
            star, held, part = part, at, part + 1
        elif part < len(parts) and (parts[part] == "?" or parts[part][-1] == text[at]):
            at, part = at + 1, part + 1
        elif star >= 0:
            held += 1
            at, part = held, star + 1
        else:
            return False
    return all(one == "*" for one in parts[part:])


def _as_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def chosen(rows: Iterable[T], given: Sequence[Filter], filters: Filters[T], tags: Callable[[T], Tags]) -> list[T]:
    """The rows that every filter lets through."""
    found = list(rows)
    for one in given:
        values = _values_of(one.name, filters, tags)
        if len(one.value) > MOST_FILTER_VALUES:
            raise QueryError("FilterLimitExceeded", f"A filter has at most {MOST_FILTER_VALUES} values.")
        patterns = [_parts(text) for text in one.value]
        found = [
            row for row in found if any(matches(test, _as_text(value)) for value in values(row) for test in patterns)
        ]
    return found


def _values_of(name: str, filters: Filters[T], tags: Callable[[T], Tags]) -> Callable[[T], Iterable[object]]:
    if name.startswith("tag:"):
        key = name.removeprefix("tag:")
        return lambda row: [tags(row)[key]] if key in tags(row) else []
    if name == "tag-key":
        return lambda row: tags(row)
    if name == "tag-value":
        return lambda row: tags(row).values()
    if name not in filters:
        raise invalid(f"The filter '{name}' is invalid")
    return filters[name]


def page(request: Listing, rows: Sequence[T], key: Callable[[T], str]) -> tuple[list[T], str | None]:
    """One page of the rows by their keys, and the token of the next."""
    if request.max_results is not None and not LEAST_PAGE <= request.max_results <= LARGEST_PAGE:
        raise invalid(
            f"Value ( {request.max_results} ) for parameter maxResults is invalid. "
            f"Expecting a value between {LEAST_PAGE} and {LARGEST_PAGE}."
        )
    rows = sorted(rows, key=key)
    start = bisect_right(rows, _page_end(request.next_token), key=key) if request.next_token else 0
    end = start + (request.max_results or len(rows))
    more = end < len(rows)
    return list(rows[start:end]), key(rows[end - 1]).encode().hex() if more else None


def _page_end(token: str) -> str:
    try:
        return bytes.fromhex(token).decode()
    except ValueError:
        raise QueryError(
            "InvalidPaginationToken", "The specified pagination token is not valid or is expired."
        ) from None


def with_ids(rows: Mapping[str, T], ids: Sequence[str], kind: Kind) -> list[T]:
    """The rows with these ids, all rows when none is given; or EC2's error for one that is not there."""
    if not ids:
        return list(rows.values())
    for one in ids:
        if one not in rows:
            check_id(one, kind)
            raise missing(kind, one)
    return [rows[one] for one in dict.fromkeys(ids)]


def check_id(given: str, kind: Kind) -> None:
    """EC2's error for a text that can be no id of this kind, where EC2 tells that from one that is not there."""
    if kind is GROUP and not given.startswith("sg-"):
        raise QueryError("InvalidGroupId.Malformed", f'Invalid id: "{given}" (expecting "sg-...")')


def kind_of(given: str) -> Kind | None:
    prefix = given.partition("-")[0]
    return next((kind for kind in KINDS if kind.prefix == prefix), None)


def answer(name: str, rows: Sequence[Mapping[str, Any]], token: str | None) -> dict[str, object]:
    return {name: list(rows), "nextToken": token}
