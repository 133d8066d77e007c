"""From a signed request to an answer: the first thing that is wrong answers, in the API's own shape."""

from __future__ import annotations

import json
import logging
import time

import pytest

from sexton.cloud.credentials import Credentials
from sexton.cloud.sigv4 import sign
from sexton.cloud.sigv4_verify import Verifier
from sexton.control import dispatch
from sexton.control.dispatch import Dispatcher
from sexton.store.contract import StoreError
from sexton.wire import ecs

KEY = Credentials("AKSXEXAMPLE", "secret")


@pytest.fixture
def dispatcher(world):
    return Dispatcher(world.context, Verifier({KEY.access_key_id: KEY}.get, services=("ecs",)))


@pytest.fixture
def ask(dispatcher):
    async def send(operation, body=b"{}", *, key=KEY, now=None, sent=None, **changes):
        target = f"{ecs.TARGET_PREFIX}.{operation}"
        headers = {"Host": "h", "X-Amz-Target": target}
        headers |= sign("POST", "/", "", headers, body, key, region="us-east-1", service="ecs", now=now or time.time())
        headers |= changes
        reply = await dispatcher.serve(headers["X-Amz-Target"], "/", list(headers.items()), sent or body)
        return reply.status, json.loads(reply.body), reply.request_id

    return send


async def test_a_right_request_is_served_and_every_answer_has_its_own_id(ask):
    (status, body, one), (*_, other) = await ask("ListClusters"), await ask("ListClusters", b"")

    assert (status, list(body)) == (200, ["clusterArns"])
    assert one != other


@pytest.mark.parametrize(
    ("operation", "body", "options", "status", "code"),
    [
        ("Nonsense", b"{}", {}, 400, "UnknownOperationException"),
        ("ListClusters", b"{}", {"X-Amz-Target": "Other.ListClusters"}, 400, "UnknownOperationException"),
        ("ListClusters", b"{}", {"Authorization": ""}, 400, "MissingAuthenticationTokenException"),
        ("ListClusters", b"{}", {"Authorization": "Basic x"}, 400, "IncompleteSignatureException"),
        ("ListClusters", b"{}", {"sent": b'{"maxResults": 1}'}, 400, "InvalidSignatureException"),
        ("ListClusters", b"{}", {"now": time.time() - 3600}, 400, "InvalidSignatureException"),
        ("ListClusters", b"{}", {"key": Credentials("AKSXEXAMPLE", "x")}, 400, "InvalidSignatureException"),
        ("ListClusters", b"{}", {"key": Credentials("OTHER", "x")}, 400, "UnrecognizedClientException"),
        ("ListClusters", b"{", {}, 400, "SerializationException"),
        ("ListClusters", b"[]", {}, 400, "SerializationException"),
        ("ListClusters", b'"\xff"', {}, 400, "SerializationException"),
        ("ListClusters", b'{"nextToken": "\\ud800"}', {}, 400, None),
        ("ListClusters", b'{"maxResults": "many"}', {}, 400, "SerializationException"),
        ("RunTask", b'{"unknown": ' + b"[" * 100_000, {}, 400, "SerializationException"),
        ("RunTask", b"{}", {}, 400, "InvalidParameterException"),
        ("DescribeTasks", b'{"cluster": "nowhere", "tasks": ["x"]}', {}, 400, "ClusterNotFoundException"),
    ],
)
async def test_what_is_wrong_is_said(ask, caplog, operation, body, options, status, code):
    found, answer, _ = await ask(operation, body, **options)

    assert found == status
    assert answer["message"]
    assert code is None or answer["__type"] == code
    assert "Traceback" not in caplog.text


async def test_an_operation_that_is_not_served_says_so_by_name(ask):
    missing = sorted(set(ecs.OPERATIONS) - set(dispatch.OPERATIONS))
    for name in missing[:3]:
        _, answer, _ = await ask(name)
        assert answer["__type"] == "UnsupportedFeatureException"
        assert name in answer["message"]


async def test_a_store_that_cannot_write_is_the_servers_fault_and_no_traceback(ask, world, caplog):
    async def failing(*_):
        raise StoreError("cannot write: the disk is full")

    world.store.txn = failing
    status, answer, request_id = await ask("CreateCluster", b'{"clusterName": "a"}')

    assert (status, answer["__type"]) == (503, "ServerException")
    assert "disk" not in answer["message"]
    (record,) = [one for one in caplog.records if one.levelno >= logging.ERROR]
    assert (record.request_id, record.exc_info) == (request_id, None)


async def test_a_fault_of_ours_names_only_the_line_of_the_log(ask, caplog, monkeypatch):
    async def failing(*_):
        raise KeyError("inner")

    monkeypatch.setitem(dispatch.OPERATIONS, "ListClusters", failing)
    status, answer, request_id = await ask("ListClusters")

    assert (status, answer["__type"]) == (500, "InternalFailure")
    assert request_id in answer["message"]
    assert "inner" not in answer["message"]
    assert [one.request_id for one in caplog.records if one.exc_info] == [request_id]
