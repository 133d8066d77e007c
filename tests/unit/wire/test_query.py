"""Forms and XML: what clients write is read as they mean it, and nothing breaks on what nobody means."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.wire.query import QueryError, Request, as_request, element, read_form


class Filter(Request, frozen=True, kw_only=True):
    name: str
    value: tuple[str, ...] = ()


class Look(Request, frozen=True, kw_only=True):
    vpc_id: tuple[str, ...] = ()
    filter: tuple[Filter, ...] = ()
    max_results: int | None = None
    all: bool = False


def form(**fields: str) -> bytes:
    return urlencode({name.replace("__", "."): value for name, value in fields.items()}).encode()


def test_numbers_make_lists_in_their_order():
    body = form(Filter__2__Name="b", Filter__10__Name="c", Filter__1__Name="a", Filter__1__Value__1="x", All="true")

    look = as_request(read_form(body), Look)

    assert [one.name for one in look.filter] == ["a", "b", "c"]
    assert look.filter[0].value == ("x",)
    assert look.all and look.max_results is None


@pytest.mark.parametrize(
    ("body", "code", "word"),
    [
        (b"VpcIdd.1=x", "UnknownParameter", "VpcIdd"),
        (b"Filter.1.Value.1=x", "MissingParameter", "Name"),
        (b"MaxResults=many", "InvalidParameterValue", "MaxResults"),
        (b"Filter=x", "InvalidParameterValue", "Filter"),
        (b"Filter.1=x&Filter.1.Name=y", "InvalidParameterCombination", "Filter.1"),
        (b"All=true&All=false", "InvalidParameterCombination", "All"),
        (b"All", "MalformedQueryString", ""),
        (b"All=\xff", "MalformedQueryString", ""),
    ],
)
def test_what_is_wrong_is_named(body, code, word):
    with pytest.raises(QueryError) as caught:
        as_request(read_form(body), Look)

    assert caught.value.code == code
    assert word in caught.value.message


@given(st.binary(max_size=200) | st.lists(st.sampled_from("AF.1=&x2%")).map(lambda parts: "".join(parts).encode()))
def test_any_body_is_read_or_refused(body):
    try:
        as_request(read_form(body), Look)
    except QueryError as error:
        assert error.status == 400


@given(st.dictionaries(st.sampled_from(["a", "b"]), st.text() | st.booleans() | st.lists(st.text(), max_size=3)))
def test_any_answer_is_well_formed(answer):
    root = ET.fromstring(element("Answer", answer, "item"))

    assert {one.tag for one in root} == set(answer)


def test_text_is_what_it_was():
    value = "a < b & \u00e9 \U0001f600"

    assert ET.fromstring(element("t", value, "item")).text == value
