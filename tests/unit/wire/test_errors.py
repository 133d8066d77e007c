"""Error answers: the API's codes out, the same classes back in, and no surprise from a proxy in between."""

from __future__ import annotations

import json

import pytest
from botocore.loaders import Loader
from botocore.parsers import JSONParser
from hypothesis import given
from hypothesis import strategies as st

from sexton.wire import errors
from sexton.wire.errors import EcsError, decode_error, encode_error

SHAPES = Loader().load_service_model("ecs", "service-2")["shapes"]


@pytest.mark.parametrize("name", [name for name, shape in SHAPES.items() if shape.get("exception")])
def test_every_code_of_the_model_has_its_class_and_status(name):
    error = EcsError.known[name]("no")

    assert error is not None
    assert error.code == name
    assert error.status == (500 if SHAPES[name].get("fault") else 400)


@pytest.mark.parametrize("kind", EcsError.known.values(), ids=lambda kind: kind.__name__)
def test_an_error_comes_back_as_it_went(kind):
    sent = kind("cannot do that", members={"resourceIds": ["a"]})
    back = decode_error(sent.status, encode_error(sent))

    assert type(back) is kind
    assert (back.code, back.message, back.status, back.members) == (sent.code, sent.message, sent.status, sent.members)


def test_the_body_is_what_stock_clients_parse():
    error = errors.ClusterNotFoundException("Cluster not found.")
    body = encode_error(error)
    parsed = JSONParser().parse({"status_code": error.status, "headers": {}, "body": body}, None)

    assert json.loads(body) == {"__type": "ClusterNotFoundException", "message": "Cluster not found."}
    assert parsed["Error"] == {"Code": "ClusterNotFoundException", "Message": "Cluster not found."}


@pytest.mark.parametrize(
    "status, body, code, message",
    [
        (400, b'{"__type":"com.amazonaws.ecs#ClientException","Message":"m"}', "ClientException", "m"),
        (400, b'{"__type":"NewerException:http://x/","message":"m"}', "NewerException", "m"),
        (502, b"<html>", "InternalFailure", "the service answered HTTP 502"),
        (403, b"{}", "UnknownError", "the service answered HTTP 403"),
        (400, b'{"__type":7,"message":7}', "UnknownError", "the service answered HTTP 400"),
        (400, b"[" * 100_000, "UnknownError", "the service answered HTTP 400"),
    ],
)
def test_foreign_answers_become_errors(status, body, code, message):
    error = decode_error(status, body)

    assert (error.code, error.message, error.status) == (code, message, status)
    assert str(error) == f"{code}: {message}"


@given(body=st.binary())
def test_no_answer_makes_decoding_fail(body):
    assert isinstance(decode_error(400, body), EcsError)
